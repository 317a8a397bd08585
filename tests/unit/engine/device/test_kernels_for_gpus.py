"""Every kernel, with the constants that the code gives it, compiles for GPUs.

A device that compiles nothing notes what kernels are asked for while steps are recorded.
"""

import ctypes
import itertools
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sympy

from lattice_oracle import subdomain_of
from nvrtc import compiled
from pairwise import every_pair, every_value
from products import NAVIER_STOKES
from slipstream.advection import Advection
from slipstream.case.named_tables import Body, ParticleSet
from slipstream.engine import kernels
from slipstream.engine.device import Device, HostDevice, Kernel, gpu_fft_launch
from slipstream.engine.device.array_kernels import empty_sums, large_copy
from slipstream.engine.device.lane_programs import HostCall
from slipstream.engine.device.nvrtc_compiler import CompilationError
from slipstream.engine.device.nvrtc_processes import OPTIONS
from slipstream.engine.exchange import PackTargets, SparseExchange, swap_plan
from slipstream.engine.exchange.noting_transport import noting_grid
from slipstream.engine.exchange.reduced_precision_wire import WIRES, NarrowWire
from slipstream.engine.exchange.transport_base import packed_blocks
from slipstream.engine.exchange.transport_registry import RankPlace
from slipstream.engine.fft import PencilGeometry, SlabGeometry, truncate
from slipstream.engine.fft.line_transforms import LineTransform
from slipstream.engine.schedule import StepGraph
from slipstream.equations import Model, Scalar, abs2, grad, laplacian, lower, models
from slipstream.equations.walls import mirror_of
from slipstream.fft import DistributedFFT
from slipstream.lattice import Fluid, PoreFlow, Storage
from slipstream.lattice.acceleration import PERIOD, Acceleration
from slipstream.lattice.pressure_blocks import PressureGrids
from slipstream.lattice.velocity_set import D3Q19, LAYOUTS
from slipstream.spectral.bodies import Bodies
from slipstream.spectral.cfl import record_courant
from slipstream.spectral.energy_budget import component_sums, vector_sums
from slipstream.spectral.fields_at_points import PointSums, sum_kernel
from slipstream.spectral.followed_parameters import FollowedParameters
from slipstream.spectral.kept_modes import DEALIASING, kept_modes
from slipstream.spectral.particles import Particles
from slipstream.spectral.runge_kutta_step import SpectralStep
from slipstream.spectral.runge_kutta_tableaux import METHODS
from slipstream.spectral.spectral_problem import SpectralProblem, field_parts
from slipstream.spectral.spectrum import energy_spectrum, make_solenoidal, variances, vorticity
from slipstream.spectral.statistics import anisotropic, record_nonlinear_term

ARCHITECTURES = ("sm_80", "sm_90")
REALS = ("float64", "float32")
# Whether a kernel compiles, and for whom, does not depend on how far it is optimised.
QUICKLY = (*OPTIONS, "--Ofast-compile=max")
PRODUCT = NAVIER_STOKES
# Decay that is a product of factors and one that is not, fields that are not the state, and
# functions of the wavenumber.
_SCALAR = Scalar("height")
MODELS = (
    models.lowered("hd", {"viscosity": 0.01}),
    lower(Model({_SCALAR: -abs2(grad(laplacian(_SCALAR, -0.5))) + laplacian(_SCALAR, 1.5)})),
)
# Strips and half rows are for vectors of a CPU, programs for its threads: empty to GPUs.
ONLY_FOR_CPUS = (
    "collide_and_stream_strips.hpp",
    "lane_program.hpp",
    "lax_wendroff_rows.hpp",
    "openmp_threads.hpp",
    "vector_fft.hpp",
    "vector_fft_columns.hpp",
    "vector_fft_lines.hpp",
    "vector_fft_passes.hpp",
    "vector_fft_reals.hpp",
    "vector_fft_rows.hpp",
    "vector_fft_tile.hpp",
    "vector_product.hpp",
)


NOTHING = ctypes.CFUNCTYPE(None)(lambda: None)


class NoKernel(Kernel):
    """Takes any arguments and does nothing."""

    def bind(self, launch, *arguments):
        return HostCall(lambda: NOTHING, (), None)


class NotingDevice(HostDevice):
    """Notes (header, name, constants) of the kernels that it is asked for."""

    kernel_variants = Device.kernel_variants  # one by one, as on GPUs

    def __init__(self, tiled):
        super().__init__(tiled)
        self.noted = {}

    def kernel(self, header, name, **constants):
        self.noted[header, name, tuple(sorted(constants.items()))] = None
        return NoKernel()


class NotingGpu(NotingDevice):
    """Is taken for a GPU. Sites are counted, as nothing would be asked for without any."""

    kind = "cuda"

    def kernel(self, header, name, **constants):
        nothing = super().kernel(header, name, **constants)
        counts = name == "rank_sites"
        return HostDevice.kernel(self, header, name, **constants) if counts else nothing


