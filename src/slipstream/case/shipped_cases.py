"""The cases that come with Slipstream, and how a case is found by its name.

They are TOML files: in the folder ``cases`` of the repository, which wheels take into the package.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from slipstream.argument_checks import nearest
from slipstream.errors import InputError
from slipstream.printable_text import shown
from slipstream.shipped_files import shipped_folder


@dataclass(frozen=True)
class ShippedCase:
    """What is told of a case that comes with Slipstream.

    Attributes
    ----------
    what : str
        What happens in it.
    duration : str
        How long it takes on two cores, about: its steps times that of one, measured.
    """

    what: str
    duration: str


SHIPPED_CASES: dict[str, ShippedCase] = {
    "taylor-green": ShippedCase("large vortices stretch and break down into turbulence", "2 min"),
    "forced": ShippedCase("turbulence that random forces keep going", "3 min"),
    "stratified": ShippedCase("vortices that buoyancy flattens into layers", "1 min"),
    "orszag-tang": ShippedCase("sheets of current in a plane of magnetised fluid", "1 min"),
    "quantum-vortices": ShippedCase("vortex lines of a superfluid that reconnect", "30 s"),
    "sandstone": ShippedCase("flow through a synthetic sandstone, its permeability", "30 s"),
    "advection": ShippedCase(
        "a Gaussian carried once through the box, the exact solution known", "20 s"
    ),
}


def case_file(name: str | Path) -> Path:
    """Return the file of a case: one of the user's, or a shipped one by its name.

    Parameters
    ----------
    name : str or pathlib.Path
        A TOML file, or a name of `SHIPPED_CASES`.

    Raises
    ------
    InputError
        If there is neither; or both a shipped case and another ``NAME.toml`` may be meant.
    """
    path = Path(name)
    if path.suffix == ".toml" or os.path.isfile(path):
        return path
    own, shipped = Path(f"{path}.toml"), shipped_folder("cases") / f"{path}.toml"
    if str(path) in SHIPPED_CASES:
        if os.path.isfile(own) and own.read_bytes() != shipped.read_bytes():
            raise InputError(
                f"{path} is a shipped case, and {own}, which differs from it, is here too: give"
                f" {own} to run yours, or rename it"
            )
        return shipped
    if os.path.exists(path):
        return path
    accepted = [*SHIPPED_CASES, str(own)] if os.path.isfile(own) else [*SHIPPED_CASES]
    guess = nearest(str(path), accepted)
    raise InputError(
        f"{shown(str(name))} is no file and no shipped case{guess or ';'} accepted: FILE.toml,"
        f" {', '.join(SHIPPED_CASES)}"
    )
