"""Values of wrong kinds, set and given wherever users can: one line on all ranks, or they count."""

import inspect

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fft_cases import alike
from slipstream import Advection, InputError, PorousFlow, RunError, Turbulence

pytestmark = pytest.mark.filterwarnings("ignore")
VALUES = (
    None, -1, 0, 3, 1e308, float("nan"), "x", "", b"y", [], [1, "a"], {}, {"a": 1}, np.zeros(3),
    np.array(["a"]), True, 1j, max, (1, 2, 3), int,
)  # fmt: skip
# What ends or writes, or is called at other places.
APART = {"close", "show", "output", "movie", "run", "step", "checkpoint", "prepare", "copy"}
MADE = {
    "turbulence": lambda **where: Turbulence(
        points=8,
        viscosity=0.1,
        initial="taylor-green",
        step=0.01,
        forcing={"kind": "abc", "amplitude": 0.1},
        **where,
    ),
    "pores": lambda **where: PorousFlow(
        np.random.default_rng(0).random((8, 8, 8)) > 0.2, interval=10, **where
    ),
    "tracer": lambda **where: Advection(points=8, width=0.2, **where),
}


def public(owner):
    return sorted(name for name in dir(owner) if not name.startswith("_"))


def refused(call):
    """Return whether a call is refused in one line; other errors are raised."""
    try:
        call()
    except (InputError, RunError) as error:
        assert "\n" not in str(error)
        return True
    return False


def views_of(sim):
    field = next(iter(sim.fields))
    found = [sim, sim.fields, sim.fields[field], sim.every(steps=1000, call=lambda _: None)]
    if isinstance(sim, Turbulence):
        found += [sim.modes, sim.modes["velocity"], sim.parameters, sim.forcing]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", MADE)
@alike(examples=4)
@given(number=st.integers(0, len(VALUES) - 1))
def test_attributes_are_set_or_refused(comm, device, family, number):
    sim, value = MADE[family](comm=comm, device=device), VALUES[number]
    for view in views_of(sim):
        for name in (*public(view), "viscosty"):

            def assign(view=view, name=name):
                setattr(view, name, value)

            if not refused(assign):
                # It counts: it is what the attribute is now.
                now = getattr(view, name)
                same = np.array_equal(now, value) or now == value
                assert same or np.isclose(now, value), (name, now)
    sim.close()


@pytest.mark.parametrize("family", MADE)
@alike(examples=4)
@given(number=st.integers(0, len(VALUES) - 1))
@example(number=10)
@example(number=13)
def test_methods_take_or_refuse_arguments(comm, device, family, number):
    sim, value = MADE[family](comm=comm, device=device), VALUES[number]
    for view in views_of(sim)[:3]:
        for name in sorted(set(public(view)) - APART):
            if isinstance(inspect.getattr_static(view, name), property):
                continue
            method = getattr(view, name, None)
            if not callable(method) or isinstance(method, type):
                continue
            for argument in inspect.signature(method).parameters.values():
                if argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
                    given_value = {argument.name: value}
                    try:
                        refused(lambda m=method, g=given_value: m(**g))
                    except TypeError as error:
                        # The call lacks other arguments.
                        assert "missing" in str(error) or "argument" in str(error), name
    for container in (sim.fields, *((sim.modes,) if family == "turbulence" else ())):
        refused(lambda container=container: container[value])
    sim.step(2)
    sim.close()


def test_what_one_rank_gives_wrongly_is_refused_on_all(comm, device, tmp_path):
    sim = MADE["turbulence"](comm=comm, device=device)
    is_last = sim.rank == sim.ranks - 1
    velocity, modes = sim.fields["velocity"], sim.modes["velocity"]
    for call in (
        lambda: velocity.plane("w" if is_last else "z", 0),
        lambda: velocity.plane("z", "a" if is_last else 0),
        lambda: velocity.at("a" if is_last else [[0, 0, 0]]),
        lambda: modes.__setitem__(99 if is_last else 0, 0),
        lambda: modes.__setitem__(0, "a" if is_last else 0),
        lambda: sim.fields.__setitem__("a" if is_last else "velocity", 0),
        lambda: sim.modes.__setitem__(3 if is_last else "velocity", 0),
        lambda: sim.output("nothing" if is_last else "pressure", file=tmp_path / "a.zarr"),
        lambda: sim.output("pressure", file=3 if is_last else tmp_path / "a.zarr"),
        lambda: sim.average("pressure", every=1, batch=2, box=3 if is_last else None),
        lambda: sim.run(until=1, output=tmp_path / "run", overwrite="no" if is_last else True),
    ):
        assert refused(call), inspect.getsource(call)
    if sim.ranks > 1:
        one = "velocity_x" if is_last else "velocity_y"
        for call in (
            lambda: sim.density(one),
            lambda: sim.density("velocity_x", means=one),
            lambda: sim.spectrum(one),
            lambda: sim.spectrum("velocity_x", one),
            lambda: sim.evaluate(one),
            lambda: sim.statistics("structure" if is_last else "pdf"),
        ):
            with pytest.raises(InputError, match="ranks disagree"):
                call()
        assert refused(lambda: velocity.plane("z", 3 if is_last else 0))
        assert refused(lambda: velocity.at(np.zeros((2 if is_last else 1, 3))))
    sim.step()
    assert sim.steps == 1
    sim.close()
