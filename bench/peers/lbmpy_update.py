"""lbmpy: an update of the pores of a voxel image by its sparse kernel, D3Q19, two relaxation times.

pip install lbmpy==2.0 islpy && python lbmpy_update.py --image rock.npy
"""

import os

import lbmpy
import numpy as np
import pystencils
from lbmpy import LBMConfig, LBStencil, Method, Stencil, create_lb_collision_rule
from lbmpy.sparse import create_lb_update_rule_sparse, create_symbolic_list
from pystencils import TypedSymbol, create_kernel
from served import arguments, serve

UPDATES = 10


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


options = arguments(__doc__, image="rock.npy")
pores = np.load(options.image) != 0
stencil = LBStencil(Stencil.D3Q19)
config = LBMConfig(stencil=stencil, method=Method.TRT, relaxation_rates=[1.0, 8 / 7])
rule = create_lb_collision_rule(lbm_config=config)
count = TypedSymbol("count", np.int64)
source, target = (
    create_symbolic_list(name, count, 19, np.float64, "SoA") for name in ("source", "target")
)
table = create_symbolic_list("links", count, 18, np.uint32, "SoA")
settings = pystencils.CreateKernelConfig(ghost_layers=0)
settings.cpu.openmp.enable = True
settings.cpu.openmp.num_threads = len(os.sched_getaffinity(0))
kernel = create_kernel(
    create_lb_update_rule_sparse(rule, source, target, table), settings
).compile()
number = links(pores, stencil)
sites = number.shape[1]
weights = np.array([1 / 3] + 6 * [1 / 18] + 12 * [1 / 36])
# Arrays (sites, directions) whose first axis is contiguous.
arrays = [np.repeat(weights[:, None], sites, axis=1).T for _ in range(2)]


def updates() -> None:
    """Update ten times."""
    for step in range(UPDATES):
        kernel(source=arrays[step % 2], target=arrays[1 - step % 2], links=number.T)


versions = f"{lbmpy.__version__} (pystencils {pystencils.__version__})"
facts = {"peer": "lbmpy", "version": versions, "pore sites": sites}
serve(options, updates, facts, per_call=UPDATES)
