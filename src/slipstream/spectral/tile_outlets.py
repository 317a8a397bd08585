"""Where the tiles of a pass go when they leave a device: to whoever reads them in the next pass.

That is this rank's own memory, packed for the ranks that get it, or, where ranks see each other's
memory, the memory of those ranks at once: nothing is then copied on the host.
"""

from __future__ import annotations

from slipstream.decomposition import Box
from slipstream.exchange import part_of
from slipstream.fft.tile_targets import Views, views_of
from slipstream.schedule import StepGraph
from slipstream.spectral.transform_passes import FieldTransforms


class Outlet:
    """What one exchange between planes and columns takes. Collective.

    Parameters
    ----------
    host : FieldTransforms
        On the host, whose planes and columns are exchanged.
    count : int
        Number of fields.
    forward : bool
        From planes to columns, or back.
    part, parts : int
        Which of so many ranges of planes.
    """

    def __init__(
        self, host: FieldTransforms, count: int, forward: bool, part: int = 0, parts: int = 1
    ) -> None:
        self._plan, pairs = host.exchange(range(count), forward, part, parts)
        self._sources = [source.reshape(-1) for source, _ in pairs]
        self._exchange = host.transport.prepare(self._plan, pairs) if host.transport else None
        self._places = self._exchange.places if self._exchange else None

    def record_open(self, graph: StepGraph) -> None:
        """Record what has to be before the first tile leaves."""
        if self._places:
            self._exchange.record_open(graph, "transpose")

    def record_close(self, graph: StepGraph) -> None:
        """Record what follows when the last tile has left."""
        if self._places:
            self._exchange.record_close(graph, "transpose")
        elif self._exchange:
            # Also what of this rank's own stays on a device: nobody reads it here.
            self._exchange.record(graph, "transpose")

    def views(self, field: int, box: Box) -> Views:
        """Return where the parts of a box of a field go.

        Parameters
        ----------
        field : int
            Which field.
        box : Box
            Of indices z, ky, kx, as in the exchange plan.
        """
        result: Views = []
        for block in self._plan.sends:
            values = part_of(self._sources[field], block)
            if self._places:
                values = self._places[field][block.peer]
            result += views_of(values, block, box)
        return result
