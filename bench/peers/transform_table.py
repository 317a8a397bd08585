"""Transforms of many shapes by Slipstream and by FFTW, ducc0 and SciPy, in one process.

    pip install pyfftw==0.15.1 ducc0==0.42.0 scipy==1.17.1
    taskset -c 1 python bench/peers/transform_table.py --json bench/results/transforms-1thread.json
    python bench/peers/transform_table.py --threads 2 "64^3" "a line of 65536"

Run it by a Python that has Slipstream. A row is a forward and a backward transform into given
arrays; libraries take turns, and each has its least time: processor time of one thread, wall time
of several. FFTW's plans are measured and may destroy their input; ours are the defaults.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ducc0
import numpy as np
import pyfftw
import scipy

from slipstream.engine.text import counted
from slipstream.fft import DistributedFFT
from slipstream.runs.run_recorder import commit_name

# By name: shape, axes, and the kind of transform.
ROWS: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "16^3": ((16,) * 3, (0, 1, 2), "real"),
    "32^3": ((32,) * 3, (0, 1, 2), "real"),
    "64^3": ((64,) * 3, (0, 1, 2), "real"),
    "64^3, complex": ((64,) * 3, (0, 1, 2), "complex"),
    "96^3": ((96,) * 3, (0, 1, 2), "real"),
    "128^3": ((128,) * 3, (0, 1, 2), "real"),
    "2048^2": ((2048,) * 2, (0, 1), "real"),
    "100 000 rows of 32": ((100_000, 32), (1,), "real"),
    "100 000 rows of 64": ((100_000, 64), (1,), "real"),
    "100 000 rows of 64, complex": ((100_000, 64), (1,), "complex"),
    "2048 x 512 along axis 0": ((2048, 512), (0,), "real"),
    "2048 x 512 along axis 0, complex": ((2048, 512), (0,), "complex"),
    "a line of 65536": ((65_536,), (0,), "real"),
    "a line of 65536, complex": ((65_536,), (0,), "complex"),
    "a line of 2^20": ((2**20,), (0,), "real"),
    "a line of 2^20, complex": ((2**20,), (0,), "complex"),
    "cosines, type 2, 64^3": ((64,) * 3, (0, 1, 2), "dct2"),
}
# The least seconds of one turn.
_TURN = 0.01

Pair = tuple[Callable[[], object], Callable[[], object]]


def random_array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return an array of random numbers, real or complex."""
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def by_slipstream(
    shape: tuple[int, ...], axes: tuple[int, ...], kind: str, dtype: str, threads: int
) -> Pair:
    """Return Slipstream's pair; ``OMP_NUM_THREADS`` has its threads."""
    how: dict[str, Any] = {"kinds": (kind,) * len(axes)} if kind == "dct2" else {"axes": axes}
    plan = DistributedFFT(shape, dtype=dtype, device="cpu", **how)
    points, modes = plan.empty_input(), plan.empty_output()
    points[...] = random_array(shape, dtype)
    return lambda: plan.forward(points, modes), lambda: plan.backward(modes, points)


def by_fftw(
    shape: tuple[int, ...], axes: tuple[int, ...], kind: str, dtype: str, threads: int
) -> Pair:
    """Return FFTW's pair, which is not normalised."""
    points = pyfftw.empty_aligned(shape, dtype)
    settings: dict[str, Any] = {
        "axes": axes,
        "threads": threads,
        "flags": ("FFTW_MEASURE", "FFTW_DESTROY_INPUT"),
    }
    there: dict[str, Any] = {}
    back: dict[str, Any] = {"direction": "FFTW_BACKWARD"}
    if kind == "dct2":
        modes = pyfftw.empty_aligned(shape, dtype)
        there["direction"] = ("FFTW_REDFT10",) * len(axes)
        back["direction"] = ("FFTW_REDFT01",) * len(axes)
    else:
        sizes = list(shape)
        if kind == "real":
            sizes[axes[-1]] = sizes[axes[-1]] // 2 + 1
        modes = pyfftw.empty_aligned(sizes, np.result_type(dtype, np.complex64))
    forward = pyfftw.FFTW(points, modes, **settings, **there)
    backward = pyfftw.FFTW(modes, points, **settings, **back)
    points[...] = random_array(shape, dtype)
    return forward.execute, backward.execute


