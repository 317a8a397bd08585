"""Settings that are changed between steps: what follows is what a run with them does."""

import json

import numpy as np
import pytest

from first_rank import on_first_rank
from refusals import refused
from slipstream import Advection, Flow, InputError, PorousFlow, Turbulence
from slipstream import open as open_run
from slipstream.equations import Model, Scalar, Vector, div, dot, laplacian, outer, z_hat
from slipstream.runs.resuming import resume_run

# Flows on so few points are hardly resolved, which is said.
pytestmark = pytest.mark.filterwarnings("ignore:kmax_eta", "ignore:.*will make kmax_eta")
ABC = {"kind": "abc", "amplitude": 0.2}
RANDOM = {"kind": "random", "amplitude": 0.2, "correlation_time": 0.015}


def turbulence(comm, device, **options):
    given = {"points": 8, "viscosity": 0.02, "initial": "taylor-green", "step": 0.01}
    return Turbulence(**{**given, "comm": comm, "device": device, **options})


def host(array):
    return array.get() if hasattr(array, "get") else np.asarray(array)


def bits(sim):
    fields = ("velocity", "scalar") if "scalar" in sim.modes else ("velocity",)
    return [host(sim.modes[name][...]).tobytes() for name in fields]


def change(sim, settings):
    for name, value in settings.items():
        owner, _, attribute = name.rpartition(".")
        owners = {"": sim, "forcing": sim.forcing} if sim.case.forcing else {"": sim}
        target = sim.scalars["scalar"] if owner == "scalars" else owners[owner]
        setattr(target, attribute, value)


SCALAR = {"scalars": {"diffusivity": 0.03}}


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "settings"),
    [
        ({}, {"viscosity": 0.05}),
        ({}, {"viscosity": 0.0}),
        ({}, {"rotation": 2.0}),
        ({"rotation": 2.0}, {"rotation": 0.5}),
        ({"rotation": 2.0}, {"rotation": 0}),
        ({}, {"viscosity_power": 2}),
        ({"viscosity_power": 2}, {"viscosity": 1e-4}),
        ({"integrating_factor": False}, {"viscosity": 0.05}),
        (SCALAR, {"scalars.diffusivity": 0.1}),
        ({"integrator": "rk2"}, {"time_step": 0.02}),
        ({"forcing": ABC}, {"forcing.amplitude": 0.5}),
        ({"forcing": ABC}, {"forcing.amplitude": 0.0}),
        ({"forcing": ABC}, {"forcing.injection": 0.1, "viscosity": 0.05}),
        ({"forcing": ABC}, {"forcing.coefficients": (1.0, 0.5, 2.0)}),
        ({"forcing": RANDOM}, {"forcing.amplitude": 0.5}),
        ({"forcing": {**RANDOM, "injection": 0.1}}, {"forcing.injection": 0.2}),
        ({"precision": "float32", "run": {"schedule": "serial"}}, {"viscosity": 0.05}),
        ({"run": {"residency": "host"}}, {"viscosity": 0.05, "rotation": 1.0}),
    ],
    ids=str,
)
def test_steps_after_a_change_have_the_bits_of_a_run_with_it(
    comm, device, shared_folder, first, settings
):
    sim = turbulence(comm, device, **first)
    sim.step(2)
    sim.checkpoint(shared_folder)
    change(sim, settings)
    options = {"initial": {"restart": str(shared_folder)}, **first}
    for name, value in settings.items():
        table, _, key = name.rpartition(".")
        if table:
            options[table] = {**options[table], key: value}
        else:
            options["step" if name == "time_step" else name] = value
    fresh = turbulence(comm, device, **options)
    for one in (sim, fresh):
        one.step(3)
    assert (sim.steps, sim.time) == (fresh.steps, fresh.time)
    assert bits(sim) == bits(fresh)
    mine, theirs = sim.diagnostics, fresh.diagnostics
    names = [name for name in mine if not name.endswith("residual")]
    np.testing.assert_array_equal([mine[one] for one in names], [theirs[one] for one in names])
    # And back, which is no other step than before.
    assert sim.fields["pressure"].rms() == fresh.fields["pressure"].rms()


def test_adaptive_steps_follow_at_once(comm, device):
    sim = turbulence(comm, device, step=None, cfl=0.5)
    before = sim.time_step
    sim.cfl = 0.25
    assert sim.time_step == before / 2
    sim.max_step = before / 8
    sizes = []

    def look(s):
        sizes.append(s.time)
        if s.steps == 1:
            s.max_step = before / 16

    sim.every(steps=1, call=look)
    sim.step(2)
    np.testing.assert_allclose(np.diff(sizes), [before / 8, before / 16])
    sim.time_step = before / 4
    assert (sim.cfl, sim.max_step, sim.time_step) == (None, None, before / 4)
    sim.max_step = 0.01
    assert (sim.cfl, sim.max_step) == (0.8, 0.01)


