"""README, docs, examples and cases work as shown: everything is executed, made small."""

import importlib
import json
import os
import re
import subprocess
import tomllib
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tifffile
import typer
from packaging.requirements import Requirement

from bench import __main__ as bench
from flows import REPOSITORY, diagnostics, environment, output_of, slipstream
from page_code import (
    LANGUAGES,
    all_blocks,
    blocks,
    commands_not_run,
    execute_forked,
    noted_commands,
)
from printed_warnings import assert_intended, warnings_in, warnings_of_reports
from quick_pictures import quick_pictures
from refusals import status_of
from slipstream import cli
from slipstream.case import load_case
from slipstream.engine.accepted import MODELS
from slipstream.lattice import make_sample

DOCS = REPOSITORY / "docs"
# docs/generated is written when the site is built.
PAGES = [
    path for path in sorted(DOCS.rglob("*.md")) if not {"generated", "figures"} & set(path.parts)
]
DOCUMENTS = [REPOSITORY / "README.md", *PAGES]
CASES = sorted((REPOSITORY / "cases").glob("*.toml"))
SOLITONS = REPOSITORY / "examples/solitons.toml"
# The warnings that shipped cases and pages print, by pattern, with why they are right: any other is
# false, and mended at its cause.
_UNRESOLVED = "its page says that the grid does not resolve this flow"
INTENDED_OF_CASES = {
    "decaying-2d": {r"^kmax_eta is 0\.97 at t = 0: ": _UNRESOLVED},
    "inertia-gravity": {r"^kmax_eta will fall to about 0\.4": _UNRESOLVED},
    "lans-alpha": {r"^kmax_eta will fall to about 0\.4": _UNRESOLVED},
    "leray-alpha": {r"^kmax_eta will fall to about 0\.[34]": _UNRESOLVED},
}
INTENDED_OF_PAGES = {
    "python": {r"^fields\['\w+'\]: .* 0\.\d+ % of its energy is lost": "the page says so"},
    "quantum-vortices": {r"^drift of (mass|hamiltonian) ": "16 points do not resolve the cores"},
    "pytorch": {r"^fields\['eddy_viscosity'\]: .* discards: 0\.": "a root has all wavenumbers"},
}
_SMALL = "the tests' 16 points, or few voxels, resolve less than the page's own"
INTENDED_SMALL = {
    r"^kmax_eta (is|will fall to about) 0\.": _SMALL,
    r"^resolution, kmax_eta ": _SMALL,
    r"^forcing\.injection: .* will make kmax_eta about 0\.": _SMALL,
    r"^initial\.peak_wavenumber: \d+ is beyond the 5 that the grid keeps": _SMALL,
    r"^equation\.cutoff: 15, but the grid keeps wavenumbers up to 5": _SMALL,
    r"^bodies\[\d\].* the spacing of points, 1\.5": _SMALL,
    r"^not converged: continue with .* --set time\.max_steps=": "20 steps are few",
    r"grid\.points = 16 can resolve": _SMALL,
    r": the record .*(fewer|less) than 20|: \d+ (samples|batches) .*only": "records are short",
    r"^Slipstream has never run on ": "forecasts are for machines that nobody has lent",
}
# What makes a run of each family one of seconds.
SMALL = {
    # One kernel is compiled per substage.
    "spectral": ("time.max_steps=2", "output.pictures=false", "time.integrator=rk2"),
    "advection": ("grid.points=20", "time.max_steps=2", "output.pictures=false"),
    "lattice": ("time.max_steps=20", "output.pictures=false"),
}
SMALL_STEPS = 2
SMALL_SAMPLE = ("image.shape=[24, 24, 24]", "image.porosity=0.5", "image.radius=5")
# Blocks of these pages are for several ranks; those of others are for one, or for any number.
RANKS = {"fft.md": 4, "distributed_fft.md": 2}
# Examples of sizes that need a large machine.
SMALLER = {
    "(2048, 2048, 2048)": "(64, 64, 64)",
    '"8 GiB"': '"32 MiB"',
    "points=(128, 256, 1)": "points=(16, 32, 1)",
    "sim.run(until=20)": "sim.run(steps=2)",
    "sim.run(until=2)": "sim.run(steps=2)",
    "(48, 48, 48), porosity=0.3, radius=8": "(16, 16, 16), porosity=0.5, radius=4",
    "(32, 32, 32), porosity=0.3, radius=5": "(20, 20, 20), porosity=0.5, radius=4",
    "points=64, viscosity=1 / 200": "points=16, viscosity=1 / 20",
    "run(until=100, output": "run(until=30, output",
    "max_step=0.025": "max_step=0.1",
    "forced.run(until=110)": "forced.run(until=36)",
    "sim.run(until=150)": "sim.run(until=40)",
    "sim.run(until=40)\nk, energy": "sim.run(until=4)\nk, energy",
}


