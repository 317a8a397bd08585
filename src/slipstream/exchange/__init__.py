"""Exchanges between ranks: one plan, many transports.

An `ExchangePlan` says which elements go to whom; a transport records its execution in a step
graph.
"""

from slipstream.exchange.mpi import TRANSPORTS, MpiTransport, chosen_transport
from slipstream.exchange.plan import Block, ExchangePlan

__all__ = ["TRANSPORTS", "Block", "ExchangePlan", "MpiTransport", "chosen_transport"]
