"""The look of the site's pictures: one colour for a thing in all of them, labels at lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
BLUE, ORANGE, GREEN, RED, GREY = "#2f6fb0", "#d9822b", "#3a9a5b", "#b8443e", "#8a8f98"
# The same colour for a transport, a family or a library wherever it is drawn.
COLOURS = {
    "peer": BLUE,
    "nccl": ORANGE,
    "mpi": GREEN,
    "turbulence": BLUE,
    "transforms": ORANGE,
    "rock": GREEN,
    "advection": RED,
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
