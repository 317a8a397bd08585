"""Other equations than plain flow, on any number of ranks: the same as in one process."""

import pickle

import numpy as np
import pytest

from first_rank import on_first_rank
from flows import advance, leave_state, make_case, modes_of, own_part, start
from slipstream.spectral.cfl import courant_rate
from slipstream.spectral.spectral_simulation import SpectralSimulation

OWN = """
import sympy
from slipstream.equations import (
    Model, Scalar, Vector, cross, curl, dot, function, laplacian, parameter, t, x, x_hat,
    y, y_hat, z
)

def derived(viscosity):
    u, a = Vector("velocity", solenoidal=True), Scalar("a")
    return Model({
        u: cross(u, curl(u)) + a * curl(u) + viscosity * laplacian(u),
        a: dot(u, curl(u)) + viscosity * laplacian(a),
    })

def followed(viscosity):
    u, a = Vector("velocity", solenoidal=True), Scalar("a")
    bent, twist = cross(u, curl(u)), parameter("twist")
    return Model(
        {
            u: bent + a * curl(u) + viscosity * laplacian(u),
            a: parameter("rate") * dot(u, curl(u)) + viscosity * laplacian(a),
        },
        averages={"twist": (bent, bent)},
        follows={"rate": sympy.sqrt(twist)},
    )

def driven(viscosity):
    u, a = Vector("velocity", solenoidal=True), Scalar("a")
    wave, turn = function(sympy.sin, x), function(sympy.cos, t)
    pulse = function(sympy.exp, function(sympy.cos, x + t))
    return Model({
        u: cross(u, curl(u)) + turn * wave * y_hat + wave * a * x_hat + viscosity * laplacian(u),
        a: -dot(u, curl(u)) + pulse + viscosity * laplacian(a),
    })
"""
BOX = ("grid.points=[12, 10, 9]", 'grid.length=["2 pi", 7.0, 5.0]', "initial.peak_wavenumber=2.0")
MODELS = {
    "boussinesq": (
        "equation.model=boussinesq",
        "equation.diffusivity=0.02",
        "equation.buoyancy_frequency=2.0",
        "equation.rotation=1.0",
    ),
    "mhd": (
        "equation.model=mhd",
        "equation.resistivity=0.02",
        "equation.mean_field=0.7",
        "equation.ion_inertial_length=0.1",
    ),
    "smagorinsky": (
        "equation={ model = 'smagorinsky', viscosity = 0.02, width = 0.6 }",
        "scalars=[{ diffusivity = 0.02, mean_gradient = [0, 0, 1] }]",
    ),
    "isothermal": ("equation={ model = 'isothermal', viscosity = 0.02, sound_speed = 2.0 }",),
    "chollet-lesieur": (
        "equation={ model = 'chollet-lesieur', viscosity = 0.02, cutoff = 3.5 }",
        "scalars=[{ diffusivity = 0.02, mean_gradient = [0, 0, 1] }]",
        "numerics.dealiasing='2/3 sphere'",
    ),
    "argle": (
        "equation={ model = 'argle', sound_speed = 1.0, healing_length = 0.5 }",
        "initial.flow=formula",
        "initial.fields={ psi_real = '1 + 0.5*cos(x)', velocity = ['0', 'sin(2*x)', 'cos(x)'] }",
        "numerics.dealiasing=1/2",
    ),
    "followed": "followed",
    "own": "derived",
    "driven": "driven",
}


@pytest.fixture
def model(request, comm, shared_folder):
    """Return the settings of a model by its name; one's own is in a file that all ranks see."""
    path = shared_folder / "own.py"
    if comm is None or comm.rank == 0:
        path.write_text(OWN)
    if comm is not None:
        comm.Barrier()
    settings = MODELS[request.param]
    if isinstance(settings, str):
        settings = (f"equation={{ model = '{path}:{settings}', viscosity = 0.02 }}",)
    own_flow = any(one.startswith("initial.") for one in settings)
    return BOX[: 2 if own_flow else 3] + settings


# What of a model is exchanged, and summed over ranks, these have all of.
SHARED = "mhd", "driven", "smagorinsky", "chollet-lesieur", "followed"
of_each_model = pytest.mark.parametrize(
    "model",
    [pytest.param(name, marks=() if name in SHARED else pytest.mark.one_rank) for name in MODELS],
    indirect=True,
)
of_ones_own = pytest.mark.parametrize("model", ["driven"], indirect=True)
of_all_kinds = pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("driven", "float64"),
        ("followed", "float64"),
        *((name, "float32") for name in ("mhd", "isothermal", "argle")),
    ],
    indirect=["model"],
)