def test_what_is_evaluated_follows(comm, device):
    sim = turbulence(comm, device)
    damping = sim.evaluate("viscosity * laplacian(velocity_x)")
    pressure = sim.fields["pressure"]
    before, still = damping.rms(), pressure.rms()
    sim.viscosity = 0.04
    assert damping.rms() == pytest.approx(2 * before)
    sim.rotation = 1.0
    turning = turbulence(comm, device, rotation=1.0).fields["pressure"].rms()
    assert pressure.rms() == pytest.approx(turning) != still


def stratified(viscosity: float, frequency: float):
    u, b = Vector("velocity", solenoidal=True), Scalar("buoyancy")
    return Model(
        {
            u: -div(outer(u, u)) + viscosity * laplacian(u) + frequency * b * z_hat,
            b: -div(b * u) - frequency * dot(u, z_hat) + viscosity * laplacian(b),
        }
    )


def test_parameters_of_any_model_are_changed_by_their_names(comm, device):
    def made(frequency):
        return Flow(
            stratified, points=8, viscosity=0.02, frequency=frequency, step=0.01, comm=comm,
            device=device, initial={"velocity": ["0", "0", "cos(x)"]},
        )  # fmt: skip

    sim, attribute, whole = made(1.0), made(1.0), made(3.0)
    sim.parameters["frequency"] = 3
    attribute.frequency = 3.0
    assert sim.frequency == attribute.parameters["frequency"] == 3.0
    assert list(sim.parameters) == ["viscosity", "frequency"]
    results = []
    for one in (sim, attribute, whole):
        one.step(2)
        results.append(host(one.modes["buoyancy"][...]).tobytes())
    assert results[0] == results[1] == results[2]
    assert sim.copy().frequency == 3.0


def test_waves_of_another_frequency_limit_the_step(comm, device):
    sim = turbulence(comm, device, step=None, cfl=0.5)
    before = sim.time_step
    sim.rotation = 100.0
    assert sim.time_step == pytest.approx(0.5 / (0.5 / before + 200.0))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("viscosty", 1.0, "has no attribute 'viscosty'; did you mean 'viscosity'?"),
        ("viscosity", -1.0, "equation.viscosity: must be at least 0, not -1"),
        ("viscosity", "0.1", "equation.viscosity: must be a number"),
        ("viscosity", None, "equation.viscosity"),
        ("scalars", 2, "scalars is read-only"),
        ("cfl", 3.0, "time.cfl: must be at most 2"),
        ("step", 0.1, "step is a method"),
        ("time", 0.1, "time is read-only"),
        ("forcing", 0.1, "sim.forcing.amplitude"),
        ("case", 0.1, "case is read-only"),
    ],
)
def test_what_cannot_be_set_is_refused_and_changes_nothing(comm, device, name, value, text):
    sim, other = turbulence(comm, device), turbulence(comm, device)
    with refused() as caught:
        setattr(sim, name, value)
    assert text in str(caught.value)
    for one in (sim, other):
        one.step(2)
    assert bits(sim) == bits(other)


def test_views_refuse_attributes_too(comm, device):
    sim = turbulence(comm, device, forcing=ABC)
    field = sim.fields["velocity"]
    callback = sim.every(steps=10, call=print)
    views = (sim.fields, field, sim.modes, sim.modes["velocity"], sim.parameters, sim.forcing)
    for view in (*views, callback, sim.case, sim.case.time):
        with pytest.raises(InputError):
            view.viscosity = 1.0
    with pytest.raises(InputError, match="unit is read-only"):
        field.unit = "m/s"
    with pytest.raises(InputError, match="there is no 'viscos'; did you mean 'viscosity'"):
        sim.parameters["viscos"] = 1.0


def test_derived_classes_have_the_attributes_that_they_declare(comm, device):
    class Mine(Turbulence):
        history: list
        limit = 3

    sim = Mine(points=8, viscosity=0.02, comm=comm, device=device)
    sim.history, sim.limit = [], 4
    sim.history = [sim.limit]
    with pytest.raises(InputError, match="did you mean 'history'"):
        sim.histroy = []


@pytest.mark.several_ranks
def test_ranks_that_set_other_values_all_fail(comm, device, ranks):
    sim = turbulence(comm, device)
    with pytest.raises(InputError, match="ranks disagree on viscosity"):
        sim.viscosity = 0.02 + sim.rank
    sim.step()
    assert sim.viscosity == 0.02


def test_a_step_that_misses_what_is_to_come_is_refused(comm, device):
    sim = turbulence(comm, device)
    results = []

    def slower(s):
        if s.steps == 2:
            for size in (0.03, 0.025, 0.02):
                try:
                    s.time_step = size
                except InputError as error:
                    results.append(str(error))

    sim.every(steps=1, call=slower)
    sim.every(0.04, lambda s: None)
    sim.run(until=0.08)
    assert (sim.steps, sim.time_step) == (5, 0.02)
    assert [text.partition(":")[0] for text in results] == ["every", "until"] or len(results) == 2