def check_warnings(document, folder, printed):
    """Nothing that a page's code prints, or that reports of its runs list, cries wolf."""
    found = [*warnings_in(printed), *warnings_of_reports(folder)]
    of_page = INTENDED_OF_CASES.get(document.stem, {}) | INTENDED_OF_PAGES.get(document.stem, {})
    assert_intended(found, INTENDED_SMALL | of_page)


def named(document):
    return str(document.relative_to(REPOSITORY))


def with_python():
    return [document for document in DOCUMENTS if blocks(document, "python")]


def with_bash():
    return [p for p in DOCUMENTS if any(b.language == "bash" for b in all_blocks(p))]


def with_toml():
    return [document for document in DOCUMENTS if blocks(document, "toml")]


@pytest.fixture(scope="module")
def noted(tmp_path_factory):
    """Function that notes the commands of a page, once for all tests."""
    return cache(lambda page: noted_commands(page, tmp_path_factory.mktemp("noted")))


@pytest.fixture
def commands(noted):
    """Function that returns the arguments of a page's `slipstream` commands, as in the shell."""
    return lambda page: [words[1:] for words in noted(page) if words[0] == "slipstream"]


@pytest.fixture(scope="module", autouse=True)
def drawn_quickly():
    with quick_pictures():
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder like a checkout, with the image that the documents speak of."""
    for name in ("cases", "examples"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    rock = make_sample("sandstone", (24, 24, 24), porosity=0.5, radius=5)
    tifffile.imwrite(tmp_path / "rock.tif", np.asarray(rock) * 255)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    return tmp_path


def write_programs(document):
    """Write the blocks that begin with the name of a file."""
    for code in blocks(document, "python"):
        if named_file := re.match(r"# (\w+\.py)\n", code):
            Path(named_file[1]).write_text(code)


def have_run(text):
    """Run what a document supposes to have been run: the case that README begins with."""
    # A time average needs some rows.
    steps = ["--set", "time.max_steps=6"] if "slipstream average" in text else []
    if re.search(r"vortex\b", text) and "slipstream new vortex" not in text:
        run(["new", "vortex"])
        run([*made_small(["run", "vortex.toml", "--set", "output.fields_interval=0.01"]), *steps])
    if "runs/taylor-green" in text:
        run(made_small(["run", "taylor-green"]))


def run(arguments):
    if "--ranks" in arguments:  # which starts the process's own command once more
        result = slipstream(*arguments, cwd=Path.cwd(), ranks=2)
        assert result.returncode == 0, result.stdout + result.stderr
        return
    status = status_of(*arguments)
    assert not status, arguments


def small_settings(case):
    """Return settings that make a case small, whatever it was."""
    if case.solver == "lattice":
        return [*SMALL["lattice"], *(SMALL_SAMPLE if case.image.sample else ())]
    if case.solver == "advection":
        return SMALL["advection"]
    points = [min(16, n) for n in case.grid.points_xyz]
    # So few points do not keep the shells of a force at small scales.
    fine = len(case.forcing) == 1 and (case.forcing[0].shells or (0, 0))[1] > 4
    shells = ["forcing.shells=[1, 2]"] if fine else []
    return [f"grid.points={points}", *shells, *SMALL["spectral"]]


def made_small(arguments):
    """Return the arguments of a command that runs a case, with settings that make it small."""
    given = [arguments[i + 1] for i, word in enumerate(arguments) if word == "--set"]
    case = load_case(Path(arguments[1]), given)
    settings = small_settings(case)
    over = [] if "--resume" in arguments else ["--overwrite"]
    return [*arguments, *over, *(word for s in settings for word in ("--set", s))]


def test_every_block_is_executed_or_says_why_not(commands):
    """Every block has a language. The tests below would pass if there were no blocks."""
    for document in DOCUMENTS:
        for block in all_blocks(document):
            assert block.language in LANGUAGES, f"{named(document)}: {block}"
    assert len(blocks(REPOSITORY / "docs/fft.md", "python")) > 8
    assert len(with_bash()) > 30 and len(with_toml()) > 6
    assert ["cases"] in commands(REPOSITORY / "README.md")
    assert len(CASES) > 5


def test_blocks_that_are_not_run_are_well_formed():
    for block in (block for document in DOCUMENTS for block in all_blocks(document)):
        if block.not_run and block.language == "python":
            compile(block.text, "a page", "exec")
        elif block.not_run and block.language == "bash":
            check = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
            assert not check.stderr
        elif block.not_run:
            tomllib.loads(block.text)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("document", with_python(), ids=named)
def test_python_blocks_run(document, folder):
    """One after the other in one process, as a reader would type them."""
    code = "\n".join(blocks(document, "python"))
    for large, small in SMALLER.items():
        code = code.replace(large, small)
    have_run(code)
    write_programs(document)
    script = folder / "script.py"
    needed = "import numpy as np\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\n"
    if document.name == "README.md":  # which needs no more than an installation brings
        needed = "import sys\nsys.modules['xarray'] = sys.modules['pandas'] = None\n"
    script.write_text("import matplotlib; matplotlib.use('Agg')\n" + needed + code)
    ranks = RANKS.get(document.name, 1)
    variables = {**environment(ranks), "OMP_NUM_THREADS": "1"}
    if ranks == 1 and document.name != "README.md":
        status, output = execute_forked(script, folder, variables)
        assert status == 0, output
        check_warnings(document, folder, output)
        return
    raised = "error" if document.name == "README.md" else "error::SyntaxWarning"
    output_of("-W", raised, script, ranks=ranks, cwd=None, OMP_NUM_THREADS="1")


def test_commands_that_are_not_run_are_accepted():
    """Every option exists and takes what it is given."""
    for program, *arguments in (
        one for document in with_bash() for one in commands_not_run(document)
    ):
        check_accepted({"slipstream": cli.app, "bench": bench.app}[program], arguments)


def check_accepted(app, arguments):
    command = typer.main.get_command(app)
    context = command.context_class(command)
    while hasattr(command, "commands"):
        name, command, arguments = command.resolve_command(context, arguments)
    command.make_context(name, list(arguments), parent=context)


@pytest.mark.slow
def test_other_commands_have_what_they_name(noted):
    """Targets of make, extras and requirements that pip is given, programs that Python runs."""
    makefile = (REPOSITORY / "Makefile").read_text()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for program, *words in (command for document in with_bash() for command in noted(document)):
        if program == "make":
            assert all(re.search(rf"^{word}:", makefile, re.M) for word in words), words
        elif program == "python" and words[:2] == ["-m", "bench"]:
            check_accepted(bench.app, words[2:])
        elif program == "python":
            pages = "".join(document.read_text() for document in DOCUMENTS)
            assert (REPOSITORY / words[0]).exists() or f"`{words[0]}`" in pages, words
        elif program == "pip":
            assert words[0] == "install"
            for word in words[1:]:
                extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", word)
                if extras and extras[1]:
                    assert set(extras[1].split(",")) <= project["optional-dependencies"].keys()
                elif not extras and not word.startswith("-"):
                    Requirement(word)


@pytest.mark.thorough
@pytest.mark.parametrize("document", with_bash(), ids=named)
def test_commands_run(document, folder, commands, capsys):
    """In their order, in one folder; what measures or validates, which takes long, is not run."""
    have_run(document.read_text())
    write_programs(document)
    done = []
    for arguments in commands(document):
        if arguments[0] == "run":
            more = any(one[0] == "average" for one in commands(document))
            steps = ["--set", "time.max_steps=6"] if more else []
            run([*made_small(arguments), *steps])
        elif arguments[0] == "new":
            run([*arguments, "--overwrite"])
        elif arguments[0] == "resume":
            small = [word.replace("=96", "=20") for word in arguments]
            steps = SMALL_STEPS + 2 * (1 + sum(one == "resume" for one in done))
            small += ["--set", f"time.max_steps={steps}", "--set", "output.pictures=false"]
            run(small)
            done.append("resume")
        elif arguments[0] != "validate":
            if "--since" in arguments:  # small runs end before
                arguments[arguments.index("--since") + 1] = "0"
            run(arguments)
    check_warnings(document, folder, "".join(capsys.readouterr()))


@pytest.mark.thorough
@pytest.mark.parametrize("document", with_toml(), ids=named)
def test_toml_blocks_run(document, folder, capsys):
    """Each completed to a case by tables of a shipped one, or used as the machine it describes."""
    write_programs(document)
    for text in blocks(document, "toml"):
        if "devices_per_node" in text:
            Path("machine.toml").write_text(text)
            run(["project", "taylor-green", "--machine", "machine.toml", "--nodes", "1,2"])
            continue
        base = "stratified" if "buoyancy" in text else "taylor-green"
        tables = re.split(r"(?m)^(?=\[)", (REPOSITORY / f"cases/{base}.toml").read_text())
        given = [f"[{name}]" for name in tomllib.loads(text)]
        kept = [one for one in tables if one.partition("\n")[0] not in given]
        Path("case.toml").write_text("".join([*kept, "\n", text]))
        run(made_small(["run", "case.toml", "--set", "time.max_step=0.1"]))
    check_warnings(document, folder, "".join(capsys.readouterr()))


@pytest.mark.slow
def test_phases_of_readme_separate(folder, commands):
    """The report on a user's model has something to show, not a decay to zero."""
    for arguments in commands(REPOSITORY / "README.md"):
        if "phases.toml" in arguments or "phases" in arguments:
            run([*arguments, "--set", "output.pictures=false"] if "run" in arguments else arguments)
    found = diagnostics(folder / "runs/phases")
    assert found["energy"][-1] > 0.15 > 100 * found["energy"][0]


