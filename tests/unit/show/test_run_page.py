"""The page of a run: whole, by itself, and harmless whatever the run was called."""

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import types
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from fake_simulation import fake_simulation
from flows import PATIENCE
from quick_pictures import quick_pictures
from slipstream.engine.errors import InputError
from slipstream.engine.processes import Interrupted
from slipstream.files.run_folder import RunRecord, Segment
from slipstream.runs.run_case import run_case
from slipstream.show.field_planes import FieldPlane
from slipstream.show.report_command import comparison_pictures, differences, write_report
from slipstream.show.run_page import run_checks, run_page
from slipstream.show.stored_run import StoredRun

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&$x$"


def write_run(folder, *settings, **options):
    run_case(fake_simulation(*settings, **options), folder, Console(quiet=True))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run with a title that is not harmless; it is not to be changed."""
    title = "title='''" + EVIL.replace("'", "") + "'''"
    return write_run(tmp_path_factory.mktemp("runs") / EVIL.replace("/", ""), title)


@pytest.fixture(scope="module")
def drawn(run, tmp_path_factory):
    """A page of it with plots."""
    with quick_pictures():
        return write_report([run], tmp_path_factory.mktemp("pages") / "page.html")


class Elements(HTMLParser):
    """All elements and their attributes, and which of them were not closed."""

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def check_harmless(text):
    """Nothing is run, nothing is fetched, and each name appears once."""
    page = Elements(text)
    for tag, attributes in page.found:
        assert tag not in ("script", "iframe", "object", "link", "form", "base", "foreignobject")
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href"):
                assert value.startswith(("#", "data:image/png;base64,"))
    names = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(names) == len(set(names))
    links = {v[1:] for _, a in page.found if (v := a.get("xlink:href", "")).startswith("#")}
    links |= set(re.findall(r"url\(#([^)]+)\)", text))
    assert links <= set(names)
    assert len(text) < 1_500_000
    return page


def test_each_run_has_a_page(run):
    page = check_harmless((run / "report.html").read_text())
    for part in ("finished", "4 x 6 x 8", "taylor-green", "slipstream resume", "@software", "fft"):
        assert part in page.text
    assert EVIL.replace("'", "") in page.text
    assert (
        not write_run(run.parent / "none", "output.report=false").joinpath("report.html").exists()
    )


@pytest.mark.slow
def test_plots_stand_on_the_page_and_names_are_no_code(drawn):
    page = check_harmless(drawn.read_text())
    kinds = [tag for tag, _ in page.found]
    assert kinds.count("svg") == 3
    assert "image" in kinds  # a plane, within its plot


def test_a_page_is_replaced_but_no_other_file(run, tmp_path, monkeypatch):
    monkeypatch.setattr(StoredRun, "pictures", lambda _: [])
    for _ in range(2):
        assert write_report([run], tmp_path / "page.html") == tmp_path / "page.html"
    (tmp_path / "notes.html").write_text("mine")
    for path in (tmp_path / "notes.html", tmp_path):
        with pytest.raises(InputError, match="--out"):
            write_report([run], path)
    assert (tmp_path / "notes.html").read_text() == "mine"


def test_an_interrupted_run_says_how_to_resume_it(tmp_path):
    fake = fake_simulation(
        on_step=lambda one: one.step == 3 and os.kill(os.getpid(), signal.SIGTERM)
    )
    with pytest.raises(Interrupted):
        run_case(fake, tmp_path, Console(quiet=True))
    page = check_harmless((tmp_path / "report.html").read_text())
    assert "interrupted: can be resumed" in page.text
    assert f"slipstream resume {tmp_path}" in page.text
    assert "step 3" in page.text


def test_what_is_known_of_a_run_is_shown_and_no_more_is_needed(tmp_path):
    check_harmless(run_page(tmp_path, RunRecord(), {}))
    killed = Segment(began="2026-01-02T03:04:05Z", updated="never", warnings=[EVIL, EVIL])
    failed = Segment(ended_by="failed", error=EVIL, settings=[EVIL], command=[EVIL], case=EVIL)
    for last in (killed, failed):
        text = run_page(tmp_path, RunRecord(EVIL, EVIL, [killed] * 40 + [last]), {})
        assert check_harmless(text).text.count(EVIL) >= 2
    assert "killed" in run_page(tmp_path, RunRecord(segments=[killed]), {})


FAST = {"flow": {"inertia": True}}


def test_numbers_that_give_doubts_are_told():
    time = np.linspace(0, 1, 6)
    fine = {
        "time": time,
        "kmax_eta": np.full(6, 1.8),
        "mach": np.full(6, 0.01),
        "mass": np.ones(6),
        "budget_residual": np.full(6, 1e-6),
    }
    assert not any(check.is_warning for check in run_checks(fine, (), FAST))
    doubts = {
        "kmax_eta": np.linspace(1.8, 1.2, 6),
        "mach": 0.2 * time,
        "mass": 1 + 0.1 * time,
        "budget_residual": time,
    }
    for name, values in doubts.items():
        checks = run_checks(fine | {name: values}, (), FAST)
        found = [check for check in checks if check.is_warning]
        assert len(found) == 1
        assert name.split("_")[0] in found[0].name.lower()
    # Where products do not conserve energy, the residual is what they add.
    assert not any(
        one.is_warning for one in run_checks({**fine, "budget_residual": time}, (), {}, False)
    )
    # Linear equations know no limit of speed.
    assert not any(check.is_warning for check in run_checks(fine | {"mach": 9 * time}, (), {}))
    relaxing, doubtful = {"equation": {"model": "argle"}}, fine | {"mass": doubts["mass"]}
    assert not any(check.is_warning for check in run_checks(doubtful, (), relaxing))
    pores = np.zeros((9, 9), bool)
    pores[2:7, 2:7] = True
    for width, expected in ((1, True), (5, False)):
        values = np.ma.masked_where(~pores | (np.arange(9) >= 2 + width), np.ones((9, 9)))
        plane = FieldPlane("speed", values, "z", "x", time, time, "y", 0.0, "", 1.0)
        (check,) = run_checks({}, [plane], {})
        assert check.is_warning is expected


@pytest.mark.slow
def test_several_runs_stand_side_by_side(run, tmp_path):
    other = write_run(tmp_path / "other" / run.name, "equation.viscosity=0.2", "time.end=0.5")
    runs = {"a": StoredRun(run), "b": StoredRun(other)}
    table = {key: values for key, *values in differences(runs)}
    assert table == {"equation.viscosity": ["0.1", "0.2"], "time.end": ["1.0", "0.5"]}
    page = check_harmless(write_report([run, other], tmp_path / "page.html").read_text())
    assert [tag for tag, _ in page.found].count("svg") == 2
    assert f"other/{run.name}" in page.text


def test_an_energy_that_is_not_kinetic_is_not_called_so_beside_one_that_is(run):
    def labels(*names):
        stored = StoredRun(run)
        runs = {
            name: types.SimpleNamespace(
                choice=dataclasses.replace(stored.choice, short_labels={"energy": name}),
                series=stored.series,
                spectra=[],
            )
            for name in names
        }
        (picture,) = comparison_pictures(runs)
        return picture.draw().axes[0].get_ylabel()

    assert "kinetic energy" in labels("kinetic energy")
    assert labels("kinetic energy", "energy of all fields") == "energy"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no Chromium")
def test_a_browser_has_nothing_to_say(drawn, tmp_path):
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr"]
    command += ["--window-size=390,844", "--dump-dom", drawn.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert "CONSOLE" not in done.stderr
    assert "How to cite" in done.stdout