def by_ducc0(
    shape: tuple[int, ...], axes: tuple[int, ...], kind: str, dtype: str, threads: int
) -> Pair:
    """Return ducc0's pair."""
    points, given = random_array(shape, dtype), {"axes": axes, "nthreads": threads}
    of_library = ducc0.fft
    if kind == "real":
        modes = of_library.r2c(points, **given)
        back = functools.partial(of_library.c2r, lastsize=shape[axes[-1]], forward=False, inorm=2)
        return (
            lambda: of_library.r2c(points, out=modes, **given),
            lambda: back(modes, out=points, allow_overwriting_input=True, **given),
        )
    modes = np.empty_like(points)
    if kind == "dct2":
        return (
            lambda: of_library.dct(points, 2, out=modes, **given),
            lambda: of_library.dct(modes, 3, inorm=2, out=points, **given),
        )
    return (
        lambda: of_library.c2c(points, out=modes, **given),
        lambda: of_library.c2c(modes, forward=False, inorm=2, out=points, **given),
    )


def by_scipy(
    shape: tuple[int, ...], axes: tuple[int, ...], kind: str, dtype: str, threads: int
) -> Pair:
    """Return SciPy's pair, which makes a new array in each call."""
    points, given = random_array(shape, dtype), {"axes": axes, "workers": threads}
    if kind == "dct2":
        modes = scipy.fft.dctn(points, 2, **given)
        return (
            lambda: scipy.fft.dctn(points, 2, **given),
            lambda: scipy.fft.idctn(modes, 2, **given),
        )
    if kind == "real":
        modes, sizes = scipy.fft.rfftn(points, **given), [shape[axis] for axis in axes]
        return (
            lambda: scipy.fft.rfftn(points, **given),
            lambda: scipy.fft.irfftn(modes, s=sizes, **given),
        )
    modes = scipy.fft.fftn(points, **given)
    return lambda: scipy.fft.fftn(points, **given), lambda: scipy.fft.ifftn(modes, **given)


LIBRARIES = {"Slipstream": by_slipstream, "FFTW": by_fftw, "ducc0": by_ducc0, "SciPy": by_scipy}


def least_seconds(pairs: dict[str, Pair], threads: int, turns: int) -> dict[str, float]:
    """Return the least time of each library's pair; they take turns."""
    clock = time.process_time if threads == 1 else time.perf_counter
    least, calls = {}, {}
    for name, pair in pairs.items():
        for call in pair:
            call()
        began = time.perf_counter()
        for call in pair:
            call()
        calls[name] = max(1, round(_TURN / (time.perf_counter() - began)))
        least[name] = [float("inf")] * 2
    for _ in range(turns):
        for name, pair in pairs.items():
            for number, call in enumerate(pair):
                began = clock()
                for _ in range(calls[name]):
                    call()
                taken = (clock() - began) / calls[name]
                least[name][number] = min(least[name][number], taken)
    return {name: sum(both) for name, both in least.items()}


def main() -> None:
    """Measure rows of the table, print them, and write a record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--precisions", nargs="*", type=int, default=[64, 32])
    parser.add_argument("--json", type=Path, help="the record")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    found = []
    for name in options.rows or ROWS:
        shape, axes, kind = ROWS[name]
        for bits in options.precisions:
            dtype = f"complex{2 * bits}" if kind == "complex" else f"float{bits}"
            pairs = {
                library: make(shape, axes, kind, dtype, options.threads)
                for library, make in LIBRARIES.items()
            }
            seconds = least_seconds(pairs, options.threads, options.turns)
            best = min(seconds[library] for library in seconds if library != "Slipstream")
            ratio = seconds["Slipstream"] / best
            found.append({"row": name, "dtype": dtype, "seconds": seconds, "ratio": ratio})
            times = "  ".join(f"{library} {1e6 * one:9.1f}" for library, one in seconds.items())
            print(f"{name:33} {dtype:10} {ratio:5.2f}  us: {times}", flush=True)
    if options.json:
        record = {
            "what": "seconds of a forward and a backward transform, the least of all turns",
            "clock": "processor time" if options.threads == 1 else "wall time",
            "threads": options.threads,
            "turns": options.turns,
            "commit": commit_name(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "device": f"{_processor_name()}, {counted(options.threads, 'thread')}",
            "versions": {
                "FFTW": pyfftw.fftw_version,
                "pyFFTW": pyfftw.__version__,
                "ducc0": ducc0.__version__,
                "SciPy": scipy.__version__,
                "NumPy": np.__version__,
                "Python": platform.python_version(),
            },
            "rows": found,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _processor_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
