"""Simulations as Python objects: stepped, read, set and copied, on any number of ranks."""

import gc
import itertools
import math
import os
import re
import signal
import warnings
import weakref

import numpy as np
import pytest

from first_rank import on_first_rank
from refusals import refused
from slipstream import Advection, Flow, PorousFlow, Turbulence
from slipstream.api.opened_run import load, open_run
from slipstream.engine.errors import InputError, RunError
from slipstream.equations import Model, Scalar, Vector, curl, div, dot, laplacian, outer

N = 16
# Flows on so few points are hardly resolved, which is said.
pytestmark = pytest.mark.filterwarnings("ignore:kmax_eta", "ignore:.* has a divergence")


def turbulence(comm, device, **options):
    given = {"points": N, "viscosity": 0.02, "initial": "taylor-green", "step": 0.01}
    return Turbulence(**{**given, "comm": comm, "device": device, **options})


def kept_noise(seed, shape=(3, N, N, N)):
    """Return smooth values that dealiasing keeps, the same on all ranks."""
    modes = np.fft.fftn(np.random.default_rng(seed).standard_normal(shape), axes=(1, 2, 3))
    waves = np.abs(np.fft.fftfreq(N, 1 / N)) <= N // 3
    return np.fft.ifftn(modes * np.einsum("z,y,x->zyx", waves, waves, waves), axes=(1, 2, 3)).real


def solenoidal(values):
    """Return the part of a periodic vector (x, y, z component; z, y, x axes) without divergence."""
    modes = np.fft.fftn(values, axes=(1, 2, 3))
    k = np.fft.fftfreq(N, 1 / N)
    waves = np.array(np.meshgrid(k, k, k, indexing="ij"))[::-1]  # x, y, z
    square = np.where((waves**2).sum(axis=0) > 0, (waves**2).sum(axis=0), 1)
    modes -= waves * (waves * modes).sum(axis=0) / square
    return np.fft.ifftn(modes, axes=(1, 2, 3)).real


def host(array):
    return array.get() if hasattr(array, "get") else np.asarray(array)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_field_that_is_set_is_read_back(comm, device, precision):
    sim = turbulence(comm, device, precision=precision)
    values = solenoidal(kept_noise(1))
    view = sim.fields["velocity"]
    view[...] = values[view.region]
    tolerance = {"float64": 1e-13, "float32": 1e-5}[precision]
    np.testing.assert_allclose(host(view[...]), values[view.region], atol=tolerance)
    np.testing.assert_allclose(view.gather(), values, atol=tolerance)
    only = view.gather(root=0)
    assert (only is None) == (sim.rank > 0)
    assert sim.diagnostics["energy"] == pytest.approx((values**2).sum(0).mean() / 2, rel=tolerance)
    one = sim.fields["velocity_y"]
    np.testing.assert_allclose(host(one[...]), values[1][one.region], atol=tolerance)


def test_what_is_set_is_made_what_it_can_be_and_said(comm, device):
    sim, values = turbulence(comm, device), kept_noise(2)
    view = sim.fields["velocity"]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        view[...] = values[view.region]
    assert [str(one.message).split(" has a ")[0] for one in found] == (
        ["fields['velocity']: velocity"] if sim.rank == 0 else []
    )
    np.testing.assert_allclose(view.gather(), solenoidal(values), atol=1e-13)


def test_arrays_that_their_library_does_not_give_are_refused_in_its_words(comm, device):
    class Tensor:
        """As one of PyTorch's that has a gradient."""

        def __dlpack__(self, **_options):
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

        def __dlpack_device__(self):
            return 1, 0

    sim = turbulence(comm, device)
    with pytest.raises(InputError, match=r"fields\['velocity'\]: .* use tensor.detach"):
        sim.fields["velocity"][...] = Tensor()


def test_what_is_refused_leaves_the_state_as_it_was(comm, device):
    sim = turbulence(comm, device)
    sim.step(2)
    before = sim.fields["velocity"].gather()
    z, y, x = np.meshgrid(*[2 * np.pi * np.arange(N) / N] * 3, indexing="ij")
    gradient = np.stack([np.cos(x) * np.sin(y), np.sin(x) * np.cos(y), 0 * z])
    infinite = np.where(x == 0, np.inf, before)
    view = sim.fields["velocity"]
    wrong = {
        "gradient part": gradient[view.region],
        "finite number": infinite[view.region],
        "shape": np.zeros((3, 4, 5, 6)),
        "real numbers": before[view.region] * 1j,
        "there is no 'speed'": None,
    }
    for text, values in wrong.items():
        with pytest.raises(InputError, match=text):
            sim.fields["speed" if values is None else "velocity"][...] = values
    if sim.ranks > 1:
        with pytest.raises(InputError, match=r"values\[fields\['velocity'\].region\]"):
            view[...] = before
    np.testing.assert_allclose(view.gather(), before, atol=1e-14)
    twin = turbulence(comm, device)
    twin.step(4)
    sim.step(2)
    assert host(sim.modes["velocity"][...]).tobytes() == host(twin.modes["velocity"][...]).tobytes()


