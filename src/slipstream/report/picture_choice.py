"""What is drawn of a run: a solver family chooses, `run_pictures` draws."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

# Each a time, and wavenumbers and values by name.
Spectra = Sequence[tuple[float, Mapping[str, tuple[np.ndarray, np.ndarray]]]]

_SPECTRA_SHOWN = 6


@dataclass(frozen=True)
class PlaneChoice:
    """A field of which a plane is drawn."""

    # The field (dimensions z, y and x), and the file of its picture.
    field: str
    file: str
    # What distinguishes the plane: where the mean square is largest, unless `is_central`.
    remark: str = ""
    # Quantile of the values that has the last colour; 1 is the largest value.
    brightest: float = 1.0
    # Fields of which `field` is the magnitude; empty if it is a field itself.
    components: tuple[str, ...] = ()
    # A field that is 0 where there is nothing to draw, if any.
    mask: str = ""
    # Dimension that the plane is normal to; empty for that of a single point, or the first.
    normal: str = ""
    is_central: bool = False

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the fields of which planes are needed."""
        return (*(self.components or (self.field,)), *((self.mask,) if self.mask else ()))


@dataclass(frozen=True)
class PictureChoice:
    """What is drawn of the runs of a solver family."""

    # Diagnostics to draw against time: those of a panel together, panels one above the other.
    curves: tuple[tuple[str, ...], ...] = ()
    curves_file: str = "series.png"
    planes: tuple[PlaneChoice, ...] = ()
    # The spectrum of which several times are drawn, and those of which the last is.
    spectra: tuple[str, ...] = ("energy_spectrum",)
    # The largest wavenumber of which all modes are kept: shells beyond it are not whole. 0 if there
    # is none.
    cutoff: float = 0.0
    # Whether spectra may have an inertial range, which a line of slope -5/3 is a guide to.
    may_have_inertial_range: bool = False
    # The diagnostic whose peak is marked, if any.
    peak: str = ""
    # Mathematical text for names whose long names are too long, and units other than 1.
    short_labels: Mapping[str, str] = attribute(default_factory=dict)
    units: Mapping[str, str] = attribute(default_factory=dict)
    # The same of panels with several curves, by the first of them.
    group_labels: Mapping[str, str] = attribute(default_factory=dict)
    # What tells curves of a panel, and spectra, apart.
    legend: Mapping[str, str] = attribute(default_factory=dict)
    time_label: str = "time $t$ (non-dimensional)"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all diagnostics that are drawn."""
        return tuple(name for panel in self.curves for name in panel)

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the fields of which planes are needed, each once."""
        return tuple(dict.fromkeys(name for plane in self.planes for name in plane.needed))


_CHOICES: TypeAdapter[PictureChoice] = TypeAdapter(PictureChoice)


def recorded_choice(said: Mapping[str, Any]) -> PictureChoice | None:
    """Return the choice that a record of a run has, made by `dataclasses.asdict`, if it has one."""
    try:
        return _CHOICES.validate_python(said) if said else None
    except ValidationError:
        return None


def choice_by_names(columns: Iterable[str], fields: Sequence[str]) -> PictureChoice:
    """Return what is drawn of a run that has no record, by its columns and fields."""
    energies = ("energy", "dissipation", "injection", "error_max", "error_rms")
    own = [name for name in columns if name not in ("step", "time", "step_size")]
    known = [name for name in own if name in energies or name.startswith("permeability")]
    curls = [f"{name}_{end}" for name in ("vorticity", "current_density") for end in "xyz"]
    likely = [*curls, "vorticity_magnitude", "current_density_magnitude", "tracer"]
    drawn = [name for name in likely if name in fields]
    drawn += [name for name in fields if name.endswith("_density") and name not in drawn]
    if {"velocity_x", "velocity_y", "velocity_z", "pore"} <= set(fields):
        parts = ("velocity_x", "velocity_y", "velocity_z")
        speed = PlaneChoice("speed", "speed.png", "the middle", components=parts, mask="pore")
        planes = [replace(speed, is_central=True)]
    else:
        planes = [PlaneChoice(name, f"{name}.png") for name in (drawn or list(fields))[:1]]
    return PictureChoice(curves=tuple((name,) for name in (known or own)[:3]), planes=tuple(planes))


def shown_spectra(spectra: Spectra) -> Spectra:
    """Return those spectra that pictures show: the last and some earlier ones."""
    spread = np.linspace(0, len(spectra) - 1, min(len(spectra), _SPECTRA_SHOWN))
    return [spectra[i] for i in sorted({round(i) for i in spread})]
