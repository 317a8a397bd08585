"""How commands and calls end that are refused: an exit status, or an error of one line."""

import contextlib

import pytest

from slipstream.engine.errors import InputError


def status_of(*arguments, main=None):
    """Return the exit status of `slipstream`, or of another `main`, run in this process."""
    if main is None:
        from slipstream.cli import main
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


@contextlib.contextmanager
def refused(match=None):
    """Expect an `InputError` whose message is one line; give what pytest knows of it."""
    with pytest.raises(InputError, match=match) as caught:
        yield caught
    assert "\n" not in str(caught.value)


def refusal(call, *arguments, **options):
    """Return the message, one line, with which a call is refused."""
    with refused() as caught:
        call(*arguments, **options)
    return str(caught.value)
