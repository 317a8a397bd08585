"""Machines as a few rates, read from TOML files.

Slipstream ships some, in the folder ``machines`` of the repository, which wheels take into the
package. Each file names its sources.
"""

from __future__ import annotations

import functools
import math
import os
import tomllib
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError, model_validator

import slipstream
from slipstream.accepted import MACHINES
from slipstream.case.table import Positive, Table, as_tuple
from slipstream.case.toml_errors import explain_toml
from slipstream.case.validation_messages import explain, nearest
from slipstream.errors import InputError
from slipstream.printable_text import shown

_PACKAGE = Path(slipstream.__file__).parent
_Rates = Annotated[tuple[Positive, ...], BeforeValidator(as_tuple), Field(min_length=1)]


class Processor(Table):
    """``[device]``: one GPU, or one rank's share of a node's cores.

    Attributes
    ----------
    name : str
        What it is.
    memory_gib : float
        Its memory.
    copy_gb_per_s : float
        Bytes that a copy in its memory reads and writes together, per second.
    share_of_bound : float
        Which share of that the passes of a step reach.
    """

    name: str
    memory_gib: Positive
    copy_gb_per_s: Positive
    share_of_bound: Annotated[float, Field(gt=0, le=1)] = 0.75


class Bus(Table):
    """``[bus]``: between the host's memory and its devices.

    Attributes
    ----------
    device_gb_per_s : float
        Of one device, each way while the other is busy too.
    node_gb_per_s : float
        Of all devices of a node at once, both ways added: what the host's memory allows.
    """

    device_gb_per_s: Positive
    node_gb_per_s: Positive


class Node(Table):
    """``[node]``: the host of some devices, and what is between these.

    Attributes
    ----------
    memory_gib : float
        Memory of the host.
    gb_per_s : float
        What each device sends to the others of its node while all do.
    """

    memory_gib: Positive
    gb_per_s: Positive


class Network(Table):
    """``[network]``: between nodes.

    Attributes
    ----------
    latency_us : float
        Microseconds until a message arrives, however short.
    message_bytes, node_gb_per_s : tuple of float
        What a node sends while all exchange with all, by the size of a message; straight lines of
        logarithms in between, and beyond the smallest message.
    """

    latency_us: Annotated[float, Field(ge=0)]
    message_bytes: _Rates
    node_gb_per_s: _Rates

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        sizes = self.message_bytes
        if len(sizes) != len(self.node_gb_per_s) or list(sizes) != sorted(set(sizes)):
            raise ValueError(
                "message_bytes must grow, with a rate of node_gb_per_s for each of them"
            )
        return self

    def rate(self, message: float) -> float:
        """Return the bytes per second that a node sends in messages of so many bytes."""
        sizes, rates = np.log(self.message_bytes), np.log(self.node_gb_per_s)
        size = math.log(max(message, 1.0))
        if size < sizes[0] and len(sizes) > 1:
            slope = (rates[1] - rates[0]) / (sizes[1] - sizes[0])
            return 1e9 * math.exp(rates[0] + slope * (size - sizes[0]))
        return 1e9 * math.exp(float(np.interp(size, sizes, rates)))


class Machine(Table):
    """A machine: nodes of several devices.

    Attributes
    ----------
    title : str
        What it is.
    sources : tuple of str
        Where the figures come from.
    devices_per_node : int
        Number of devices, and thus of ranks, of a node.
    device, bus, node, network
        Rates: see `Processor`, `Bus`, `Node` and `Network`, which a single node has none of.
    """

    title: str
    sources: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    devices_per_node: Annotated[int, Field(ge=1)]
    device: Processor
    bus: Bus
    node: Node
    network: Network | None = None


@functools.cache
def _folder() -> Path:
    inside = _PACKAGE / "machines"
    return inside if inside.is_dir() else _PACKAGE.parents[1] / "machines"


def load_machine(name: str | Path) -> Machine:
    """Read the description of a machine.

    Parameters
    ----------
    name : str or pathlib.Path
        A TOML file, or one of `slipstream.accepted.MACHINES`.

    Raises
    ------
    InputError
        If there is none, or a key or value is not accepted.
    """
    path = Path(name)
    if str(name) in MACHINES and not os.path.isfile(path):
        path = _folder() / f"{name}.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        guess = nearest(str(name), [*MACHINES])
        raise InputError(
            f"{shown(str(name))} is no file and no shipped machine{guess or ';'} accepted:"
            f" FILE.toml, {', '.join(MACHINES)}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise InputError(f"{path}: cannot be read as a machine: {reason}") from None
    try:
        return Machine.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {explain_toml(text, error)}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain(Machine, error)[1]}") from None
