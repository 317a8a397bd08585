"""VTK's image data against its definition: head and values are read here by hand."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from slipstream.files.array_files import ImageDataFile

SHAPE = (5, 3, 4)
TYPES = {"Float32": "<f4", "Float64": "<f8", "UInt8": "u1"}


def arrays():
    generator = np.random.default_rng(0)
    return {
        "velocity": generator.standard_normal((*SHAPE, 3)).astype(np.float32),
        "density": generator.standard_normal(SHAPE),
        "pore & more": generator.integers(0, 2, SHAPE, np.uint8),
    }


def write(path, values, planes=2):
    kinds = {
        name: (array.dtype, array.shape[3] if array.ndim > 3 else 1)
        for name, array in values.items()
    }
    with ImageDataFile(path, SHAPE, 2e-6, kinds) as file:
        # Any order of pieces will do.
        for low in reversed(range(0, SHAPE[0], planes)):
            for name, array in values.items():
                file.write(name, low, array[low : low + planes])


def read(path):
    """Return the head, and the values at the places that it tells."""
    content = path.read_bytes()
    marker = content.index(b'<AppendedData encoding="raw">')
    start = content.index(b"_", marker) + 1
    head = ElementTree.fromstring(content[:start].decode() + "</AppendedData></VTKFile>")
    results, end = {}, start
    for element in head.iter("DataArray"):
        assert element.get("format") == "appended"
        dtype, begin = np.dtype(TYPES[element.get("type")]), start + int(element.get("offset"))
        size = int(np.frombuffer(content, "<u8", 1, begin)[0])
        values = np.frombuffer(content, dtype, size // dtype.itemsize, begin + 8)
        components = int(element.get("NumberOfComponents"))
        results[element.get("Name")] = values.reshape(*SHAPE, components)
        assert begin >= end or element.get("offset") == "0"
        end = begin + 8 + size
    assert content[end:].split() == [b"</AppendedData>", b"</VTKFile>"]
    return head, results


@pytest.mark.parametrize("planes", [1, 2, 5])
def test_values_are_where_the_head_says(tmp_path, planes):
    path, values = tmp_path / "flow.vti", arrays()
    write(path, values, planes)
    head, actual = read(path)
    assert head.attrib == {
        "type": "ImageData",
        "version": "1.0",
        "byte_order": "LittleEndian",
        "header_type": "UInt64",
    }
    image = head.find("ImageData")
    # Cells: one point more than voxels along x, y and z.
    assert image.get("WholeExtent") == "0 4 0 3 0 5"
    assert image.find("Piece").get("Extent") == image.get("WholeExtent")
    assert [float(n) for n in image.get("Spacing").split()] == [2e-6] * 3
    assert [float(n) for n in image.get("Origin").split()] == [0] * 3
    assert list(actual) == list(values)
    for name, expected in values.items():
        np.testing.assert_array_equal(actual[name], expected.reshape(*SHAPE, -1))


def test_values_are_converted_to_the_type_of_the_file(tmp_path):
    values = np.arange(60.0).reshape(SHAPE).transpose(0, 1, 2).astype(">f8")
    with ImageDataFile(tmp_path / "a.vti", SHAPE, 1, {"density": ("f4", 1)}) as file:
        file.write("density", 0, values)
    _, found = read(tmp_path / "a.vti")
    np.testing.assert_array_equal(found["density"][..., 0], values)


@pytest.mark.parametrize(
    ("plane", "shape"), [(4, (2, 3, 4)), (-1, (1, 3, 4)), (0, (1, 4, 3)), (0, (1, 3, 4, 3))]
)
def test_planes_that_are_none_are_refused(tmp_path, plane, shape):
    with (
        ImageDataFile(tmp_path / "a.vti", SHAPE, 1, {"density": ("f4", 1)}) as file,
        pytest.raises(ValueError, match=r"density: planes .* accepted: up to 5, of shape \(3, 4\)"),
    ):
        file.write("density", plane, np.zeros(shape))


def test_types_that_vtk_has_not_are_refused(tmp_path):
    with pytest.raises(ValueError, match="complex128; accepted: float32"):
        ImageDataFile(tmp_path / "a.vti", SHAPE, 1, {"wave": ("c16", 1)})