def test_part_of_a_field_and_arithmetic(comm, device):
    sim = turbulence(comm, device)
    whole = sim.fields["velocity"].gather()
    sim.fields["velocity"] *= 2
    np.testing.assert_allclose(sim.fields["velocity"].gather(), 2 * whole, atol=1e-14)
    assert np.abs(host(sim.fields["velocity_z"][...])).max(initial=0) < 1e-14
    sim.fields["velocity"][2] = 0.5  # uniform, so there is no divergence
    assert np.ptp(sim.fields["velocity_z"].gather()) < 1e-13
    sim.fields["velocity_z"][...] = 0.25
    np.testing.assert_allclose(sim.fields["velocity_z"].gather(), 0.25, atol=1e-14)


def test_functions_of_numpy_take_this_ranks_part(comm, device):
    sim = turbulence(comm, device)
    view = sim.fields["velocity"]
    part, module = view[...], sim.array_module
    assert len(view) == 3
    for one, other in zip(view, part, strict=True):
        np.testing.assert_array_equal(host(one), host(other))
    if part.size:
        assert np.mean(view) == part.mean()
        assert float(np.max(view)) == float(part.max())
    stacked = np.concatenate([view, view], axis=0)
    np.testing.assert_array_equal(host(stacked), host(module.concatenate([part, part])))


def test_a_fluid_at_rest_reaches_the_end(comm, device):
    sim = turbulence(comm, device, step=None, initial=None)
    sim.run(until=1.0)
    sim.run(until=2.0)
    assert (sim.time, sim.diagnostics["energy"]) == (2.0, 0.0)


def test_steps_that_grow_without_bound_are_counted_all_the_same(comm, device):
    sim = turbulence(comm, device, points=8, viscosity=1.0, step=None, cfl=2.0)
    sim.step(30)
    assert sim.time > 1e18  # a number to which 30 adds nothing
    sim.run(steps=30, progress=True)
    assert sim.steps == 60


def test_modes_are_those_of_the_field(comm, device):
    sim, values = turbulence(comm, device), solenoidal(kept_noise(3))
    view = sim.fields["velocity"]
    view[...] = values[view.region]
    modes, (kz, ky, kx) = host(sim.modes["velocity"][...]), sim.wavenumbers
    expected = np.fft.fftn(values, axes=(1, 2, 3)) / N**3
    places = [np.broadcast_to(k, modes.shape[1:]).astype(int) for k in (kz, ky, kx)]
    np.testing.assert_allclose(modes, expected[:, *places], atol=1e-15)
    energy = sim.diagnostics["energy"]
    sim.modes["velocity"][...] = 2 * modes
    assert sim.diagnostics["energy"] == pytest.approx(4 * energy)
    sim.modes["velocity"][:2] = 0  # for kx = ky = 0 the z component alone has divergence
    assert sim.diagnostics["divergence"] < 1e-12
    if isinstance(sim.modes["velocity"][...], np.ndarray):
        with pytest.raises(ValueError, match="read-only"):
            sim.modes["velocity"][...][0] = 1


def test_modes_of_no_real_field_are_made_those_of_one_and_said(comm, device):
    sim = turbulence(comm, device, scalars=1)
    random = np.random.default_rng(4)
    whole = random.standard_normal((11, 11, 6)) + 1j * random.standard_normal((11, 11, 6))
    whole[..., 1:] *= 0.1
    ky_slice = slice(*sim.solver.problem.geometry.spectral_box.slices()[1].indices(11)[:2])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sim.modes["scalar"] = whole[:, ky_slice]
    opposite = (-np.arange(11)) % 11
    expected, plane = whole.copy(), whole[..., 0]
    expected[..., 0] = (plane + plane[opposite][:, opposite].conj()) / 2
    np.testing.assert_allclose(np.asarray(sim.modes["scalar"]), expected[:, ky_slice], atol=1e-14)

    def square(modes):
        return (np.abs(modes) ** 2 * [1, 2, 2, 2, 2, 2]).sum()

    assert sim.fields["scalar"].rms() ** 2 == pytest.approx(square(expected))
    lost = 100 * square(whole - expected) / square(whole)
    told = [str(one.message) for one in caught]
    assert len(told) == (sim.rank == 0)
    for text in told:
        assert text.startswith("modes['scalar']: scalar does not describe a real field")
        assert f"{lost:.3g} % of its energy is lost" in text
    # What is set to its own values says nothing.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sim.modes["scalar"] = np.asarray(sim.modes["scalar"])
    before = np.asarray(sim.modes["scalar"])
    for wrong, said in (
        (1j, "100 % of its energy is lost"),
        (np.nan, "no finite number|not a fin"),
    ):
        mean = np.zeros_like(before)
        mean[0, :1, 0] = wrong if ky_slice.start == 0 else 0
        with pytest.raises(InputError, match=said):
            sim.modes["scalar"] = mean
        np.testing.assert_array_equal(np.asarray(sim.modes["scalar"]), before)


