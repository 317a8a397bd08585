"""A few of the damaged and forged states of ``checkpoint_fuzzing.py``."""

import pytest

from flows import output_of


@pytest.mark.thorough
def test_damaged_and_forged_states_end_in_one_line():
    assert "0 defects" in output_of("tests/support/checkpoint_fuzzing.py", "--states", "25")
