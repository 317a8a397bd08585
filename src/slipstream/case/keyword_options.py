"""Keys of cases as options of Python callables: their signatures and docstrings."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

from slipstream.case.table import OneOf, key_at, sentence, type_of
from slipstream.engine.accepted import listed
from slipstream.engine.errors import InputError, nearest

Function = TypeVar("Function", bound=Callable[..., Any])
Made = TypeVar("Made")

_WIDTH = 96
# A folder may be a path.
TYPE_OF_FOLDERS = {"restart": ("str | Path", "str or pathlib.Path")}
# Longer types list names, which the meaning has instead.
_LONGEST_TYPE = 72
# The entry of a docstring that stands for all options.
_ENTRY = re.compile(r"^( *)\*\*options\n(?:\1 +.*\n)*", re.MULTILINE)


@dataclass(frozen=True)
class KeywordOptions:
    """The keys of a table that a callable takes as options: dotted, by the names of the options.

    Some options take more than the key does, or mean it in another order: `types` has their
    annotations and their types in docstrings, `meanings` their meanings. Arguments of the function
    that are `hidden` are not shown.
    """

    table: type[BaseModel]
    keys: Mapping[str, str]
    types: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ("self",)

    def signature(self, function: Callable[..., Any]) -> inspect.Signature:
        """Return the signature of a function or constructor, with each key as an option."""
        parameters = inspect.signature(function).parameters
        hidden = ("options", *self.hidden)
        explicit = [parameter for name, parameter in parameters.items() if name not in hidden]
        options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=self._default(name),
                annotation=self.type_texts(name)[0],
            )
            for name in self.keys
            if name not in parameters
        ]
        first = [
            parameter for parameter in explicit if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        return inspect.Signature([*first, *options, *explicit[len(first) :]])

    def docstring(self, text: str) -> str:
        """Return a docstring with an entry of each key instead of ``**options``."""
        return _ENTRY.sub(
            lambda found: "".join(self._entry(one, found[1]) for one in self.keys), text
        )

    def type_texts(self, name: str) -> tuple[str, str]:
        """Return the type of an option as an annotation, and as a docstring has it."""
        annotations, texts = _type_texts(type_of(key_at(self.table, self.keys[name])))
        is_optional = "None" in annotations
        if name in self.types:
            annotation, text = self.types[name]
            annotations = [annotation, *(["None"] if is_optional and annotation != "Any" else [])]
            texts = [text]
        return " | ".join(annotations), listed(texts) + ", optional" * is_optional

    def _default(self, name: str) -> Any:
        declared = key_at(self.table, self.keys[name])
        return inspect.Parameter.empty if declared.is_required() else declared.default

    def _entry(self, name: str, indent: str) -> str:
        """Return the entry of a docstring about an option."""
        declared, text = key_at(self.table, self.keys[name]), self.type_texts(name)[1]
        meaning = self.meanings.get(name) or declared.description or ""
        if len(text) > _LONGEST_TYPE:
            names, text = text.strip("{}").split(", "), "str"
            meaning = f"{meaning}. One of {listed(names)}"
        lines = textwrap.wrap(sentence(meaning), _WIDTH - len(indent), break_on_hyphens=False)
        return "".join([f"{indent}{name} : {text}\n", *(f"{indent}    {one}\n" for one in lines)])


def _type_texts(annotation: Any) -> tuple[list[str], list[str]]:
    """Return the types of a key as annotations of Python have them, and as docstrings do."""
    if annotation is NoneType:
        return ["None"], []
    if get_origin(annotation) in (Union, UnionType):
        parts = [_type_texts(part) for part in get_args(annotation)]
        annotations = [text for each, _ in parts for text in each]
        texts = [text for _, each in parts for text in each]
        return list(dict.fromkeys(annotations)), list(dict.fromkeys(texts))
    if get_origin(annotation) is Annotated:
        kind, *constraints = get_args(annotation)
        names = [
            name
            for constraint in constraints
            if isinstance(constraint, OneOf)
            for name in constraint.names
        ]
        return _type_texts(Literal[tuple(names)] if names else kind)
    if get_origin(annotation) is Literal:
        names = [f'"{name}"' for name in get_args(annotation)]
        return ["str"], [f"{{{', '.join(names)}}}"]
    if get_origin(annotation) is tuple:
        item, *further = get_args(annotation)
        annotations, texts = _type_texts(item)
        # "xy" is as good as ["x", "y"].
        letters = ["str"] if get_origin(item) is Literal else []
        count = "" if further == [...] else f"{1 + len(further)} "
        text = listed(letters or texts)
        return [*letters, f"Sequence[{' | '.join(annotations)}]"], [
            *letters,
            f"sequence of {count}{f'({text})' if ' ' in text else text}",
        ]
    return [annotation.__name__], [annotation.__name__]


def check_arguments(
    signature: inspect.Signature,
    callee: str,
    arguments: tuple[Any, ...],
    options: Mapping[str, Any],
) -> None:
    """Refuse arguments that a callable does not take, with the nearest that it does."""
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        unknown = [name for name in options if name not in signature.parameters]
        # A misspelled argument is also missing: the message begins with the given one.
        text = f"there is no argument {unknown[0]!r}" if unknown else str(error)
        guess = nearest(unknown[0], signature.parameters) if unknown else ""
        raise InputError(f"{callee}: {text}{guess}") from None


def with_options(options: KeywordOptions) -> Callable[[Function], Function]:
    """Give a function the signature and the docstring that its options make, and check them."""

    def decorate(function: Function) -> Function:
        signature = options.signature(function)

        @functools.wraps(function)
        def call(*arguments: Any, **given: Any) -> Any:
            check_arguments(signature, function.__name__, arguments, given)
            return function(*arguments, **given)

        call.__doc__ = options.docstring(function.__doc__ or "")
        setattr(call, "__signature__", signature)  # noqa: B010
        return call  # type: ignore[return-value]

    return decorate


def class_with_options(
    options: Callable[[], KeywordOptions], constructor: Callable[..., Any] | None = None
) -> Callable[[type[Made]], type[Made]]:
    """Give a class the signature and the docstring that options of its constructor make.

    Both are made when they are first read: keys of models are known once SymPy is imported. Another
    `constructor` may have the arguments that are no options.
    """

    def decorate(kind: type[Made]) -> type[Made]:
        text, function = kind.__doc__ or "", constructor or kind.__init__
        made = {
            "__signature__": lambda: options().signature(function),
            "__doc__": lambda: options().docstring(text),
        }
        for name, make in made.items():
            setattr(kind, name, _MadeWhenRead(kind, make))
        return kind

    return decorate


class _MadeWhenRead:
    """An attribute of a class that is made when it is first read, except by derived classes."""

    def __init__(self, owner: type, make: Callable[[], Any]) -> None:
        self._owner, self._make = owner, functools.cache(make)

    def __get__(self, instance: Any, kind: type) -> Any:
        if kind.__init__ is not self._owner.__init__:  # type: ignore[misc]
            raise AttributeError
        return self._make()