@pytest.mark.parametrize("has_output", [False, True])
def test_ctrl_c_is_a_keyboard_interrupt_on_all_ranks_and_the_run_goes_on(
    comm, device, shared_folder, has_output
):
    sim = turbulence(comm, device, output={"fields": [], "pictures": False})

    def interrupt(one):
        if one.rank == one.ranks - 1:
            os.kill(os.getpid(), signal.SIGINT)

    callback = sim.every(steps=3, call=interrupt)
    output = {"output": shared_folder / "run"} if has_output else {}
    with pytest.raises(KeyboardInterrupt, match="at step [0-9]+, t = "):
        sim.run(until=1.0, **output)
    steps = sim.steps
    assert steps < 10
    callback.cancel()
    sim.step(2)
    assert sim.steps == steps + 2
    assert math.isfinite(sim.diagnostics["energy"])


@pytest.mark.slow
def test_runs_with_output_say_what_they_need(comm, device, shared_folder):
    quiet = {"fields": [], "pictures": False, "checkpoint": False}
    sim = turbulence(comm, device, output=quiet)
    sim.run(steps=5, output=shared_folder / "fixed", progress=False)
    assert sim.steps == 5
    assert open_run(shared_folder / "fixed").series["time"][-1] == pytest.approx(0.05)
    adaptive = turbulence(comm, device, step=None, cfl=0.5, output=quiet)
    for options in ({"steps": 5}, {"wall": 5.0}, {}):
        with pytest.raises(InputError, match="^run: output= needs until=TIME, since intervals"):
            adaptive.run(**options, output=shared_folder / "adaptive")
    adaptive.run(until=1.0, steps=5, output=shared_folder / "adaptive", progress=False)
    assert adaptive.steps == 5


@pytest.mark.several_ranks
@pytest.mark.parametrize(
    ("what", "read"),
    [
        ("diagnostics", lambda sim: sim.diagnostics),
        ("spectra", lambda sim: sim.spectra),
        ("fields['velocity']", lambda sim: sim.fields["velocity"][...]),
        ("fields['vorticity'].max", lambda sim: sim.fields["vorticity"].max()),
        ("describe", lambda sim: sim.describe()),
        ("_read_modes", lambda sim: sim.modes["velocity"].shape),
    ],
)
def test_what_one_rank_reads_alone_is_refused_on_all(comm, device, what, read):
    sim = turbulence(comm, device)
    sim.step(2)
    said = rf"^rank 0 calls {re.escape(what)}, rank 1 calls step: all ranks have to"
    with pytest.raises(InputError, match=said):
        if sim.rank == 0:
            read(sim)
        sim.step(2)
    # Also by a function that is called between steps.
    sim = turbulence(comm, device)
    callback = sim.every(steps=1, call=lambda one: read(one) if one.rank == 0 else None)
    with pytest.raises(InputError, match=said):
        sim.step(2)
    callback.cancel()
    sim.step(2)
    assert sim.diagnostics["energy"] > 0


def test_what_is_known_is_read_by_any_rank(comm, device):
    sim = turbulence(comm, device)
    sim.step(2)
    energy = sim.diagnostics["energy"]
    if sim.rank == 0:
        assert sim.diagnostics["energy"] == energy
        assert sim.time == pytest.approx(0.02)
        assert (sim.steps, sim.finished) == (2, "")
        assert "velocity" in sim.fields and sim.fields["vorticity_z"].global_shape == (N, N, N)
        repr(sim), repr(sim.fields["velocity"]), sim.labels, sim.wavenumbers
    sim.step(2)
    assert sim.steps == 4


def test_who_steps_through_nothing_is_told_so(comm, device):
    def said(call):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call()
        return [str(one.message).partition(";")[0] for one in found]

    line = "all fields are 0 and no force drives them: they stay 0"
    only_first = [line] if comm is None or comm.rank == 0 else []
    for options in ({}, {"scalars": 1}, {"step": None, "max_step": 0.1}):
        sim = turbulence(comm, device, initial=None, **options)
        assert said(sim.prepare) == []
        assert said(lambda sim=sim: sim.step(3)) == only_first
        assert said(lambda sim=sim: sim.step(3)) == []
        sim.fields["velocity"] = 0.1 * np.ones(sim.fields["velocity"].shape)
        assert said(lambda sim=sim: sim.step(3)) == []
        sim.fields["velocity"] = 0.0
        assert said(lambda sim=sim: sim.step(3)) == only_first
    for options in ({"forcing": "abc"}, {"initial": {"scalar": "cos(x)"}, "scalars": 1}):
        sim = turbulence(comm, device, **{"initial": None, **options})
        assert said(lambda sim=sim: sim.step(2)) == []


