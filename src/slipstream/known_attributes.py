"""Objects that refuse attributes they do not have, as a misspelt setting would be ignored."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from slipstream.argument_checks import nearest
from slipstream.errors import InputError
from slipstream.printable_text import shown

_MISSING = object()


class KnownAttributes:
    """An object with the public attributes that its class declares, and no others.

    Properties with a setter can be set at any time, annotated attributes once, by the constructor.
    Classes that users derive may declare more.
    """

    def _settable(self) -> list[str]:
        """Return the names that can be set, for messages."""
        found = {name for one in type(self).__mro__ for name in (*vars(one), *_declared(one))}
        known = [name for name in found if name[0] != "_" and _is_setter(self, name)]
        return sorted({*known, *self._further()})

    def _further(self) -> Collection[str]:
        """Return the names that can be set though the class does not declare them."""
        return ()

    def _set_further(self, name: str, value: Any) -> None:
        """Set one of these."""

    # Type checkers find unknown attributes by themselves, where no class seems to take any.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            is_undeclared = not name.startswith("_") and not hasattr(type(self), name)
            if is_undeclared and name in self._further():
                self._set_further(name, value)
            elif name.startswith("_") or _is_setter(self, name) or _is_new(self, name):
                object.__setattr__(self, name, value)
            else:
                raise InputError(_refusal(self, name))

        def __delattr__(self, name: str) -> None:
            if not name.startswith("_"):
                raise InputError(f"{type(self).__name__}.{name} cannot be deleted")
            object.__delattr__(self, name)


def _is_setter(owner: object, name: str) -> bool:
    """Return whether a class does something when an attribute is set, or a user's class has it."""
    found = inspect.getattr_static(type(owner), name, _MISSING)
    if isinstance(found, property):
        return found.fset is not None
    if hasattr(type(found), "__set__"):
        return True
    of_users = itertools.takewhile(
        lambda one: not one.__module__.startswith("slipstream."), type(owner).__mro__
    )
    return any(name in vars(one) or name in _declared(one) for one in of_users)


def _is_new(owner: object, name: str) -> bool:
    """Return whether an attribute is declared, and not yet set."""
    declared = any(name in _declared(one) for one in type(owner).__mro__)
    return declared and name not in vars(owner)


def _declared(kind: type) -> Mapping[str, Any]:
    declared: Mapping[str, Any] = vars(kind).get("__annotations__", {})
    return declared


def _refusal(owner: KnownAttributes, name: str) -> str:
    kind, accepted = type(owner).__name__, owner._settable()
    can = f" can be set: {', '.join(accepted)}" if accepted else " nothing of it can be set"
    if name in dir(owner):
        what = "is a method" if callable(inspect.getattr_static(owner, name)) else "is read-only"
        return f"{kind}.{name} {what} and cannot be set;{can}"
    guess = nearest(name, accepted or [one for one in dir(owner) if one[0] != "_"])
    return f"{kind} has no attribute {shown(name)}{guess or ';'}{can}"
