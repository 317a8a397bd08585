"""``python -m bench NAME ...``, from the root of a checkout: one benchmark of Slipstream."""

import os
from pathlib import Path

from bench.benchmarks import app
from slipstream.cli import run_app

if __name__ == "__main__":
    # Ranks and fresh processes, which benchmarks start, find this package too.
    folders = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    run_app(app, "bench")
