"""Machines as a few rates, read from TOML files.

Slipstream ships some, in the folder ``machines`` of the repository, which wheels take into the
package. Each file names its sources.
"""

from __future__ import annotations

import math
import os
import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from slipstream.case.case_loading import explain, shipped_folder
from slipstream.case.table import Positive, Table, as_tuple
from slipstream.case.toml_text import explain_toml
from slipstream.engine.accepted import MACHINES
from slipstream.engine.errors import InputError, nearest
from slipstream.engine.text import shown

Family = Literal["spectral", "transform", "lattice", "advection"]
# The keys of `Processor` for each family: the share of a copy's rate, the rate in cache, the start.
RATE_KEYS: dict[Family, tuple[str, str, str]] = {
    "spectral": ("share_of_bound", "spectral_cached_gb_per_s", "step_us"),
    "transform": ("transform_share", "transform_cached_gb_per_s", "transform_us"),
    "lattice": ("lattice_share", "lattice_cached_gb_per_s", "step_us"),
    "advection": ("advection_share", "advection_cached_gb_per_s", "step_us"),
}
_Share = Annotated[float, Field(gt=0, le=1)]
_Curve = Annotated[tuple[Positive, ...], BeforeValidator(as_tuple)]
_Rates = Annotated[_Curve, Field(min_length=1)]


def _are_a_curve(sizes: tuple[float, ...], rates: tuple[float, ...]) -> bool:
    return len(sizes) == len(rates) and list(sizes) == sorted(set(sizes))


class Processor(Table):
    """``[device]``: one GPU, or one rank's share of a node's cores.

    Attributes
    ----------
    name : str
        Its name.
    kind : {"gpu", "cpu"}
        Whether it has its own memory or uses the host's.
    memory_gib : float
        Its memory.
    copy_gb_per_s : float
        Bytes that a copy in its memory reads and writes together, per second.
    share_of_bound, transform_share, lattice_share, advection_share : float
        The share of `copy_gb_per_s` that the passes of a step reach if its arrays are much larger
        than caches: of a spectral step, of a transform alone, and of the other families.
    cache_mib, cache_gb_per_s : tuple of float
        The rate of copies of arrays of these sizes; straight lines over the logarithm of the size
        in between, and `copy_gb_per_s` beyond. Empty if unknown.
    spectral_cached_gb_per_s, transform_cached_gb_per_s, lattice_cached_gb_per_s,
    advection_cached_gb_per_s : float or None
        The rate of the passes of a step whose arrays are all in cache, so that arithmetic alone
        takes time. None if unknown: then caches do not count.
    launch_us : float
        Microseconds per operation, one after the other, however little it moves.
    issue_us : float or None
        The same in steps with messages of the host, in which the interpreter starts each operation;
        as `launch_us` if None.
    step_us : float
        Microseconds for the interpreter to start steps.
    transform_us : float or None
        The same for a call of a plan's `forward` or `backward`; as `step_us` if None.
    is_tried : bool
        Whether Slipstream has run on this kind of processor.
    """

    name: str
    kind: Literal["gpu", "cpu"] = "gpu"
    memory_gib: Positive
    copy_gb_per_s: Positive
    share_of_bound: _Share = 0.75
    transform_share: _Share = 0.75
    lattice_share: _Share = 0.85
    advection_share: _Share = 0.85
    cache_mib: _Curve = ()
    cache_gb_per_s: _Curve = ()
    spectral_cached_gb_per_s: Positive | None = None
    transform_cached_gb_per_s: Positive | None = None
    lattice_cached_gb_per_s: Positive | None = None
    advection_cached_gb_per_s: Positive | None = None
    launch_us: Annotated[float, Field(ge=0)] = 2.0
    issue_us: Annotated[float, Field(ge=0)] | None = None
    step_us: Annotated[float, Field(ge=0)] = 0.0
    transform_us: Annotated[float, Field(ge=0)] | None = None
    is_tried: bool = True

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        if not _are_a_curve(self.cache_mib, self.cache_gb_per_s):
            raise ValueError("cache_mib must grow, with a rate of cache_gb_per_s for each of them")
        return self

    def missed(self, working_set: float | None) -> float:
        """Return the share of a step's traffic that comes from beyond the caches, by its arrays.

        It is the share of a copy of such arrays: the time that it takes more than the fastest copy,
        as a share of the time that a large one takes more.
        """
        if not self.cache_mib or working_set is None or working_set >= self.cache_mib[-1] * 2**20:
            return 1.0
        fastest, slowest = 1 / max(self.cache_gb_per_s), 1 / self.copy_gb_per_s
        size = math.log(max(working_set, 1.0) / 2**20)
        taken = float(np.interp(size, np.log(self.cache_mib), np.divide(1, self.cache_gb_per_s)))
        return min(1.0, max(0.0, (taken - fastest) / (slowest - fastest)))

    def pass_seconds(
        self, family: Family, moved: float, working_set: float | None, work: float
    ) -> float:
        """Return the seconds of the passes of a family, by traffic and size of arrays.

        Arithmetic takes its time in any case, and data from beyond the caches adds to it; `work` is
        the traffic if no pass took several steps together.
        """
        beyond = 1 / (1e9 * self.copy_gb_per_s * self.share(family))
        rate = self.cached(family)
        if rate is None:
            return moved * beyond
        return work / rate + self.missed(working_set) * moved * max(0.0, beyond - 1 / rate)

    def start_us(self, family: Family) -> float:
        """Return the microseconds that the interpreter takes to start a step, or a transform."""
        start: float | None = getattr(self, RATE_KEYS[family][2])
        return self.step_us if start is None else start

    def cached(self, family: Family) -> float | None:
        """Return the bytes per second of the passes of a family whose arrays are in cache."""
        rate: float | None = getattr(self, RATE_KEYS[family][1])
        return None if rate is None else 1e9 * rate

    def share(self, family: Family) -> float:
        """Return the share of the bound that the steps of a family reach."""
        share: float = getattr(self, RATE_KEYS[family][0])
        return share


