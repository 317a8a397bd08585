"""Arguments of callables are keys of cases, with their names, types, defaults and meanings."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream import Advection, Flow, InputError, PorousFlow, Turbulence, permeability
from slipstream.api import output_methods, spectral_flow, tracer_advection
from slipstream.api.settings import ForcingSettings, Setting
from slipstream.case import AdvectionCase, SpectralCase, validate_case
from slipstream.case.keyword_options import TYPE_OF_FOLDERS, KeywordOptions
from slipstream.case.output_tables import AveragesOutput, FieldsOutput, MovieOutput
from slipstream.case.table import key_at, sentence

# The package has a function of the same name.
lattice_arguments = importlib.import_module("slipstream.lattice.permeability")
DOCS = Path(__file__).resolve().parents[3] / "docs"
# Cases with keys without defaults, and arguments made of several keys, or one by another.
FAMILIES = {
    Flow: (
        spectral_flow._KEYS,
        {"solver": "spectral", "grid": {"points": 8}, "time": {"end": 1, "cfl": 1}},
    ),
    PorousFlow: (
        lattice_arguments.KEYS,
        {"solver": "lattice", "image": {"path": "a.npy"}, "time": {"end": 2}},
    ),
    Advection: (
        tracer_advection._KEYS,
        {"solver": "advection", "grid": {"points": 8}, "time": {"end": 1}},
    ),
}
FLOW = KeywordOptions(SpectralCase, spectral_flow._KEYS)
PERMEABILITY = lattice_arguments._OPTIONS
# What people call, its keys, and the names and types that type checkers know.
CALLEES = {
    "Flow": (Flow, FLOW, spectral_flow.FlowOptions),
    "Turbulence": (
        Turbulence,
        spectral_flow._turbulence_options(),
        spectral_flow.TurbulenceOptions,
    ),
    "Advection": (
        Advection,
        KeywordOptions(AdvectionCase, tracer_advection._KEYS, TYPE_OF_FOLDERS),
        tracer_advection.AdvectionOptions,
    ),
    "PorousFlow": (PorousFlow, lattice_arguments.OPTIONS, lattice_arguments.PorousFlowOptions),
    "permeability": (permeability, PERMEABILITY, lattice_arguments.ImageFlowOptions),
    **{
        f"Flow.{name}": (getattr(Flow, name), output_methods._options(table, options), options)
        for name, table, options in (
            ("output", FieldsOutput, output_methods.OutputOptions),
            ("average", AveragesOutput, output_methods.AverageOptions),
            ("movie", MovieOutput, output_methods.MovieOptions),
        )
    },
}


def case_of(kind, tables):
    if kind is Flow:
        start = {"equation": {"viscosity": 1.0}, "initial": {"flow": "taylor-green"}}
        tables = {**tables, **start}
    return validate_case(tables)


def plain_type(annotation):
    """Return the text of a type, which a `TypedDict` may require."""
    text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
    return re.sub(r"^Required\[(.*)\]$", r"\1", text)


@pytest.mark.parametrize("callee", CALLEES)
def test_type_checkers_know_the_names_and_types_of_all_options(callee):
    kind, options, typed = CALLEES[callee]
    parameters = inspect.signature(kind).parameters
    known = {name: plain_type(one) for name, one in typed.__annotations__.items()}
    assert {name: plain_type(parameters[name].annotation) for name in known} == known
    keywords = {
        name for name in options.keys if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert keywords <= known.keys()


@pytest.mark.parametrize("callee", CALLEES)
def test_signatures_and_docstrings_have_all_keys_with_their_defaults_and_meanings(callee):
    kind, options, _ = CALLEES[callee]
    parameters, text = inspect.signature(kind).parameters, inspect.getdoc(kind)
    assert "options" not in parameters and "**options" not in text
    for name, key in options.keys.items():
        declared, parameter = key_at(options.table, key), parameters[name]
        if declared.is_required():
            assert parameter.default is parameter.empty, name
        else:
            assert parameter.default == declared.default, name
        _, _, entry = text.partition(f"\n{name} : ")
        meaning = options.meanings.get(name) or declared.description
        assert sentence(meaning)[:-1] in " ".join(entry.split()), name


def test_importing_a_class_makes_no_text():
    """Keys of models are known once SymPy is imported, which takes half a second."""
    code = "import sys, slipstream; slipstream.Turbulence; print('sympy' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_a_class_derived_from_another_has_its_own_signature():
    class Mine(Turbulence):
        """Mine."""

        def __init__(self, amplitude):
            super().__init__(points=8, viscosity=0.1, comm=None)

    assert list(inspect.signature(Mine).parameters) == ["amplitude"]
    assert Mine.__doc__ == "Mine."


def test_pages_have_tables_of_all_keys(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    made = importlib.import_module("key_tables").with_tables((DOCS / "cases.md").read_text())
    for row in (
        "| `time.cfl` |",
        "| `flow.force` |",
        "| `flow.courant` | `1.0` |",
        "| `frames_per_second` |",
    ):
        assert made.count(f"\n{row}") == 1
    assert not re.search("<!-- keys of", made)


@pytest.mark.parametrize("kind", [Flow, Turbulence, PorousFlow, Advection, ForcingSettings])
def test_settings_that_can_be_changed_are_keys_of_cases(kind):
    family = {Turbulence: Flow, ForcingSettings: Flow}.get(kind, kind)
    tables = FAMILIES[family][1]
    if kind is ForcingSettings:
        tables = {**tables, "forcing": {"kind": "abc"}}
    case = case_of(family, tables)
    for name in dir(kind):
        setting = inspect.getattr_static(kind, name)
        if isinstance(setting, Setting):
            table, _, key = setting.key.partition(".")
            found = getattr(case, table)
            one = found[0] if isinstance(found, tuple) else found
            assert key in type(one).model_fields
            assert key == name
            assert setting.__doc__


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (Turbulence, {"points": 8, "viscosity": 0.1, "intial": "abc"}),
        (Turbulence, {"point": 8, "viscosity": 0.1}),
        (Flow, {"model": "hd", "point": 8, "viscosity": 0.1}),
        (PorousFlow, {"image": "a.npy", "relaxation_tme": 0.8}),
        (Advection, {"points": 8, "corant": 0.5}),
        (permeability, {"image": "a.npy", "tolerence": 0.1}),
    ],
)
def test_arguments_that_do_not_exist_are_refused_with_the_nearest(kind, given):
    with pytest.raises(InputError, match="there is no argument '.*'; did you mean '.*'"):
        kind(**given, comm=None)
    with pytest.raises(InputError, match="missing a required (keyword-only )?argument"):
        kind(comm=None)


@pytest.mark.parametrize("name", ["run", "output", "time"])
@pytest.mark.parametrize("value", [3, "text", [("a", 1)], {1: 2}])
def test_tables_of_other_kinds_are_refused(name, value):
    with pytest.raises(InputError, match=f"{name} is .*; accepted: a dict"):
        Turbulence(points=8, viscosity=0.1, comm=None, **{name: value})