def test_a_loop_that_reads_and_sets_at_each_step_changes_nothing_but_rounding(comm, device):
    sim, plain = turbulence(comm, device), turbulence(comm, device)
    for _ in range(4):
        sim.fields["velocity"][...] = sim.fields["velocity"][...]
        sim.step()
        plain.step()
    difference = sim.fields["velocity"].gather() - plain.fields["velocity"].gather()
    assert np.abs(difference).max() < 1e-13


def test_a_loop_has_the_same_bits_on_any_number_of_ranks_where_a_run_has(comm, device):
    def loop(comm, device):
        tracer = Advection(points=8, width=0.2, courant=0.5, comm=comm, device=device)
        for _ in range(4):
            view = tracer.fields["tracer"]
            view[...] = 0.5 * host(view[...]) + 0.1
            tracer.step()
        return tracer.fields["tracer"].gather()

    alone = on_first_rank(comm, lambda: loop(None, "cpu"))
    if device.kind == "cpu":
        assert loop(comm, "cpu").tobytes() == alone.tobytes()
    else:
        np.testing.assert_allclose(loop(comm, device.kind), alone, rtol=1e-13)


def test_reading_changes_no_bit(comm, device):
    sim, plain = turbulence(comm, device), turbulence(comm, device)
    for _ in range(3):
        sim.step()
        sim.fields["velocity"].gather()
        _ = sim.diagnostics, sim.spectra
        sim.fields["velocity_x"].plane("z", 0.1)
    plain.step(3)
    assert (
        host(sim.modes["velocity"][...]).tobytes() == host(plain.modes["velocity"][...]).tobytes()
    )


def test_functions_are_called_at_exactly_their_times(comm, device):
    sim = turbulence(comm, device, step=None, cfl=0.5)
    seen = {"interval": [], "steps": [], "times": []}
    sim.every(0.15, lambda s: seen["interval"].append(s.time))
    sim.every(steps=2, call=lambda s: seen["steps"].append(s.steps))

    @sim.every(times=[0.1, 0.31])
    def look(s):
        seen["times"].append(s.time)

    sim.run(until=0.5)
    sim.run(until=0.7)
    assert sim.time == pytest.approx(0.7, abs=1e-14)
    np.testing.assert_allclose(seen["interval"], [0, 0.15, 0.3, 0.45, 0.6], atol=1e-14)
    np.testing.assert_allclose(seen["times"], [0.1, 0.31], atol=1e-14)
    assert seen["steps"] == list(range(0, sim.steps + 1, 2))


def test_fixed_steps_refuse_times_that_they_miss(comm, device):
    sim = turbulence(comm, device)
    with pytest.raises(InputError, match=r"do not hit time 0.105; nearest: 0.1 and 0.11"):
        sim.run(until=0.105)
    handle = sim.every(0.015, lambda s: None)
    assert repr(handle) == "<callback <lambda>>"
    with pytest.raises(InputError, match="the first argument is the interval"):
        sim.every(lambda s: None)
    with pytest.raises(InputError, match=r"interval 0.015; nearest: 0.01 and 0.02"):
        sim.run(until=0.1)
    handle.cancel()
    sim.run(until=0.1)
    assert sim.steps == 10


def test_what_a_function_sets_is_what_the_next_step_begins_with(comm, device):
    sim = turbulence(comm, device, step=None, cfl=0.5)

    def faster(s):
        if s.steps == 2:
            s.fields["velocity"] *= 10

    sim.every(steps=1, call=faster)
    sim.step(2)
    slow = turbulence(comm, device, step=None, cfl=0.5)
    slow.step(2)
    assert sim.time_step == pytest.approx(slow.time_step / 10, rel=0.05)


def test_looking_at_the_step_after_setting_a_field_does_not_keep_the_old_one(comm, device):
    steps = []

    def faster(s):
        if s.steps == 2:
            s.fields["velocity"] *= 10
            steps.append(s.time_step)
        if s.steps in (2, 3):
            steps.append(s.time)

    sim = turbulence(comm, device, step=None, cfl=0.5)
    sim.every(steps=1, call=faster)
    sim.step(3)
    chosen, before, after = steps
    assert after - before == pytest.approx(chosen, rel=1e-12)


def test_a_function_that_raises_on_one_rank_ends_the_run_on_all(comm, device):
    sim = turbulence(comm, device)

    def fail(s):
        if s.steps == 3 and s.rank == s.ranks - 1:
            raise ValueError("the reason")
        _ = s.diagnostics

    sim.every(steps=1, call=fail)
    with pytest.raises(ValueError if sim.rank == sim.ranks - 1 else RunError, match="the reason"):
        sim.run(until=1.0)
    assert sim.steps == 3
    twin = turbulence(comm, device)
    twin.step(3)
    assert sim.diagnostics["energy"] == twin.diagnostics["energy"]


