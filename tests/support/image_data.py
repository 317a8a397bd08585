"""Reading VTK's image data by its definition, for tests."""

import xml.etree.ElementTree as ElementTree

import numpy as np

TYPES = {"Float32": "<f4", "Float64": "<f8", "UInt8": "u1"}


def read_image_data(path):
    """Return the head, and arrays [z, y, x, component] by name."""
    content = path.read_bytes()
    start = content.index(b"_", content.index(b'<AppendedData encoding="raw">')) + 1
    tree = ElementTree.fromstring(content[:start].decode() + "</AppendedData></VTKFile>")
    image = tree.find("ImageData")
    ends = [int(one) for one in image.get("WholeExtent").split()][1::2]
    cells = tree.find("ImageData/Piece/CellData")
    shape = [end + (cells is None) for end in reversed(ends)]
    found = {}
    for element in tree.iter("DataArray"):
        place = start + int(element.get("offset"))
        size = int(np.frombuffer(content, "<u8", 1, place)[0])
        dtype = np.dtype(TYPES[element.get("type")])
        values = np.frombuffer(content, dtype, size // dtype.itemsize, place + 8)
        found[element.get("Name")] = values.reshape(*shape, int(element.get("NumberOfComponents")))
    return {**image.attrib, "cells": cells is not None}, found