def used_kernels(real, shape):
    """Return the kernels of transforms, all time steps, their diagnostics and the benchmark."""
    devices = [NotingDevice(tiled) for tiled in (True, False)]
    for device, factor in itertools.product(devices, (True, False)):
        DistributedFFT(shape, real, device=device).forward(np.zeros(shape, real))
        reaching = {"residency": "host", "streaming": {"copies": "zero-copy"}}
        DistributedFFT(shape, real, device=device, **reaching).forward(np.zeros(shape, real))
        for kernel in ("copy_rows", "stream_rows"):
            large_copy(device, 1 << 16, kernel)
        geometry = SlabGeometry(shape, truncate(shape, "2/3", True))
        # Of other models, two integrators: those of the rest differ in numbers only.
        some = METHODS["rk2"], METHODS["rk4"]
        every = [(method, MODELS[0]) for method in METHODS.values()]
        for method, model in [*every, *itertools.product(some, MODELS[1:])]:
            problem = SpectralProblem(
                geometry,
                (1.0, 1.0, 1.0),
                model,
                {"viscosity": 0.01},
                method,
                factor,
                np.dtype(real),
                DEALIASING["2/3"],
                propagates=bool(method.functions) or (factor and method is METHODS["rk2"]),
                forced=(0,) if factor else (),
            )
            flow = SpectralStep(problem, device, None)
            graphs = (
                flow.record_step(),
                flow.record_step(False),
                record_courant(flow),
                record_nonlinear_term(flow),
            )
            assert all(graph.nodes for graph in graphs)
            flow.set_step_size(0.01)
            component_sums(flow)
            energy_spectrum(flow, 0, problem.size, None)
            variances(flow, flow.modes_of(flow.state), None)
            sum_kernel(flow)
            PointSums(flow, flow.modes_of(flow.state)[:1], bins=2)
            assert list(anisotropic(flow, field_parts(model), None))
            if problem.size >= 3:
                vector_sums(flow, flow.read_state()[:3])
                vorticity(flow)
                make_solenoidal(flow, flow.state[:3])
            if (method, model) == every[0]:
                ask_for_particles(flow)
                ask_for_bodies(flow)
        sheared = lower(models.hd(viscosity=sympy.Symbol("viscosity", real=True), shear=2))
        settings = {"viscosity": 0.01}, METHODS["rk4"], factor, np.dtype(real), DEALIASING["2/3"]
        problem = SpectralProblem(geometry, (1.0, 1.0, 1.0), sheared, *settings)
        SpectralStep(problem, device, None).record_step()
        following = lower(Model({_SCALAR: _SCALAR}, averages={"a": (_SCALAR**2, _SCALAR)}))
        problem = SpectralProblem(geometry, (1.0, 1.0, 1.0), following, *settings)
        FollowedParameters(SpectralStep(problem, device, None), None, "serial", None)
    return set(devices[0].noted) | set(devices[1].noted)


def ask_for_particles(flow):
    """Ask for what steps of both kinds of particles, and their values, need on one rank."""
    heavy = {"name": "heavy", "kind": "inertial", "response_time": 0.1}
    particles = Particles([ParticleSet(number=4), ParticleSet(number=4, **heavy)], flow, None, None)
    flow.record_step()
    particles.begin()
    particles.add_to_digest(empty_sums(flow.device), 0)


def ask_for_bodies(flow):
    """Ask for what steps with bodies need on one rank."""
    bodies = [
        Body(shape="sphere", radius=1.0, eta=0.1),
        Body(name="wave", shape="formula", formula="x - 3 - t", eta=0.1),
    ]
    one = Bodies(bodies, (), flow, None)
    one.record(StepGraph(flow.device))


def tiled_kernels(real, lengths):
    """Return the tiled kernels of further lengths: every radix, and the largest tiles."""
    tiles = [
        gpu_fft_launch.strided_fft(n, real, sign, are_even=True)
        for n in lengths
        for sign in (-1, 1)
    ]
    tiles += [gpu_fft_launch.fused_product(n, real, 3, 5, PRODUCT) for n in lengths]
    tiles += [gpu_fft_launch.real_rows(n, real, sign) for n in lengths for sign in (-1, 1)]
    wanted = [(tile.header, tile.name, tile.constants) for tile in tiles]
    rows = gpu_fft_launch.real_rows(lengths[-1], real, -1)
    wanted.append((rows.header, rows.name, {**rows.constants, "MODE_TABLES": 1}))
    return {(header, name, tuple(sorted(constants.items()))) for header, name, constants in wanted}


