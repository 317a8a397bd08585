"""Settings of the documentation site: `make docs` builds it into build/docs."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs" / "_ext"), str(ROOT / "src")]

import slipstream  # noqa: E402

project = "Slipstream"
author = "The Slipstream founders"
copyright = "2026, The Slipstream founders"
version = release = slipstream.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "generated_pages",
    "key_tables",
]
exclude_patterns = ["figures", "_ext", "_static", "generated/*_table.md", "generated/*.ipynb"]
nitpicky = True
# Types without a page.
nitpick_ignore_regex = [("py:.*", ".*")]
# Docstrings name attributes that several classes have.
suppress_warnings = ["config.cache", "ref.python"]
default_role = "code"

myst_enable_extensions = ["colon_fence", "dollarmath", "attrs_block"]
myst_heading_anchors = 4
highlight_language = "none"
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
autodoc_default_options = {"members": True, "inherited-members": True}
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"Slipstream {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs" / "_static" / "scorer.js")
html_copy_source = False
html_show_sourcelink = False
# No font, script or style comes from a network: the site reads from disk.
html_theme_options = {"navigation_with_keys": True}
copybutton_selector = "div.highlight-python pre, div.highlight-bash pre, div.highlight-none pre"
copybutton_exclude = ".linenos, .gp, .go"


def keep_colons(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Keep napoleon from reading "Kinematic viscosity: one over ..." as a type and a text."""
    if what == "attribute" and lines:
        lines[0] = lines[0].replace(":", "\N{RATIO}", 1)


def restore_colons(
    app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Give an attribute's text its colon back, once napoleon has read it."""
    if what == "attribute":
        lines[:] = [line.replace("\N{RATIO}", ":") for line in lines]


def setup(app: Any) -> None:
    """Add both, around napoleon's own."""
    app.connect("autodoc-process-docstring", keep_colons, priority=100)
    app.connect("autodoc-process-docstring", restore_colons, priority=900)
