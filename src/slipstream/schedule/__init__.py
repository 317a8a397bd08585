"""Step graphs: a time step is recorded once; a policy decides when nodes run.

Record operations and transfers in a `StepGraph`, `commit` it with a policy, then `run`.
"""

from slipstream.schedule.committed_steps import POLICIES, CommittedStep, commit
from slipstream.schedule.step_graph import CATEGORIES, MAIN_LANE, StepGraph, Transfer
from slipstream.schedule.timeline import Timeline

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
