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

# From the bottom to the top; a layer may import those below it, but none of its own line.
LAYERS = (
    {"printable_text", "stop_signals"},
    {"__init__", "accepted", "array_types", "errors", "field"},
    {"process_threads", "private_cache", "error_terms"},
    {
        "kernels",
        "decomposition",
        "collective",
        "mpi_launch",
        "equations",
        "byte_sizes",
        "argument_checks",
        "particle_statistics",
        "time_averages",
    },
    {"redistribution", "known_attributes"},
    {"device", "case", "io"},
    {"schedule", "tuner"},
    {"exchange"},  # its transports record nodes into step graphs
    {"outofcore"},
    {"fft", "machine_info", "simulation"},
    {"spectral", "lattice", "advection"},
    {"report"},  # words and pictures of what solvers give
    {"output"},
    {"running"},
    {"interactive", "validation", "forecast"},
    {"option_values"},
    {"cli"},
    {"__main__"},
)
FAMILIES = ("spectral", "lattice", "advection")
# The rooms that move and transform arrays, and the modules below them that they use.
ENGINE = ("kernels", "collective", "device", "schedule", "exchange", "outofcore", "fft")
BELOW_ENGINE = {
    "accepted",
    "argument_checks",
    "array_types",
    "byte_sizes",
    "decomposition",
    "error_terms",
    "errors",
    "known_attributes",
    "mpi_launch",
    "printable_text",
    "private_cache",
    "process_threads",
    "redistribution",
    "stop_signals",
    "tuner",
}
# What they need, what they use where it is installed, and what draws a picture on request.
NEEDED = {"numpy"}
OPTIONAL = {"mpi4py", "cupy", "matplotlib"}
LEVEL = {layer: level for level, layers in enumerate(LAYERS) for layer in layers}
MODULES = sorted(ROOT.rglob("*.py"))
# What solvers and transforms may know of exchanges: plans, and that there are transports.
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


def layer_of(path):
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(path):
    """Return (module, name) of every import of this package, those inside functions too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found += [(node.module, alias.name) for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == "slipstream"]


def imported_layers(path):
    """Return the layers that a module imports; what the package itself defines is "__init__"."""
    layers = set()
    for module, name in imports(path):
        parts = [*module.split("."), name]
        layers.add(parts[1] if parts[1] in LEVEL else "__init__")
    return layers


def test_the_table_has_every_layer_once():
    assert sum(map(len, LAYERS)) == len(LEVEL)
    assert {layer_of(path) for path in MODULES} <= set(LEVEL)


def test_the_package_imports_no_benchmark():
    pattern = re.compile(r"^\s*(?:from|import) bench\b", re.M)
    assert pattern.search((Path(__file__).parents[3] / "bench" / "__main__.py").read_text())
    assert not [path for path in MODULES if pattern.search(path.read_text())]


def test_imports_are_found():
    """The checks below would pass if nothing were found."""
    assert ("slipstream.engine.schedule", "StepGraph") in imports(
        ROOT / "exchange" / "mpi_transport.py"
    )
    assert "mpi_launch" in imported_layers(ROOT / "cli.py")
    assert "__init__" in imported_layers(ROOT / "runs/run_recorder.py")
    assert imported_layers(ROOT / "device" / "cuda_device.py") >= {"kernels", "device"}
    assert imported_layers(ROOT / "running" / "run_case.py") >= {"running", "simulation"}


def upward_imports(path):
    """Return the layers that a module imports though they are not below its own."""
    layer = layer_of(path)
    imported = imported_layers(path) - {layer}
    return {other for other in imported if LEVEL[other] >= LEVEL[layer]}


@pytest.mark.slow
def test_imports_point_downward():
    upward = {path: upward_imports(path) for path in MODULES if path != ROOT / "__init__.py"}
    assert not {str(path): layers for path, layers in upward.items() if layers}


def test_the_package_itself_imports_for_type_checkers_alone():
    """It tells them of the names that it imports when they are used."""
    imported = (ROOT / "__init__.py").read_text().count("\n    from slipstream.")
    assert imported == len(slipstream._OFFERED)


@pytest.mark.slow
def test_families_do_not_import_each_other_or_the_inside_of_a_transport():
    for path in MODULES:
        if layer_of(path) in (*FAMILIES, "fft"):
            others = set(FAMILIES) - {layer_of(path)}
            assert not imported_layers(path) & others
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


def modules_of(rooms):
    return [path for path in MODULES if layer_of(path) in rooms]


def imported_packages(path):
    """Return the packages outside of Python's library that a module imports, wherever it does."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"slipstream"}


@pytest.mark.parametrize("rooms", [ENGINE], ids=["engine"])
def test_rooms_use_only_what_is_below_them(rooms):
    paths = modules_of(rooms)
    below = [path for path in MODULES if layer_of(path) in BELOW_ENGINE]
    used = set().union(*map(imported_layers, (*paths, *below)))
    assert used - {"__init__"} == BELOW_ENGINE | set(rooms)
    assert set().union(*map(imported_packages, (*paths, *below))) == NEEDED | OPTIONAL


# Imports all that does not need a GPU, and transforms, where nothing but NumPy is installed.
ALONE = """
import importlib, importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in {allowed!r} and top not in sys.stdlib_module_names:
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


@pytest.mark.parametrize("rooms", [ENGINE], ids=["engine"])
def test_rooms_work_where_only_numpy_is_installed(rooms):
    names = [
        ".".join(("slipstream", *path.relative_to(ROOT).with_suffix("").parts))
        for path in modules_of(rooms)
        if path.name not in (*CUDA_MODULES, *MPI_MODULES)
    ]
    allowed = sorted({*NEEDED, "slipstream"})
    script = ALONE.format(names=names, allowed=allowed)
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
