"""Text from files of other people, on terminals, in logs and in pictures."""

import io
import re

import pytest
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fuzzing import ADVECTION
from refusals import status_of
from slipstream.engine.errors import InputError, RunError
from slipstream.engine.text import below, one_line, printable, shortened, shown
from slipstream.show.console import Progress, Summary, TextConsole, make_console, summarise
from slipstream.show.figure_style import in_our_style, new_figure, save_figure

EVIL = "a\x1b]0;title\x07\x1b[31m[red]b[/red]\u202e\x9b2J\u2028$\\frac{x$\u200b"
TOML = EVIL.replace("\\", "\\\\")


def is_harmless(text):
    return all(one.isprintable() for one in text.splitlines()) and "\u2028" not in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("\u00e9 \u03c0 \u00b2 \u4e2d", "\u00e9 \u03c0 \u00b2 \u4e2d"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[2J\r\x00\x7f", r"\x1b[2J\r\x00\x7f"),
        ("\x9b\u202e\u2066\ufeff", r"\x9b\u202e\u2066\ufeff"),
        ("\ud800", r"\ud800"),
    ],
)
def test_only_what_does_something_is_escaped(text, expected):
    assert printable(text) == expected


def test_long_values_are_cut_in_their_middle():
    assert shortened("a" * 80) == "a" * 80
    assert shortened("a" * 500 + "end").endswith("end")
    assert len(shortened("a" * 500)) <= 80
    assert len(shown(list(range(10**5)))) <= 80
    assert shown(10**5000) == "a int"
    assert one_line("a\n  b\tc") == "a b c"


def test_messages_obey_no_terminal():
    assert is_harmless(str(InputError(f"image.path: {EVIL}")))
    assert is_harmless(str(RunError(EVIL)))
    assert len(str(InputError("x" * 10**6))) < 5000


def test_run_of_an_evil_title_says_it_as_text(tmp_path, capsys):
    folder = tmp_path / "\x1b[1m[blue]"
    case = tmp_path / "case.toml"
    escaped = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in TOML)
    case.write_text(f'title = "{escaped}"\n{ADVECTION}', encoding="utf-8")
    status = status_of("run", str(case), "--device", "cpu", "--out", str(folder))
    told = capsys.readouterr()
    assert status == 0, told.err
    assert is_harmless(told.out) and is_harmless(told.err)
    assert r"[red]b[/red]\u202e" in told.out and "[blue]" in told.out
    assert folder.is_dir()


@pytest.mark.parametrize("title", [EVIL, "$x$", "$\\frac{x$", "a_b^c", "x" * 10**5])
def test_title_of_a_picture_is_text(tmp_path, title):
    figure = new_figure((3, 2), title)
    save_figure(figure, tmp_path, "a.png")
    (heading,) = figure.texts or [figure._suptitle]
    assert not heading.get_parse_math()
    assert is_harmless(heading.get_text()) and len(heading.get_text()) <= 120


def test_labels_of_a_picture_are_text_and_its_fonts_are_quiet(tmp_path, capfd):
    with in_our_style():
        figure = new_figure((9, 6), "\u4e2d")
        axes = figure.subplots()
        axes.plot([0, 1], label=EVIL.replace("$", ""))
        axes.legend()
        axes.set_xlabel(EVIL, parse_math=False)
        save_figure(figure, tmp_path, "a.png")
    assert is_harmless(axes.get_xlabel())
    assert capfd.readouterr().err == ""


def test_the_console_prints_all_text_as_text(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    console = make_console()
    table = Table(EVIL)
    table.add_row(Text(EVIL, "bold"), EVIL)
    console.print(EVIL, Text(EVIL), table, markup=False)
    with Live(Text(EVIL), console=console):
        console.log(EVIL)
    said = capsys.readouterr().out
    assert is_harmless(said) and said.count("]0;title") == 7
    # What rich itself tells a terminal stays.
    console = TextConsole(force_terminal=True, color_system="standard")
    with Live(Text(EVIL, "bold"), console=console, auto_refresh=False):
        pass
    said = capsys.readouterr().out
    assert "\x1b[1ma\\x1b]0;title" in said and is_harmless(
        re.sub("\x1b\\[[?]?[0-9]*[a-zA-Z]", "", said)
    )


def test_what_is_watched_is_text(tmp_path, capsys):
    (tmp_path / "case.toml").write_text(ADVECTION)
    assert status_of("run", tmp_path / "case.toml", "--device", "cpu", "--out", tmp_path / "a") == 0
    series = tmp_path / "a" / "diagnostics.csv"
    series.write_text(series.read_text().replace("error_rms", EVIL.replace(",", "")))
    capsys.readouterr()
    for options in (("--once",), ()):
        assert status_of("watch", tmp_path / "a", *options) == 0
        said = capsys.readouterr()
        assert is_harmless(said.out) and is_harmless(said.err)


def test_what_is_summed_up_is_text(tmp_path):
    output = io.StringIO()
    console = Console(file=output, width=200)
    summary = Summary(
        wall=1.0,
        steps=1,
        time=1.0,
        points=1,
        stopped_by=EVIL,
        folder=tmp_path / EVIL.replace("/", ""),
        pictures=[tmp_path / "[red]"],
        results={EVIL: (EVIL, EVIL)},
        advice=EVIL,
    )
    summarise(console, summary)
    with Progress(console, 0.0, 1.0) as progress:
        progress.warn([EVIL])
    text = output.getvalue()
    assert is_harmless(text)
    assert text.count("[red]b[/red]") == 6


def test_a_number_below_a_bound_shows_that_it_is():
    assert [below(value, 1) for value in (0.58, 0.994, 0.9996)] == ["0.58", "0.99", "0.9996"]
    assert below(1.499, 1.5) == "1.499"
