"""The table of the lattice benchmark: whole numbers on screens of any width."""

import pytest

from bench.lattice import print_lattice

ROW = {
    "name": "layout vector-collision",
    "storage": "aa, stream, raster, compact, float64",
    "partition": "bisection",
    "schedule": "overlap",
    "MLUPS": 43123.4,
    "MLUPS per device": 10780.8,
    "MLUPS of the two steps": [54321.6, 37654.3],
    "bytes per update": [304, 323.6],
    "copy bandwidth (B/s)": 1.7e13,
    "fraction of copy": [0.991, 0.734],
    "fraction of copy, pair": 0.843,
    "exceptional sites": 0,
    "exposed (s per step)": 54.3e-6,
    "imbalance": 1.002,
    "most neighbours": 1,
    "set-up (s)": 1.5,
    "set-up in steps": 500.2,
}


def printed(capsys, monkeypatch, ranks, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    result = {"rows": [ROW], "pore sites": 2e6, "porosity": 0.13, "ranks": ranks, "transport": "t"}
    print_lattice("title", result)
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("ranks", [1, 4])
def test_no_number_is_cut(capsys, monkeypatch, ranks, columns):
    text = printed(capsys, monkeypatch, ranks, columns)
    assert "…" not in text
    row = next(line for line in text.splitlines() if "43123" in line)
    numbers = ["43123", "0.84", "54322 / 37654", "304 / 324", "0.99 / 0.73"]
    assert all(number in row for number in numbers)
    assert ("54.3 µs" in row) == (ranks > 1)


@pytest.mark.parametrize("ranks", [1, 4])
def test_table_fits_a_usual_screen(capsys, monkeypatch, ranks):
    text = printed(capsys, monkeypatch, ranks, 80)
    assert max(map(len, text.splitlines())) <= 80
