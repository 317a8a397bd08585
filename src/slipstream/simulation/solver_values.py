"""What a solver gives to those who print, draw and store: numbers and names, without wording.

`slipstream.report` makes text and pictures of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Each a time, and wavenumbers and values by name.
Spectra = Sequence[tuple[float, Mapping[str, tuple[np.ndarray, np.ndarray]]]]

# What kmax_eta below 1 means, in all messages.
UNRESOLVED = "the smallest eddies are not resolved"


class Fact:
    """A number, several, or a word that a solver gives, by a name that `report` has words for.

    `unit` is empty for numbers without one. Related facts have names: ``fact.get("time")``.
    """

    def __init__(self, value: Any, unit: str = "", **more: Any) -> None:
        self.value, self.unit, self.more = value, unit, more

    def get(self, name: str) -> Any:
        """Return what belongs to it by a name, or None."""
        return self.more.get(name)

    def __repr__(self) -> str:
        more = "".join(f", {name}={value!r}" for name, value in self.more.items())
        return f"Fact({self.value!r}, {self.unit!r}{more})"


@dataclass(frozen=True)
class PlaneChoice:
    """A field, one plane of which is drawn."""

    # The field (dimensions z, y and x), and the file of its picture.
    field: str
    file: str
    # What distinguishes the plane: where the mean square is largest, unless `is_central`.
    remark: str = ""
    # Quantile of the values that has the last colour; 1 is the largest value.
    brightest: float = 1.0
    # The components if `field` is the magnitude of a vector; empty if it is a field itself.
    components: tuple[str, ...] = ()
    # A field that is 0 where there is nothing to draw, if any.
    mask: str = ""
    # Dimension that the plane is normal to; empty for that of a single point, or the first.
    normal: str = ""
    is_central: bool = False

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the fields whose planes are needed."""
        return (*(self.components or (self.field,)), *((self.mask,) if self.mask else ()))


@dataclass(frozen=True)
class PictureChoice:
    """What is drawn of the runs of a solver family."""

    # Diagnostics to draw against time: those of a panel together, panels one above the other.
    curves: tuple[tuple[str, ...], ...] = ()
    curves_file: str = "series.png"
    planes: tuple[PlaneChoice, ...] = ()
    # The spectrum that is drawn at several times, then the spectra of the last time.
    spectra: tuple[str, ...] = ("energy_spectrum",)
    # The largest wavenumber up to which all modes are kept: shells beyond it are not whole. 0 if
    # there is none.
    cutoff: float = 0.0
    # Whether spectra may have an inertial range, which a line of slope -5/3 is a guide to.
    may_have_inertial_range: bool = False
    # The diagnostic whose peak is marked, if any.
    peak: str = ""
    # Mathematical text for names whose long names are too long, and units other than 1.
    short_labels: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    # The same of panels with several curves, by the first of them.
    group_labels: Mapping[str, str] = field(default_factory=dict)
    # What tells curves of a panel, and spectra, apart.
    legend: Mapping[str, str] = field(default_factory=dict)
    time_label: str = "time $t$"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all diagnostics that are drawn."""
        return tuple(name for panel in self.curves for name in panel)

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the fields whose planes are needed, each once."""
        return tuple(dict.fromkeys(name for plane in self.planes for name in plane.needed))


@dataclass
class PilotFindings:
    """What a family expects of a run before it begins, beyond what it costs.

    Attributes
    ----------
    steps : float or None
        Expected number of steps; None where nothing better is known than the size of the first.
    source : str
        By what the number of steps is known, for people.
    facts : dict of str to Fact
        What else is expected.
    warnings : list of str
        What will be wrong.
    """

    steps: float | None = None
    source: str = ""
    facts: dict[str, Fact] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
