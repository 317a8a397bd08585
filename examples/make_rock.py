"""Make examples/rock.tif, a small image to try commands with: 0 is solid, 1 is pore.

python examples/make_rock.py
"""

import sys
from pathlib import Path

import numpy as np
import tifffile

from slipstream.lattice import make_sample

path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("rock.tif")
rock = np.asarray(make_sample("sandstone", (64, 64, 64), porosity=0.25, radius=8))  # z, y, x
tifffile.imwrite(path, rock, compression="zlib", software=False, metadata=None)
print(f"{path}: {rock.shape} voxels, {rock.mean():.1%} pore, {path.stat().st_size} bytes")
