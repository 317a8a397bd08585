"""The JSON schema of cases accepts valid cases, explains keys, and refuses wrong values."""

import json
import math
import re
import tomllib

import pytest

from flows import REPOSITORY
from refusals import status_of
from slipstream.case import SHIPPED_CASES, load_case, write_template
from slipstream.case.json_schema import schema_of_cases
from slipstream.engine.accepted import SOLVERS

KINDS = {
    "integer": lambda one: isinstance(one, int) and not isinstance(one, bool),
    "number": lambda one: isinstance(one, int | float) and not isinstance(one, bool),
    "string": lambda one: isinstance(one, str),
    "boolean": lambda one: isinstance(one, bool),
    "array": lambda one: isinstance(one, list),
    "object": lambda one: isinstance(one, dict),
}
BOUNDS = {
    "minimum": lambda one, bound: one >= bound,
    "maximum": lambda one, bound: one <= bound,
    "exclusiveMinimum": lambda one, bound: one > bound,
    "exclusiveMaximum": lambda one, bound: one < bound,
    "minItems": lambda one, bound: len(one) >= bound,
    "maxItems": lambda one, bound: len(one) <= bound,
    "minLength": lambda one, bound: len(one) >= bound,
}
# What says nothing of the value.
WORDS = {"title", "description", "default", "examples", "definitions", "$schema"}


def accepts(schema, value, root):
    """Return whether a value is of a schema; a word that is not known here is an error."""
    if "$ref" in schema:
        return accepts(root["definitions"][schema["$ref"].rpartition("/")[2]], value, root)
    # The type first: bounds are compared with values of it.
    left = sorted(set(schema) - WORDS, key=lambda word: word != "type")

    def judged():
        for word in left:
            rule = schema[word]
            if word == "type":
                yield KINDS[rule](value)
            elif word in BOUNDS:
                yield isinstance(value, str | list | int | float) and BOUNDS[word](value, rule)
            elif word == "enum":
                yield value in rule
            elif word == "const":
                yield value == rule
            elif word == "pattern":
                yield isinstance(value, str) and re.search(rule, value) is not None
            elif word == "anyOf":
                yield any(accepts(one, value, root) for one in rule)
            elif word == "oneOf":
                yield sum(accepts(one, value, root) for one in rule) == 1
            elif word == "required":
                yield isinstance(value, dict) and set(rule) <= set(value)
            elif word == "properties":
                yield isinstance(value, dict) and all(
                    accepts(rule[key], one, root) for key, one in value.items() if key in rule
                )
            elif word == "additionalProperties":
                unknown_keys = set(value) - set(schema.get("properties", ()))
                yield (
                    not unknown_keys
                    if rule is False
                    else all(
                        rule is True or accepts(rule, value[key], root) for key in unknown_keys
                    )
                )
            elif word == "items":
                kinds = rule if isinstance(rule, list) else [rule] * len(value)
                yield all(accepts(k, v, root) for k, v in zip(kinds, value, strict=False))
            else:
                raise ValueError(word)

    return all(judged())


@pytest.fixture(scope="module")
def schema():
    return schema_of_cases()


@pytest.mark.slow
def test_it_takes_what_is_shipped_and_what_new_writes(schema, tmp_path):
    texts = {name: (REPOSITORY / "cases" / f"{name}.toml").read_text() for name in SHIPPED_CASES}
    for solver in SOLVERS:
        texts[solver] = write_template(str(tmp_path / solver), solver=solver).read_text()
    for name in ("forced", "sandstone"):
        # As a run writes it, with every key.
        texts[f"{name}, as run"] = load_case(name).to_toml()
    own = f"{REPOSITORY}/examples/equations.py:reacting"
    texts["own"] = write_template(str(tmp_path / "own"), model=own).read_text()
    for name, text in texts.items():
        data = tomllib.loads(text)
        assert accepts(schema, data, schema), name
        alone = schema_of_cases(data["solver"])
        assert accepts(alone, data, alone), name


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("grid.points", "many"),
        ("grid.points", [1, 2]),
        ("grid.point", 8),
        ("equation.viscosity", -1.0),
        ("equation.resistivity", 1.0),
        ("equation.model", "ns"),
        ("time.integrator", "rk5"),
        ("time.end", 0),
        ("time.end", 1e308),
        ("run.streaming", {"tile": 4}),
        ("output.fields", [{"of": "vorticity", "plane": {"axis": "w", "position": 1.0}}]),
        ("output.pictures", "yes"),
        ("solver", "abacus"),
        ("wall", {}),
    ],
)
def test_it_refuses_what_cases_refuse(schema, key, value):
    data = tomllib.loads((REPOSITORY / "cases" / "taylor-green.toml").read_text())
    assert accepts(schema, data, schema)
    *path, name = key.split(".")
    table = data
    for part in path:
        table = table.setdefault(part, {})
    table[name] = value
    assert not accepts(schema, data, schema)


def test_every_key_has_a_type_and_an_explanation(schema):
    keywords = {"type", "anyOf", "$ref", "enum", "const"}
    tables = {
        name: one["properties"]
        for name, one in schema["definitions"].items()
        if "properties" in one
    }
    tables |= {
        one["title"]: one["properties"] for one in schema["definitions"]["Equation"]["anyOf"][:-1]
    }
    assert len(tables) > 30 and sum(map(len, tables.values())) > 150
    for table, keys in tables.items():
        for key, one in keys.items():
            assert keywords & set(one) and one.get("description"), f"{table}.{key}"
    numbers = [one for keys in tables.values() for one in keys.values() if "default" in one]
    assert all(one["default"] is not None for one in numbers)


def test_the_command_prints_json(capfd):
    status = status_of("schema", "--solver", "advection")
    printed = json.loads(capfd.readouterr().out, parse_constant=lambda _: math.nan)
    assert not status and printed == schema_of_cases("advection")
    assert status_of("schema", "--solver", "abacus") == 2
    assert "accepted: spectral, adv" in capfd.readouterr().err
