import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refusal
from slipstream.case import (
    SOLVERS,
    changed_case,
    load_case,
    parse_case,
    validate_case,
    write_template,
)
from slipstream.case.named_tables import Body, ParticleSet, PassiveScalar
from slipstream.case.spectral_case import Forcing, SpectralStreaming, length_value
from slipstream.case.toml_text import to_toml
from slipstream.engine.accepted import INTEGRATORS, TRANSPORTS
from slipstream.engine.errors import InputError
from slipstream.spectral.runge_kutta_tableaux import METHODS

REPOSITORY = Path(__file__).resolve().parents[3]
MINIMAL = """
solver = "spectral"
[grid]
points = 32
[equation]
viscosity = 0.01
[initial]
flow = "taylor-green"
[time]
end = 1.0
step = 0.01
"""


def failure(*overrides, text=MINIMAL):
    return refusal(parse_case, text, overrides)


def test_minimal_case_has_the_documented_defaults():
    case = parse_case(MINIMAL)
    assert case.grid.points_xyz == (32, 32, 32)
    assert case.grid.lengths_xyz == (2 * math.pi,) * 3
    assert case.points == 32**3
    assert case.equation.model == "hd"
    assert (case.initial.amplitude, case.initial.wavenumber) == (1.0, 1)
    assert case.time.integrator == "rk4"
    assert (case.numerics.precision, case.numerics.dealiasing) == ("float64", "2/3")
    assert case.numerics.integrating_factor
    assert (case.run.device, case.run.schedule, case.run.transport) == ("auto", "overlap", "auto")
    assert case.output.diagnostics_interval == 1.0 / 200
    assert case.output.spectra_interval == 1.0 / 20
    assert case.output.fields_interval is None
    assert case.output.pictures
    assert case.output.checkpoint


def test_keys_without_a_value_are_unset():
    run = "\n[run]\nresidency = 'disk'\nmemory = '1 GiB'\nstreaming = { tiles = 4, streams = 2 }\n"
    on_disk = parse_case(MINIMAL + run, ["run.streaming.tiles="])
    assert (on_disk.run.streaming.tiles, on_disk.run.streaming.streams) == (None, 2)
    off = "run.residency=device", "run.memory=", "run.streaming=", "run.scratch="
    assert parse_case(MINIMAL + run, off) == parse_case(MINIMAL, ["run.residency=device"])
    # What a key would displace stays where the key is unset.
    assert parse_case(MINIMAL, ["time.cfl="]) == parse_case(MINIMAL)
    changed = changed_case(on_disk, {"run.memory": None, "time.step": None, "time.cfl": 0.5})
    assert (changed.run.memory, changed.time.step, changed.time.cfl) == (None, None, 0.5)


def test_case_is_frozen():
    with pytest.raises(Exception, match="frozen"):
        parse_case(MINIMAL).time.end = 3.0


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("grid.pionts=3", ["grid.pionts", "'points'", "length, points"]),
        ("gird.points=3", ["gird", "did you mean 'grid'"]),
        ("titel=x", ["titel", "did you mean 'title'"]),
        ("grid.points=0", ["grid.points", "at least 1 point", "0"]),
        ("grid.points=[8, -8, 8]", ["grid.points", "at least 1 point", "-8"]),
        ("grid.points=[8, 8]", ["grid.points", "three"]),
        ("grid.points=1.5", ["grid.points", "whole number"]),
        ("grid.points=true", ["grid.points", "whole number"]),
        ("grid.length=0", ["grid.length", "positive"]),
        ("grid.length=two", ["grid.length", "2 pi"]),
        ("grid.length=[1, 2]", ["grid.length", "three"]),
        ("equation.viscosity=-1", ["equation.viscosity", "at least 0", "-1"]),
        ("equation.viscosity=nan", ["equation.viscosity", "finite"]),
        ("equation.viscosity=thick", ["equation.viscosity", "a number", "thick"]),
        (
            "equation.model=euler",
            ["equation.model", "'euler'", "accepted: hd, boussinesq, mhd, gpe"],
        ),
        ("initial.flow=taylor", ["initial.flow", "taylor-green, abc, random"]),
        ("initial.seed=3", ["'seed' does not belong", "amplitude, wavenumber"]),
        ("time.end=0", ["time.end", "greater than 0"]),
        ("time.end=1e308", ["time.end", "less than 1e+100", "1e+308"]),
        ("time.max_step=1", ["time", "max_step", "cfl"]),
        ("time.max_steps=0", ["time.max_steps", "greater than 0"]),
        ("time.integrator=rk5", ["time.integrator", "rk2, heun, rk3, rk4"]),
        ("time.cfl=3", ["time.cfl", "at most 2"]),
        ("time.cfl=0", ["time.cfl", "greater than 0"]),
        ("numerics.precision=float16", ["numerics.precision", "float64, float32"]),
        ("numerics.dealiasing=3/2", ["numerics.dealiasing", "2/3, 2/3 sphere, phase-shift"]),
        ("run.device=gpu", ["run.device", "auto, cpu, cuda"]),
        ("run.timeline=1", ["run.timeline", "true or false"]),
        ("run.scratch=3", ["run.scratch", "a folder, or a list of folders, not 3"]),
        ("run.scratch=['/tmp', 3]", ["run.scratch", "a folder, or a list of folders"]),
        ("output.fields_interval=0", ["output.fields_interval", "greater than 0"]),
        ("grid=3", ["grid", "a table"]),
        ("solver=spectrl", ["solver", "'spectral'"]),
        ("nonsense", ["nonsense", "section.key=value"]),
        ("title.x=3", ["title"]),
        ("run.memry=", ["run.memry", "memory"]),
        ("grid.points=", ["grid.points", "is required"]),
        ("run.memory=1 GiB", ["'memory' goes with", "--set run.memory="]),
    ],
)
def test_wrong_settings_are_named_in_one_line(override, expected):
    message = failure(override)
    assert all(part in message for part in expected), message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "solver: is required"),
        ("solver = [", "not valid TOML"),
        (MINIMAL.replace("viscosity = 0.01", ""), "equation.viscosity: is required"),
        (MINIMAL + "cfl = 0.5", "both given"),
        (MINIMAL.replace('flow = "taylor-green"', ""), "neither given"),
        (MINIMAL.replace("[time]", 'restart = "runs/a"\n[time]'), "both given"),
    ],
)
def test_wrong_files_are_explained(text, expected):
    assert expected in failure(text=text)


