"""What a folder tells of a run, whatever has happened to it."""

import pytest

from random_histories import try_history

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.samples(4)
@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(16), 2011, 2021, 4026, 4034, 4174, 4361])
def test_states_computed_again_have_the_bits_of_the_run_or_are_refused(seed, tmp_path):
    history, problems = try_history(seed, tmp_path)
    assert not problems, (problems, history.events)
