"""Cases of the lattice family: settings, defaults, and messages about wrong ones."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refusals import refusal
from slipstream.case import load_case, parse_case, validate_case
from slipstream.case.lattice_case import FORMAT_KEYS, SAMPLE_KEYS, Convergence, Image
from slipstream.engine.accepted import IMAGE_FORMATS
from slipstream.files.image_formats import FORMATS
from slipstream.lattice import SAMPLES

REPOSITORY = Path(__file__).resolve().parents[3]
MINIMAL = """
solver = "lattice"
[image]
sample = "sandstone"
shape = [24, 20, 16]
radius = 4
[time]
end = 1000
"""
FILE = """
solver = "lattice"
[image]
path = "rock.raw"
shape = [24, 20, 16]
dtype = "uint8"
[time]
end = 1000
"""


def failure(*overrides, text=MINIMAL):
    return refusal(parse_case, text, overrides)


def test_axes_are_a_list_or_letters_as_in_python():
    for walls in ("'xy'", "['x', 'y']"):
        image = parse_case(MINIMAL, [f"image.walls={walls}", "image.mirror='z'"]).image
        assert (image.walls, image.mirror) == (("x", "y"), ("z",))
    assert "image.walls[2]: 'w' is not accepted; accepted: x, y, z" in failure("image.walls=xw")


def test_minimal_case_has_the_documented_defaults():
    case = parse_case(MINIMAL)
    image, flow = case.image, case.flow
    assert (image.porosity, image.seed, image.voxel_size) == (0.13, 0, 1.0)
    assert (image.crop, image.mirror, image.buffer, image.walls) == (None, (), 0, ())
    assert (image.isolated, image.path, image.pore) == ("remove", None, None)
    assert (flow.axis, flow.relaxation_time, flow.magic) == ("z", None, 3 / 16)
    assert (flow.force, flow.pressure_drop, flow.inertia) == (1e-5, None, False)
    assert (case.convergence.tolerance, case.convergence.interval) == (1e-3, 100)
    assert set(case.numerics.model_dump().values()) == {"float64", "auto"}
    run = case.run
    assert (run.partition, run.schedule, run.transport) == ("bisection", "overlap", "auto")
    assert (case.initial.restart, case.output.vtk) == (None, False)
    assert case.output.diagnostics_interval == 100
    assert (case.fixed_step, case.points, case.steps_at_once) == (2.0, None, 2)


def test_example_case_loads_and_takes_another_image():
    path = REPOSITORY / "cases" / "sandstone.toml"
    assert load_case(path).solver == "lattice"
    assert load_case(path, ["image.path=rock.tif"]).image == Image(path="rock.tif")


def test_samples_and_their_keys_are_those_of_the_solver():
    assert list(SAMPLE_KEYS) == list(SAMPLES)
    for name, keys in SAMPLE_KEYS.items():
        fields = {field.name: field for field in dataclasses.fields(SAMPLES[name])}
        assert list(fields) == ["shape", *keys]
        for key, default in keys.items():
            has_none = fields[key].default is dataclasses.MISSING
            assert has_none if type(default) is object else default == fields[key].default
            assert key in Image.model_fields


def test_only_one_drive_is_left_when_the_command_line_names_another():
    case = parse_case(MINIMAL + "[flow]\nforce = 1e-4\n", ["flow.pressure_drop=0.1"])
    assert (case.flow.force, case.flow.pressure_drop) == (None, 0.1)


def test_a_file_takes_the_place_of_a_sample_and_of_all_that_describes_it():
    rest = "seed = 3\nporosity = 0.2\nvoxel_size = 2e-6\nwalls = ['x']\n[time]"
    text = MINIMAL.replace("[time]", rest)
    image = parse_case(text, ["image.path=rock.tif", "image.pore=0"]).image
    assert image == Image(path="rock.tif", pore=0, walls=("x",))
    raw = ["image.path=a.raw", "image.shape=[8, 9, 10]", "image.dtype=uint8"]
    assert parse_case(text, raw).image.shape == (8, 9, 10)
    told = failure(*raw, "image.porosity=0.2", text=text)
    assert "'porosity' does not belong to path = 'a.raw': remove it; accepted with it: po" in told


def test_all_that_a_file_does_not_need_is_named_at_once():
    text = MINIMAL.replace('sample = "sandstone"', 'path = "rock.tif"')
    assert failure(text=text) == (
        "case: image: 'shape' and 'radius' do not belong to path = 'rock.tif': remove them, a TIFF "
        "file tells its own shape; accepted with it: pore, pore_below, pore_above"
    )
    for folder in ("scan/", "/"):
        assert failure(text=text.replace("rock.tif", folder)) == (
            f"case: image: 'shape' and 'radius' do not belong to path = '{folder}': remove them, a "
            "folder of TIFF slices tells its own shape; accepted with it: pore, pore_below, "
            "pore_above"
        )
    message = failure(text=MINIMAL.replace("[time]", 'path = "rock.h5"\n[time]'))
    assert "both given; for the image, remove 'sample', 'shape' and 'radius'" in message
    message = failure("image.dtype=uint8", "image.path=a.h5", text=FILE)
    assert "'shape' and 'dtype' do not belong to path = 'a.h5'" in message
    assert message.endswith("accepted with it: pore, pore_below, pore_above, dataset")


def test_formats_and_their_keys_are_those_of_the_reader():
    assert set(IMAGE_FORMATS.values()) == set(FORMAT_KEYS)
    for suffix, name in IMAGE_FORMATS.items():
        assert FORMATS[suffix].options == FORMAT_KEYS[name]


def test_a_sample_takes_the_place_of_a_file_and_may_have_its_shape():
    image = parse_case(FILE, ["image.sample=sandstone", "image.radius=4"]).image
    assert image == Image(sample="sandstone", shape=(24, 20, 16), radius=4.0)


def test_another_file_or_sample_keeps_what_the_case_says():
    assert parse_case(FILE, ["image.path=other.raw"]).image.shape == (24, 20, 16)
    duct = parse_case(MINIMAL.replace("radius = 4\n", ""), ["image.sample=duct", "image.axis=x"])
    assert duct.image == Image(sample="duct", shape=(24, 20, 16), axis="x")


def test_a_file_and_a_sample_at_once_are_refused():
    told = failure("image.path=a.raw", "image.sample=sandstone")
    assert "exactly one of 'path'" in told
    assert "both given" in told
    assert "both given" in failure(text=MINIMAL.replace("[time]", 'path = "rock.raw"\n[time]'))


def test_rows_of_diagnostics_come_with_the_looks():
    assert parse_case(MINIMAL, ["convergence.interval=40"]).output.diagnostics_interval == 40
    settings = ["convergence.interval=40", "output.diagnostics_interval=7"]
    assert parse_case(MINIMAL, settings).output.diagnostics_interval == 7


def test_case_says_how_it_ends():
    assert parse_case(MINIMAL).ends_early
    assert "0.001 of steady" in parse_case(MINIMAL).stepping
    endless = parse_case(MINIMAL, ["convergence.tolerance=0"])
    assert not endless.ends_early
    assert "steady" not in endless.stepping


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("image.sample=sand", ["image.sample", "did you mean 'sandstone'", "random-pack"]),
        ("image.dtype=uint8", ["image", "'dtype' does not belong", "shape, radius, porosity"]),
        ("image.lattice=simple", ["image", "'lattice' does not belong", "'sandstone'"]),
        ("image.sample=channel", ["image", "'radius' does not belong", "accepted with it: shape"]),
        ("image.sample=random-pack", ["image", "needs 'solid_fraction'"]),
        ("image.shape=[8, 8]", ["image.shape", "three whole numbers", "[8, 8]"]),
        ("image.shape=8", ["image.shape", "three whole numbers"]),
        ("image.shape=[8, 8, 0]", ["image.shape", "at least 1"]),
        ("image.radius=0", ["image.radius", "greater than 0"]),
        ("image.porosity=1", ["image.porosity", "less than 1"]),
        ("image.seed=-1", ["image.seed", "at least 0"]),
        ("image.voxel_size=2.0", ["image.voxel_size", "metres, more than 0 and at most 0.01"]),
        ("image.voxel_size=2um", ["image.voxel_size", "metres, more than 0 and at most 0.01"]),
        ("image.voxel_size=0", ["image.voxel_size", "greater than 0"]),
        ("image.crop=[[0, 4], [0, 4]]", ["image.crop", "[[x0, x1], [y0, y1], [z0, z1]]"]),
        ("image.crop=[[0, 4], [4, 4], [0, 4]]", ["image.crop", "[[x0, x1]"]),
        ("image.crop=[0, 1, 2]", ["image.crop", "[[x0, x1]"]),
        ("image.mirror=3", ["image.mirror", "a list"]),
        ("image.mirror=['z', 'z']", ["image.mirror", "each axis once"]),
        ("image.mirror=['q']", ["image.mirror", "'q'", "x, y, z"]),
        ("image.walls=['x', 'z']", ["image.walls", "flow.axis = 'z'", "x, y"]),
        ("image.buffer=-1", ["image.buffer", "at least 0"]),
        ("image.buffer=1.5", ["image.buffer", "whole number"]),
        ("image.isolated=drop", ["image.isolated", "remove, keep"]),
        ("image.voxelsize=1", ["image.voxelsize", "voxel_size"]),
        ("flow.axis=w", ["flow.axis", "x, y, z"]),
        ("flow.relaxation_time=0.5", ["flow.relaxation_time", "greater than 0.5"]),
        ("flow.magic=0", ["flow.magic", "greater than 0"]),
        ("flow.force=-1", ["flow.force", "greater than 0"]),
        ("flow.pressure_drop=0", ["flow.pressure_drop", "greater than 0"]),
        ("flow.inertia=1", ["flow.inertia", "true or false"]),
        ("time.end=101", ["time.end", "even", "101"]),
        ("time.end=0.5", ["time.end", "whole number"]),
        ("time.end=0", ["time.end", "greater than 0"]),
        ("time.end=1e308", ["time.end", "at most 9.0072e+15"]),
        ("time.max_steps=3", ["time.max_steps", "even"]),
        ("convergence.interval=5", ["convergence.interval", "even"]),
        ("convergence.interval='a'", ["convergence.interval", "whole number"]),
        ("convergence.tolerance=-1", ["convergence.tolerance", "at least 0"]),
        ("convergence.tolerance=1", ["convergence.tolerance", "less than 1"]),
        ("numerics.precision=float8", ["numerics.precision", "float64, float32, mixed, float16"]),
        ("numerics.layout=streams", ["numerics.layout", "did you mean 'stream'"]),
        ("numerics.encoding=dense", ["numerics.encoding", "wide, compact, strips"]),
        ("run.partition=metis", ["run.partition", "bisection, cartesian"]),
        ("run.transport=tcp", ["run.transport", "auto, peer, nccl"]),
        ("run.strategy=mpi", ["run.strategy", "partition"]),
        ("initial.flow=abc", ["initial.flow", "restart"]),
        ("output.vtk=yes", ["output.vtk", "true or false"]),
        ("grid.points=8", ["grid", "accepted here", "image"]),
    ],
)
def test_wrong_settings_are_named_in_one_line(override, expected):
    message = failure(override)
    assert all(part in message for part in expected), message


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("image.porosity=0.2", ["image", "'porosity' does not belong to path =", "dtype"]),
        ("image.dataset=data", ["image", "'dataset' does not belong to path = 'rock.raw'"]),
        ("image.pore=1.5", ["image.pore", "whole number"]),
        ("image.pore=[]", ["image.pore", "whole number"]),
        ("image.offset=-1", ["image.offset", "at least 0"]),
        ("image.byte_order=middle", ["image.byte_order", "little, big"]),
    ],
)
def test_wrong_settings_of_files_are_named_in_one_line(override, expected):
    message = failure(override, text=FILE)
    assert all(part in message for part in expected), message


def test_an_image_is_needed_and_one_drive():
    assert "neither given" in failure(text=MINIMAL.replace('sample = "sandstone"', ""))
    assert "image: is required" in failure(text='solver = "lattice"\n[time]\nend = 2\n')
    told = failure(text=MINIMAL + "[flow]\nforce = 1e-4\npressure_drop = 0.1\n")
    assert "flow.force, flow.pressure_drop: both are given; use one of them" in told
    told = failure("numerics.encoding=strips", "numerics.layout=bundle")
    assert "numerics: encoding 'strips' needs layout 'stream'" in told


whole = st.integers(1, 10**6)
axes = st.lists(st.sampled_from("xyz"), unique=True)
ranges = st.tuples(st.integers(0, 99), st.integers(100, 999)).map(list)
shapes = st.lists(whole, min_size=3, max_size=3)
keys_of_formats = {
    "shape": shapes,
    "dtype": st.sampled_from(["uint8", "float32"]),
    "byte_order": st.sampled_from(["little", "big"]),
    "offset": whole,
    "dataset": st.text(),
}


def files(ending, accepted):
    """Return a strategy for tables of files whose name has that ending, with the format's keys."""
    own = {key: keys_of_formats[key] for key in accepted}
    names = st.text().map(lambda text: f"{text}x{ending}")
    return st.fixed_dictionaries(
        {"path": names}, optional={"pore": whole | st.lists(whole, min_size=1), **own}
    )


