"""Slipstream simulates flow on structured grids, on one laptop or on thousands of GPUs.

A time step is written once, as a graph of kernels, transforms and transfers. A schedule, chosen
afterwards, decides where it runs and which of its parts overlap.

>>> import slipstream as ss
>>> sim = ss.Turbulence(points=64, viscosity=1 / 400, initial="taylor-green")
>>> sim.run(until=1.0)
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# OpenMP lets threads spin after their work, on cores that others need next: steps took ten times as
# long on a busy machine. The runtime reads this when it is loaded, so it stands before every other
# import.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Names of this package that are imported when they are first used: the command line, and programs
# that only transform, need not wait for them.
_OFFERED = {
    "Advection": "slipstream.api.tracer_advection",
    "Flow": "slipstream.api.spectral_flow",
    "InteractiveSimulation": "slipstream.api.interactive_simulation",
    "PorousFlow": "slipstream.api.porous_flow",
    "Turbulence": "slipstream.api.spectral_flow",
    "load": "slipstream.api.opened_run",
    "open": "slipstream.api.opened_run:open_run",
    "DistributedFFT": "slipstream.fft",
    "permeability": "slipstream.lattice",
    "InputError": "slipstream.engine.errors",
    "RunError": "slipstream.engine.errors",
}
# Without `open`, which would hide Python's from those who import all names.
__all__ = ["__version__", *(_OFFERED.keys() - {"open"})]  # noqa: PLE0604, PLE0605


if TYPE_CHECKING:
    from slipstream.api.interactive_simulation import InteractiveSimulation as InteractiveSimulation
    from slipstream.api.opened_run import load as load
    from slipstream.api.opened_run import open_run as open  # noqa: F401
    from slipstream.api.porous_flow import PorousFlow as PorousFlow
    from slipstream.api.spectral_flow import Flow as Flow
    from slipstream.api.spectral_flow import Turbulence as Turbulence
    from slipstream.api.tracer_advection import Advection as Advection
    from slipstream.engine.errors import InputError as InputError
    from slipstream.engine.errors import RunError as RunError
    from slipstream.fft import DistributedFFT as DistributedFFT
    from slipstream.lattice.permeability import permeability as permeability
else:

    def __getattr__(name: str) -> Any:
        if name not in _OFFERED:
            raise AttributeError(f"module 'slipstream' has no attribute {name!r}")
        module, _, attribute = _OFFERED[name].partition(":")
        found = getattr(importlib.import_module(module), attribute or name)
        return globals().setdefault(name, found)


def __dir__() -> list[str]:
    return sorted({*globals(), *_OFFERED})
