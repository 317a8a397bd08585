"""Pictures at which nobody looks: fewer dots, not laid out, are drawn in a third of the time."""

import contextlib
import unittest.mock


@contextlib.contextmanager
def quick_pictures():
    """Draw pictures quickly; to load Matplotlib is left to those who draw."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from slipstream.show.figure_style import STYLE

    with (
        unittest.mock.patch.object(ConstrainedLayoutEngine, "execute"),
        unittest.mock.patch.dict(STYLE, {"figure.dpi": 50, "savefig.dpi": 50}),
    ):
        yield
