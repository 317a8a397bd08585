"""Poromics: the permeability of a voxel image along z, from rest to its own tolerance.

pip install poromics==0.0.8 && python poromics_permeability.py --image rock.npy
"""

import importlib.metadata

import numpy as np
import poromics
import taichi
from served import arguments, serve

options = arguments(__doc__, image="rock.npy", tolerance=1e-3)
pores = np.load(options.image) != 0
results = {}


def solve() -> None:
    """Compute the permeability."""
    result = poromics.permeability_lbm(
        pores, axis=0, voxel_size=1.0, tol=options.tolerance, verbose=False
    )
    results["permeability (voxels²)"] = float(result.k)


versions = (
    f"{importlib.metadata.version('poromics')} (Taichi {'.'.join(map(str, taichi.__version__))})"
)
serve(options, solve, {"peer": "poromics", "version": versions}, results=lambda: dict(results))
