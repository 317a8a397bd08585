"""Notebooks show models in mathematics, tables, pictures that change, bars.

IPython need not be installed: a module that keeps what it is given stands for it.
"""

import builtins
import copy
import io
import re
import sys
import types

import numpy as np
import pytest
import sympy
from PIL import Image
from rich.console import Console

from slipstream import Advection, Turbulence
from slipstream.engine.errors import InputError
from slipstream.equations import (
    Model,
    Scalar,
    Vector,
    cross,
    curl,
    div,
    dot,
    function,
    grad,
    inverse_laplacian,
    laplacian,
    models,
    outer,
    z_hat,
)
from slipstream.show.console import Progress

pytestmark = pytest.mark.filterwarnings("ignore:kmax_eta")
ONE = {"comm": None, "device": "cpu"}
u, b, s = Vector("velocity"), Vector("magnetic"), Scalar("scalar")
nu = sympy.Symbol("viscosity", real=True)


def turbulence(**options):
    given = {"points": 8, "viscosity": 0.1, "initial": "taylor-green", "step": 0.025}
    return Turbulence(**{**given, **ONE, **options})


@pytest.fixture
def notebook(monkeypatch):
    """Be in a notebook; what it shows is by place, each with all contents it has had."""
    shown = []

    class Handle:
        def __init__(self, what):
            shown.append([what])
            self.place = shown[-1]

        def update(self, what):
            self.place.append(what)

    display = types.ModuleType("IPython.display")
    display.display = lambda what, display_id=False: Handle(what) if display_id else None
    display.HTML = lambda text: text
    display.Image = lambda data, format: data
    package = types.ModuleType("IPython")
    package.display, package.version_info = display, (9, 0)
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    return shown


def written(quantity):
    return quantity._repr_latex_().removeprefix(r"$\displaystyle ").removesuffix("$")


U, B = r"\mathbf{u}", r"\mathbf{b}"


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [
        (u + b, f"{U} + {B}"),
        (u - b - u, f"{U} - {B} - {U}"),
        (u - (b - u), f"{U} - {B} + {U}"),
        (-2 * u, f"-2 {U}"),
        (2 * (u + b), rf"2 \left({U} + {B}\right)"),
        (-(nu * laplacian(u, 2)), rf"-\nu \nabla^{{4}} {U}"),
        (0.015 * u / 3, rf"0.005 {U}"),
        (u + 0 * b, U),
        (s * (1 - s) * u, rf"s \left(1 - s\right) {U}"),
        ((s - 1) ** 2, r"\left(s - 1\right)^{2}"),
        (dot(u, grad(u)), rf"\left({U} \cdot \nabla\right) {U}"),
        (-div(outer(u, u)), rf"-\nabla \cdot \left({U} \otimes {U}\right)"),
        (grad(div(u)), rf"\nabla \left(\nabla \cdot {U}\right)"),
        (cross(curl(b), b), rf"\left(\nabla \times {B}\right) \times {B}"),
        (-2 * nu * cross(z_hat, u), rf"-2 \nu \hat{{\mathbf{{z}}}} \times {U}"),
        (dot(u, b) * s, rf"\left({U} \cdot {B}\right) s"),
        (function(sympy.sin, 2 * s), r"\sin{\left(2 s \right)}"),
        (inverse_laplacian(s - 1), r"\nabla^{-2} \left(s - 1\right)"),
        (Scalar("wind_speed") * s, r"\mathrm{wind\_speed} s"),
        (Vector("omega") + Vector("w_1"), r"\boldsymbol{\omega} + \mathbf{w_{1}}"),
    ],
    ids=lambda one: "" if isinstance(one, str) else one.text,
)
def test_quantities_in_mathematics(quantity, expected):
    assert written(quantity) == expected


def test_no_two_names_share_a_letter():
    """Buoyancy and the magnetic field are usual as b: one is a vector."""
    assert written(Scalar("buoyancy") * b) == rf"b {B}"
    shared = Scalar("buoyancy") + Scalar("b")
    assert written(shared) == r"\mathrm{buoyancy} + \mathrm{b}"


@pytest.mark.slow
def test_models_in_mathematics():
    model = models.mhd(nu, sympy.Symbol("resistivity", real=True))
    lines = model._repr_latex_().split(r" \\ ")
    assert [line.count(r"\nabla p") for line in lines] == [1, 0, 0, 0]
    assert lines[1] == (
        rf"\partial_t {B} &= \nabla \times \left({U} \times {B}\right) + \eta \nabla^{{2}} {B}"
    )
    assert lines[2] == rf"\nabla \cdot {U} &= 0"
    rotating = models.hd(0.01, rotation=2.0)._repr_latex_()
    assert r"- 4 \hat{\mathbf{z}}" in rotating and r"0.01 \nabla^{2}" in rotating
    assert "d velocity/dt = " in repr(model) and "\n" not in repr(model)
    for name, function_ in models.SHIPPED.items():
        arguments = models.parameters_of(function_)
        text = function_(**dict.fromkeys(arguments, 1))._repr_latex_()
        assert text.count("{") == text.count("}"), name
        assert text.count(r"\left") == text.count(r"\right"), name
    own = Model({s: -dot(Vector("w"), grad(s)), Vector("w"): laplacian(Vector("w"))})
    assert r"\nabla p" not in own._repr_latex_()


