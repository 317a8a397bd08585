"""Numbers as people write them: with metric prefixes, in minutes and hours, in multiples of pi."""

import math
from collections.abc import Mapping

# The part of a run whose categories of work are known, and what no part or category has.
STEPPING, REST = "time steps", "waiting and the rest"


def quantity(value: float, unit: str) -> str:
    """Return a value with three digits and a metric prefix."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:.3g} {unit}"
    prefixes = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T"}
    power = min(4, max(-3, math.floor(math.log10(value) / 3 + 1e-12)))
    return f"{value / 1000.0**power:.3g} {prefixes[power]}{unit}"


def counted(number: int, noun: str) -> str:
    """Return a number of things: 1 rank, 2 ranks."""
    return f"{number} {noun}{'s' * (number != 1)}"


def duration(seconds: float) -> str:
    """Return a duration as people write it: ``12.3 s``, ``4 min 10 s``, ``3 h 5 min``."""
    if seconds < 60:
        return quantity(seconds, "s")
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def pi_text(multiple: float) -> str:
    """Return a multiple of pi as mathematical text, such as ``3π/2``."""
    if abs(multiple) < 1e-9:
        return "0"
    for divisor in (1, 2, 3, 4):
        factor = multiple * divisor
        if abs(factor - round(factor)) < 1e-6:
            top = {1: "π", -1: "−π"}.get(round(factor), f"{round(factor)}π")
            return top if divisor == 1 else f"{top}/{divisor}"
    return f"{multiple:.3g}π"


def scaled_unit(unit: str, largest: float) -> tuple[float, str]:
    """Return how many of a unit a handier one is for a length, and its name; only metres change."""
    if unit != "m":
        return 1.0, unit
    prefixes = {1.0: "m", 1e-3: "mm", 1e-6: "µm"}
    factor = next((factor for factor in prefixes if largest >= factor), 1e-9)
    return factor, prefixes.get(factor, "nm")


def inner_times(seconds: float, timers: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the seconds of steps by category, the largest first, and last what these leave.

    Categories overlap where communication hides behind work: then nothing is left.
    """
    inner = sorted(timers.items(), key=lambda one: -one[1])
    rest = seconds - sum(timers.values())
    return [*inner, (REST, rest)] if inner and rest > 0 else inner
