"""Errors that a person can do something about.

Anything that a user caused or can cure is one of these, with a one-line message that names
the offending key or value and what would be accepted. The command line prints the message
alone; any other exception is a defect of Slipstream and keeps its traceback.
"""


class SlipstreamError(Exception):
    """Root of all errors that are reported as one line, without a traceback.

    Attributes
    ----------
    exit_status : int
        Status with which the command line ends.
    """

    exit_status = 1


class InputError(SlipstreamError):
    """What was asked for cannot be done: a case, an option, a file, a missing installation."""

    exit_status = 2


class RunError(SlipstreamError):
    """A simulation that had started could not be completed."""

    exit_status = 1


class OutOfMemory(RunError):
    """Another rank has raised MemoryError."""