def test_tables_of_simulations_prepare_nothing_and_look_at_nothing():
    sim = turbulence(title="<i>$x$</i>")
    page = sim._repr_html_()
    assert "not prepared" in page and not sim._is_prepared and "<i>" not in page
    assert "not prepared" not in sim.fields["velocity"]._repr_html_() and not sim._is_prepared
    sim.step(2)
    assert sim._diagnosed is None and "energy" not in sim._repr_html_() and sim._diagnosed is None
    energy = sim.diagnostics["energy"]
    assert f"<td style='text-align:left'>{energy:.6g}</td>" in sim._repr_html_()
    sim.step()
    assert f"{energy:.6g} (at step 2)" in sim._repr_html_()
    view = sim.fields["velocity"]
    page = view._repr_html_()
    assert re.search("base64,([^']*)", page)
    largest = np.sqrt((view.plane("z", np.pi) ** 2).sum(axis=0)).max()
    assert "magnitude at z = 3.142, coloured from" in page and f"to {largest:.4g}<" in page
    assert ">velocity<" in sim.fields._repr_html_()
    sim.close()
    assert "closed" in sim._repr_html_() and "closed" in view._repr_html_()


def test_fields_are_read_when_their_values_are_asked_for():
    pytest.importorskip("xarray")
    sim = turbulence()
    view = sim.fields["velocity"]
    read, part = [], view.to_xarray()
    sim_read = type(sim)._read
    sim._read = lambda name: read.append(name) or sim_read(sim, name)
    plane = part.isel(z=3, component=1)
    assert repr(part) and copy.deepcopy(part).shape == view.shape and not read
    np.testing.assert_array_equal(plane.values, view[1, 3])
    np.testing.assert_array_equal(part[:, ::-2, [1, 3], 5], view[...][:, ::-2][:, :, [1, 3], 5])
    assert read
    kept = part.copy().load()
    before = view.gather()
    changes = (lambda: sim.step(), lambda: sim.fields.__setitem__("velocity", 2 * before))
    for change in changes:
        lazy = view.to_xarray()
        change()
        with pytest.raises(InputError, match=r"has been stepped or set since to_xarray"):
            _ = lazy.values
    np.testing.assert_array_equal(kept, before)
    assert view.to_xarray().dtype == view.dtype == view[...].dtype


def sizes_of(pictures):
    return [Image.open(io.BytesIO(one)).size for one in pictures]


@pytest.mark.slow
def test_a_picture_changes_in_its_place_while_the_simulation_runs(notebook):
    sim = turbulence()
    shown = sim.show("vorticity_magnitude", 0.05, plane=("z", 0.0))
    assert len(notebook) == 1 and len(notebook[0]) == 1
    sim.run(until=0.1, progress=False)
    pictures = notebook[0]
    # Once now, not again when the run begins, and at 0.05 and 0.1.
    assert len(notebook) == 1 and len(pictures) == 3 == len(set(pictures))
    assert min(min(size) for size in sizes_of(pictures)) > 300
    shown.cancel()
    sim.run(until=0.2, progress=False)
    assert len(pictures) == 3
    assert sim.show(sim.evaluate("dot(velocity, vorticity)")) is None and len(notebook) == 2


@pytest.mark.slow
def test_a_picture_in_a_file(tmp_path):
    sim = Advection(points=16, **ONE)
    sim.show("tracer", steps=2, file=tmp_path / "tracer.png")
    first = (tmp_path / "tracer.png").read_bytes()
    sim.step(2)
    assert (tmp_path / "tracer.png").read_bytes() != first
    assert [path.name for path in tmp_path.iterdir()] == ["tracer.png"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "this is no notebook; give file=PATH"),
        ({"file": "a.txt"}, "file is 'a.txt'; accepted: names in"),
        ({"file": "nowhere/a.png"}, "there is no such folder"),
        ({"file": "a.png", "plane": ("w", 0.0)}, "plane is .*; accepted: an axis and a place"),
        ({"file": "a.png", "plane": "z"}, "plane is 'z'; accepted: an axis and a place"),
        ({"file": "a.png", "field": "pressur"}, "there is no 'pressur'"),
    ],
)
def test_what_cannot_be_shown_is_told_in_one_line(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sim = turbulence()
    with pytest.raises(InputError, match=message):
        sim.show(**{"field": "velocity", **options})
    with pytest.raises(InputError, match="is a field of another simulation"):
        sim.show(turbulence().fields["velocity"], file="a.png")
    assert not list(tmp_path.iterdir())


def test_a_run_has_a_bar_in_a_notebook(notebook):
    turbulence().run(until=0.1)
    (contents,) = notebook
    assert "value='1.0000'" in contents[-1] and "100 %" in contents[-1]


def test_a_bar_shows_states_as_text(notebook):
    with Progress(Console(file=io.StringIO()), 0.0, 2.0) as bar:
        bar.update(1.0, "<b>half</b>")
    (contents,) = notebook
    assert "value='0.5000'" in contents[-1] and "&lt;b&gt;half" in contents[-1]
