"""Turning a failed validation into one line that says what to do.

The line has the dotted key, the value where that helps, and the accepted values; for a misspelt key
it suggests the nearest one.
"""

from typing import Any

from pydantic import BaseModel, ValidationError

from slipstream.argument_checks import nearest
from slipstream.case.declared_keys import choices_at, keys_of, table_at
from slipstream.error_terms import KeyName, Refusal, spelled
from slipstream.printable_text import shortened, shown

_BOUNDS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a finite number",
    "string": "text",
    "bool": "true or false",
    "tuple": "a list",
    "too_long": "three numbers",
    "missing_argument": "three numbers",
    "model": "a table",
}

# Of what a check says: names that are accepted take some hundreds.
_MOST_LETTERS = 800


def explain(model: type[BaseModel], error: ValidationError, data: Any = None) -> tuple[str, str]:
    """Return the dotted key that failed first, and one line about it that begins with a key.

    Unknown keys are reported first, since they tend to cause the rest. `data` is the user's input.
    """
    problems = error.errors(include_url=False)
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    problem = problems[0]
    key = _key(problem, data) or "case"
    text = _describe(model, problem)
    names_keys = isinstance(problem.get("ctx", {}).get("error"), Refusal)
    message = text if names_keys else f"{_spelled(key)}: {text}"
    if len(problems) > 1:
        others = ", ".join(_spelled(_key(one, data)) for one in problems[1:4])
        message += f" (also wrong: {others}{', ...' if len(problems) > 4 else ''})"
    return key, " ".join(message.split())


def _key(problem: Any, data: Any) -> str:
    key = ""
    for part in problem["loc"]:
        is_number = isinstance(part, int)
        # A table that stands for a list of one has no number in the input.
        if is_number and isinstance(data, dict):
            continue
        # Tables of a list are counted as people do.
        key += f"[{part + 1}]" if is_number else f".{shortened(str(part))}"
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            data = None
    return key.removeprefix(".")


def _spelled(key: str) -> str:
    table, _, name = key.partition(".")
    return spelled([KeyName(table, name)]) if name else key


def _guess(
    model: type[BaseModel], location: tuple[Any, ...], value: Any, accepted: list[str]
) -> str:
    """Return a guess at what an unknown key stands for: that of a table, or a similar one."""
    near = nearest(str(location[-1]), accepted)
    if len(location) > 1 or isinstance(value, dict):
        return near
    found = [key for key in keys_of(model) if key.endswith(f".{location[0]}")]
    if not found and near:
        return near
    if not found and "equation" in model.model_fields:  # whose keys are the model's parameters
        found = [f"equation.{shortened(str(location[0]))}"]
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def _describe(model: type[BaseModel], problem: Any) -> str:
    """Return the fault of one key, and the accepted values."""
    kind, location, value = problem["type"], problem["loc"], problem["input"]
    if kind == "extra_forbidden":
        accepted = sorted(table_at(model, location[:-1]).model_fields)
        guess = _guess(model, location, value, accepted)
        return (f"unknown key{guess} accepted here: {', '.join(accepted)}").replace(
            "key accepted", "key; accepted"
        )
    if kind == "missing":
        choices = choices_at(model, location)
        return f"is required; accepted: {', '.join(choices)}" if choices else "is required"
    if kind == "literal_error":
        choices = choices_at(model, location)
        guess = nearest(value, choices) if isinstance(value, str) else ""
        return f"{shown(value)} is not accepted{guess or ';'} accepted: {', '.join(choices)}"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"must be {words} {problem['ctx'][bound]:g}, not {shown(value)}"
    if kind == "value_error":
        return shortened(str(problem["ctx"]["error"]), _MOST_LETTERS)
    for prefix, words in _KINDS.items():
        if kind.startswith(prefix):
            return f"must be {words}, not {shown(value)}"
    return f"{problem['msg'][0].lower()}{problem['msg'][1:]}, not {shown(value)}"
