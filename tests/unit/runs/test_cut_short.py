"""Files left by a run that ends at any moment: by a kill, or with the power of its device.

`kills.py` and `power_cuts.py` do the same to runs of all families, and continue with them.
"""

import shutil

import pytest
from rich.console import Console

import moments
from fake_simulation import CASE, FakeSimulation
from power_cuts import CannotMount, mounted, new_image
from slipstream.case import parse_case
from slipstream.runs import output_writer
from slipstream.runs.run_case import run_case

SETTINGS = (
    "output.pictures=false",
    "output.checkpoint_interval=0.2",
    "output.fields_interval=0.3",
    "output.keep_checkpoints=1",
)


def run_with_looks(monkeypatch, folder, every, look):
    """Do a run; `look`, once per `every` moments, gets their number and the last state promised."""
    promised = [None]
    write = output_writer.write_checkpoint

    def write_and_promise(*arguments, **options):
        path = write(*arguments, **options)
        promised[0] = options["step"]
        return path

    def act():
        if passed.count % every == 0:
            look(passed.count, promised[0])

    simulation = FakeSimulation(step_size=0.2)
    simulation.case = parse_case(CASE, SETTINGS)
    with monkeypatch.context() as patch:
        patch.setattr(output_writer, "write_checkpoint", write_and_promise)
        passed = moments.Moments(moments.ALL, act)
        passed.watch(patch.setattr)
        run_case(simulation, folder, Console(quiet=True))


def is_kept(promised, found):
    return promised is None or (found is not None and found >= promised)


@pytest.mark.thorough
def test_a_kill_leaves_the_last_state_whenever_it_comes(tmp_path, monkeypatch):
    looks = []

    def look(number, promised):
        # What others see of the files now is what they see after a kill.
        shutil.copytree(tmp_path / "run", tmp_path / str(number))
        looks.append((number, promised))

    run_with_looks(monkeypatch, tmp_path / "run", 17, look)
    assert {promised for _, promised in looks} == {None, 0, 1, 2, 3, 4, 5}
    for number, promised in looks:
        assert is_kept(promised, moments.check_left(tmp_path / str(number))), number


@pytest.mark.thorough
def test_a_power_cut_leaves_the_last_state_whenever_it_comes(tmp_path, monkeypatch):
    images, image = [], tmp_path / "image"

    def look(number, promised):
        copy = tmp_path / f"image {number}"
        shutil.copyfile(image, copy)
        images.append((copy, promised))

    try:
        new_image(image, 16)
        with mounted(image) as device:
            run_with_looks(monkeypatch, device / "run", 83, look)
    except CannotMount as reason:
        pytest.skip(f"nothing can be mounted here: {reason}")
    assert len(images) > 4
    for copy, promised in images:
        with mounted(copy) as device:
            assert is_kept(promised, moments.check_left(device / "run", power_cut=True)), copy
