"""Arguments of constructors are keys of cases: both say the same of names, defaults and types."""

import inspect

import pytest

import write_keys
from slipstream import Advection, Flow, InputError, PorousFlow, Turbulence
from slipstream.case import validate_case
from slipstream.case.declared_keys import key_at
from slipstream.equations import models
from slipstream.interactive import spectral_flow, tracer_advection
from slipstream.interactive.settings import ForcingSettings, Setting
from slipstream.lattice import lattice_arguments

# Arguments that are tables of a case, or not in a case.
TABLES = {"initial", "forcing", "scalars", "particles", "run", "output", "time", "numerics"}
APART = {"self", "model", "image", "device", "comm", "title", "parameters"}
# Cases with what has no default, and arguments that are made of several keys, or one by another.
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
MADE_OF_OTHERS = {"max_steps", "storage"}


def arguments_of(kind):
    return dict(inspect.signature(kind.__init__).parameters)


def case_of(kind, tables):
    if kind is Flow:
        start = {"equation": {"viscosity": 1.0}, "initial": {"flow": "taylor-green"}}
        tables = {**tables, **start}
    return validate_case(tables)


def test_sources_and_documents_repeat_what_is_declared():
    """`python tools/write_keys.py` writes them."""
    assert not write_keys.outdated()


def test_what_is_declared_is_written_into_them():
    flow = write_keys.CALLEES[0]
    source = flow.file.read_text()
    other = source.replace('integrator: str = "rk4"', "integrator: int = 4", 1)
    other = other.replace("        Runge-Kutta method.\n", "", 1)
    assert other != source and write_keys.with_arguments(other, flow) == source
    docs = (write_keys.ROOT / "docs" / "cases.md").read_text()
    assert write_keys.with_tables(docs.replace("| `time.cfl` |", "| `time.clf` |")) == docs


@pytest.mark.parametrize("kind", FAMILIES)
def test_defaults_are_those_of_cases(kind):
    keys, tables = FAMILIES[kind]
    case, arguments = case_of(kind, tables), arguments_of(kind)
    assert arguments.keys() - TABLES - APART - MADE_OF_OTHERS == keys.keys()
    for name, key in keys.items():
        field = key_at(type(case), key)
        argument = arguments[name]
        assert argument.kind == argument.KEYWORD_ONLY
        if argument.default is argument.empty:
            assert field.is_required(), name
        else:
            assert argument.default == field.default, name


def test_turbulence_has_the_arguments_of_flows_and_of_its_model():
    flow, turbulence = arguments_of(Flow), arguments_of(Turbulence)
    parameters = models.parameters_of(models.find("hd"))
    assert turbulence.keys() - parameters.keys() == flow.keys() - {"model", "parameters"}
    for name, argument in turbulence.items():
        if name in flow:
            assert (argument.default, argument.annotation) == (
                flow[name].default,
                flow[name].annotation,
            )
    for name, (_, default) in parameters.items():
        own = turbulence[name].default
        assert own == (inspect.Parameter.empty if default is ... else default)
        assert hasattr(Turbulence, name)


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
