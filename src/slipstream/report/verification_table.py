"""What `slipstream verify` has found, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from slipstream.printable_text import printable
from slipstream.report.number_text import counted


@dataclass(frozen=True)
class PartVerdict:
    """What was found of a part of a run.

    Attributes
    ----------
    origin : str
        From where it was repeated, for people.
    start, end : int
        First and last step.
    problem : str
        Why it could not be repeated; empty if it was.
    doubt : str
        Why bits need not be the same, if they were not; empty if they were or must be.
    digests, rows : int
        How many digests, and rows of the series, were compared.
    deviates : (int, int) or None
        Between which steps it deviates from the record; twice the same if it begins so.
    difference : float
        The largest difference of diagnostics, relative to the largest value of each.
    is_lost : bool
        Whether small differences have grown so much that later rows were not compared.
    others : tuple of str
        What else is not as it was when the run was computed.
    """

    origin: str
    start: int
    end: int
    problem: str = ""
    doubt: str = ""
    digests: int = 0
    rows: int = 0
    deviates: tuple[int, int] | None = None
    difference: float = 0.0
    is_lost: bool = False
    others: tuple[str, ...] = ()

    @property
    def steps(self) -> str:
        """Return the first and last step for people."""
        return str(self.end) if self.start == self.end else f"{self.start} to {self.end}"

    @property
    def remarks(self) -> list[str]:
        """Return what else there is to say, which is too long for a table."""
        return [f"steps {self.steps}: {one}" for one in (self.problem, *self.others) if one]

    @property
    def text(self) -> str:
        """Return the verdict in words."""
        if self.problem:
            return "cannot be repeated"
        if self.deviates is not None:
            low, high = self.deviates
            where = f"at step {high}" if low == high else f"between steps {low} and {high}"
            by = f" by {self.difference:.2g}" if self.difference else ""
            return f"DEVIATES {where}{by}"
        if self.doubt:
            end = ", until small differences had grown" if self.is_lost else ""
            return (
                f"other bits, {self.doubt}; the same but for rounding: {counted(self.rows, 'row')}"
                f" to within {self.difference:.1g}{end}"
            )
        return "the same bits"


def verification_table(verdicts: Sequence[PartVerdict]) -> Table:
    """Return a row for each part."""
    table = Table(box=box.HORIZONTALS)
    for name in ("from", "steps", "digests"):
        table.add_column(name, justify="left" if name == "from" else "right")
    table.add_column("result", overflow="fold")
    for one in verdicts:
        style = "bold red" if one.deviates else "yellow" if one.problem or one.doubt else "green"
        cells = printable(one.origin), one.steps, str(one.digests)
        table.add_row(*map(Text, cells), Text(printable(one.text), style=style))
    return table
