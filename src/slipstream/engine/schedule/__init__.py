"""Step graphs: a time step is recorded once; a policy decides when nodes run.

Record operations and transfers in a `StepGraph`, `commit` it with a policy, then `run`.
"""

from slipstream.engine.schedule.committed_steps import POLICIES, CommittedStep, Timeline, commit
from slipstream.engine.schedule.step_graph import CATEGORIES, MAIN_LANE, StepGraph, Transfer

__all__ = [
    "CATEGORIES",
    "MAIN_LANE",
    "POLICIES",
    "CommittedStep",
    "StepGraph",
    "Timeline",
    "Transfer",
    "commit",
]
