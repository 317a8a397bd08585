"""Errors that a person can do something about.

Anything that a user caused or can cure is one of these, with a one-line message that names
the offending key or value and the accepted ones. The command line prints the message
alone; any other exception is a defect of Slipstream and keeps its traceback. What messages quote
may come from files of others: their text obeys no terminal.
"""

from slipstream.printable_text import printable, shortened

# A message may hold what a compiler says, but not a file that somebody made of one line.
_MOST_LETTERS = 4000


class SlipstreamError(Exception):
    """Root of all errors that are reported as one line, without a traceback.

    Attributes
    ----------
    exit_status : int
        Status with which the command line ends.
    """

    exit_status = 1

    def __str__(self) -> str:
        return shortened(printable(self.text()), _MOST_LETTERS)

    def text(self) -> str:
        """Return the message as it was given."""
        return super().__str__()


class InputError(SlipstreamError):
    """A request that cannot be met: a wrong case, option or file, or a missing installation."""

    exit_status = 2

    def __str__(self) -> str:
        # Of what it quotes, arrays and objects may take several lines.
        return " ".join(part.strip() for part in super().__str__().split("\n"))


class RunError(SlipstreamError):
    """A simulation that had started could not be completed."""

    exit_status = 1


class OutOfMemory(RunError):
    """Another rank has raised MemoryError."""
