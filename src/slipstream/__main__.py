"""The ``slipstream`` command, also as ``python -m slipstream``: listens before it loads much."""

import os
import signal
import sys

from slipstream.engine.stop_signals import StopRequest, caught_signals, listening


def main() -> None:
    """Run the ``slipstream`` command and exit."""
    _forget_current_folder()
    try:
        with listening():
            from slipstream.cli import main

            main()
    except StopRequest as stop:  # while the rest was loaded
        print("slipstream: interrupted", file=sys.stderr)
        sys.exit(stop.exit_status)
    finally:
        # What is left is to unload: nothing that could say more than the system does.
        for number in caught_signals():
            signal.signal(number, signal.SIG_DFL)


def _forget_current_folder() -> None:
    """Keep files next to a case, such as a ``queue.py``, from being imported as modules.

    ``python -m`` looks for modules in the current folder first. It stays where Slipstream itself
    comes from there.
    """
    here, own = os.getcwd(), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and here != own and sys.path[:1] == [here]:
        del sys.path[0]


if __name__ == "__main__":
    main()
