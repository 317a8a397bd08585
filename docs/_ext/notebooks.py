"""Notebooks made of pages: text becomes cells of Markdown, blocks of Python cells of code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

# The tutorials that are offered as notebooks.
TUTORIALS = ("first_turbulence", "forced_turbulence", "permeability")


def notebook(page: Path) -> dict[str, Any]:
    """Return a page as a notebook, without outputs; commands of a shell stay readable text."""
    cells = []
    for part in re.split(r"^(```python\n.*?^```)$", page.read_text(), flags=re.M | re.S):
        code = re.fullmatch(r"```python\n(.*)^```", part, flags=re.M | re.S)
        # Links lead to files of the repository, which are not where a notebook is.
        text = code[1] if code else re.sub(r"\[([^\]]*)\]\((?!http)[^)]*\)", r"\1", part)
        if text.strip():
            cells.append(cell("code" if code else "markdown", text.strip("\n"), len(cells)))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def cell(kind: str, text: str, number: int) -> dict[str, Any]:
    """Return one cell."""
    made = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text}
    return {**made, "execution_count": None, "outputs": []} if kind == "code" else made


def write_notebooks(docs: Path, folder: Path) -> None:
    """Write the notebooks of all tutorials that have one."""
    for name in TUTORIALS:
        made = notebook(docs / "tutorials" / f"{name}.md")
        (folder / f"{name}.ipynb").write_text(json.dumps(made, indent=1), encoding="utf-8")