@pytest.mark.samples(2)
@pytest.mark.slow
@of_each_model
def test_result_depends_neither_on_the_number_of_ranks_nor_on_the_schedule(comm, device, model):
    def alone():
        serial = advance(start(device, *model), 3)
        return modes_of(serial), serial.diagnostics(), serial.step_size()

    expected, row, step_size = on_first_rank(comm, alone)
    shared = advance(start(device, *model, "run.schedule=overlap", comm=comm), 3)
    ordered = advance(start(device, *model, "run.schedule=serial", comm=comm), 3)
    assert modes_of(shared).tobytes() == modes_of(ordered).tobytes()
    assert courant_rate(shared.flow) == courant_rate(ordered.flow)
    # A scalar has come out of the random flow.
    assert np.abs(expected[3:]).max() > 1e-5
    mine = np.abs(modes_of(shared) - own_part(shared, expected)).max(initial=0.0)
    # Only the grouping of transforms differs, so errors are a few roundings per step.
    assert mine <= 1e-12 * np.abs(expected).max()
    many = shared.diagnostics()
    assert many.keys() == row.keys()
    for name in row:
        # The residual is the small difference of large terms.
        if not name.endswith("residual"):
            assert many[name] == pytest.approx(row[name], rel=1e-11, abs=1e-12, nan_ok=True), name
    assert shared.step_size() == step_size


@pytest.mark.several_ranks
@of_all_kinds
def test_run_goes_on_from_a_state_on_another_number_of_ranks(
    comm, device, model, precision, shared_folder
):
    model = (*model, f"numerics.precision={precision}")
    serial = advance(start(device, *model), 2)
    leave_state(serial, shared_folder, comm)
    whole = modes_of(advance(serial, 2))
    settings = [one for one in model if not one.startswith("initial.")]
    shared = start(device, *settings, f"initial.restart={shared_folder}", comm=comm)
    assert shared.step == 2
    advance(shared, 2)
    error = np.abs(modes_of(shared) - own_part(shared, whole)).max(initial=0.0)
    assert error <= (1e-12 if precision == "float64" else 1e-5) * np.abs(whole).max()


@of_ones_own
def test_case_with_a_model_of_ones_own_is_sent_between_ranks(comm, device, model):
    case = make_case(*model)
    if comm is None:
        sent = pickle.loads(pickle.dumps(case))
    else:
        sent = comm.bcast(case if comm.rank == 0 else None, root=0)
    assert sent == case
    assert type(sent) is type(case)
    assert sent.to_toml() == case.to_toml()
    simulation = SpectralSimulation(sent, comm, device)
    assert [str(one) for one in simulation.problem.model.components][3] == "a"


PLANE = (
    "grid.points=[20, 18, 1]",
    "equation={ model = 'mhd2d', viscosity = 0.02, resistivity = 0.02, mean_field = 0.3 }",
    "forcing={ kind = 'random', field = 'vorticity', shells = [2, 3] }",
)
COUPLED = (*BOX, *MODELS["boussinesq"], "numerics.linear=all")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        pytest.param(PLANE, 1e-12, id="functions of the wavenumber"),
        pytest.param((*PLANE, "numerics.precision=float32"), 1e-5, id="single precision"),
        *(
            pytest.param((*COUPLED, f"time.integrator={name}"), 1e-12, id=f"coupled terms, {name}")
            for name in ("rk4", "etdrk4", "ars233")
        ),
    ],
)
def test_linear_terms_are_exact_on_any_ranks_and_wherever_fields_are(
    comm, device, settings, tolerance, shared_folder
):
    def alone():
        serial = advance(start(device, *settings), 2)
        leave_state(serial, shared_folder, None)
        return modes_of(advance(serial, 2))

    expected = on_first_rank(comm, alone)
    rest = [one for one in settings if not one.startswith("initial.")]
    others = [(settings, 4), ((*rest, f"initial.restart={shared_folder}"), 2)]
    if "numerics.linear=all" in settings:
        others.append(((*settings, "run.residency=host", "run.streaming.tiles=3"), 4))
    for own, steps in others:
        shared = advance(start(device, *own, comm=comm), steps)
        error = np.abs(modes_of(shared) - own_part(shared, expected)).max(initial=0.0)
        assert error <= tolerance * np.abs(expected).max()
