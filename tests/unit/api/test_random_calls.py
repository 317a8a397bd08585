"""Random calls of the Python interface: values, or errors in one line; never foreign ones."""

import json

import numpy as np
import pytest

import call_checks
import interface_fuzzing
import slipstream as ss
from flows import output_of
from slipstream.engine.errors import InputError, SlipstreamError

FUZZ = "tests/support/interface_fuzzing.py"
# Calls of each of the parts of the thorough tests, of 2000 calls each.
PARTS, CALLS = 4, 500


def refusing(kind, message):
    def call():
        raise kind(message)

    return call


@pytest.mark.parametrize(
    ("call", "defect"),
    [
        (refusing(InputError, "steps is 0; accepted: whole numbers of at least 1"), ""),
        (refusing(SlipstreamError, "steps is 0\nsteps is 0"), "several lines"),
        (refusing(InputError, "wrong"), "without a name"),
        (lambda: np.zeros(3).reshape(2, 2), "ValueError"),
        (lambda: json.loads("["), "JSONDecodeError"),
    ],
)
def test_foreign_errors_are_noticed(call, defect):
    with pytest.raises(Exception) as failure:  # noqa: PT011
        call()
    found = call_checks.defect_of(failure.value, interface_fuzzing.Call("call", call))
    assert (defect in found) if defect else not found


def test_ignored_settings_are_noticed():
    tracer, other = (ss.Advection(points=8, width=width, device="cpu") for width in (0.2, 0.3))
    session = interface_fuzzing.Session()
    assert not session.recorded(tracer, {"points": 8, "width": 0.2})
    assert "width" in session.recorded(tracer, {"points": 8, "width": 0.3})
    assert "title" in call_checks.continued(tracer, {"settings": {"title": "other"}})
    assert "tracer" in call_checks.same_state(tracer, other)


@pytest.mark.slow
def test_a_hundred_random_calls_end_as_they_should():
    assert "\n0 defects" in output_of(FUZZ, "--calls", "100")


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(PARTS))
def test_random_calls_end_as_they_should(part):
    assert "\n0 defects" in output_of(FUZZ, "--calls", CALLS, "--seed", f"part-{part}")


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize("part", range(PARTS))
def test_random_calls_end_alike_on_all_ranks(part):
    # A rank that waits for another, which has taken another path, ends sooner than the test.
    how = {"ranks": 2, "SLIPSTREAM_TIMEOUT": "120"}
    assert "\n0 defects" in output_of(FUZZ, "--calls", CALLS, "--seed", f"ranks-{part}", **how)