def test_what_is_lost_in_each_step_is_told_once_in_a_run(comm, device):
    sim = turbulence(comm, device)
    random = np.random.default_rng(5)

    def unresolved(s):
        view = s.fields["velocity_x"]
        view[...] = random.standard_normal(view.global_shape)[view.region]

    sim.every(steps=1, call=unresolved)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            sim.step(3)
        told = [str(one.message) for one in found if "dealiasing discards" in str(one.message)]
        assert len(told) == (sim.rank == 0)


def test_a_function_stops_the_run_on_all_ranks(comm, device, shared_folder):
    sim = turbulence(comm, device, output={"pictures": False})

    def look(s):
        if s.steps in (0, 3, 7) and s.rank == s.ranks - 1:
            s.stop()

    sim.every(steps=1, call=look)
    for reached in (0, 3, 7):
        sim.run(until=1.0, output=shared_folder / "out" if reached == 7 else None)
        assert sim.steps == reached
    sim.step(2)  # the earlier wish is forgotten
    assert sim.steps == 9
    with pytest.raises(InputError, match="stop: nothing runs"):
        sim.stop()
    rows = (shared_folder / "out" / "diagnostics.csv").read_text().splitlines()
    assert float(rows[-1].split(",")[1]) == pytest.approx(0.07)


def test_a_function_cannot_run_or_close_its_simulation(comm, device):
    for call, text in ((lambda s: s.step(), "step and run"), (lambda s: s.close(), "close")):
        sim = turbulence(comm, device)
        sim.every(steps=1, call=call)
        with pytest.raises(InputError, match=text):
            sim.step()
        assert sim.steps == 0


@pytest.mark.parametrize("stepping", [{}, {"step": None, "cfl": 0.5}])
def test_a_copy_goes_on_by_itself_to_the_same_bits(comm, device, stepping):
    sim = turbulence(comm, device, **stepping)
    sim.step(2)
    residual = sim.diagnostics["budget_residual"]
    other = sim.copy()
    assert other.time_step == sim.time_step
    sim.step(2)
    assert other.steps == 2
    other.step(2)
    assert other.time == sim.time
    assert other.diagnostics == sim.diagnostics
    assert sim.diagnostics["budget_residual"] != residual
    assert (
        host(sim.modes["velocity"][...]).tobytes() == host(other.modes["velocity"][...]).tobytes()
    )


def test_a_state_written_from_python_goes_on_to_the_same_bits(comm, device, shared_folder):
    sim = turbulence(comm, device)
    sim.step(3)
    sim.checkpoint(shared_folder)
    later = turbulence(comm, device, initial={"restart": str(shared_folder)})
    assert (later.steps, later.time) == (3, sim.time)
    later.step(2)
    sim.step(2)
    assert (
        host(sim.modes["velocity"][...]).tobytes() == host(later.modes["velocity"][...]).tobytes()
    )


def test_a_state_is_not_written_behind_a_later_one(comm, device, shared_folder):
    for steps in (2, 2, 3):
        sim = turbulence(comm, device)
        sim.step(steps)
        sim.checkpoint(shared_folder)
    earlier = turbulence(comm, device)
    earlier.step(1)
    with pytest.raises(InputError, match="has a state of a later step, 000000003.zarr"):
        earlier.checkpoint(shared_folder)
    assert turbulence(comm, device, initial={"restart": str(shared_folder)}).steps == 3


@pytest.mark.slow
def test_a_run_with_output_writes_what_the_command_line_writes(comm, device, shared_folder):
    sim = turbulence(comm, device)
    calls = []
    sim.every(0.05, lambda s: calls.append(s.time))
    sim.run(until=0.1, output=shared_folder / "out")
    assert len(calls) == 3
    assert {one.name for one in (shared_folder / "out").iterdir()} >= {
        "case.toml",
        "diagnostics.csv",
        "fields.zarr",
        "checkpoints",
        "energy.png",
    }
    rows = (shared_folder / "out" / "diagnostics.csv").read_text().splitlines()
    assert float(rows[-1].split(",")[1]) == pytest.approx(0.1)
    sim.run(until=0.12)
    assert sim.steps == 12


