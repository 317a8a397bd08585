"""What a folder tells of a run whose segments were on one rank and on several."""

import pytest

from random_histories import try_history

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.samples(2)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
def test_states_computed_again_have_the_bits_of_the_run_or_are_refused(comm, seed, shared_folder):
    history, problems = try_history(seed, shared_folder, comm)
    assert not problems, (problems, history.events)
