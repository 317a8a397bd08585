"""Imports point downward only, so that every layer can be read, and used, without those above."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import slipstream
from slipstream.case import SOLVERS
from slipstream.runs.simulation_base import SIMULATIONS, Simulation

ROOT = Path(slipstream.__file__).parent

# From the bottom to the top; a room may import those below it, but none of its line.
ROOMS = (
    {"__init__"},
    {"engine"},
    {"equations", "fft"},
    {"case"},
    {"files"},
    {"show"},
    {"runs"},
    {"spectral", "lattice", "advection"},
    {"api"},
    {"cli"},
    {"__main__"},
)
# The parts of the engine, in the same way.
PARTS = (
    {"text", "stop_signals", "accepted", "array_types"},
    {"errors"},
    {"decomposition", "error_terms", "private_cache", "processes"},
    {"own_communicator", "collective", "kernels"},  # collective loads the first with MPI
    {"device"},
    {"fields", "schedule", "tuner"},
    {"exchange"},  # its transports record nodes into step graphs
    {"outofcore", "device_memory", "step_walk"},
    {"fft"},
)
FAMILIES = ("spectral", "lattice", "advection")
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
PART_LEVEL = {part: level for level, parts in enumerate(PARTS) for part in parts}
MODULES = sorted(ROOT.rglob("*.py"))
ENGINE = [path for path in MODULES if "engine" in path.relative_to(ROOT).parts[:-1]]
ENGINE.remove(ROOT / "engine" / "__init__.py")
# Names of exchanges that solvers and transforms may know: plans, and the base of transports.
EXCHANGE = {
    "ArrayBox",
    "Block",
    "Exchange",
    "ExchangePlan",
    "GridTransports",
    "HaloExchange",
    "HaloPlan",
    "NarrowWire",
    "PackTargets",
    "RankPlace",
    "SparseExchange",
    "TRANSPORTS",
    "Transport",
    "Views",
    "can_store",
    "box_targets",
    "chosen_transport",
    "copy_boxes",
    "local_rank",
    "make_grid_transports",
    "make_transport",
    "names_on",
    "open_matching_device",
    "pack_targets",
    "packed_exchange",
    "part_of",
    "swap_plan",
    "transports_to_try",
    "views_of",
}


def room_of(path):
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(path):
    """Return (module, name) of every import of this package, those inside functions too."""
    results = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            results += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            results += [(node.module, alias.name) for alias in node.names]
    return [(module, name) for module, name in results if module.split(".")[0] == "slipstream"]


def imported_rooms(path):
    """Return the rooms that a module imports; what the package itself defines is "__init__"."""
    rooms = set()
    for module, name in imports(path):
        parts = [*module.split("."), name]
        rooms.add(parts[1] if parts[1] in LEVEL else "__init__")
    return rooms


def imported_parts(path):
    """Return the parts of the engine that a module imports."""
    found = [[*module.split("."), name] for module, name in imports(path)]
    return {parts[2] for parts in found if parts[1] == "engine"}


def test_the_tables_have_every_room_and_part_once():
    assert sum(map(len, ROOMS)) == len(LEVEL)
    assert {room_of(path) for path in MODULES} == set(LEVEL)
    assert sum(map(len, PARTS)) == len(PART_LEVEL)
    assert {part_of(path) for path in ENGINE} == set(PART_LEVEL)


def part_of(path):
    return path.relative_to(ROOT / "engine").with_suffix("").parts[0]


def test_the_package_imports_no_benchmark():
    pattern = re.compile(r"^\s*(?:from|import) bench\b", re.M)
    assert pattern.search((Path(__file__).parents[3] / "bench" / "__main__.py").read_text())
    assert not [path for path in MODULES if pattern.search(path.read_text())]


def test_imports_are_found():
    """The checks below would pass if nothing were found."""
    transport = ROOT / "engine" / "exchange" / "mpi_transport.py"
    assert ("slipstream.engine.schedule", "StepGraph") in imports(transport)
    assert imported_parts(transport) >= {"schedule", "device", "exchange"}
    assert imported_rooms(ROOT / "cli.py") >= {"engine", "runs"}
    assert "__init__" in imported_rooms(ROOT / "runs" / "run_recorder.py")
    assert imported_rooms(ROOT / "runs" / "run_case.py") >= {"runs", "show", "files"}


def upward(level, own, imported):
    """Return the imports of a module from rooms or parts that are not below its room or part."""
    return {other for other in imported - {own} if level[other] >= level[own]}


@pytest.mark.slow
def test_imports_point_downward():
    actual = {
        path: upward(LEVEL, room_of(path), imported_rooms(path))
        for path in MODULES
        if path != ROOT / "__init__.py"
    }
    assert not {str(path): rooms for path, rooms in actual.items() if rooms}


@pytest.mark.slow
def test_imports_of_the_engine_point_downward():
    found = {path: upward(PART_LEVEL, part_of(path), imported_parts(path)) for path in ENGINE}
    allowed = {"collective.py": {"own_communicator"}, "own_communicator.py": {"collective"}}
    assert not {
        str(path): parts for path, parts in found.items() if parts - allowed.get(path.name, set())
    }


@pytest.mark.slow
def test_the_engine_needs_numpy_and_optional_libraries_alone():
    actual = set()
    for path in ENGINE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                actual |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                actual.add(node.module.split(".")[0])
    outside = actual - set(sys.stdlib_module_names) - {"slipstream"}
    # The last two draw a timeline and wrap fields, on request.
    assert outside == {"numpy", "mpi4py", "cupy", "matplotlib", "xarray"}


def test_the_package_itself_imports_for_type_checkers_alone():
    """It tells them of the names that it imports when they are used."""
    imported = (ROOT / "__init__.py").read_text().count("\n    from slipstream.")
    assert imported == len(slipstream._OFFERED)


@pytest.mark.slow
def test_families_do_not_import_each_other_or_the_inside_of_a_transport():
    for path in MODULES:
        if room_of(path) in FAMILIES or path.parent.name == "fft":
            others = set(FAMILIES) - {room_of(path)}
            assert not imported_rooms(path) & others
            for module, name in imports(path):
                assert not module.startswith("slipstream.engine.exchange.")
                assert module != "slipstream.engine.exchange" or name in EXCHANGE


def test_the_solver_registry_names_classes_that_there_are():
    """By name, so that only the family that is needed is imported."""
    assert set(SIMULATIONS) == set(FAMILIES) == set(SOLVERS)
    for module, name in SIMULATIONS.values():
        assert issubclass(getattr(importlib.import_module(module), name), Simulation)


# Imported where there is MPI only.
MPI_MODULES = ("own_communicator.py",)
CUDA_MODULES = (
    "cuda_device.py",
    "cuda_ipc_memory.py",
    "cuda_kernel.py",
    "cufft.py",
    "pool_limit.py",
)


# Imports all that does not need a GPU, and transforms, where nothing but NumPy is installed.
ALONE = """
import importlib, importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in ("numpy", "slipstream") and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
for name in {names!r}:
    importlib.import_module(name)
from slipstream.fft import DistributedFFT
import numpy as np
u = np.random.default_rng(0).random((8, 6, 4))
assert np.allclose(DistributedFFT(u.shape, device="cpu").forward(u), np.fft.rfftn(u))
print("imported", len({names!r}))
"""


def test_the_engine_works_where_only_numpy_is_installed():
    names = [
        ".".join(("slipstream", *path.relative_to(ROOT).with_suffix("").parts))
        for path in ENGINE
        if path.name not in (*CUDA_MODULES, *MPI_MODULES)
    ]
    script = ALONE.format(names=names)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout == f"imported {len(names)}\n", result.stderr


@pytest.mark.slow
def test_only_the_cuda_modules_import_cupy_at_all_times():
    """Everything else must work, and be imported, where there is no GPU."""
    for path in MODULES:
        top = [
            node
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        names = {alias.name for node in top for alias in node.names}
        names |= {node.module for node in top if isinstance(node, ast.ImportFrom)}
        uses = any(name.split(".")[0] == "cupy" for name in names)
        assert not uses or path.name in CUDA_MODULES
        uses_mpi = any(name.split(".")[0] == "mpi4py" for name in names)
        assert not uses_mpi or path.name in MPI_MODULES, "MPI is an extra"
