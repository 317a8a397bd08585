"""Cases that a lattice run rejects, or states it cannot resume from, named in one line."""

import re
import warnings

import numpy as np
import pytest

from lattice_flows import CASE, SANDSTONE, make
from launched_runs import SPECTRAL, enter, run
from refusals import refused as refused_call
from slipstream.case import parse_case
from slipstream.engine.device import HostDevice
from slipstream.engine.errors import InputError, RunError
from slipstream.lattice import make_sample, permeability
from slipstream.lattice.lattice_simulation import LatticeSimulation
from slipstream.lattice.permeability import mirrored_axes
from slipstream.lattice.pore_step import check_size
from slipstream.show.solver_texts import description


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    mask = np.ones((4, 5, 6), np.uint8)
    mask[2] = 0
    np.save(tmp_path / "closed.npy", mask)
    mask.tofile(tmp_path / "closed.raw")
    file = CASE.replace(SANDSTONE, 'path = "closed.npy"\n')
    return enter(tmp_path, monkeypatch, case=CASE, file=file, flow=SPECTRAL)


def refused(capsys, *arguments, status=2, **options):
    assert run(*arguments, **options) == status
    error = capsys.readouterr().err
    assert error.startswith("slipstream: error: ")
    assert error.count("\n") == 1, error
    return error


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            ["image.porosity=0.995"],
            "image.porosity is 0.995; accepted: a number above 0 up to 0.99",
        ),
        (["image.radius=0.5"], "image.radius is 0.5; accepted: a number from 1"),
        (["image.crop=[[0, 24], [0, 21], [0, 16]]"], "image.crop: [0, 21] along y is beyond the"),
        (
            ["image.shape=[20000, 20000, 20000]"],
            "image: reading this image, before any flow, needs 2.24e+04",
        ),
        (["initial.restart=nowhere"], "nowhere: holds no checkpoint"),
        (["run.transport=nccl", "run.device=cuda"], "device 'cuda' was asked for"),
    ],
)
def test_what_does_not_suit_is_one_line_with_status_2(capsys, monkeypatch, settings, expected):
    monkeypatch.setattr("slipstream.engine.device.device_choice.cuda_device_count", lambda: 0)
    assert expected in refused(capsys, *settings)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["image.path=absent.npy"], "absent.npy does not exist in the working directory, /"),
        (["image.path=rock.jpg"], "image.path: rock.jpg has suffix '.jpg'; accepted: .raw"),
        (["image.dtype=uint8"], "image: 'dtype' does not belong to path = 'closed.npy': remove it"),
        (["image.path=closed.raw"], "image.shape and image.dtype are missing: a raw file"),
        (
            ["image.path=closed.raw", "image.shape=[6, 5, 3]", "image.dtype=uint8"],
            "has 120 bytes, but image.shape [6, 5, 3] of uint8",
        ),
        (
            ["image.path=closed.raw", "image.shape=[6, 5, 4]", "image.dtype=colour"],
            "image.dtype is 'colour'; accepted: bool, uint8",
        ),
        (["image.pore=9"], "the image has no pore voxel"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line_with_status_2(capsys, settings, expected):
    assert expected in refused(capsys, *settings, case="file.toml")


def test_messages_have_numbers_in_the_order_of_the_case(capsys):
    settings = ("image.sample=spheres", "image.shape=[4, 5, 6]", "image.radius=2.0")
    text = CASE.replace("porosity = 0.4\n", "")
    with open("spheres.toml", "w") as file:
        file.write(text)
    told = refused(capsys, *settings, case="spheres.toml")
    assert "image.shape is [4, 5, 6]; accepted for spheres: a cube" in told


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("image.shape=[24, 20, 18]", "of an image of [24, 20, 16] voxels (x, y, z), this case's"),
        ("image.seed=3", "pore voxels"),
        ("image.walls=['x']", "has image.walls = [], this case ['x']; both must be the same"),
        ("time.end=2", "time.end: must be beyond"),
    ],
)
def test_run_goes_on_only_in_its_own_image(capsys, setting, expected):
    assert run("time.max_steps=4", out="first") == 0
    told = refused(capsys, "initial.restart=first", setting, out="second")
    assert expected in told


def test_image_of_as_many_pores_elsewhere_is_no_other(capsys, folder):
    """Only a look at each pore tells them apart."""
    mask = np.zeros((4, 5, 6), np.uint8)
    mask[:, :2] = 1
    for name, values in (("one", mask), ("other", np.roll(mask, 1, axis=1))):
        np.save(folder / f"{name}.npy", values)
    assert run("image.path=one.npy", "time.end=2", case="file.toml", out="first") == 0
    settings = ("image.path=other.npy", "initial.restart=first")
    told = refused(capsys, *settings, case="file.toml", out="second")
    assert "first lacks 24 pore voxels of this case's image" in told


def test_families_do_not_go_on_from_each_other(capsys):
    assert run(out="flow", case="flow.toml") == 0
    told = refused(capsys, "initial.restart=flow")
    assert "is of solver 'spectral', this case of 'lattice'" in told