def test_values_between_the_points_and_in_planes(comm, device):
    def velocity(x, y, z):
        return np.sin(x) * np.cos(y) + 0 * z, -np.cos(x) * np.sin(y) + 0 * z, 0 * x

    sim = turbulence(comm, device, points=(24, 16, 12), initial={"velocity": velocity})
    places = np.random.default_rng(0).uniform(-7, 14, (20, 3))
    exact = np.stack(velocity(*places.T), axis=1)
    np.testing.assert_allclose(sim.fields["velocity"].at(places), exact, atol=2e-3)
    points = 2 * np.pi * np.arange(16)[:, None] / 16, 2 * np.pi * np.arange(24) / 24
    plane = sim.fields["velocity"].plane("z", 1.0)
    np.testing.assert_allclose(plane[0], np.sin(points[1]) * np.cos(points[0]), atol=1e-14)
    assert sim.fields["velocity_x"].plane("y", 0).shape == (12, 24)
    with pytest.raises(InputError, match="^plane: position 7 along x is outside; accepted: 0 to"):
        sim.fields["velocity_x"].plane("x", 7)
    field = sim.fields["velocity"]
    field[...] = np.asfortranarray(field.gather()[field.region])
    np.testing.assert_allclose(field.plane("z", 1.0), plane, atol=1e-13)


def part_of(sim, axis):
    """Return the slice of an axis that is this rank's."""
    return sim.fields["velocity_x"].region["zyx".index(axis)]


def test_fields_as_labelled_arrays_and_for_other_libraries(comm, device):
    pytest.importorskip("xarray")
    sim = turbulence(comm, device)
    whole = sim.fields["velocity"].to_xarray(gather=True)
    assert whole.dims == ("component", "z", "y", "x")
    assert whole.sel(component="x", z=0, y=0).sel(x=math.pi / 2).item() == pytest.approx(1.0)
    part = sim.fields["velocity"].to_xarray()
    assert part.shape == sim.fields["velocity"].shape and not part.variable._in_memory
    plane = part.isel(component=0, x=3)
    np.testing.assert_array_equal(plane, whole[0, part_of(sim, "z"), part_of(sim, "y"), 3])
    module = sim.array_module
    np.testing.assert_array_equal(host(module.from_dlpack(sim.fields["velocity"])), part)


def test_expressions_are_fields_that_are_read(comm, device):
    sim = turbulence(comm, device, initial={"flow": "abc", "coefficients": (1.0, 0.7, 0.4)})
    velocity = sim.fields["velocity"].gather()
    np.testing.assert_allclose(sim.fields["vorticity"].gather(), velocity, atol=1e-13)
    u = Vector("velocity")
    for expression in ("dot(velocity, vorticity)", dot(u, curl(u)), "helicity"):
        view = sim.evaluate(expression)
        assert view.mean() == pytest.approx(sim.diagnostics["helicity"])
        np.testing.assert_allclose(view.gather(), (velocity**2).sum(axis=0), atol=1e-12)
    tensor = sim.evaluate("grad(velocity)")
    assert tensor.global_shape == (3, 3, N, N, N)
    np.testing.assert_allclose(np.trace(tensor.gather()), 0, atol=1e-12)
    for view, values in (
        (sim.fields["velocity"], velocity),
        (sim.fields["velocity_x"], velocity[0]),
    ):
        axes = (-3, -2, -1)
        np.testing.assert_allclose(view.max(), values.max(axis=axes), rtol=1e-12)
        np.testing.assert_allclose(view.min(), values.min(axis=axes), rtol=1e-12)
        np.testing.assert_allclose(view.rms(), np.sqrt((values**2).mean(axis=axes)), rtol=1e-12)
    waves, energy = sim.spectrum("velocity")
    assert energy[1] == pytest.approx(sim.diagnostics["energy"])
    assert sim.spectrum("velocity", "vorticity")[1][1] == pytest.approx(2 * energy[1])
    sim.fields["velocity"] *= 2.0  # the earlier view follows the state
    assert view.max() == pytest.approx(2 * velocity[0].max())
    with pytest.raises(InputError, match="can be read only"):
        sim.fields["vorticity"][...] = 0.0
    for wrong in ("dot(velocity, magnetic)", "velocity +", 3j):
        with pytest.raises(InputError):
            sim.evaluate(wrong)


def test_components_of_all_vectors_and_tensors_have_names(comm, device):
    options = {"viscosity": 0.1, "resistivity": 0.1, "initial": "orszag-tang-3d", "step": 0.01}
    sim = Flow("mhd", points=N, comm=comm, device=device, **options)
    vectors = "velocity", "magnetic", "vorticity", "current_density", "vector_potential"
    for name in vectors:
        whole = host(sim.fields[name][...])
        for part, axis in zip(whole, "xyz", strict=True):
            component = sim.fields[f"{name}_{axis}"]
            np.testing.assert_allclose(host(component[...]), part, atol=1e-14)
            assert component.mean() == pytest.approx(float(sim.evaluate(f"{name}_{axis}").mean()))
    whole = host(sim.fields["strain"][...])
    for row, column in itertools.product(range(3), repeat=2):
        component = sim.fields[f"strain_{'xyz'[row]}{'xyz'[column]}"]
        np.testing.assert_allclose(host(component[...]), whole[row, column], atol=1e-14)
    square = sim.evaluate("vorticity_x**2 + vorticity_y**2 + vorticity_z**2").mean()
    assert square / 2 == pytest.approx(sim.fields["enstrophy"].mean())


