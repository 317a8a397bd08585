"""The look of the site's pictures: one colour for a thing in all of them, labels at lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from slipstream.show.figure_style import COLOURS as COLOURS_IN_ORDER  # noqa: E402
from slipstream.show.figure_style import GREY  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
# Those of the pictures that runs and benchmarks draw.
BLUE, ORANGE, GREEN, PINK, *_ = COLOURS_IN_ORDER
ROCK_COLOUR = "#d8cdbb"
# Inches: the width of the text of a journal's page.
PAPER = 6.5
# The same colour for a family or a library wherever it is drawn.
COLOURS = {
    "turbulence": BLUE,
    "transforms": ORANGE,
    "rock": GREEN,
    "advection": PINK,
    "library": GREY,
}

plt.rcParams.update(
    {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "figure.constrained_layout.use": True,
        "savefig.dpi": 160,
    }
)


def record(name: str) -> dict[str, Any]:
    """Return a record of `bench/results`."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def source(*names: str) -> str:
    """Return where figures come from: the device, and commit, date and file of each record."""
    records = [record(name) for name in names]
    devices = " and ".join(dict.fromkeys(one["device"] for one in records))
    each = "; ".join(
        f"`bench/results/{name}.json`, commit {one['commit'][:7]}, {one['date'][:10]}"
        for name, one in zip(names, records, strict=True)
    )
    return f"{devices}. Records: {each}."


def time_text(seconds: float) -> str:
    """Return a time with three digits and its unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
