"""Cases and options accept exactly the names that the layers above have."""

import re
from pathlib import Path

import pytest

from slipstream.advection import STRATEGIES
from slipstream.api.validation import validate_command
from slipstream.case import SOLVERS, AdvectionCase, LatticeCase, SpectralCase, write_template
from slipstream.case.spectral_case import FLOW_KEYS
from slipstream.case.table import choices_at
from slipstream.engine import accepted
from slipstream.engine.device import open_device
from slipstream.engine.errors import InputError
from slipstream.engine.exchange import TRANSPORTS, reduced_precision_wire
from slipstream.engine.exchange.transport_registry import transport_class
from slipstream.engine.fft import fft_arguments
from slipstream.engine.outofcore import tile_slots as host_device_copy
from slipstream.engine.schedule.committed_steps import POLICIES
from slipstream.equations import models
from slipstream.files.image_formats import FORMATS
from slipstream.lattice import SAMPLES, samples
from slipstream.lattice import velocity_set as population_layout
from slipstream.lattice.domain_decomposition import PARTITIONS
from slipstream.runs.output_formats import SNAPSHOTS
from slipstream.spectral.forcing import FORCINGS
from slipstream.spectral.initial_flows import INITIAL_FLOWS, MAGNETIC_FIELDS
from slipstream.spectral.kept_modes import DEALIASING
from slipstream.spectral.runge_kutta_tableaux import METHODS
from slipstream.spectral.statistics import STATISTICS


@pytest.mark.parametrize(
    ("names", "registry"),
    [
        (accepted.SOLVERS, SOLVERS),
        (accepted.VALIDATED, validate_command.CASES),
        (accepted.SCHEDULES, POLICIES),
        (accepted.TRANSPORTS, TRANSPORTS),
        ((*accepted.RESIDENCIES, "auto"), fft_arguments.RESIDENCIES),
        (accepted.COPIES, host_device_copy.COPIES),
        (accepted.FFT_LAYOUTS, fft_arguments.LAYOUTS),
        (accepted.FFT_ORDERS, fft_arguments.ORDERS),
        (accepted.WIRES, reduced_precision_wire.WIRES),
        (accepted.TUNES, fft_arguments.TUNES),
        (accepted.MODELS, models.SHIPPED),
        (accepted.INTEGRATORS, METHODS),
        (accepted.DEALIASINGS, DEALIASING),
        (accepted.INITIAL_FLOWS, INITIAL_FLOWS),
        (accepted.INITIAL_FLOWS, FLOW_KEYS),
        (accepted.MAGNETIC_FIELDS, ("none", *MAGNETIC_FIELDS)),
        (accepted.FORCINGS, FORCINGS),
        (accepted.STATISTICS, STATISTICS),
        (accepted.OUTPUT_FORMATS, SNAPSHOTS),
        (accepted.STRATEGIES, STRATEGIES),
        (accepted.LATTICE_PRECISIONS, population_layout.PRECISIONS),
        (accepted.PROPAGATIONS, population_layout.PROPAGATIONS),
        (accepted.POPULATION_LAYOUTS, population_layout.LAYOUTS),
        (accepted.SITE_ORDERS, population_layout.ORDERS),
        (accepted.ENCODINGS, population_layout.ENCODINGS),
        (accepted.PARTITIONS, PARTITIONS),
        (accepted.SAMPLES, SAMPLES),
        (accepted.SPHERE_LATTICES, samples.SPHERE_LATTICES),
        (accepted.IMAGE_FORMATS, FORMATS),
    ],
)
def test_names_are_those_of_the_registry(names, registry):
    assert list(names) == list(registry)


DOCS = Path(__file__).resolve().parents[3] / "docs"
KEYS = [
    (SpectralCase, "initial.flow", INITIAL_FLOWS),
    (SpectralCase, "initial.magnetic", ("none", *MAGNETIC_FIELDS)),
    (SpectralCase, "forcing.kind", FORCINGS),
    (SpectralCase, "time.integrator", METHODS),
    (SpectralCase, "numerics.precision", accepted.PRECISIONS),
    (SpectralCase, "numerics.dealiasing", DEALIASING),
    (SpectralCase, "run.device", ("auto", *accepted.DEVICES)),
    (SpectralCase, "run.schedule", POLICIES),
    (SpectralCase, "run.transport", ("auto", *TRANSPORTS)),
    (SpectralCase, "run.residency", fft_arguments.RESIDENCIES),
    (SpectralCase, "run.streaming.copies", host_device_copy.COPIES),
    (SpectralCase, "run.streaming.update", accepted.UPDATES),
    (AdvectionCase, "numerics.precision", accepted.PRECISIONS),
    (AdvectionCase, "run.device", ("auto", *accepted.DEVICES)),
    (AdvectionCase, "run.strategy", ("auto", *STRATEGIES)),
    (LatticeCase, "image.sample", SAMPLES),
    (LatticeCase, "image.lattice", samples.SPHERE_LATTICES),
    (LatticeCase, "numerics.precision", population_layout.PRECISIONS),
    (LatticeCase, "numerics.propagation", ("auto", *population_layout.PROPAGATIONS)),
    (LatticeCase, "numerics.layout", ("auto", *population_layout.LAYOUTS)),
    (LatticeCase, "numerics.order", ("auto", *population_layout.ORDERS)),
    (LatticeCase, "numerics.encoding", ("auto", *population_layout.ENCODINGS)),
    (LatticeCase, "run.device", ("auto", *accepted.DEVICES)),
    (LatticeCase, "run.partition", PARTITIONS),
    (LatticeCase, "run.schedule", POLICIES),
    (LatticeCase, "run.transport", ("auto", *TRANSPORTS)),
]