def test_a_name_that_is_not_there_is_answered_with_one_that_is(comm, device):
    sim = turbulence(comm, device)
    for ask in (lambda: sim.fields["vorticity_w"], lambda: sim.evaluate("vorticity_w")):
        with pytest.raises(InputError, match="did you mean 'vorticity_[xyz]'") as error:
            ask()
        assert "components such as vorticity_z" in str(error.value)


@pytest.mark.slow
def test_models_of_ones_own(comm, device):
    def burgers(viscosity: float, drag: float = 0.0):
        u, c = Vector("velocity", solenoidal=True), Scalar("dye")
        return Model({u: -div(outer(u, u)) + viscosity * laplacian(u), c: -div(u * c) - drag * c})

    options = {"points": N, "step": 0.01, "comm": comm, "device": device}
    flow = Flow(burgers, viscosity=0.1, drag=0.5, initial={"dye": "1 + cos(x)"}, **options)
    flow.run(until=0.1)
    assert flow.fields["dye"].gather().mean() == pytest.approx(math.exp(-0.05), rel=1e-9)
    heat = Scalar("heat")
    plain = Flow(Model({heat: laplacian(heat)}), initial={"heat": "cos(2*y)"}, **options)
    plain.run(until=0.1)
    assert plain.fields["heat"].gather().max() == pytest.approx(math.exp(-0.4), rel=1e-9)


def test_pores_and_tracers_have_the_same_face(comm, device):
    def image():
        return np.random.default_rng(3).random((12, 12, 12)) > 0.2

    sim = PorousFlow(image(), tolerance=1e-2, comm=comm, device=device)
    looks = []
    sim.every(100, lambda s: looks.append(s.steps))
    sim.run()
    assert sim.finished
    assert looks == list(range(0, sim.steps + 1, 100))
    velocity = sim.fields["velocity"].gather()
    np.testing.assert_array_equal(sim.fields["velocity_y"].gather(), velocity[1])
    assert velocity[2].mean() == pytest.approx(sim.diagnostics["velocity_z"], rel=1e-9)
    assert sim.fields["velocity"].mean()[2] == pytest.approx(velocity[2].mean())
    assert sim.fields["density"].max() == sim.fields["density"].gather().max()
    other = sim.copy()
    other.step(2)
    assert other.steps == sim.steps + 2
    with pytest.raises(InputError, match="can be read only"):
        sim.fields["density"][...] = 1.0
    tracer = Advection(points=8, width=0.2, comm=comm, device=device)
    start = tracer.fields["tracer"].gather()
    tracer.step(8)
    np.testing.assert_allclose(tracer.fields["tracer"].gather(), start, atol=1e-14)
    tracer.fields["tracer"][...] = 3.0
    tracer.step(2)
    np.testing.assert_allclose(tracer.copy().fields["tracer"].gather(), 3.0, atol=1e-14)


def test_a_case_gives_the_bits_of_the_command_line(comm, device, shared_folder):
    path = shared_folder / "case.toml"

    def write():
        path.write_text(
            'solver = "spectral"\n[grid]\npoints = 16\n[equation]\nviscosity = 0.02\n[initial]\n'
            'flow = "taylor-green"\n[time]\nend = 0.5\nstep = 0.01\n'
        )

    on_first_rank(comm, write)
    sim = load(path, {"time.end": 0.04}, comm=comm, device=device)
    sim.run()
    same = turbulence(comm, device)
    same.step(4)
    assert host(sim.modes["velocity"][...]).tobytes() == host(same.modes["velocity"][...]).tobytes()


def test_a_dropped_simulation_is_gone_and_a_closed_one_refuses(comm, device):
    sim = turbulence(comm, device)
    sim.every(steps=1, call=lambda s: None)
    sim.step()
    solver = weakref.ref(sim.solver)
    gc.disable()
    try:
        del sim
        assert solver() is None
    finally:
        gc.enable()
    with turbulence(comm, device) as sim:
        sim.step()
    with pytest.raises(InputError, match="has been closed"):
        sim.step()
    assert "closed" in repr(sim)


