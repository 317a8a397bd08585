"""Let ``python -m slipstream`` do what the ``slipstream`` command does."""

from slipstream.cli import main

if __name__ == "__main__":
    main()