@pytest.mark.parametrize(("case", "key", "registry"), KEYS)
def test_keys_accept_what_there_is(case, key, registry):
    assert set(choices_at(case, tuple(key.split(".")))) == set(registry)


@pytest.mark.parametrize("case", [SpectralCase, AdvectionCase, LatticeCase])
def test_template_lists_what_keys_accept(case, tmp_path):
    solver = case.model_fields["solver"].annotation.__args__[0]
    text = write_template(str(tmp_path / "case"), solver=solver).read_text()
    assert not re.search(r"\{[a-z_]+\}", text)
    for other, key, registry in KEYS:
        if other is case and not key.startswith("run.streaming."):
            own = rf"^(?:# )?{key.rpartition('.')[2]} = .*\n(?:# +# .*\n)*"
            sections = re.split(r"^(?:# )?\[", text, flags=re.M)
            section = next(one for one in sections if one.startswith(key.partition(".")[0]))
            explained = re.search(own, section, flags=re.M)[0]
            assert all(f'"{name}"' in explained for name in registry), key


def test_devices_that_can_be_opened_are_those_that_are_accepted():
    with pytest.raises(InputError, match=f"accepted: {', '.join(['auto', *accepted.DEVICES])}$"):
        open_device("abacus")


def section_of(document, heading):
    """Return the text below a heading of a document, up to the next one."""
    text = "\n" + (DOCS / document).read_text()
    return re.split(r"^#+ ", text.partition(f"\n{heading}\n")[2], flags=re.M)[0]


def column(section, header, number=0):
    """Return the names in quotes or backticks in a column of the table of such a header."""
    rows = section.partition(f"| {header} |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [row.split("|")[number + 1] for row in rows]
    return {name for cell in cells for name in re.findall(r"[`\"]+([^`\"]+)[`\"]+", cell)}


@pytest.mark.parametrize(
    ("document", "heading", "header", "names"),
    [
        ("cases.md", "# Cases and output", "`solver`", accepted.SOLVERS),
        ("cases.md", '## Advection: `solver = "advection"`', "strategy", accepted.STRATEGIES),
        ("equations.md", "## Built-in models", "model", accepted.MODELS),
        (
            "equations.md",
            "## Beginning and driving",
            "`initial.flow`",
            accepted.INITIAL_FLOWS,
        ),
        ("equations.md", "## Beginning and driving", "`forcing.kind`", accepted.FORCINGS),
        ("equations.md", "## Numerics", "`numerics.linear`", accepted.EXACT_TERMS),
        ("equations.md", "## Numerics", "`numerics.plane`", accepted.PLANES),
        ("equations.md", "## Numerics", "`time.integrator`", accepted.INTEGRATORS),
        ("equations.md", "## Numerics", "`numerics.dealiasing`", accepted.DEALIASINGS),
        ("fft.md", "## Transports", "name", ("auto", *accepted.TRANSPORTS)),
        ("fft.md", "## Pipelining and tuning", "`tune`", accepted.TUNES),
        ("fft.md", "## Layouts", "`layout`", accepted.FFT_LAYOUTS),
    ],
)
def test_tables_of_documents_have_every_name(document, heading, header, names):
    assert column(section_of(document, heading), header) == set(names)


def test_table_of_storage_has_every_name():
    text = (DOCS / "lattice.md").read_text()
    for choice, names in (
        ("propagation", accepted.PROPAGATIONS),
        ("layout", accepted.POPULATION_LAYOUTS),
        ("order", accepted.SITE_ORDERS),
        ("encoding", accepted.ENCODINGS),
        ("precision", accepted.LATTICE_PRECISIONS),
    ):
        row = re.search(rf"^\| {choice} \| ([^|]*) \|", text, flags=re.M)
        assert set(re.findall(r"`([^`]+)`", row[1])) == set(names)


def test_transports_that_only_gpus_have_are_those_that_serve_no_cpu():
    only = {name for name in TRANSPORTS if "cpu" not in transport_class(name).devices}
    assert only == accepted.GPU_TRANSPORTS


@pytest.mark.parametrize("name", TRANSPORTS)
def test_transports_are_called_as_they_are_registered(name):
    assert transport_class(name).name == name


def test_every_name_has_one_line_for_people():
    registries = {name: one for name, one in vars(accepted).items() if isinstance(one, dict)}
    registries.pop("__builtins__", None)
    registries.pop("__annotations__", None)
    assert {"DEVICES", "TRANSPORTS", "INTEGRATORS", "SAMPLES"} <= set(registries)
    for name, registry in registries.items():
        for line in registry.values():
            assert line, name
            assert len(line) < 80, line
            assert "\n" not in line


def test_names_are_listed_as_people_do():
    assert accepted.listed(["a"]) == "a"
    assert accepted.listed(["a", "b"]) == "a or b"
    assert accepted.listed("abc") == "a, b or c"
