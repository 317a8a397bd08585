"""Transforms of one rank of many, recorded without allocation."""

from __future__ import annotations

from typing import Any

from slipstream.exchange import RankPlace, Transport
from slipstream.fft.fft_arguments import checked_arguments
from slipstream.fft.fft_plan import Choices, Plan
from slipstream.fft.slab_transform import SlabOptions
from slipstream.schedule import StepGraph


def noted_transform(
    device: Any,
    place: RankPlace,
    shape: tuple[int, int, int],
    name: str,
    transport: Transport | None,
    **options: Any,
) -> StepGraph:
    """Record the forward transform of one rank of many, with a noting transport."""
    a = checked_arguments(place.ranks, shape=shape, **options)
    choices = Choices(name, place.ranks, SlabOptions())
    plan = Plan.noted(a, device, choices, place.rank, transport)
    graph = StepGraph(device)
    physical = device.empty((1, *a.input_boxes[place.rank].shape), a.dtype)
    spectral = device.empty((1, *a.output_boxes[place.rank].shape), a.complex_dtype)
    plan.record_forward(graph, physical, spectral)
    return graph
