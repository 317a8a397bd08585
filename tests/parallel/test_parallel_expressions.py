"""Values of expressions on any number of ranks, and of fields on the host: those of one process."""

import numpy as np
import pytest

from first_rank import on_first_rank
from flows import advance, modes_of, start
from slipstream.spectral.evaluation import Evaluation

BOX = ("grid.points=[12, 10, 9]", 'grid.length=["2 pi", 7.0, 5.0]', "initial.peak_wavenumber=2.0")
CASES = {
    "device": BOX,
    # Nothing of the next step stays on the device: what it begins with lies in the planes.
    "host": (*BOX, "run.residency=host", "run.streaming={ tiles = 3, resident = false }"),
    # Of two planes and two ky, some ranks have none.
    "flat": (*BOX, "grid.points=[16, 3, 2]", "numerics.precision=float32"),
}
EXPRESSIONS = ("vorticity_magnitude", "pressure", "cos(z) + 1")


@pytest.mark.several_ranks
@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_one_process(comm, device, case):
    def alone():
        flow = advance(start(device, *CASES[case]), 1).flow
        actual = {text: Evaluation(flow, text) for text in EXPRESSIONS}
        points = {text: flow.device.to_host(one.at_points()) for text, one in actual.items()}
        rms = {text: one.reduce("rms") for text, one in actual.items()}
        return points, rms, Evaluation(flow, "velocity").spectrum()

    points, rms, spectrum = on_first_rank(comm, alone)
    shared = advance(start(device, *CASES[case], comm=comm), 1)
    flow, tolerance = shared.flow, 1e-4 if case == "flat" else 1e-11
    region = flow.problem.geometry.physical_box.slices()
    for text, expected in points.items():
        evaluation, scale = Evaluation(flow, text), np.abs(expected).max()
        actual = flow.device.to_host(evaluation.at_points())
        np.testing.assert_allclose(actual, expected[(..., *region)], rtol=0, atol=tolerance * scale)
        value = evaluation.reduce("rms", comm)
        assert value == pytest.approx(rms[text], rel=tolerance)
        assert comm is None or len(set(comm.allgather(value))) == 1
    actual = Evaluation(flow, "velocity").spectrum(comm)
    np.testing.assert_allclose(actual, spectrum, rtol=0, atol=tolerance * spectrum.max())


@pytest.mark.slow
@pytest.mark.parametrize("case", ["device", "host"])
def test_steps_after_an_evaluation_have_the_same_bits(comm, device, case):
    untouched = advance(start(device, *CASES[case], comm=comm), 3)
    looked_at = start(device, *CASES[case], comm=comm)
    for _ in range(3):
        Evaluation(looked_at.flow, "pressure * vorticity_magnitude").reduce("rms", comm)
        advance(looked_at, 1)
    np.testing.assert_array_equal(modes_of(looked_at), modes_of(untouched))