@pytest.mark.slow
def test_fast_flows_are_warned_of_and_then_refused(capsys):
    assert run("flow.force=1e-2", "flow.inertia=true") == 0
    output = capsys.readouterr().out
    assert output.count("warning: the Mach number reached 0.") == 1
    assert "flow.force" in output
    told = refused(capsys, "flow.force=0.1", "flow.inertia=true", status=1, out="fast")
    assert "the Mach number reached" in told
    assert "at step 10" in told
    assert "force at least" in told


def fast_flow(force):
    sample = make_sample("channel", (2, 12, 2), axis="y")
    return permeability(sample, force=force, inertia=True, device="cpu", tolerance=1e-4)


def test_the_function_warns_of_fast_flows_too_and_then_refuses_them():
    with pytest.warns(RuntimeWarning, match=r"Mach number reached 0\.1.* compressib") as caught:
        result = fast_flow(1.2e-3)
    assert (result.converged, len(caught)) == (True, 1)
    assert caught[0].filename == __file__
    assert 0.1 < result.mach < 0.3
    with pytest.raises(RunError, match=r"Mach number reached .* beyond 0\.3: .* force at least"):
        fast_flow(1e-2)


def test_the_function_does_not_warn_of_slow_flows(recwarn):
    assert fast_flow(1e-4).mach < 0.1
    assert not [one for one in recwarn if one.category is RuntimeWarning]


def test_the_function_says_how_many_steps_a_slow_flow_lacks():
    sample = make_sample("channel", (2, 24, 2), axis="y")
    arguments = {"tolerance": 1e-6, "vectors": 0, "interval": 20, "device": "cpu"}
    with pytest.warns(RuntimeWarning, match=r"help: about \d+ more at its pace by now") as caught:
        permeability(sample, max_steps=1000, **arguments)
    more = int(re.search(r"about (\d+) more", str(caught[0].message))[1])
    steps = permeability(sample, **arguments).steps
    assert 1000 + more == pytest.approx(steps, rel=0.15)


def test_the_function_warns_if_the_steps_were_too_few():
    sample = make_sample("channel", (2, 12, 2), axis="y")
    told = r"not converged within max_steps = 100: .* steady value is unknown; more steps"
    with pytest.warns(RuntimeWarning, match=told) as caught:
        result = permeability(sample, max_steps=100, vectors=0, device="cpu")
    assert caught[0].filename == __file__
    assert not result.converged
    # Voxels without a size are no metres.
    assert result.k == result.k_lattice
    assert np.isnan(result.k_millidarcy)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"image": [[[1]]]}, "image is of type list; accepted: a path, or a NumPy array"),
        ({"shape": (4, 5, 6)}, "shape: remove it, an array tells its own shape; accepted: pore"),
        (
            {"crop": [(0, 9)] * 3},
            r"crop: \[0, 9\] along . is beyond the image's . voxels",
        ),
        ({"buffer": -1}, "buffer: must be at least 0, not -1"),
        ({"mirror": "w"}, "mirror is 'w'; accepted: any of x, y and z, True for the axis"),
        ({"mirror": 1}, "mirror is 1; accepted: any of"),
        ({"relaxation_time": "1"}, "relaxation_time: must be a number, not '1'"),
        ({"voxel_size": "2um"}, "voxel_size: accepted: metres, more than 0 and .*, not '2um'"),
        ({"voxel_size": float("inf")}, "voxel_size: accepted: metres, .*, not inf"),
        (
            {"voxel_size": 2.0},
            "voxel_size: accepted: metres, .* at most 0.01, .*, not 2.0",
        ),
        ({"voxel_size": 0.65}, "voxel_size: accepted: metres, .*, not 0.65"),
        ({"tolerance": 1.5}, "tolerance: must be less than 1, not 1.5"),
        ({"relaxation_time": float("inf")}, "relaxation_time: must be a finite number, not inf"),
        ({"magic": float("inf")}, "magic: must be a finite number, not inf"),
        ({}, "no voxel is solid and no face is a wall, so nothing resists the flow"),
        (
            {"image": np.arange(120).reshape(4, 5, 6)},
            "image: the array has voxels of .* say which are pore; accepted: pore, .* threshold",
        ),
        ({"max_steps": 1e3}, r"max_steps is 1000\.0; accepted: whole numbers"),
        ({"interval": 3}, "interval: accepted: even numbers, .*, not 3"),
        (
            {"image": np.full((2, 2, 2), np.nan)},
            r"image: the array has .* \(NaN\); accepted",
        ),
    ],
)
def test_the_function_names_its_own_arguments(arguments, told):
    with refused_call(f"^{told}") as caught:
        permeability(**{"image": np.ones((4, 5, 6), np.uint8), "device": "cpu", **arguments})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("mirror", "expected"),
    [(True, "z"), (False, ""), ("", ""), ("xy", "xy"), (["z"], "z"), (np.True_, "z")],
)
def test_images_are_mirrored_along_the_axes_named(mirror, expected):
    assert set(mirrored_axes(mirror, ["z"])) == set(expected)


