"""Count the lines of `overlap_strategies.py` that each strategy of advection runs.

    python tools/advection_lines.py

A strategy's step is placed and recorded while Python reports the lines that run. A statement counts
with all its lines, comments and docstrings never; the code that runs at import belongs to
every strategy, except that each entry of the table `STRATEGIES` belongs to its strategy.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any, cast

from slipstream.advection import STRATEGIES, overlap_strategies
from slipstream.advection.stencil import DeviceRegion
from slipstream.engine.decomposition import whole
from slipstream.engine.device import HostDevice
from slipstream.engine.exchange import HaloExchange

_SHAPE = (8, 8, 8)


def lines_of(names: Iterable[str]) -> int:
    """Return the number of lines of code that some of `STRATEGIES` need together."""
    code, entries, running = _code_lines()
    needed = set(code) - running - {line for lines in entries.values() for line in lines}
    for name in names:
        needed |= set(entries[name]) | (_lines_run(name) & running)
    return len(needed)


class _Neighbours:
    """Halos that nobody needs, so that a single process can record a step of many ranks."""

    def record(self, graph: Any, number: int) -> None:
        """Record nothing."""


def _lines_run(name: str) -> set[int]:
    """Return the lines of the module that a strategy's step runs through."""
    strategy, seen = STRATEGIES[name], set()
    devices = {"cpu": HostDevice(), "gpu": HostDevice(tiled=True)}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != overlap_strategies.__file__:
            return None
        if event == "line":
            seen.add(frame.f_lineno)
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        divided = (0, 0, 0) if strategy.transport == "none" else (1, 1, 1)
        placed = overlap_strategies.place(strategy, devices, whole(_SHAPE), divided, "float64", 1)
        parts = {
            key: DeviceRegion(devices[key], region, "float64", (0.5, 0.5, 0.5), devices[key].empty)
            for key, region in placed.items()
        }
        halos = cast(HaloExchange, _Neighbours()) if any(divided) else None
        overlap_strategies.record_pass(strategy, parts, halos, 0, 1)
    finally:
        sys.settrace(previous)
    extents = _statements(ast.parse(inspect.getsource(overlap_strategies)))
    return {line for extent in extents if seen & extent for line in extent}


def _code_lines() -> tuple[set[int], dict[str, range], set[int]]:
    """Return all lines of code, those of each strategy's entry, and those inside of functions."""
    tree = ast.parse(inspect.getsource(overlap_strategies))
    code = {line for extent in _statements(tree) for line in extent}
    table = next(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Dict)
        and ast.unparse(node.targets[0]) == "STRATEGIES"
    )
    entries = {
        str(key.value): range(key.lineno, _last_line(value) + 1)
        for key, value in zip(table.keys, table.values, strict=True)
        if isinstance(key, ast.Constant)
    }
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    running = {
        line
        for function in functions
        for extent in _statements(ast.Module(function.body, []))
        for line in extent
    }
    return code, entries, running


def _last_line(node: ast.expr | ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _statements(tree: ast.AST) -> list[set[int]]:
    """Return the lines of each statement; of one with a body, those of its head."""
    extents = []
    for node in ast.walk(tree):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not isinstance(node, ast.stmt) or docstring:
            continue
        body = getattr(node, "body", None)
        last = body[0].lineno - 1 if body else _last_line(node)
        extents.append(set(range(node.lineno, last + 1)))
    return extents


def main() -> None:
    """Print the lines of each strategy, of the first two together, and of all."""
    for name in STRATEGIES:
        print(f"{name:16} {lines_of([name])}")
    first, second = list(STRATEGIES)[:2]
    print(
        f"{first} and {second} together: {lines_of([first, second])}; all: {lines_of(STRATEGIES)}"
    )


if __name__ == "__main__":
    main()
