"""What a family foresees of a run before it is begun, beyond what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Foresight:
    """What is expected of a run.

    Attributes
    ----------
    steps : float or None
        Expected number of steps; None where nothing better is known than the size of the first.
    source : str
        By what the number of steps is known, for people.
    facts : dict of str to str
        What else is expected, for people, by name.
    warnings : list of str
        What will be wrong.
    """

    steps: float | None = None
    source: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
