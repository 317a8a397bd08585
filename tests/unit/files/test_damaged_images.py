"""Images that are damaged in ways that nobody thought of are refused in one line."""

import pytest

from image_fuzzing import check
from launched_runs import enter


@pytest.mark.thorough
@pytest.mark.parametrize("start", range(0, 30, 10))
def test_damaged_images_are_refused_in_one_line(tmp_path, monkeypatch, start):
    folder = enter(tmp_path, monkeypatch)
    for seed in range(start, start + 10):
        check(seed, folder)