@pytest.mark.parametrize("name", ["auto", *TRANSPORTS])
def test_every_transport_that_auto_may_choose_can_be_asked_for(name):
    assert parse_case(MINIMAL, [f"run.transport={name}"]).run.transport == name


def test_fields_on_the_host_refuse_transports_of_gpus():
    message = failure("run.residency=host", "run.transport=nccl")
    assert (
        "transport 'nccl' exchanges between GPUs; with residency 'host' accepted: auto" in message
    )
    assert message.endswith("mpi-p2p, mpi, mpi-hierarchical, mpi-device-p2p, mpi-device")
    host = parse_case(MINIMAL, ["run.residency=host", "run.transport=peer"])
    assert host.run.transport == "peer"


def test_unreadable_files_are_explained(tmp_path):
    with pytest.raises(InputError, match="slipstream new"):
        load_case(tmp_path / "absent.toml")
    with pytest.raises(InputError, match="cannot be read"):
        load_case(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a text file"):
        load_case(tmp_path / "binary.toml")


def test_command_line_displaces_what_cannot_stand_beside_it():
    assert parse_case(MINIMAL, ["time.cfl=0.5"]).time.step is None
    restarted = parse_case(MINIMAL, ["initial.restart=runs/a"]).initial
    assert (restarted.flow, restarted.restart, restarted.amplitude) == (None, "runs/a", None)
    assert "both given" in failure("time.cfl=0.5", "time.step=0.1")
    on_disk = MINIMAL + '[run]\nresidency = "disk"\nscratch = ["/tmp"]\nmemory = "1 GiB"\n'
    run = parse_case(on_disk, ["run.residency=host"]).run
    assert (run.residency, run.scratch, run.memory) == ("host", None, "1 GiB")
    run = parse_case(on_disk, ["run.residency=device"]).run
    assert (run.residency, run.scratch, run.memory) == ("device", None, None)


def test_keys_without_an_effect_are_refused():
    often = "output.keep_checkpoints=5"
    assert "'keep_checkpoints' goes with checkpoint = true" in failure(
        "output.checkpoint=false", often
    )
    off = parse_case(MINIMAL + "[output]\nkeep_checkpoints = 5\n", ["output.checkpoint=false"])
    assert off.output.keep_checkpoints == 2
    for name in INTEGRATORS:
        settings = f"time.integrator={name}", "numerics.integrating_factor=false"
        if METHODS[name].functions:
            assert "integrating_factor" in failure(*settings)
        else:
            assert not parse_case(MINIMAL, settings).numerics.integrating_factor


def test_each_flow_has_its_own_keys():
    abc = parse_case(MINIMAL, ["initial.flow=abc", "initial.coefficients=[1, 2, 3]"]).initial
    assert abc.coefficients == (1.0, 2.0, 3.0)
    random = parse_case(MINIMAL, ["initial.flow=random"]).initial
    assert (random.seed, random.peak_wavenumber, random.wavenumber) == (0, 4.0, None)
    for wrong in ("[1, 2]", "3", "[1, 2, 'a']"):
        message = failure("initial.flow=abc", f"initial.coefficients={wrong}")
        assert "initial.coefficients" in message
        assert "number" in message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 pi", 2 * math.pi),
        ("pi", math.pi),
        ("4*pi", 4 * math.pi),
        ("0.5 * pi", math.pi / 2),
        ("pi/2", math.pi / 2),
        ("3pi / 4", 0.75 * math.pi),
        ("1.5", 1.5),
        (3, 3.0),
    ],
)
def test_lengths_may_be_multiples_of_pi(text, value):
    assert length_value(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("text", ["", "tau", "pi pi", "-pi", "pi/0", "nan", "inf", True, None])
def test_other_lengths_are_refused(text):
    with pytest.raises(ValueError, match="accepted"):
        length_value(text)


lengths = st.one_of(st.floats(1e-3, 1e3), st.sampled_from(["2 pi", "pi/2", "4*pi"]))
sizes = st.integers(1, 10**6)
flows = st.one_of(
    st.fixed_dictionaries({"flow": st.just("taylor-green")}, optional={"wavenumber": sizes}),
    st.fixed_dictionaries(
        {"flow": st.just("abc")},
        optional={"coefficients": st.lists(st.floats(-9, 9), min_size=3, max_size=3)},
    ),
    st.fixed_dictionaries({"flow": st.just("random")}, optional={"seed": sizes}),
    st.fixed_dictionaries({"restart": st.text(min_size=1)}),
)
steps = st.one_of(
    st.fixed_dictionaries({"step": st.floats(1e-9, 1)}, optional={"max_steps": sizes}),
    st.fixed_dictionaries({"cfl": st.floats(1e-3, 2)}, optional={"max_step": st.floats(1e-9, 1)}),
)
cases = st.fixed_dictionaries(
    {
        "solver": st.just("spectral"),
        "title": st.text(),
        "grid": st.fixed_dictionaries(
            {"points": sizes | st.lists(sizes, min_size=3, max_size=3)},
            optional={"length": lengths | st.lists(lengths, min_size=3, max_size=3)},
        ),
        "equation": st.fixed_dictionaries({"viscosity": st.floats(0, 1)}),
        "initial": flows,
        "time": st.builds(lambda end, step: {"end": end, **step}, st.floats(1e-6, 1e6), steps),
    }
)


@pytest.mark.slow
@given(cases)
def test_effective_case_loads_equal(data):
    case = validate_case(data)
    assert parse_case(case.to_toml()) == case
    assert parse_case(to_toml(data)) == case


@pytest.mark.parametrize("solver", SOLVERS)
def test_template_loads_and_mentions_every_key(tmp_path, solver):
    path = write_template(str(tmp_path / 'my "case"'), solver=solver)
    case = load_case(path)
    assert case.title == 'my "case"'
    assert case.solver == solver
    text = path.read_text()
    for table in set(type(case).model_fields) - {"solver", "title"}:
        section = text.partition(f"[{table}]")[2].partition("\n[")[0]
        model = getattr(case, table)
        kinds = {
            "forcing": Forcing,
            "particles": ParticleSet,
            "scalars": PassiveScalar,
            "bodies": Body,
        }
        for key in kinds.get(table, type(model)).model_fields:
            assert f"{key} = " in section, key
    if solver == "spectral":
        assert all(key in text for key in SpectralStreaming.model_fields)


DEFAULTS = {
    "spectral": ("precision", "dealiasing", "device", "schedule", "transport"),
    "advection": ("width", "precision", "device", "strategy", "shell"),
    "lattice": (
        "voxel_size",
        "buffer",
        "isolated",
        "magic",
        "inertia",
        "tolerance",
        "interval",
        "precision",
        "propagation",
        "layout",
        "order",
        "encoding",
        "device",
        "partition",
        "schedule",
        "transport",
        "diagnostics_interval",
        "vtk",
    ),
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_template_shows_the_true_defaults(tmp_path, solver):
    path = write_template(str(tmp_path / "case"), solver=solver)
    shown = load_case(path).to_toml()
    starts = tuple(f"# {key} =" for key in DEFAULTS[solver])
    wanted = [
        line.lstrip("# ").partition("#")[0].split()
        for line in path.read_text().splitlines()
        if line.startswith(starts)
    ]
    assert len(wanted) == len(starts)
    assert all(" ".join(words) in shown for words in wanted)


def test_template_of_an_unknown_solver_is_refused(tmp_path):
    with pytest.raises(InputError, match="--solver: 'spectre'.*spectral, advection"):
        write_template(str(tmp_path / "case"), solver="spectre")


def test_template_is_not_overwritten_unasked(tmp_path):
    name = str(tmp_path / "case.toml")
    path = write_template(name)
    assert str(path) == name
    with pytest.raises(InputError, match="--overwrite"):
        write_template(name)
    write_template(name, overwrite=True)
    with pytest.raises(InputError, match="no such folder"):
        write_template(str(tmp_path / "absent" / "case"))


@pytest.mark.parametrize(
    "text", ["[" * 5000, "a = " + "9" * 5000, "a = [" + "[" * 3000 + "]" * 3001, "#" * 2**21]
)
def test_text_that_is_too_much_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "case.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{path}: ") as caught:
        load_case(path)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 500


def test_without_a_step_it_is_adaptive():
    assert parse_case(MINIMAL.replace("step = 0.01", "")).time.cfl == 0.8
    assert parse_case(MINIMAL).time.cfl is None


@pytest.mark.parametrize(
    ("key", "meant"),
    [("viscosity", "'equation.viscosity'"), ("points", "'grid.points'"), ("grit", "'grid'")],
)
def test_a_key_without_its_table_is_recognised(key, meant):
    assert f"did you mean {meant}?" in failure(text=f"{key} = 1\n" + MINIMAL)
