"""Print digests of the results of short runs, to be compared before and after a change.

python tools/run_digests.py --ranks 1 2 --device cpu > after.txt; diff before.txt after.txt

Each line has the name of a run or of a transform, the number of ranks, and digests of its arrays in
global order. Fields do not depend on the number of ranks; states of the lattice do.
"""

import argparse
import functools
import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.engine.processes import find_mpiexec

# By run: a shipped case, and its changed keys.
STEPS = "time.end=0.03 time.step=0.01 output.pictures=false output.report=false"
RUNS = {
    "hd": f"taylor-green grid.points=24 {STEPS}",
    "hd rk4": f"taylor-green grid.points=[20,24,18] time.integrator=rk4 {STEPS}",
    "hd single": f"taylor-green grid.points=24 numerics.precision=float32 {STEPS}",
    "hd sphere": f"taylor-green grid.points=24 numerics.dealiasing='2/3 sphere' {STEPS}",
    "hd phase shifts": f"taylor-green grid.points=24 numerics.dealiasing=phase-shift {STEPS}",
    "forced": f"forced grid.points=24 equation.viscosity=0.05 {STEPS}",
    "mhd": f"orszag-tang grid.points=24 {STEPS}",
    "boussinesq": f"stratified grid.points=24 {STEPS}",
    "gpe": f"quantum-vortices grid.points=24 {STEPS}",
    "hd streamed": f"taylor-green grid.points=24 run.residency=host {STEPS}",
    "mhd streamed": f"orszag-tang grid.points=24 run.residency=host {STEPS}",
    "advection": "advection grid.points=32 time.end=0.1 output.pictures=false output.report=false",
    "sandstone": "sandstone image.shape=[32,32,32] image.radius=5 image.porosity=0.4"
    " time.end=120 output.pictures=false output.report=false",
    "sandstone pressure": "sandstone image.shape=[32,32,32] image.radius=5 image.porosity=0.4"
    " flow.pressure_drop=1e-3 time.end=120 output.pictures=false output.report=false",
    "sandstone aa single": "sandstone image.shape=[32,32,32] image.radius=5 image.porosity=0.4"
    " numerics.precision=float32 numerics.propagation=aa time.end=120 output.pictures=false"
    " output.report=false",
}
# Arguments of transforms.
TRANSFORMS: dict[str, dict[str, Any]] = {
    "real": {"shape": (24, 20, 18)},
    "truncated": {"shape": (24, 20, 18), "truncation": "2/3"},
    "complex": {"shape": (16, 15, 14), "dtype": "complex128"},
    "single": {"shape": (24, 20, 18), "dtype": "float32"},
    "fields": {"shape": (12, 16, 10), "fields": 3},
    "odd": {"shape": (31, 37, 41)},
    "host": {"shape": (24, 20, 18), "residency": "host"},
}


def main() -> None:
    """Print the digests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--transforms-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    arguments = parser.parse_args()
    if arguments.transforms_only:
        _print_transforms(arguments.device)
        return
    for ranks in arguments.ranks:
        digest = functools.partial(_digest_run, ranks=ranks, device=arguments.device)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for name, digests in zip(RUNS, pool.map(digest, RUNS.values()), strict=True):
                print(f"{name}, {ranks} ranks: {digests}", flush=True)
        command = [__file__, "--transforms-only", "--device", arguments.device]
        _run_python(command, ranks)


def _run_python(command: list[str], ranks: int, **options: Any) -> subprocess.CompletedProcess[str]:
    launcher = [] if ranks == 1 else [find_mpiexec(), "--oversubscribe", "-n", str(ranks)]
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.run(
        [*launcher, sys.executable, *command], env={**os.environ, **allowed}, **options
    )


def _digest_run(words: str, ranks: int, device: str) -> str:
    case, *changes = shlex.split(words)
    with tempfile.TemporaryDirectory() as folder:
        options = [word for change in changes for word in ("--set", change)]
        command = ["-m", "slipstream", "run", case, "--out", folder + "/run", "--quiet"]
        command += ["--device", device, *options]
        done = _run_python(command, ranks, capture_output=True, text=True)
        if done.returncode:
            return f"status {done.returncode}: {done.stderr.strip()[-200:]}"
        return _digest_of_folder(Path(folder) / "run")


def _digest_of_folder(folder: Path) -> str:
    """Return digests of the folder's fields and of its last state."""
    states = sorted(folder.glob("checkpoints/*"))
    return f"fields {_digest_of_store(folder / 'fields.zarr')} state {_digest_of_store(states[-1])}"


def _digest_of_store(store: Path) -> str:
    import zarr

    digest = hashlib.sha256()
    for described in sorted(store.rglob("zarr.json")):
        node = zarr.open(described.parent, mode="r")
        if isinstance(node, zarr.Array):
            digest.update(f"{described.parent.relative_to(store)} {node.shape}".encode())
            digest.update(np.ascontiguousarray(node[...]).tobytes())
    return digest.hexdigest()[:16]


def _print_transforms(device: Any) -> None:
    from slipstream.fft import DistributedFFT

    comm = None
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    for name, arguments in TRANSFORMS.items():
        fft = DistributedFFT(comm=comm, device=device, **arguments)
        leading = fft.empty_input().shape[:-3]
        random = np.random.default_rng(1)
        points = random.random((*leading, *fft.shape))
        if arguments.get("dtype") == "complex128":
            points = points + 1j * random.random(points.shape)
        points_of_rank = fft.empty_input()
        part = points[(Ellipsis, *_slices(fft.input_box))]
        points_of_rank[...] = part if isinstance(points_of_rank, np.ndarray) else _on_device(part)
        modes = fft.forward(points_of_rank)
        back = fft.backward(modes)
        digest = hashlib.sha256()
        for box, array, shape in (
            (fft.output_box, modes, fft.spectral_shape),
            (fft.input_box, back, fft.shape),
        ):
            part_of_rank = box, _on_host(array)
            whole = np.zeros((*leading, *shape), array.dtype)
            for array_box, values in (
                [part_of_rank] if comm is None else comm.allgather(part_of_rank)
            ):
                whole[(Ellipsis, *_slices(array_box))] = values
            digest.update(whole.tobytes())
        if comm is None or comm.rank == 0:
            ranks = 1 if comm is None else comm.size
            print(f"transform {name}, {ranks} ranks: {digest.hexdigest()[:16]}", flush=True)


def _slices(box: Any) -> Any:
    return tuple(map(slice, box.start, box.stop))


def _on_device(array: Any) -> Any:
    import cupy

    return cupy.asarray(array)


def _on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


if __name__ == "__main__":
    main()