@pytest.mark.slow
def test_a_run_keeps_what_was_changed_and_goes_on_with_it(comm, device, shared_folder):
    folder = shared_folder / "run"

    def run(end):
        sim = turbulence(
            comm, device, forcing=ABC, output={"checkpoint_interval": 0.02, "pictures": False}
        )

        def turn(s):
            if s.steps == 3:
                s.viscosity = 0.05
                s.rotation = 2.0

        sim.every(steps=1, call=turn)
        sim.run(until=end, output=folder)
        return sim

    run(0.05)
    segment = on_first_rank(comm, lambda: json.loads((folder / "run.json").read_text()))[
        "segments"
    ][0]
    assert segment["changes"] == [
        {"step": 3, "time": 0.03, "key": "equation.viscosity", "before": 0.02, "after": 0.05},
        {"step": 3, "time": 0.03, "key": "equation.rotation", "before": 0.0, "after": 2.0},
    ]
    assert "equation.viscosity: 0.02 -> 0.05" in on_first_rank(comm, (folder / "run.log").read_text)
    opened = open_run(folder)
    restarted = opened.restart(comm=comm, device=device)
    assert (restarted.viscosity, restarted.rotation) == (0.05, 2.0)
    earlier = next(one for one in opened.states if one.step == 4)
    assert opened.restart(state=earlier, comm=comm, device=device).viscosity == 0.05
    resume_run(folder, ["time.end=0.08"], comm, device)
    whole = turbulence(comm, device, forcing=ABC)
    whole.step(3)
    whole.viscosity, whole.rotation = 0.05, 2.0
    whole.step(5)
    assert bits(open_run(folder).restart(comm=comm, device=device)) == bits(whole)


def test_a_state_has_the_changes_that_were_made_before_it(comm, device, shared_folder):
    folder = shared_folder / "run"
    sim = turbulence(comm, device, output={"checkpoint_interval": 0.02, "pictures": False})

    def fail(s):
        if s.steps == 3:
            s.viscosity = 0.05
            raise ValueError("the reason")

    sim.every(steps=1, call=fail)
    with pytest.raises(ValueError, match="the reason"):
        sim.run(until=0.05, output=folder)
    # The last state was written where the function failed.
    for state, viscosity in zip(open_run(folder).states, (0.02, 0.05), strict=True):
        restarted = open_run(folder).restart(state=state, comm=comm, device=device)
        assert restarted.viscosity == viscosity
    assert open_run(folder).restart(comm=comm, device=device).viscosity == 0.05


@pytest.mark.slow
def test_a_series_gains_the_diagnostics_of_new_terms(comm, device, shared_folder):
    def model(growth: float):
        s = Scalar("s")
        return Model({s: growth * s + 0.01 * laplacian(s)})

    options = {"points": (8, 8, 1), "step": 0.01, "initial": {"s": "1 + cos(x)"}}
    sim = Flow(
        model, growth=0.0, comm=comm, device=device, **options,
        output={"diagnostics_interval": 0.01, "pictures": False},
    )  # fmt: skip

    def grow(s):
        if s.steps == 2:
            s.growth = 0.5

    sim.every(steps=1, call=grow)
    sim.run(until=0.04, output=shared_folder / "run")
    driving = open_run(shared_folder / "run").series["driving"]
    assert np.isnan(driving[:3]).all()
    assert (driving[3:] > 0).all()


@pytest.mark.slow
def test_flow_through_pores_follows_its_fluid_and_drive(comm, device, shared_folder):
    image = np.random.default_rng(3).random((12, 12, 12)) > 0.2

    def made(**options):
        return PorousFlow(image, comm=comm, device=device, **{"tolerance": 0.0, **options})

    for name, value in (("relaxation_time", 0.8), ("force", 2e-5), ("magic", 0.25)):
        sim = made()
        sim.step(50)
        sim.checkpoint(shared_folder / name)
        setattr(sim, name, value)
        fresh = made(**{name: value, "restart": shared_folder / name})
        for simulation in (sim, fresh):
            simulation.step(20)
        assert getattr(sim, name) == value
        for name in ("velocity", "density"):
            np.testing.assert_array_equal(sim.fields[name].gather(), fresh.fields[name].gather())
    sim = made(tolerance=0.1, interval=10)
    sim.run()
    steps = sim.steps
    sim.tolerance = 1e-9
    assert not sim.finished
    sim.run()
    assert sim.steps > steps
    permeability = sim.permeability
    sim.force = 3e-5
    assert not sim.finished
    sim.run()
    assert sim.permeability == pytest.approx(permeability, rel=1e-3)
    with pytest.raises(InputError, match="pressure_drop"):
        sim.pressure_drop = 1e-3
    assert sim.force == 3e-5
    with pytest.raises(InputError, match="must be greater than 0.5"):
        sim.relaxation_time = 0.4


def test_the_velocity_of_a_tracer_stays(comm, device):
    tracer = Advection(points=8, width=0.2, comm=comm, device=device)
    with pytest.raises(InputError, match="accepted: a new Advection"):
        tracer.courant = 0.5
    assert tracer.courant == (1.0, 1.0, 1.0)
    with pytest.raises(InputError, match="no attribute 'cournat'; did you mean 'courant'"):
        tracer.cournat = 0.5