@pytest.mark.slow
def test_the_tutorial_on_own_equations_shows_stripes(folder, commands):
    page = DOCS / "tutorials/own_equation.md"
    write_programs(page)
    for arguments in commands(page):
        if "new" in arguments or "run" in arguments:
            run([*arguments, "--set", "output.pictures=false"] if "run" in arguments else arguments)
    rms = (2 * diagnostics(folder / "runs/stripes")["energy"][-1]) ** 0.5
    assert f"{rms:.2f}" in page.read_text() and 0.4 < rms < 0.5


@pytest.mark.thorough
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_cases_step(path, folder):
    settings = small_settings(load_case(path, []))
    run(["run", str(path), *(word for s in settings for word in ("--set", s))])
    assert (folder / "runs" / path.stem / "diagnostics.csv").exists()


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("path", [*CASES, SOLITONS], ids=lambda path: path.stem)
def test_cases_warn_only_of_what_is_meant(path, folder, capsys):
    """As they are: the first steps of the run, and of a coarser one to its end."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        run(["run", str(path), "--check"])
    found = [*warnings_in("".join(capsys.readouterr())), *(str(one.message) for one in raised)]
    assert_intended(found, INTENDED_OF_CASES.get(path.stem, {}), all_appear=True)


def anchors(document):
    """Return the anchors of a document's headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


