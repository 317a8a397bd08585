"""What a run's numbers say about whether to believe them: resolution, Mach number, pores, drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.printable_text import below
from slipstream.report.plane_gather import FieldPlane

# The columns that are looked at.
CHECKED = ("kmax_eta", "mach", "mass", "hamiltonian", "budget_residual")
# Of the largest wavenumber times the Kolmogorov length: for gradients, and for energies.
_RESOLVES_GRADIENTS, _RESOLVES = 1.5, 1.0
_FASTEST = 0.1
_MOST_DRIFT = {"mass": 1e-3, "hamiltonian": 1e-2}
_MOST_RESIDUAL = 0.05
_NARROW = 2
_MOST_NARROW = 0.2


@dataclass(frozen=True)
class Check:
    """A figure, what it means, and whether it is a reason for doubt."""

    name: str
    value: str
    remark: str
    is_warning: bool = False


def run_checks(
    series: Mapping[str, np.ndarray], planes: Sequence[FieldPlane], case: Mapping[str, Any]
) -> list[Check]:
    """Return what the series, the planes that are drawn and the case's tables show."""
    found = []
    time = series.get("time", np.zeros(0))
    columns = {name: values[np.isfinite(values)] for name, values in series.items()}
    resolution = series.get("kmax_eta", np.zeros(0))
    known = np.isfinite(resolution) & (resolution > 0)
    if known.any():
        least = float(resolution[known].min())
        when = float(time[known][np.argmin(resolution[known])])
        remark = f"smallest, at t = {when:.4g}; "
        if least < _RESOLVES:
            remark += "below 1 the smallest eddies are not resolved: use more grid.points"
        elif least < _RESOLVES_GRADIENTS:
            remark += "above 1 energies are resolved, but gradients need 1.5"
        else:
            remark += "above 1.5 gradients are resolved too"
        is_low = least < _RESOLVES_GRADIENTS
        found.append(
            Check(
                "resolution, kmax_eta",
                below(least, 1) if 0.99 < least < 1 else f"{least:.2f}",
                remark,
                is_low,
            )
        )
    # Without inertia the equations are linear, and no speed is too large.
    if len(columns.get("mach", ())) and case.get("flow", {}).get("inertia", False):
        fastest = float(columns["mach"].max())
        remark = "largest; beyond 0.1 compressibility matters: a smaller force"
        found.append(Check("Mach number", f"{fastest:.2g}", remark, fastest > _FASTEST))
    for name, most in _MOST_DRIFT.items():
        values = columns.get(name, np.zeros(0))
        if len(values) > 1 and values[0]:
            drift = float(np.abs(values / values[0] - 1).max())
            remark = "relative, largest since the start; it should be conserved"
            found.append(Check(f"drift of {name}", f"{drift:.1e}", remark, drift > most))
    # The first differences are those of an initial state that adjusts.
    residual = np.abs(series.get("budget_residual", np.zeros(0))[3:])
    residual = residual[np.isfinite(residual)]
    if len(residual):
        largest = float(residual.max())
        remark = "largest, of the dissipation; larger between rows that are far apart in time"
        found.append(Check("energy budget", f"{largest:.1e}", remark, largest > _MOST_RESIDUAL))
    return found + [check for plane in planes if (check := _narrow_pores(plane))]


def _narrow_pores(plane: FieldPlane) -> Check | None:
    """Return which part of the pores in a plane is too narrow for a profile of velocity."""
    pores = ~np.ma.getmaskarray(plane.values)
    if pores.all() or not pores.any():
        return None
    narrow = np.zeros_like(pores)
    for axis in range(2):
        along = np.moveaxis(pores, axis, -1)
        found = np.zeros_like(along)
        for row, out in zip(along, found, strict=True):
            edges = np.flatnonzero(np.diff(np.r_[False, row, False]))
            for start, end in edges.reshape(-1, 2):
                # At the faces of the image a pore may go on.
                if end - start <= _NARROW and start > 0 and end < len(row):
                    out[start:end] = True
        narrow |= np.moveaxis(found, -1, axis)
    share = float(narrow.sum() / pores.sum())
    remark = "of those in the plane drawn: one or two voxels wide, where a finer image changes k"
    return Check("narrow pores", f"{share:.0%}", remark, share > _MOST_NARROW)
