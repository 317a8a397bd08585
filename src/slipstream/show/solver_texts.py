"""Texts for the facts that solvers give: settings, progress and results.

A fact that has no words here is printed as its value and unit, with its remark if it has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slipstream.case import Case, LatticeCase
from slipstream.engine.errors import bytes_text
from slipstream.engine.fields import UNRESOLVED, Fact, Field, PictureChoice, PilotFindings
from slipstream.engine.text import below, counted, pi_text, quantity


class ShownSimulation(Protocol):
    """The simulation as texts and pictures see it; see `runs.simulation_base.Simulation`."""

    case: Any
    step: int
    time: float
    courant: float | None

    def facts(self) -> dict[str, Fact]: ...
    def indicators(self) -> dict[str, Fact]: ...
    def findings(self, seconds: float, steps: int) -> dict[str, Fact]: ...
    def fields(self) -> Iterator[Field]: ...
    def pictures(self) -> PictureChoice: ...


# From a fact and the case a text, or a value and a remark: by a function, or by formats of the
# fact's value, its unit and what belongs to it.
_Text = Callable[[Fact, Any], str] | str
_Row = Callable[[Fact, Any], tuple[str, str]] | tuple[str, str]


def description(simulation: ShownSimulation) -> dict[str, str]:
    """Return the settings of a run, by name, without allocating a field. Collective."""
    case = simulation.case
    texts = {**_COMMON, **FAMILIES[case.solver].facts}
    return {
        name: _word_result(texts.get(name), fact, case)
        for name, fact in simulation.facts().items()
        if name not in _OF_THE_STEP or name in texts
    }


def step_description(simulation: ShownSimulation) -> dict[str, str]:
    """Return facts of the step that need all memory to be allocated, by name. Collective."""
    facts, case = simulation.facts(), simulation.case
    texts = {
        name: _word_result(text, facts[name], case)
        for name, text in _OF_THE_STEP.items()
        if name in facts
    }
    return {"step" if name == "columns" else name: text for name, text in texts.items() if text}


def progress_text(simulation: ShownSimulation, step_size: float) -> str:
    """Return the progress of a run, with numbers that show its health."""
    progress = FAMILIES[simulation.case.solver].progress(simulation, step_size)
    return ", ".join([f"step {simulation.step}", *progress])


def _flow_progress(simulation: ShownSimulation, step_size: float) -> Iterator[str]:
    yield f"t = {simulation.time:.4g}"
    yield f"time step {step_size:.3g}"
    if simulation.courant is not None:
        yield f"Courant number {simulation.courant:.3g}"
    kmax_eta = simulation.indicators().get("kmax_eta")
    if kmax_eta is not None and 0 < kmax_eta.value < 1:
        yield f"kmax_eta {below(kmax_eta.value, 1)} < 1"


def _pore_flow_progress(simulation: ShownSimulation, step_size: float) -> Iterator[str]:
    shown = simulation.indicators()
    if "permeability" in shown:
        yield f"permeability {_permeability(shown['permeability'], None)[0]}"
    if "residual" in shown and shown["residual"].value < 1:
        yield f"{shown['residual'].value:.2g} from steady"


def shortfall_text(simulation: ShownSimulation) -> str:
    """Return the distance from the steady state as text; empty if it is not known."""
    shown = simulation.indicators()
    if "residual" not in shown or not shown["residual"].value < 1:
        return ""
    left = steps_left(simulation)
    pace = f", about {left} more steps at the present pace" if left else ""
    return f"{shown['residual'].value:.2g} from steady{pace}"


def steps_left(simulation: ShownSimulation) -> int:
    """Return the number of steps until a flow is steady, an even number; 0 if unknown."""
    end = simulation.indicators().get("expected end")
    left = math.inf if end is None else end.get("left")
    return 2 * math.ceil(left / 2) if math.isfinite(left) else 0


def result_texts(
    simulation: ShownSimulation, seconds: float, steps: int
) -> dict[str, tuple[str, str]]:
    """Return the results: a value and a remark, which may be empty, by name. Collective.

    `seconds` is the time of this run's `steps` time steps on this rank.
    """
    case = simulation.case
    return {
        name: _row(_RESULTS.get(name), fact, case)
        for name, fact in simulation.findings(seconds, steps).items()
    }


def pilot_texts(foresight: PilotFindings, case: Case) -> dict[str, str]:
    """Return the forecast of a run, by name."""
    return {
        name: _word_result(_EXPECTED.get(name), fact, case)
        for name, fact in foresight.facts.items()
    }


def _word_result(text: _Text | None, fact: Fact, case: Any) -> str:
    if text is None:
        return f"{fact.value} {fact.unit}".rstrip()
    if isinstance(text, str):
        return text.format(fact.value, unit=fact.unit, **fact.more)
    return text(fact, case)


def _row(row: _Row | None, fact: Fact, case: Any) -> tuple[str, str]:
    if row is None:
        return _word_result(None, fact, case), fact.get("remark") or ""
    if isinstance(row, tuple):
        return _word_result(row[0], fact, case), _word_result(row[1], fact, case)
    return row(fact, case)


# -- of all families -------------------------------------------------------------------------------


def _device(fact: Fact, case: Any) -> str:
    names = " and ".join(fact.value)
    return f"{fact.get('count')} x {names}" if (fact.get("count") or 1) > 1 else names


def _memory(fact: Fact, case: Any) -> str:
    if fact.get("is_limit"):
        return f"at most {bytes_text(fact.value[0])} for each rank"
    most = "at most " if fact.get("is_most") else ""
    vectors = fact.get("vectors") or 0
    text = most + _of_free_memory([one + vectors for one in fact.value], fact.get("free"))
    return f"{text}, {vectors / 2**30:.3g} GiB of it for vectors" if vectors else text


def _of_free_memory(needs: Sequence[int], free: Sequence[int]) -> str:
    pairs = zip(needs, free, strict=True)
    return " and ".join(
        f"{need / 2**30:.3g} GiB, of {left / 2**30:.4g} GiB free" for need, left in pairs
    )


_COMMON: Mapping[str, _Text] = {
    "device": _device,
    "memory per device": _memory,
    "transport": lambda fact, case: "none (one rank)" if fact.value == "none" else fact.value,
}

# -- spectral --------------------------------------------------------------------------------------


def _model(fact: Fact, case: Any) -> str:
    texts = [fact.value]
    for name, value in (fact.get("parameters") or {}).items():
        is_vector = isinstance(value, tuple)
        numbers = ", ".join(f"{one:g}" for one in (value if is_vector else (value,)))
        texts.append(f"{name} [{numbers}]" if is_vector else f"{name} {numbers}")
    return ", ".join(texts)


def _periodic_box(fact: Fact, case: Any) -> str:
    quarters = [4 * length / math.pi for length in fact.get("lengths")]
    lengths = " x ".join(
        pi_text(round(one) / 4) if abs(one - round(one)) < 1e-9 else f"{one * math.pi / 4:.6g}"
        for one in quarters
    )
    walls = fact.get("walls")
    between = f", free-slip walls along {walls}" if walls else ""
    return f"{_product(fact.value)} points in {lengths} (x, y, z){between}"


def _residency(fact: Fact, case: Any) -> str:
    if fact.value == "device":
        return "device: there is room for all fields"
    memory = _of_free_memory(fact.get("bytes"), fact.get("free"))
    if fact.get("total"):
        total, in_core = (bytes_text(fact.get(name)) for name in ("total", "in_core"))
        memory += f"; {total} with the device's share ({in_core} in core)"
    if fact.value == "disk":
        way = "" if fact.get("is_direct") else ", through the system's memory: no direct access"
        return f"disk: {memory}, in {', '.join(fact.get('folders'))}{way}"
    return f"host: {memory}"


def _bus(fact: Fact, case: Any) -> str:
    inward, outward = map(bytes_text, fact.value)
    text = f"{inward} in and {outward} out per step and rank"
    if fact.get("least"):
        inward, outward = map(bytes_text, fact.get("least"))
        text = f"at most {text}, {inward} and {outward} if memory holds all columns"
    return f"{text}; modes advanced on the {fact.get('update')}"


def _decomposition(fact: Fact, case: Any) -> str:
    if not fact.get("grid"):
        return "slabs of z planes"
    along_y, along_z = fact.get("grid")
    return f"pencils, {along_y} x {along_z} ranks along y and z"


def _columns(fact: Fact, case: Any) -> str:
    inward, outward = map(bytes_text, fact.get("bus"))
    return (
        f"columns of {fact.value} of {fact.get('of')} ky stay on the device; {inward} in and"
        f" {outward} out per step, {fact.get('tiles')} tiles"
    )


_SPECTRAL: Mapping[str, _Text] = {
    "equation": _model,
    "grid": _periodic_box,
    "modes": lambda fact, case: (
        f"{_product(fact.value)} kept (dealiasing {fact.get('dealiasing')})"
    ),
    "precision": lambda fact, case: (
        fact.value + (f", {fact.get('wire')} between ranks" if fact.get("wire") != "none" else "")
    ),
    "integrator": "{0}, {transforms} transforms per step",
    "residency": _residency,
    "bus": _bus,
    "ranks": lambda fact, case: (
        f"{fact.value}" + (f", {fact.get('to_a_device')} to a device" if fact.value > 1 else "")
    ),
    "decomposition": _decomposition,
}

# -- advection -------------------------------------------------------------------------------------


def _blocks(fact: Fact, case: Any) -> str:
    if fact.value == 1:
        return "1"
    names = {"cpu": "CPU", "gpu": "GPU"}
    sharing = "".join(f", {count} to a {names[one]}" for one, count in fact.get("sharing").items())
    return f"{fact.value}, as {_product(fact.get('grid'))} (x, y, z){sharing}"


_ADVECTION: Mapping[str, _Text] = {
    "equation": "{0} by a constant velocity, 27-point Lax-Wendroff scheme",
    "grid": lambda fact, case: f"{_product(fact.value)} points in a unit cube (x, y, z)",
    "Courant numbers": lambda fact, case: (
        f"{', '.join(f'{number:g}' for number in fact.value)} (x, y, z)"
    ),
    "ranks": _blocks,
}


def _taylor(fact: Fact, case: Any) -> tuple[str, str]:
    name = "Kolmogorov" if fact.get("kraichnan_scale") is None else "Kraichnan"
    smallest = fact.get(f"{name.lower()}_scale")
    remark = f"Taylor scale {fact.get('taylor_scale'):.3g}, {name} scale {smallest:.3g}"
    return f"{fact.value:.3g}", remark


# -- lattice ---------------------------------------------------------------------------------------


def _image(fact: Fact, case: LatticeCase) -> str:
    image = case.image
    name = image.path if image.sample is None else f"{image.sample} (synthetic)"
    edge = "" if image.voxel_size == 1 else f" of {quantity(image.voxel_size, 'm')}"
    text = f"{name}: {_product(fact.value)} voxels (x, y, z){edge}"
    if image.mirror:
        text += f", mirrored along {' and '.join(image.mirror)}"
    if image.buffer:
        text += f", {image.buffer} layers of pore at both ends"
    if image.walls:
        text += f", walls along {' and '.join(image.walls)}"
    return text


def _pores(fact: Fact, case: LatticeCase) -> str:
    if fact.get("isolated") == fact.value:
        return f"{fact.value:,} voxels, all of them isolated: nothing flows"
    fate = "removed" if case.image.isolated == "remove" else "kept"
    return f"{fact.value:,} voxels, {fact.get('isolated'):,} of them isolated and {fate}"


def _fluid(fact: Fact, case: LatticeCase) -> str:
    force, drop = fact.get("force"), case.flow.pressure_drop
    drive = f"pressure drop {drop:g}" if force is None else f"force {force:.4g}"
    return (
        f"relaxation time {fact.value:g}, viscosity {fact.get('viscosity'):.4g}, "
        f"{drive} along {case.flow.axis} (lattice units)"
    )


def _steady(fact: Fact, case: LatticeCase) -> str:
    if not fact.value:
        return "by time steps alone"
    return (
        f"extrapolated every {fact.get('period')} steps from the last {fact.value} changes"
        f" (Anderson), in {fact.get('bytes') / 2**30:.3g} GiB, or from fewer in half of what is"
        " free; a restart collects new ones"
    )


def _storage(fact: Fact, case: LatticeCase) -> str:
    if fact.get("candidates") > 1:
        return f"fastest of {fact.get('candidates')}, to be measured"
    return "{} ({})".format(*_chosen_storage(fact, case))


def _chosen_storage(fact: Fact, case: LatticeCase) -> tuple[str, str]:
    tried = f"fastest of {fact.get('tried')}, measured" if fact.get("tried") else "not measured"
    return ", ".join(fact.value), tried


def _balance(fact: Fact, case: LatticeCase) -> str:
    if fact.value == 1:
        return "1"
    return (
        f"{fact.value}, {case.run.partition}: most pores {fact.get('imbalance'):.3f} of the mean,"
        f" at most {counted(fact.get('neighbours'), 'neighbour')},"
        f" {fact.get('to_a_device')} to a device"
    )


def _permeability(fact: Fact, case: Any) -> tuple[str, str]:
    text = f"{fact.value:.5g} {fact.unit}"
    if fact.get("square_metres") is None:
        return text, "image.voxel_size is 1"
    return text, f"{fact.get('square_metres'):.5g} m², {fact.get('square_voxels'):.5g} voxels²"


def _distance(fact: Fact, case: LatticeCase) -> tuple[str, str]:
    remarks = [] if fact.value == 1 else ["relative, estimated"]
    remarks += [] if fact.get("is_steady") else ["not converged"]
    return "unknown" if fact.value == 1 else f"{fact.value:.2g}", "; ".join(remarks)


def _narrow_found(fact: Fact, case: LatticeCase) -> tuple[str, str]:
    remark = f"of the pore voxels are in pores of at most {fact.get('voxels')} voxels"
    return f"{fact.value:.1%}", f"{remark}, not resolved" if fact.get("doubtful") else remark


def _updates(fact: Fact, case: LatticeCase) -> tuple[str, str]:
    devices = fact.get("devices")
    each = f"{fact.value / devices / 1e6:.4g} million/s on each of {devices} devices"
    return f"{fact.value / 1e6:.4g} million/s", each if devices > 1 else "on one device"


def _bandwidth(fact: Fact, case: LatticeCase) -> tuple[str, str]:
    return (
        f"{100 * fact.value:.0f} % of a copy",
        f"{fact.get('bytes'):.0f} bytes per update; a copy moves {fact.get('copy') / 1e9:.4g} GB/s",
    )


_NARROW = "{0:.1%} of the pore voxels are in pores of at most {voxels} voxels"
_LATTICE: Mapping[str, _Text] = {
    "equation": "{0} flow, lattice Boltzmann, D3Q19, two relaxation times",
    "image": _image,
    "porosity": lambda fact, case: (
        f"{fact.value:.4f}; open along {case.flow.axis}: {fact.get('open'):.4f}"
    ),
    "pores": _pores,
    "fluid": _fluid,
    "permeability": "viscosity times {0} (mean over all voxels) over the force per volume that"
    " drives it",
    "steady flow": _steady,
    "memory per pore": "{populations:.0f} bytes of populations, {links:.0f} of links and"
    " {vectors:.0f} of vectors: {0:.0f}; then 3.2 bytes per voxel, and output",
    "narrow pores": _NARROW,
    "storage": _storage,
    "ranks": _balance,
}


def _courant(fact: Fact, case: Case) -> tuple[str, str]:
    limit, method = fact.get("limit"), fact.get("method")
    text = f"what the flow carries is stable with {method} up to about {limit:.2g}"
    if not limit:
        text = f"without damping, what the flow carries grows slowly with {method}"
    return f"{fact.value:.3g}", f"at t = {fact.get('time'):.4g}; {text}"


# -- by name ---------------------------------------------------------------------------------------


def _product(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))


@dataclass(frozen=True)
class FamilyTexts:
    """The words that differ between solver families."""

    # Texts of settings, by the names of facts.
    facts: Mapping[str, _Text]
    # The progress of a run, from the simulation and the size of its time step.
    progress: Callable[[ShownSimulation, float], Iterable[str]]
    # The page that describes the method.
    reference: str


FAMILIES = {
    "spectral": FamilyTexts(
        _SPECTRAL,
        _flow_progress,
        "Canuto, Hussaini, Quarteroni and Zang (2007), Spectral Methods: Evolution to Complex"
        " Geometries and Applications to Fluid Dynamics, Springer (the pseudospectral method)",
    ),
    "lattice": FamilyTexts(
        _LATTICE,
        _pore_flow_progress,
        "Ginzburg, Verhaeghe and d'Humières (2008), Two-relaxation-time lattice Boltzmann scheme,"
        " Communications in Computational Physics 3, 427 (the collision)",
    ),
    "advection": FamilyTexts(
        _ADVECTION,
        _flow_progress,
        "White and Dongarra (2011), Overlapping computation and communication for advection on"
        " hybrid parallel computers, IPDPS (the test and its strategies)",
    ),
}
_OF_THE_STEP: Mapping[str, _Text] = {
    "step": "{0}",
    "columns": _columns,
    "storage": lambda fact, case: _storage(fact, case) if fact.get("tried") else "",
}
_RESULTS: Mapping[str, _Row] = {
    "turnover time": (
        "{0:.3g}",
        "integral scale {integral_scale:.3g} over rms velocity {rms_velocity:.3g}",
    ),
    "Taylor Reynolds number": _taylor,
    "largest Courant number": _courant,
    "least kmax_eta": lambda fact, case: (
        below(fact.value, 1),
        f"at t = {fact.get('time'):.4g}; below 1 {UNRESOLVED}",
    ),
    "largest wire error": ("{0:.2g}", "relative, of data that travelled as {wire}"),
    "permeability": _permeability,
    **dict.fromkeys(
        [f"tensor, {axis}" for axis in "xyz"],
        lambda fact, case: (" ".join(f"{one:.4g}" for one in fact.value), fact.unit),
    ),
    "distance from steady": _distance,
    "Mach number": ("{0:.2g}", "largest"),
    "resolution error": (
        "{0:.2g}",
        "relative, of the permeability along {along} by the size of voxels (estimated)",
    ),
    "tortuosity": ("{0:.4g}", "mean speed over mean velocity along {along}"),
    "drag on walls": ("{0:.5g}", "along {along}, {share:.2%} of what drives the flow"),
    "Darcy velocity": ("{0:.5g} {unit}", "superficial, along {along}"),
    "Reynolds number": ("{0:.3g}", "Darcy velocity times √permeability over viscosity"),
    "porosity": ("{0:.4f}", "{open:.4f} open"),
    "narrow pores": _narrow_found,
    "storage": _chosen_storage,
    "site updates": _updates,
    "memory bandwidth": _bandwidth,
}
_EXPECTED: Mapping[str, _Text] = {
    "kmax_eta": "about {0:.2g} at least: dissipation {dissipation:.3g}, {source}",
    "narrow pores": _NARROW,
    "Mach number": "about {0:.2g}, by the pilot run",
}
