"""Keys of cases as options: of Python callables, with signatures, and of the command line."""

from __future__ import annotations

import functools
import glob
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
from pydantic import BaseModel

from slipstream.case import SHIPPED_CASES, Case
from slipstream.case.case_loading import SOLVERS as CASES
from slipstream.case.case_loading import read_tables
from slipstream.case.table import OneOf, key_at, keys_of, sentence, type_of
from slipstream.engine.accepted import DEVICES, LOG_LEVELS, listed
from slipstream.engine.errors import InputError, SlipstreamError, nearest
from slipstream.engine.text import shown

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


# The file of the case in the folder of every run.
_CASE_OF_RUN = "case.toml"


def one_of(names: Iterable[str], what: str = "{}") -> Any:
    """Return an option that takes one of some names, with `what` of them said in its help."""
    accepted = list(names)

    def checked(context: typer.Context, parameter: Any, value: str | None) -> str | None:
        if value is not None and value not in accepted and not context.resilient_parsing:
            raise InputError(
                f"{parameter.opts[-1]}: {shown(value)} is not accepted; accepted:"
                f" {', '.join(accepted)}"
            )
        return value

    return typer.Option(
        help=f"{what.format(listed(accepted))}.",
        callback=checked,
        autocompletion=beginning_with(accepted),
    )


def beginning_with(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a function that completes an option or argument from a list of names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def complete_case(incomplete: str) -> list[tuple[str, str]]:
    """Return shipped cases, TOML files and folders that begin so, with their descriptions."""
    shipped = [(name, case.what) for name, case in SHIPPED_CASES.items()]
    return [one for one in shipped if one[0].startswith(incomplete)] + [
        (path, "") for path in _paths(incomplete) if path.endswith(("/", ".toml"))
    ]


def complete_run(incomplete: str) -> list[str]:
    """Return folders of runs, and folders that may hold some, that begin so."""
    folders = [path for path in _paths(incomplete) if path.endswith("/")]
    if not incomplete:
        folders += _paths("runs/")
    runs = [path.rstrip("/") for path in folders if os.path.isfile(f"{path}{_CASE_OF_RUN}")]
    return runs or folders


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """Return keys that begin so, of the case on the command line or of all, with their meaning."""
    keys = {key: key_at(CASES[one], key) for one in _families() for key in keys_of(CASES[one])}
    return [
        (f"{key}=", declared.description or "")
        for key, declared in keys.items()
        if f"{key}=".startswith(incomplete)
    ]


def _families() -> list[str]:
    """Return the solver family of the case on the command line that is completed, or all."""
    # The command line without a value for the last option is not parsed; shells pass it so.
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    for word in line.split()[2:]:
        word = os.path.join(word, _CASE_OF_RUN) if os.path.isdir(word) else word
        try:
            tables, _ = read_tables(word)
        except (OSError, SlipstreamError):
            continue
        if tables.get("solver") in tuple(CASES):
            return [tables["solver"]]
    return list(CASES)


def _paths(incomplete: str) -> list[str]:
    """Return files, and folders with a slash behind them, that begin so."""
    found = glob.glob(f"{glob.escape(incomplete)}*")
    return sorted(f"{path}/" if os.path.isdir(path) else path for path in found)


def value(metavar: str, help: str, *names: str) -> Any:
    """Return an option with a value, named like its argument unless it has other names."""
    return typer.Option(*names, metavar=metavar, help=help)


def flag(name: str, help: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=help)


# Arguments and options of several commands.
CaseArgument = Annotated[
    Path,
    typer.Argument(
        help="The case: a TOML file, or one of `slipstream cases`.",
        metavar="CASE",
        autocompletion=complete_case,
    ),
]
RunArgument = Annotated[
    Path,
    typer.Argument(help="Output folder of the run.", metavar="RUN", autocompletion=complete_run),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key, e.g. grid.points=64; KEY= unsets it.",
        autocompletion=complete_setting,
    ),
]
Ranks = Annotated[int | None, value("N", "Start N MPI ranks on this machine.")]
_MEANING_OF_DEVICE = sentence(key_at(Case, "run.device").description or "").removesuffix(".")
Device = Annotated[str | None, one_of([*DEVICES, "auto"], f"{_MEANING_OF_DEVICE}: {{}}")]
RunsArgument = Annotated[
    list[Path],
    typer.Argument(
        help="Output folders of runs; several go into one figure or page.",
        metavar="RUN...",
        autocompletion=complete_run,
    ),
]
AnyDevice = Annotated[str, one_of([*DEVICES, "auto"])]
Quiet = Annotated[bool, flag("--quiet", "Print errors only; run.log has the rest.")]
LogLevel = Annotated[str, one_of(LOG_LEVELS, "What run.log has: {}")]