class Bus(Table):
    """``[bus]``: between the host's memory and its devices.

    Attributes
    ----------
    device_gb_per_s : float
        The rate of one device, each way while the other is busy too.
    node_gb_per_s : float
        The rate of all devices of a node together, both ways added: the limit of the host's memory.
    """

    device_gb_per_s: Positive
    node_gb_per_s: Positive


class Node(Table):
    """``[node]``: the host of some devices, and the links between them.

    Attributes
    ----------
    memory_gib : float
        Memory of the host.
    gb_per_s : float
        The rate at which each device sends to the others of its node while all do.
    host_gb_per_s : float
        The rate at which each rank sends to the others of its node by MPI, from the host's memory.
    latency_us : float
        Microseconds that an exchange within the node takes, however little it moves.
    message_us : float
        Microseconds that a rank takes to send a message by MPI, one after the other, however short.
    """

    memory_gib: Positive
    gb_per_s: Positive
    host_gb_per_s: Positive = 5.0
    latency_us: Annotated[float, Field(ge=0)] = 0.0
    message_us: Annotated[float, Field(ge=0)] = 0.5


class Network(Table):
    """``[network]``: between nodes.

    Attributes
    ----------
    latency_us : float
        Microseconds until a message arrives, however short.
    message_us : float
        Microseconds that a rank takes to send a message, one after the other, however short.
    message_bytes, node_gb_per_s : tuple of float
        The rate at which a node sends while all exchange with all, by the size of a message;
        straight lines of logarithms in between, and beyond the smallest message.
    bisection_gb_per_s, bisection_nodes : float and int, or None
        The rate between the two halves of `bisection_nodes` nodes, both ways added, where it is
        less than the nodes could send: in a torus it grows with the number of nodes to the power of
        2/3.
    """

    latency_us: Annotated[float, Field(ge=0)]
    message_us: Annotated[float, Field(ge=0)] = 0.5
    message_bytes: _Rates
    node_gb_per_s: _Rates
    bisection_gb_per_s: Positive | None = None
    bisection_nodes: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _is_a_curve(self) -> Self:
        if not _are_a_curve(self.message_bytes, self.node_gb_per_s):
            raise ValueError(
                "message_bytes must grow, with a rate of node_gb_per_s for each of them"
            )
        if (self.bisection_gb_per_s is None) != (self.bisection_nodes is None):
            raise ValueError("bisection_gb_per_s and bisection_nodes: give both, or none of them")
        return self

    def bisection(self, nodes: int) -> float:
        """Return the bytes per second between the halves of the nodes; infinite if unknown."""
        if self.bisection_gb_per_s is None or self.bisection_nodes is None:
            return math.inf
        return 1e9 * self.bisection_gb_per_s * math.pow(nodes / self.bisection_nodes, 2 / 3)

    def rate(self, message: float) -> float:
        """Return the bytes per second that a node sends in messages of a size."""
        sizes, rates = np.log(self.message_bytes), np.log(self.node_gb_per_s)
        size = math.log(max(message, 1.0))
        if size < sizes[0] and len(sizes) > 1:
            slope = (rates[1] - rates[0]) / (sizes[1] - sizes[0])
            return 1e9 * math.exp(rates[0] + slope * (size - sizes[0]))
        return 1e9 * math.exp(float(np.interp(size, sizes, rates)))