def record_step(device, geometry, real, transport=None, **options):
    """Record a step of the first model, whose kernels the device notes."""
    lengths, viscosity, rk2 = (1.0, 1.0, 1.0), {"viscosity": 0.01}, METHODS["rk2"]
    given = MODELS[0], viscosity, rk2, True, np.dtype(real), DEALIASING["2/3"]
    problem = SpectralProblem(geometry, lengths, *given, **options)
    SpectralStep(problem, device, transport).record_step()


def library_kernels(real):
    """Return the kernels of a GPU where a library transforms: moves of rows, products alone."""
    device = NotingGpu(tiled=False)
    LineTransform(device, "z", 17, np.result_type(real, np.complex64))
    record_step(device, SlabGeometry((4, 6, 8), truncate((4, 6, 8), "2/3", True)), real)
    return set(device.noted)


def pencil_kernels(real):
    """Return the kernels of a rank of a process grid, by tiled kernels and by a library."""
    devices = [NotingGpu(tiled) for tiled in (True, False)]
    for device in devices:
        geometry = PencilGeometry((4, 6, 8), truncate((4, 6, 8), "2/3", True), 0, (1, 2))
        transports = noting_grid("mpi-p2p", RankPlace(0, 2, 2), device, grid=(1, 2))
        record_step(device, geometry, real, transports)
    return set(devices[0].noted) | set(devices[1].noted)


def wall_kernels(real):
    """Return the kernels of steps between walls."""
    device = NotingGpu(tiled=True)
    geometry = SlabGeometry((4, 6, 8), kept_modes((8, 6, 4), "2/3", "z"))
    record_step(device, geometry, real, mirror=mirror_of(MODELS[0], 2, ()))
    return set(device.noted)


def wire_kernels():
    """Return the kernels of narrow wires, which carry double precision only."""
    device = NotingDevice(tiled=False)
    for wire in WIRES:
        NarrowWire(SimpleNamespace(name="mpi"), device, None, wire)
    return set(device.noted)


def advection_kernels(real):
    """Return the kernels of advection: on a CPU, on a GPU, and on both."""
    devices = {"cpu": NotingDevice(tiled=False), "gpu": NotingDevice(tiled=True)}
    for strategy in ("single", "gpu", "hybrid-overlap"):
        Advection((8, 9, 10), strategy=strategy, dtype=real, devices=devices).digest_sum()
    return set(devices["cpu"].noted) | set(devices["gpu"].noted)


