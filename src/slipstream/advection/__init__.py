"""Advection by overlap strategies: one step graph, ten ways to run it.

The test of White and Dongarra (2011): a Gaussian is advected through the corner of a periodic cube
and back to its start, by a scheme that reads all 26 neighbours of every point. Each of their nine
programs is one line here: see `overlap_strategies`.
"""

from slipstream.advection.advection_solver import Advection, gaussian
from slipstream.advection.overlap_strategies import STRATEGIES
from slipstream.advection.stencil import FLOPS

__all__ = ["FLOPS", "STRATEGIES", "Advection", "gaussian"]
