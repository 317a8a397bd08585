"""The rate of lbmpy's sparse kernel on a voxel image, to put beside ``slipstream bench lattice``.

Needs lbmpy (``pip install lbmpy``) and nothing of Slipstream: it runs in an environment of its own.

    python bench/lbmpy_sparse.py image.npy --threads 2
"""

import argparse
import json
import statistics
import time

import lbmpy
import numpy as np
import pystencils
from lbmpy import LBMConfig, LBStencil, Method, Stencil, create_lb_collision_rule
from lbmpy.sparse import create_lb_update_rule_sparse, create_symbolic_list
from pystencils import TypedSymbol, create_kernel


def links(pores: np.ndarray, stencil: LBStencil) -> np.ndarray:
    """Return where each site's populations come from, (sites, directions - 1); periodic."""
    numbers = np.cumsum(pores.reshape(-1)).reshape(pores.shape) - 1
    where, count = np.nonzero(pores), int(pores.sum())
    sites = np.arange(count)
    result = np.empty((len(stencil) - 1, count), np.uint32)
    for q, velocity in enumerate(stencil):
        if not q:
            continue
        upstream = tuple(
            (index - step) % size
            for index, step, size in zip(where, velocity, pores.shape, strict=True)
        )
        back = stencil.index(tuple(-step for step in velocity))
        fluid, wall = numbers[upstream] + q * count, sites + back * count
        result[q - 1] = np.where(pores[upstream], fluid, wall)
    return result


def main() -> None:
    """Time the kernel and print million site updates per second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", help="an array of voxels, not zero where there is pore")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args()
    pores = np.load(options.image) != 0
    stencil = LBStencil(Stencil.D3Q19)
    config = LBMConfig(stencil=stencil, method=Method.TRT, relaxation_rates=[1.0, 8 / 7])
    rule = create_lb_collision_rule(lbm_config=config)
    count = TypedSymbol("count", np.int64)
    source, target = (
        create_symbolic_list(name, count, 19, np.float64, "SoA") for name in ("source", "target")
    )
    table = create_symbolic_list("links", count, 18, np.uint32, "SoA")
    update = create_lb_update_rule_sparse(rule, source, target, table)
    settings = pystencils.CreateKernelConfig(ghost_layers=0)
    settings.cpu.openmp.enable = True
    settings.cpu.openmp.num_threads = options.threads
    kernel = create_kernel(update, settings).compile()
    number = links(pores, stencil)
    sites = number.shape[1]
    weights = np.array([1 / 3] + 6 * [1 / 18] + 12 * [1 / 36])
    # Arrays (sites, directions) whose first axis is contiguous.
    arrays = [np.repeat(weights[:, None], sites, axis=1).T for _ in range(2)]
    seconds = []
    for step in range(options.repetitions + 1):
        began = time.perf_counter()
        kernel(source=arrays[step % 2], target=arrays[1 - step % 2], links=number.T)
        if step:
            seconds.append(time.perf_counter() - began)
    rate = sites / statistics.median(seconds) / 1e6
    versions = {"lbmpy": lbmpy.__version__, "pystencils": pystencils.__version__}
    print(json.dumps({"MLUPS": rate, "pore sites": sites, "threads": options.threads, **versions}))


if __name__ == "__main__":
    main()
