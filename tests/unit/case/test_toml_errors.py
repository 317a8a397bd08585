"""Text that is not TOML is refused with its line, its key, and what TOML takes instead."""

import math
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.case.case_loading import parse_case, parse_override
from slipstream.case.toml_text import explain_toml, number_in_toml
from slipstream.engine.errors import InputError


@pytest.mark.parametrize(
    ("text", "where", "instead"),
    [
        ("[time]\nend = .5", "line 2: time.end: '.5'", "write 0.5"),
        ("[time]\r\n\r\nend = -5.  # .7", "line 3: time.end: '-5.'", "write -5.0"),
        ("[time]\nend = 1d-3", "line 2: time.end: '1d-3'", "write 1e-3"),
        ("[flow]\ncourant = [1,\n  0.2, .5]", "line 3: flow.courant: '.5'", "write 0.5"),
        ("[run]\nstreaming = { tiles = 04 }", "line 2: run.streaming.tiles: '04'", "write 4"),
        ("[run]\ntimeline = True", "line 2: run.timeline: 'True'", "write true"),
        ("[equation]\nmodel = my.py:f", "line 2: equation.model: 'my.py:f'", 'write "my.py:f"'),
        ("[grid]\nlength = 2 pi", "line 2: grid.length: '2 pi'", 'write "2 pi"'),
        ("dealiasing = 2/3", "line 1: dealiasing: '2/3'", 'write "2/3"'),
        ("[[output.fields]]\nof = vorticity", "line 2: output.fields.of: 'vor", 'write "vort'),
    ],
)
def test_the_line_the_key_and_the_correction_are_told(text, where, instead):
    with pytest.raises(InputError) as refused:
        parse_case(text, source="my.toml")
    message = str(refused.value)
    assert message.startswith(f"my.toml: not valid TOML: {where}") and instead in message


@pytest.mark.parametrize(
    "text", ["points 64", "[grid\npoints = 1", "a = 10^3", "a = 0x1G", "a == 4"]
)
def test_what_has_no_obvious_correction_gets_none(text):
    with pytest.raises(InputError, match="line 1: .*column") as refused:
        parse_case(text)
    assert "write" not in str(refused.value)


@pytest.mark.parametrize("line", ["points 64", "[run", "end"])
def test_a_line_without_a_value_blames_no_other_key(line):
    with pytest.raises(InputError, match=f"line 3: '{re.escape(line)}': Expected") as refused:
        parse_case(f"[time]\nend = 1.0\n{line}\n")
    assert "time" not in str(refused.value) and "write" not in str(refused.value)


numbers = st.from_regex(
    r"[+-]?([0-9]{0,3}\.[0-9]{0,3}|[0-9]{1,3})([eEdD][+-]?[0-9]{1,2})?", fullmatch=True
)


@given(numbers)
def test_numbers_keep_their_value(text):
    """Numbers valid in TOML are left alone; anything else that Python reads as one is corrected."""
    try:
        value = float(text.lower().replace("d", "e"))
    except ValueError:
        assert number_in_toml(text) is None
        return
    written = number_in_toml(text)
    assert (written is None) == is_toml(text)
    read = tomllib.loads(f"a = {written or text}")["a"]
    assert math.isclose(read, value, rel_tol=1e-15, abs_tol=0)


def is_toml(text):
    try:
        tomllib.loads(f"a = {text}")
    except tomllib.TOMLDecodeError:
        return False
    return True


@given(st.text(alphabet="ab.5=[]{}\",'#\n\r \\+-eé\x0b", max_size=60))
def test_anything_is_told_in_one_line(text):
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        assert "\n" not in explain_toml(text, error)


@pytest.mark.parametrize(
    ("value", "right"), [(".5", "0.5"), ("1.", "1.0"), ("[1, .5]", "0.5"), ("{ x = .5 }", "0.5")]
)
def test_settings_of_the_command_line_are_corrected_too(value, right):
    with pytest.raises(
        InputError, match=rf"^--set time.end: .* is no value of TOML; write {right}$"
    ):
        parse_override(f"time.end={value}")


@pytest.mark.parametrize("setting", ["a.b=[1, 2", "a.b={x=1", 'a.b="c', "a..b=1", "a.=1", ".a=1"])
def test_broken_settings_are_refused(setting):
    with pytest.raises(InputError, match=re.escape(f"--set {setting.partition('=')[0]}")):
        parse_override(setting)


def test_settings_take_what_toml_takes_and_bare_words():
    for text, value in {
        "1e-3": 0.001,
        "-0.5": -0.5,
        "cuda": "cuda",
        "2 pi": "2 pi",
        "1/2": "1/2",
    }.items():
        assert parse_override(f"a.b={text}") == ("a.b", value)
