"""Figures as SVG within a page: without what frames a file, and with names of their own."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from slipstream.report.page_style import escaped

# Of fields, which are pixels: enough for a page that is as wide as a screen.
_DOTS_PER_INCH = 80
# Inches, of a title in one line.
_TITLE_HEIGHT = 0.3
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "slipstream",
    "figure.constrained_layout.use": False,
}
_HEAD = re.compile(r"<svg [^>]*?viewBox=\"([-0-9. ]+)\"[^>]*>")


def svg_of(figure: Figure, name: str) -> str:
    """Return a figure, which has been laid out, without its title, which the page has.

    `name` tells it from the others of a page, and to those who do not see it.
    """
    content = io.BytesIO()
    with matplotlib.rc_context(_SETTINGS):
        # Panels stay where they are, although Matplotlib would lay out anew without the title.
        figure.set_layout_engine(None)
        figure.savefig(
            content,
            format="svg",
            dpi=_DOTS_PER_INCH,
            facecolor="white",
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
            bbox_inches=_below_title(figure),
        )
    text = content.getvalue().decode()
    head = _HEAD.search(text)
    if head is None:  # pragma: no cover
        return ""
    body = text[head.end() :]
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", body, flags=re.DOTALL)
    # Names of several figures on one page must not be mixed up.
    body = re.sub(r"\bid=\"", rf'id="{name}-', body)
    body = re.sub(r"(href=\"#|url\(#)", rf"\g<1>{name}-", body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    label = escaped(name.replace("_", " "))
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        f' viewBox="{head.group(1)}" role="img" aria-label="{label}">{body.strip()}'
    )


def _below_title(figure: Figure) -> Bbox | None:
    """Return what is left of a figure without its title, which is hidden."""
    heading = figure._suptitle  # type: ignore[attr-defined]
    if heading is None:
        return None
    heading.set_visible(False)
    width, height = figure.get_size_inches()
    return Bbox([[0, 0], [width, height - _TITLE_HEIGHT]])