class Storage(Table):
    """``[storage]``: the file system that runs write to.

    Attributes
    ----------
    write_gb_per_s, read_gb_per_s : float or None
        The rate of all nodes together; by default it grows with the number of nodes.
    node_write_gb_per_s, node_read_gb_per_s : float or None
        The rate of one node, while all its ranks write or read; by default the network's.
    file_ms : float
        Milliseconds that a rank takes per file, however small.
    """

    write_gb_per_s: Positive | None = None
    read_gb_per_s: Positive | None = None
    node_write_gb_per_s: Positive | None = None
    node_read_gb_per_s: Positive | None = None
    file_ms: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _has_a_rate(self) -> Self:
        if self.write_gb_per_s is None and self.node_write_gb_per_s is None:
            raise ValueError("give write_gb_per_s, node_write_gb_per_s or both")
        return self


class Machine(Table):
    """A machine: nodes of several devices.

    Attributes
    ----------
    title : str
        Its name.
    sources : tuple of str
        The sources of the figures.
    devices_per_node : int
        Number of devices, and thus of ranks, per node.
    device, bus, node, network, storage
        Rates: see `Processor`, `Bus`, `Node`, `Network`, which a single node does not have, and
        `Storage`, which may be unknown.
    """

    title: str
    sources: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    devices_per_node: Annotated[int, Field(ge=1)]
    device: Processor
    bus: Bus
    node: Node
    network: Network | None = None
    storage: Storage | None = None

    def write_rate(self, nodes: int) -> float | None:
        """Return the bytes per second that nodes write together to files; None if unknown."""
        if self.storage is None:
            return None
        of_node = self.storage.node_write_gb_per_s
        if of_node is not None:
            rate = 1e9 * of_node * nodes
        else:
            rate = math.inf if self.network is None else nodes * self.network.rate(math.inf)
        together = self.storage.write_gb_per_s
        return rate if together is None else min(rate, 1e9 * together)


def load_machine(name: str | Path) -> Machine:
    """Read the description of a machine.

    Parameters
    ----------
    name : str or pathlib.Path
        A TOML file, or one of `slipstream.engine.accepted.MACHINES`.

    Raises
    ------
    InputError
        If there is none, or a key or value is not accepted.
    """
    path = Path(name)
    if str(name) in MACHINES and not os.path.isfile(path):
        path = shipped_folder("machines") / f"{name}.toml"
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