def test_memory_that_does_not_suffice_is_named_and_how_many_devices_have_enough(monkeypatch):
    simulation = make(HostDevice(threads=1))
    description(simulation)
    ((_, need),) = simulation.memory()
    monkeypatch.setattr(simulation.device, "memory_free", lambda: need // 3 - 1)
    with pytest.raises(InputError, match=r"image: this image needs .* \(about 4 like this one"):
        simulation._allocate()
    assert not hasattr(simulation, "flow")


def test_strips_are_refused_on_a_gpu(monkeypatch):
    device = HostDevice(tiled=True)
    monkeypatch.setattr(device, "kind", "cuda")
    monkeypatch.setattr(device, "processor", "gpu")
    case = parse_case(CASE, ["numerics.encoding=strips"])
    with pytest.raises(InputError, match=r"numerics\.encoding: 'strips' is for CPUs; accepted"):
        LatticeSimulation(case, None, device)


def test_boxes_beyond_what_links_can_tell_apart_are_refused():
    check_size(65535, 2**31 - 16)
    with pytest.raises(InputError, match="65536 voxels wide; accepted: up to 65535"):
        check_size(65536, 0)
    with pytest.raises(InputError, match="2147483633 pore voxels; accepted"):
        check_size(1, 2**31 - 15)


def test_simulation_that_is_only_made_has_done_no_steps():
    simulation = make(HostDevice(threads=1))
    assert (simulation.step, simulation.time, simulation.finished) == (0, 0.0, "")


def test_porosity_is_that_of_the_sample_without_layers_of_pore():
    mask = np.zeros((6, 10, 10), np.uint8)
    mask[:, 2:8, 2:8] = 1
    with pytest.warns(RuntimeWarning, match="not converged"):
        result = permeability(mask, buffer=5, max_steps=2, device="cpu")
    assert (result.porosity, result.open_porosity) == (0.36, 0.36)
    simulation = make(HostDevice(), "image.buffer=5", "image.porosity=0.4")
    assert description(simulation)["porosity"].startswith("0.400")


def test_faces_that_do_not_match_are_told_of_with_what_helps(folder):
    mask = np.zeros((6, 8, 10), np.uint8)
    # A duct that widens: the last plane differs from the first more than neighbours do.
    for plane, width in enumerate((3, 3, 4, 4, 5, 5)):
        mask[plane, 2:5, 2 : 2 + width] = 1
    message = (
        r"pore faces solid across the periodic faces \(z: 6 of 80 voxels\).*mirror along z makes"
    )
    with pytest.warns(RuntimeWarning) as caught:
        permeability(mask, max_steps=2, device="cpu")
    assert [bool(re.match(message, str(one.message))) for one in caught] == [True, False]
    assert {one.filename for one in caught} == {__file__}
    with pytest.warns(RuntimeWarning) as caught:
        permeability(mask, max_steps=2, mirror=True, device="cpu")
    assert "not converged" in str(caught[0].message)
    np.save(folder / "unlike.npy", mask)
    case = CASE.replace(SANDSTONE, 'path = "unlike.npy"\n')
    assert re.match(message, description(make(HostDevice(), case=case))["faces"])
    assert "faces" not in description(make(HostDevice(), "image.mirror=['z']", case=case))
    assert "faces" not in description(make(HostDevice(), "image.buffer=2", case=case))


def told_to_mirror(image, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        permeability(image, max_steps=2, device="cpu", **options)
    return any("pore faces solid" in str(one.message) for one in caught)


@pytest.mark.slow
def test_periodic_samples_are_not_told_to_be_mirrored_but_parts_of_them_are():
    # Of some of them the joined faces differ more than most neighbouring planes do.
    packs = [
        make_sample("random-pack", (16,) * 3, radius=16 / 6, solid_fraction=solid, seed=seed)
        for seed, solid in enumerate(np.linspace(0.12, 0.35, 20))
    ]
    assert not any(told_to_mirror(pack) for pack in packs)
    assert told_to_mirror(packs[0], crop=[[0, 7], [0, 16], [0, 16]])


@pytest.mark.slow
@pytest.mark.parametrize("lattice", ["simple", "body-centred", "face-centred"])
def test_a_periodic_image_is_not_told_to_be_mirrored_wherever_its_faces_are(lattice):
    for size, solid in ((12, 0.1), (15, 0.3), (16, 0.45)):
        spheres = np.asarray(
            make_sample("spheres", (size,) * 3, lattice=lattice, solid_fraction=solid)
        )
        rolled = [np.roll(spheres, offset, 0) for offset in range(size)]
        assert not any(told_to_mirror(image) for image in rolled)


def test_an_image_that_does_not_fit_is_refused_by_the_function_as_by_the_command_line():
    sample = make_sample("channel", (20_000,) * 3, axis="x")
    with pytest.raises(InputError, match=r"^image: reading this image, .* needs 2\.24e\+04 GiB on"):
        permeability(sample, device="cpu")