def test_links_of_documents_lead_somewhere():
    for document in DOCUMENTS:
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", document.read_text()):
            # docs/generated is there once the site is built.
            if not target.removeprefix("../").startswith(("http", "generated/")):
                path = document.parent / target if target else document
                assert os.path.exists(path), f"{named(document)}: {target}"
                assert not anchor or anchor in anchors(path), f"{named(document)}: #{anchor}"


def test_notebooks_have_the_code_that_is_tested(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    made = importlib.import_module("notebooks")
    for name in made.TUTORIALS:
        page = DOCS / "tutorials" / f"{name}.md"
        cells = made.notebook(page)["cells"]
        code = [one["source"] for one in cells if one["cell_type"] == "code"]
        assert code == [block.strip("\n") for block in blocks(page, "python")]
        assert len(cells) > len(code) > 1


def test_every_page_is_in_the_contents_of_the_site():
    listed = set(re.findall(r"^([\w/-]+)$", (DOCS / "index.md").read_text(), re.M))
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in PAGES}
    assert pages - {"index"} == listed


def test_what_architecture_points_to_exists():
    """Every path of its last table, which has thirty rows or more, and of its text."""
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    rows = [line for line in text.partition("## I want to change")[2].splitlines() if "`" in line]
    paths = [path for row in rows for path in re.findall(r"`(src/[^`]+)`", row)]
    assert len(rows) >= 30 and len(paths) >= len(rows)
    root = "src/slipstream"
    paths += [f"{root}/{path}" for path in re.findall(r"`(\w+/[\w/]+\.(?:py|hpp))\b", text)]
    missing = [path for path in paths if not (REPOSITORY / path).exists()]
    missing = [path for path in missing if not (REPOSITORY / path[len(root) + 1 :]).exists()]
    assert not missing


def test_every_picture_names_its_script():
    text = (DOCS / "figures" / "README.md").read_text()
    for picture in (DOCS / "images").iterdir():
        assert f"`{picture.name}`" in text
    for script in re.findall(r"python (\S+\.py)", text):
        assert (REPOSITORY / script).exists()


def test_every_model_and_every_case_has_a_page_with_a_picture():
    pages = {path.stem: path.read_text() for path in (DOCS / "gallery").glob("*.md")}
    cases = [tomllib.loads(path.read_text()) for path in CASES]
    assert set(MODELS) == {one["equation"]["model"] for one in cases if "equation" in one}
    assert {path.stem for path in CASES} <= pages.keys()
    for name, text in pages.items():
        pictures = re.findall(r"!\[[^\]]+\]\(\.\./((?:images|generated)/[\w.-]+)\)", text)
        assert pictures, name
        assert all((DOCS / one).exists() for one in pictures if one.startswith("images")), name


def test_external_links_and_references_are_listed_with_their_check():
    record = json.loads((DOCS / "data" / "external_links.json").read_text())
    for document in DOCUMENTS:
        for link in re.findall(r"\]\((https?://[^)]*)\)", document.read_text()):
            assert link in record["links"], f"{named(document)}: {link}"
    found = re.findall(r"doi\s*= \{(.*)\}", (REPOSITORY / "paper.bib").read_text())
    assert set(found) == record["references"].keys()
