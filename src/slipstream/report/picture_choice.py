"""What is drawn of a run where its solver is not asked: by its record, or by names of fields."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from slipstream.simulation.solver_values import PictureChoice, PlaneChoice, Spectra

_SPECTRA_SHOWN = 6


_CHOICES: TypeAdapter[PictureChoice] = TypeAdapter(PictureChoice)


def recorded_choice(said: Mapping[str, Any]) -> PictureChoice | None:
    """Return the choice that a record of a run has, made by `dataclasses.asdict`, if it has one."""
    try:
        return _CHOICES.validate_python(said) if said else None
    except ValidationError:
        return None


def choice_by_names(columns: Iterable[str], fields: Sequence[str]) -> PictureChoice:
    """Return the pictures of a run that has no record, by its columns and fields."""
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