def test_what_ranks_disagree_on_is_refused_on_all(comm, device, tmp_path):
    if comm is None:
        pytest.skip("needs several ranks")
    with pytest.raises(InputError, match="disagree on the simulation"):
        turbulence(comm, device, viscosity=0.01 * (1 + comm.rank))
    wrong = {"viscosity": "thick"} if comm.rank == 1 else {}
    with pytest.raises(InputError, match=r"equation\.viscosity"):
        turbulence(comm, device, **wrong)
    path = tmp_path / "case.toml" if comm.rank == 1 else "cases/taylor-green.toml"
    with pytest.raises(InputError, match="no such file"):
        load(path, comm=comm, device=device)
    sim = turbulence(comm, device)
    with pytest.raises(InputError, match="disagree on until"):
        sim.run(until=0.1 * (1 + comm.rank))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"viscosity": -1.0}, "equation.viscosity"),
        ({"viscosity": "x"}, "equation.viscosity"),
        ({"points": 0}, "grid.points"),
        ({"initial": "taylor-gren"}, "taylor-green"),
        ({"initial": {"speed": np.zeros(3)}}, "there is no 'speed'"),
        ({"initial": 3}, "accepted: taylor-green"),
        ({"cfl": 0.5}, "exactly one of 'step'"),
        ({"friction": 0.5}, "friction"),
        ({"intial": "abc"}, "there is no argument 'intial'; did you mean 'initial'"),
        ({"forcing": "abd"}, "forcing.kind"),
        ({"forcing": [{"kind": "abc"}, 3]}, "forcing is list; .* a list of these"),
        ({"forcing": 3}, "forcing is int; accepted: random, .* formula, .*, a table with 'kind'"),
        ({"forcing": {"kind": "formula", "formula": ["0", math.sin, "0"]}}, "forcing: functions"),
        ({"forcing": lambda x, y: x}, r"forcing\.formula: the function must take x, y and z"),
        ({"forcing": lambda x, y, z: x + y + z}, r"forcing\.formula: .* accepted: 3 components"),
        ({"run": 3}, "run is 3; accepted: a dict"),
        ({"output": "x"}, "output is 'x'; accepted: a dict"),
        ({"time": [1]}, r"time is \[1\]; accepted: a dict"),
        ({"initial": {1: 2}}, "initial has 1; accepted: names of fields"),
        ({"precision": "float16"}, "numerics.precision"),
        ({"comm": "all"}, "'world', None or a communicator"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(comm, device, options, text):
    with refused(text):
        given = {"points": N, "viscosity": 0.02, "step": 0.01, "device": device, "comm": comm}
        Turbulence(**{**given, **options}).prepare()


def test_what_is_shown_of_it_communicates_nothing(comm, device):
    """A rank that alone asks for a table would wait for the others for ever."""
    sim = turbulence(comm, device)
    sim.step()
    if sim.rank == sim.ranks - 1:
        page = sim._repr_html_() + sim.fields["velocity"]._repr_html_() + repr(sim)
        assert "step 1" in page
        assert (f"{sim.ranks} ranks" in page) == (sim.ranks > 1)


@pytest.mark.slow
def test_a_plane_is_shown_in_a_file_by_the_first_rank(comm, device, shared_folder):
    folder = shared_folder
    sim = turbulence(comm, device)
    sim.show("velocity", 0.02, plane=("x", 1.0), file=folder / "speed.png")
    first = on_first_rank(comm, (folder / "speed.png").read_bytes)
    sim.run(until=0.02)
    assert on_first_rank(comm, (folder / "speed.png").read_bytes) != first
    with pytest.raises(InputError, match="this is no notebook"):
        sim.show("velocity")


def test_a_run_s_folder_is_opened_by_all_ranks(comm, device, shared_folder):
    folder = shared_folder / "run"
    sim = turbulence(comm, device, output={"pictures": False})
    sim.run(until=0.02, output=folder)
    run = open_run(folder)
    assert run.series["time"][-1] == sim.time == run.times[-1]
    again = run.restart({"time.step": 0.005}, comm=comm, device=device)
    np.testing.assert_allclose(again.fields["velocity"].gather(), sim.fields["velocity"].gather())
    again.step()
    assert again.time == pytest.approx(sim.time + 0.005)
    with pytest.raises(InputError, match="viscocity"):
        run.restart({"equation.viscocity": 1}, comm=comm, device=device)


def test_numbers_that_are_text_are_refused(comm, device):
    """Python's float takes "10", and True; nobody who gives them means a time."""
    sim = turbulence(comm, device)
    for wrong in ("0.1", True, math.nan, math.inf, [1.0], 1j):
        for call in (
            lambda value=wrong: sim.run(until=value),
            lambda value=wrong: sim.run(wall=value),
            lambda value=wrong: sim.every(value, print),
            lambda value=wrong: sim.every(times=[0.1, value], call=print),
        ):
            with pytest.raises(InputError, match=r"accepted: (a|finite) "):
                call()
    assert sim.steps == 0 and sim.time == 0
    sim.run(until=np.array(0.05))
    assert sim.time == 0.05


def test_the_energy_of_a_flow_with_scalars_is_that_of_the_velocity(comm, device):
    sim = Turbulence(
        points=N,
        viscosity=0.01,
        scalars={"diffusivity": 0.01},
        initial="random",
        comm=comm,
        device=device,
    )
    found = sim.diagnostics
    assert found["energy"] == found["velocity_energy"]
    assert "(velocity^2)/2" in sim.solver.labels()["energy"]
    assert "half the square of scalar" in sim.solver.labels()["scalar_energy"]
