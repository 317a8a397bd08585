"""Probability densities of one or two expressions, and conditional means of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.array_types import Array
from slipstream.case.output_tables import plain_name
from slipstream.collective import sum_over_ranks
from slipstream.device.row_sums import scale_to_bits
from slipstream.equations import Quantity
from slipstream.equations.fourier_forms import Form
from slipstream.errors import InputError
from slipstream.field import Field
from slipstream.io.time_series import whole_field
from slipstream.spectral.evaluation import Evaluation
from slipstream.spectral.expressions import quantity_of
from slipstream.spectral.fields_at_points import bind_bins

if TYPE_CHECKING:
    from slipstream.spectral.spectral_simulation import SpectralSimulation

# Expressions that are evaluated together.
_MOST = 9


class JointDensity:
    """The probability density of expressions, and conditional means, on a state at any time.

    Parameters
    ----------
    simulation : SpectralSimulation
        The simulation that holds the state.
    of, means : sequence
        One or two real scalars; and real scalars to average conditionally on them.
    bins : sequence of int
        Number of bins of each variable.
    where : str
        Where the density is asked for, for messages: a key or an argument.
    """

    def __init__(
        self,
        simulation: SpectralSimulation,
        of: Sequence[Any],
        means: Sequence[Any],
        bins: Sequence[int],
        where: str,
    ) -> None:
        self._simulation, self._bins, self._where = simulation, tuple(bins), where
        keys = [f"{where}.of"] * len(of) + [f"{where}.means"] * len(means)
        quantities = [
            quantity_of(one, simulation.problem, key)
            for one, key in zip((*of, *means), keys, strict=True)
        ]
        for one, key in zip(quantities, keys, strict=True):
            if one.rank or one.is_complex:
                raise InputError(f"{key}: {one.text} is {one.kind}; accepted: real scalars")
        if len(quantities) > _MOST:
            raise InputError(
                f"{where}.means: has {len(means)}; accepted: {_MOST - len(of)} at most"
            )
        texts = [str(getattr(one, "text", one)) for one in (*of, *means)]
        names = [plain_name(text) for text in texts]
        self.names, self.means = names[: len(of)], names[len(of) :]
        self.texts = texts
        for group in (self.names, self.means):
            if len(set(group)) < len(group):
                raise InputError(f"{where}: {group[0]!r} is there twice; accepted: each once")
        if "time" in self.names:
            raise InputError(f"{where}.of: 'time' is taken; accepted: other names")
        forms = [one.forms[0] for one in quantities]
        size = next(n for n in (1, 3, 9) if n >= len(forms))
        together = Quantity([*forms, *[Form({})] * (size - len(forms))], ", ".join(texts))
        self._together = together

    @cached_property
    def _values(self) -> Evaluation:
        return Evaluation(self._simulation.flow, self._together, self._where)

    def limits(self) -> list[tuple[float, float]]:
        """Return the least and the largest value of each variable. Collective."""
        simulation, found = self._simulation, []
        ends = [
            self._values.reduce(how, simulation.comm, simulation.time) for how in ("min", "max")
        ]
        for place in range(len(self.names)):
            low, high = (float(np.ravel(one)[place]) for one in ends)
            if not math.isfinite(high - low):
                raise InputError(
                    f"{self._where}: {self.texts[place]} has values that are not finite;"
                    " give a range"
                )
            # The largest value is in the last bin.
            span = high - low
            found.append((low, high + 1e-9 * span) if span > 0 else (low - 0.5, low + 0.5))
        return found

    def coordinates(self, ranges: Sequence[Sequence[float]]) -> dict[str, np.ndarray]:
        """Return the middles of bins, by variable."""
        return {
            name: low + (np.arange(count) + 0.5) * ((high - low) / count)
            for name, count, (low, high) in zip(self.names, self._bins, ranges, strict=True)
        }

    def read(self, ranges: Sequence[Sequence[float]]) -> list[np.ndarray]:
        """Return the density, then each conditional mean, of the present state. Collective.

        The density integrates over the bins to the share of points in them. In bins without points
        a mean is not-a-number.
        """
        simulation, flow = self._simulation, self._simulation.flow
        device, module = flow.device, flow.device.array_module
        count, others = len(self.names), len(self.means)
        # One more bin on either side takes the values beyond.
        bins = [n + 2 for n in self._bins]
        widths = np.array(
            [(high - low) / n for n, (low, high) in zip(self._bins, ranges, strict=True)]
        )
        lows = np.array([low for low, _ in ranges]) - widths
        edges = device.array(np.stack([lows, 1 / widths]))
        chunks: dict[int, tuple[Any, np.ndarray]] = {}

        def take(values: Array, plane: int) -> None:
            size = math.prod(values.shape[1:])
            scales = np.zeros(max(1, others))
            for place in range(others):
                most = float(module.abs(values[count + place]).max())
                # Values that are not finite make all means not-a-number.
                bits = 62 - size.bit_length()
                scales[place] = scale_to_bits(most, bits) if math.isfinite(most) else math.nan
            known = device.array(np.nan_to_num(scales))
            if not np.isfinite(scales).all():
                values = module.nan_to_num(values)
            table, add = bind_bins(flow, values, edges, bins, scales=known)
            add(device.default_stream)
            chunks[plane] = table.sum(axis=0)[0], scales

        used = slice(0, count + others)
        self._values.each_chunk(take, simulation.time, exact=True, components=used)
        device.synchronize()
        total = np.zeros((1 + others, math.prod(bins)))
        for _, (sums, scales) in sorted(chunks.items()):
            own = device.to_host(sums).astype(np.float64)
            total[0] += own[0]
            for place in range(others):
                if scales[place] != 0:
                    total[1 + place] += own[1 + place] / scales[place]
        inner: Any = (slice(None), *(slice(1, -1) for _ in bins))
        points, *means = sum_over_ranks(simulation.comm, total).reshape(-1, *bins)[inner]
        density = points / (math.prod(widths) * math.prod(flow.problem.geometry.shape))
        with np.errstate(invalid="ignore"):
            return [density, *(np.where(points > 0, one / points, np.nan) for one in means)]

    def long_names(self) -> dict[str, str]:
        """Return the descriptions of the density and the means, by name."""
        texts = self.texts
        variables = " and ".join(texts[: len(self.names)])
        found = {"density": f"probability density of {variables}"}
        for name, text in zip(self.means, texts[len(self.names) :], strict=True):
            found[f"{name}_mean"] = f"mean of {text} at given {variables}"
        return found

    def fields(self, ranges: Sequence[Sequence[float]] | None) -> dict[str, Field]:
        """Return the density and the means as fields, by name. Collective."""
        ranges = self.limits() if ranges is None else ranges
        axes = self.coordinates(ranges)
        named = zip(self.long_names().items(), self.read(ranges), strict=True)
        return {name: whole_field(name, text, values, axes) for (name, text), values in named}
