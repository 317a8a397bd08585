"""What is checked of random calls: errors are Slipstream's own, and no setting is ignored."""

import inspect
import math
import traceback
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import slipstream as ss
from drawn_arguments import STEPS, has_time
from slipstream.engine.collective import WaitedTooLong
from slipstream.engine.errors import SlipstreamError, plain_value

PACKAGE = str(Path(ss.__file__).parent)
# Where calls are made.
CALLER = str(Path(__file__).with_name("interface_fuzzing.py"))


def keys_of(kind):
    from slipstream.api import spectral_flow, tracer_advection

    if kind is ss.Advection:
        return tracer_advection._KEYS
    equation = {
        name: f"equation.{name}"
        for name in (
            "viscosity",
            "viscosity_power",
            "rotation",
            "drag",
            "hypoviscosity",
            "shear",
            "resistivity",
            "diffusivity",
            "buoyancy_frequency",
        )
    }
    return spectral_flow._KEYS | equation


def is_collective(what):
    text = (inspect.getdoc(what) or "").split("Parameters\n")[0]
    return (
        "Collective" in text
        and "Collective at first" not in text
        and "Collective where" not in text
    )


def is_open(it):
    try:
        return not (has_time(it) and it.solver is None)
    except SlipstreamError:
        return False


def is_same(now, given):
    """Return whether a value is what was given, as far as can be told."""
    if isinstance(given, np.dtype | type):
        return str(now) == np.dtype(given).name
    if isinstance(given, str | bytes | Path) or isinstance(now, str | Path):
        return True if "pi" in str(given) else str(now) == str(given)
    try:
        a, b = np.asarray(now, float), np.asarray(given, float)
    except (TypeError, ValueError):
        return True
    if a.shape != b.shape and a.size and b.size and (a.ndim == 0 or b.ndim == 0):
        return bool(np.isclose(a, b).all()) or bool(
            np.isclose(np.linalg.norm(a), np.linalg.norm(b))
        )
    return a.shape == b.shape and bool(np.allclose(a, b, equal_nan=True, rtol=1e-6))


def reads_back(it, name, value):
    try:
        now = getattr(it, name)
    except SlipstreamError as error:
        return f"{name} was set, and cannot be read: {error}"
    value = plain_value(value)
    if value is None or now is None:
        return "" if now is value else f"{name} was set to {shown(value)} and is {shown(now)}"
    return "" if is_same(now, value) else f"{name} was set to {shown(value)} and is {shown(now)}"


def steps_done(it, before, given):
    wanted = int(given.get("steps", 1))
    at_once = it.case.steps_at_once
    done = it.steps - before
    if (
        done == wanted
        or (wanted > STEPS and done >= STEPS - at_once)
        or done < wanted
        and it.finished
    ):
        return ""
    # Other functions may stop it.
    return "" if 0 < done < wanted else f"{wanted} steps were asked for, {done} done"


def reached(it, given):
    """Return what is wrong with the end of a run, which nothing else may have ended."""
    until = given.get("until")
    is_at_end = until is None or it.time <= float(until) * (1 + 1e-9)
    return "" if is_at_end else f"the time is {it.time}, until was {until}"


def continued(it, given):
    """Return what is wrong with a state, or a case, that was asked of a run's folder."""
    if given.get("step") is not None and it.steps != given["step"]:
        return f"step {given['step']} was asked for, and is {it.steps}"
    if isinstance(given.get("time"), int | float) and not math.isclose(
        it.time, given["time"], abs_tol=1e-9
    ):
        return f"time {given['time']} was asked for, and is {it.time}"
    settings = given.get("settings", ()) or ()
    if not isinstance(settings, Mapping):
        settings = dict(one.split("=") for one in settings)
    for key, value in settings.items():
        now = it.case
        for word in key.split("."):
            now = getattr(now, word)
        if not is_same(now, value):
            return f"{key} = {value!r} was given, the case has {now!r}"
    return ""


def same_state(it, made):
    if type(made) is not type(it):
        return f"the copy is a {type(made).__name__}"
    if (made.time, made.steps) != (it.time, it.steps):
        return f"the copy is at {made.time}, step {made.steps}; it was at {it.time}, {it.steps}"
    for name in it.fields:
        if not np.array_equal(it.fields[name][...], made.fields[name][...], equal_nan=True):
            return f"the copy has another {name}"
    return ""


def reduces(view, how, given, found):
    """Return what is wrong with a reduction of a field, or a plane of it."""
    if isinstance(view.unit, str) and not np.size(found):
        return ""
    values = view.gather()
    if how == "plane":
        axis = "zyx".index(given["axis"]) - 3
        planes = np.moveaxis(values, axis, 0)
        ok = any(np.array_equal(one, found, equal_nan=True) for one in planes)
        return "" if ok else "the plane is none of the field's"
    flat = values.reshape(*values.shape[:-3], -1).astype(float)
    expected = {"max": flat.max, "min": flat.min, "mean": flat.mean}.get(how)
    with np.errstate(all="ignore"):
        right = np.sqrt((flat**2).mean(-1)) if expected is None else expected(-1)
        return (
            ""
            if np.allclose(
                found, right, rtol=1e-4, atol=1e-6 * np.abs(flat).max(initial=0), equal_nan=True
            )
            else f"{how} is {found}, not {right}"
        )


def shown(value):
    """Return a value in few words."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={shown(one)}" for name, one in value.items())
    if isinstance(value, np.ndarray) and value.size > 3:
        return f"<{value.dtype.str} array of {value.shape}>"
    text = repr(value)
    return text if len(text) < 70 else f"{text[:60]}..."


# -- judging ---------------------------------------------------------------------------------------


def defect_of(error, call):
    """Return what is wrong with an exception; nothing if it is one that users are to get."""
    text = str(error)
    if isinstance(error, WaitedTooLong):
        return f"ranks waited for each other: {text}"
    if isinstance(error, SlipstreamError):
        if not text or "\n" in text or not text.isprintable():
            return f"message in several lines, or none: {text!r}"
        if not is_informative(text):
            return f"message without a name: {text!r}"
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    where = f"{last.filename}:{last.lineno} {last.name}"
    is_own = last.filename.startswith(PACKAGE)
    if isinstance(error, TypeError | AttributeError) and last.filename in (CALLER, "<string>"):
        return ""  # Python's own: unknown or missing arguments, no such attribute, or a frozen one
    if isinstance(error, TypeError) and " argument" in text and last.name in ("call", "__call__"):
        return ""  # of decorated methods
    if call.is_users and any(f.name in ("__array_ufunc__", "__array_function__") for f in frames):
        return ""
    builtin = TypeError | ValueError | KeyError | AttributeError | IndexError | ImportError
    if is_own and isinstance(error, builtin) and (last.line or "").startswith("raise"):
        return "" if text and "\n" not in text else f"message in several lines: {text!r}"
    return f"{type(error).__name__} at {where}: {text[:200]}"


def is_informative(text):
    return len(text) >= 12


def foreign_warnings(records):
    """Return warnings that NumPy or others issue within the package."""
    return [
        f"{one.category.__name__} at {one.filename}:{one.lineno}: {one.message}"
        for one in records
        if one.filename.startswith(PACKAGE)
        and issubclass(one.category, RuntimeWarning | DeprecationWarning)
    ]