def storages(real):
    """Return a storage of each layout; together they have all propagations and encodings."""
    shorter = {"float64": "mixed", "float32": "float16"}[real]
    for number, layout in enumerate(LAYOUTS):
        propagation = ("aa", "two-lattice")[number % 2]
        encoding = ("compact", "wide")[number // 2 % 2]
        yield Storage(propagation, layout, "raster", encoding, real)
    for layout in tuple(LAYOUTS)[::3]:
        yield Storage("aa", layout, "raster", "compact", shorter)


def lattice_kernels(real):
    """Return the kernels of flow through pores, also where it is divided."""
    device = NotingGpu(tiled=True)
    subdomain = subdomain_of(np.ones((2, 3, 4), np.uint8), (True, True, True))
    for number, storage in enumerate(storages(real)):
        fluid = Fluid(pressure_drop=(1e-3, 0.0, 0.0), inertia=number % 2 == 0)
        flow = PoreFlow(subdomain, fluid, storage, device, policy="serial")
        flow.advance(2)
        flow.sums()
        flow.fields()
        flow.site_values(0, 1)
        flow.speed_sums(subdomain.box)
        flow.digest_sum()
        acceleration = Acceleration(flow, 3, None)
        flow.advance(PERIOD)
        acceleration.measure(1.0)
        acceleration.go_on()
        vectors = acceleration._residual, acceleration._residual_changes
        acceleration._blocks.solve(*vectors, np.zeros(3), 1.0, fluid, PERIOD)
        flow.set_populations(np.arange(3), 1, flow.populations(np.arange(3), 1))
    links = np.ones((D3Q19.links // 2, 5, 5, 5), np.uint32)
    PressureGrids(device, links, 1.0, D3Q19, "serial").solve(np.ones((5, 5, 5), np.int64), 1.0)
    for dtype in (real, "float16"):
        swap_kernels(device, np.dtype(dtype))
    return set(device.noted)


def swap_kernels(device, dtype):
    """Request the kernels that swap numbers between ranks; their transport needs no kernel."""
    transport = SimpleNamespace(
        empty=np.empty,
        pack_buffer=np.empty,
        prepare=lambda plan, pairs: PackTargets(plan, packed_blocks(plan, pairs)),
        stored_targets=lambda plan, targets, alternating: None,
    )
    array, addresses = np.zeros(9, dtype), np.arange(3)
    swap = SparseExchange(device, swap_plan({1: 3}, 0), addresses, [array], transport)
    swap.record(StepGraph(device), 0, array, "numbers")


def kernels_without_constants():
    """Return the kernels that make and search images, which have no choices."""
    folder = Path(kernels.__file__).parent
    return {
        (header, name, ())
        for header in ("percolation.hpp", "spheres.hpp")
        for name in kernel_names(folder / header)
    }


def kernel_names(path):
    return re.findall(r"^KERNEL (\w+)\(", path.read_text(), re.MULTILINE)


def signal_kernels():
    """Return the kernels of exchanges through shared memory."""
    return {
        ("exchange_flags.hpp", name, ()) for name in ("raise_flags", "await_flags", "test_flags")
    }


@cache
def collected(real):
    """Return all kernels of one precision, in a fixed order."""
    shape, lengths = {
        "float64": ((24, 30, 16), (13, 512)),
        "float32": ((12, 22, 14), (64, 1024)),
    }[real]
    kernels_used = used_kernels(real, shape) | tiled_kernels(real, lengths)
    kernels_used |= library_kernels(real) | pencil_kernels(real) | advection_kernels(real)
    kernels_used |= wall_kernels(real) | wire_kernels() | signal_kernels()
    kernels_used |= lattice_kernels(real) | kernels_without_constants()
    return sorted((one for one in kernels_used if one[0] not in ONLY_FOR_CPUS), key=repr)


def some_of(noted, covering):
    """Return those in which constants of a kernel come, or every two meet, that do so in any."""
    groups = {}
    for header, name, constants in noted:
        names = tuple(key for key, _ in constants)
        groups.setdefault((header, name, names), []).append(tuple(value for _, value in constants))
    for (header, name, names), rows in groups.items():
        for row in covering(rows):
            yield header, name, tuple(zip(names, row, strict=True))


def test_kernels_are_compiled_without_contraction():
    assert OPTIONS[:2] == ("--std=c++17", "--fmad=false")


# The types are the same in all combinations: of one precision these are compiled.
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("real", "architecture", "covering"),
    [*zip(REALS, ARCHITECTURES, (every_pair, every_value), strict=True)],
)
def test_every_kernel_compiles(real, architecture, covering):
    texts = {}
    for header, name, constants in some_of(collected(real), covering):
        texts.setdefault(kernels.source(header, dict(constants)), []).append(name)
    for text, names in texts.items():
        binary = compiled(text, architecture, QUICKLY)
        for name in names:
            assert f".text.{name}\0".encode() in binary  # found by its plain name
        # Those of headers that are included are compiled for nobody.
        for name in re.findall(r"^INCLUDED_KERNEL (\w+)\(", text, re.MULTILINE):
            assert f".text.{name}\0".encode() not in binary


@pytest.mark.slow
def test_every_kernel_of_every_header_is_among_them():
    folder = Path(kernels.__file__).parent
    defined = {
        (header, name)
        for header in set(kernels.headers()) - set(ONLY_FOR_CPUS)
        for name in kernel_names(folder / header)
    }
    assert len(defined) >= 10
    for real in REALS:
        assert {(header, name) for header, name, _ in collected(real)} == defined


def test_every_substage_of_every_method_is_among_them():
    """The constants of a substage are those of the code, not of this test."""
    substages = [
        dict(constants)
        for header, name, constants in collected("float64")
        if name == "advance_substage"
    ]
    for factor in (True, False):
        ends = {c["NODE_END"] for c in substages if c["INTEGRATING_FACTOR"] == factor}
        assert ends == {method.divisions for method in METHODS.values()}
        nodes = {(c["NODE_END"], c["NODE"]) for c in substages if c["INTEGRATING_FACTOR"] == factor}
        assert nodes == {(m.divisions, node) for m in METHODS.values() for node in m.nodes}


@pytest.mark.parametrize("header", ONLY_FOR_CPUS)
def test_headers_only_for_cpus_are_empty_to_gpus(header):
    step = {"ENCODING": "WIDE", "PROPAGATION": "AA_ODD", "INERTIA": 0, "UNITS": 32}
    constants = {**Storage().constants, **D3Q19.constants, **step}
    binary = compiled(kernels.source(header, constants), "sm_90", QUICKLY)
    for name in kernel_names(Path(kernels.__file__).parent / header):
        assert f".text.{name}\0".encode() not in binary


@pytest.mark.parametrize(
    "mistake",
    ["KERNEL wrong() { Index i = 0 }", "KERNEL wrong() { std::sqrt(2.0); }", "#include <vector>"],
    ids=["syntax", "only on a CPU", "no such header"],
)
def test_a_kernel_that_does_not_compile_is_noticed(mistake):
    text = kernels.source("gather_scatter.hpp", {"REAL": "double"})
    compiled(text, "sm_90", QUICKLY)
    with pytest.raises(CompilationError, match="gather_scatter.hpp.*error"):
        compiled(text + mistake, "sm_90", QUICKLY)
