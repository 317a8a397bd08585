"""Simulations from cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import slipstream
from slipstream.argument_checks import path_of
from slipstream.array_types import Comm
from slipstream.case import Case, load_case
from slipstream.collective import together
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.interactive.interactive_simulation import InteractiveSimulation, communicator_of

# Names of `slipstream`, which imports a family when it is asked for.
_CLASSES = {"spectral": "Flow", "lattice": "PorousFlow", "advection": "Advection"}


def load(
    case: str | Path | Case,
    settings: Iterable[str] | Mapping[str, Any] = (),
    *,
    device: str | Device = "auto",
    comm: Comm | Literal["world"] = "world",
) -> InteractiveSimulation:
    """Return the simulation of a case. Collective.

    >>> sim = load("cases/taylor-green.toml", {"grid.points": 32})

    Parameters
    ----------
    case : str, pathlib.Path or Case
        A TOML file, or what `slipstream.case.make_case` returns.
    settings : mapping or iterable of str
        Keys to change from the file: ``{"grid.points": 64}`` or ``"grid.points=64"``. None, or
        ``"run.memory="``, unsets a key.
    device, comm
        See `slipstream.Flow`.

    Returns
    -------
    Flow, PorousFlow or Advection
        According to the case's ``solver``.

    Raises
    ------
    InputError
        If the case cannot be read, or a key or value is not accepted.
    """
    given, comm = case, communicator_of(comm, "load")
    with together(comm):
        case = (
            given
            if isinstance(given, Case)
            else load_case(path_of("case", given), overrides_of(settings))
        )
        made: InteractiveSimulation = object.__new__(getattr(slipstream, _CLASSES[case.solver]))
        InteractiveSimulation.__init__(made, case, comm, device)
    return made


def overrides_of(settings: Iterable[str] | Mapping[str, Any]) -> list[str]:
    """Return settings in the form of the command line: ``key=value``, or ``key=`` for None."""
    if isinstance(settings, Mapping):
        from slipstream.case.toml_text import toml_value

        return [
            f"{key}={'' if value is None else toml_value(value)}" for key, value in settings.items()
        ]
    given = [settings] if isinstance(settings, str) else settings
    if not isinstance(given, Iterable) or not all(isinstance(one, str) for one in given):
        raise InputError(
            f"settings are {settings!r}; accepted: a dict of keys and values, or texts such as"
            " 'grid.points=64'"
        )
    return list(given)
