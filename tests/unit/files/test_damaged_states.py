"""Damaged states: the previous one is used, or none."""

import os

import pytest

from damaged_states import CASES, DAMAGES, STEPS, Run, change_description, change_manifest, outcome
from slipstream.engine.errors import InputError
from slipstream.files import open_checkpoint
from slipstream.files.checkpoint import check_chunks, read_manifest


@pytest.fixture(scope="module", params=CASES)
def run(request, tmp_path_factory):
    return Run(request.param, tmp_path_factory.mktemp(request.param))


def test_there_are_fifty_kinds_of_damage():
    assert len(DAMAGES) >= 50


def test_undamaged_states_are_taken_as_they_are(run):
    run.reset()
    assert run.go_on() == (run.states[STEPS[-1]], [])


@pytest.mark.thorough
def test_damage_is_named_and_the_state_before_is_taken(run):
    """Each kind of one family; `damaged_states.py` does each of all."""
    mine = list(DAMAGES)[list(CASES).index(run.family) :: len(CASES)]
    assert {name: outcome(run, name) for name in mine} == dict.fromkeys(mine, "the state before")


# The same of the only state that is left, or of the state asked for; one of each kind.
@pytest.mark.parametrize("name", ["chunk_flipped_within", "manifest_missing", "chunk_has_nan"])
def test_a_run_without_an_intact_state_is_refused(run, name):
    run.reset()
    for step in STEPS:
        run.damage(name, step)
    with pytest.raises(InputError) as caught:
        run.go_on()
    message = str(caught.value)
    assert message.isprintable()
    assert message.count("is damaged: ") == 2
    assert message.endswith("there is no other state to continue from")


def test_the_chunk_that_is_damaged_is_named(run):
    run.reset()
    run.damage("chunk_zeroed", STEPS[-1])
    chunk = run.chunk(STEPS[-1])
    file = chunk.relative_to(run.state(STEPS[-1]))
    number = ".".join(file.parts[2:])
    _, (warning,) = run.go_on()
    assert f"{file} (array {run.array}, chunk {number}): its checksum differs" in warning


def test_one_state_may_be_asked_for_and_no_other_is_taken(run):
    run.reset()
    assert open_checkpoint(run.state(STEPS[0])).step == STEPS[0]
    run.damage("chunk_truncated", STEPS[-1])
    with pytest.raises(InputError, match="is damaged"):
        open_checkpoint(run.state(STEPS[-1]))


def test_what_is_whole_but_not_of_this_family_is_refused(run):
    """As somebody may write who changes descriptions, manifest and checksums alike."""
    name = run.array

    def change_all(step, change):
        change_description(run.state(step), name, change)
        change_manifest(run.state(step), lambda said: change(said["arrays"][name]))

    def retype(said):
        for key in {"dtype", "data_type"} & said.keys():
            # Another type of the same size.
            said[key] = {"complex128": "complex128", "float64": "int64"}[said[key]]
        if name.endswith("_hat"):
            said["shape"] = said["shape"][::-1]

    run.reset()
    for step in STEPS:
        change_all(step, retype)
    with pytest.raises(InputError, match=r"initial\.restart: "):
        run.go_on()


def test_unreadable_files_are_damage(run, monkeypatch):
    run.reset()
    wanted, opened = str(run.chunk(STEPS[-1])), os.open

    def refuse(path, *arguments, **options):
        if str(path) == wanted:
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    state, (warning,) = run.go_on()
    assert state == run.states[STEPS[0]]
    assert "cannot be read: Permission denied" in warning


def test_damage_is_found_by_whichever_rank_has_its_share(run):
    run.reset()
    manifest = read_manifest(run.state(STEPS[-1]))
    run.damage("chunk_zeroed", STEPS[-1])
    faults = [check_chunks(run.state(STEPS[-1]), manifest, rank, 3) for rank in range(3)]
    assert len(list(filter(None, faults))) == 1
    assert run.array in "".join(faults)