sources = st.one_of(
    # Of other formats it is not known what they take.
    files("", keys_of_formats),
    *(files(ending, FORMAT_KEYS[name]) for ending, name in IMAGE_FORMATS.items()),
    st.fixed_dictionaries(
        {
            "sample": st.just("sandstone"),
            "shape": shapes,
            "radius": st.floats(1e-3, 1e3),
        },
        optional={"porosity": st.floats(0.01, 0.99), "seed": whole},
    ),
)
shared = st.fixed_dictionaries(
    {"voxel_size": st.floats(1e-9, 0.01) | st.just(1.0)},
    optional={
        "crop": st.lists(ranges, min_size=3, max_size=3),
        "mirror": axes,
        "walls": st.lists(st.sampled_from("xy"), unique=True),
        "buffer": st.integers(0, 99),
    },
)
drives = st.fixed_dictionaries(
    {}, optional={"force": st.floats(1e-9, 1e-2)}
) | st.fixed_dictionaries({"pressure_drop": st.floats(1e-9, 1e-2)})


@given(sources, shared, drives, whole, st.text())
@example({"path": "/"}, {"voxel_size": 1.0}, {}, 1, "")
def test_effective_case_loads_equal(source, rest, drive, pairs, title):
    data = {
        "solver": "lattice",
        "title": title,
        "image": {**source, **rest},
        "flow": drive,
        "time": {"end": 2 * pairs},
    }
    case = validate_case(data)
    assert parse_case(case.to_toml()) == case
    assert (case.flow.force is None) != (case.flow.pressure_drop is None)


def test_defaults_are_those_of_the_table():
    assert parse_case(MINIMAL).convergence == Convergence()
