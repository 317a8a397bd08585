"""How populations are stored: layout, propagation, order of sites, encoding of links, precision.

All of them give the same flow; which is fastest depends on the machine and on the image.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.errors import InputError
from slipstream.lattice.d3q19 import DIRECTIONS

PROPAGATIONS = ("two-lattice", "aa")
LAYOUTS = ("stream", "collision", "bundle", "vector-collision", "vector-bundle")
ORDERS = ("raster", "row-tiles")
ENCODINGS = ("wide", "compact", "strips")
PRECISIONS = ("float64", "float32", "mixed")
# What of the storage is a question of speed only.
TUNED = ("propagation", "layout", "order", "encoding")

# Sites that are stored, and advanced, together: a line of a GPU's cache in double precision.
SEGMENT = 16
# Sites that share the bases of compact links.
BASE_BLOCK = 256

_REAL = {"float64": "double", "float32": "float", "mixed": "double"}


@dataclass(frozen=True)
class Storage:
    """How populations are stored.

    Attributes
    ----------
    propagation : {"aa", "two-lattice"}
        In place, with alternating steps, or from one array to another.
    layout : {"stream", "collision", "bundle", "vector-collision", "vector-bundle"}
        Direction by direction; site by site; those that move to the same row of sites together; and
        the latter two for vectors of 16 sites.
    order : {"raster", "row-tiles"}
        Rows of sites one after the other, or in tiles of 8 by 8 rows.
    encoding : {"compact", "wide", "strips"}
        Of links: 20 bytes a site, or 72; or for vectors of sites, on a CPU and in layout "stream"
        only.
    precision : {"float64", "float32", "mixed"}
        Of storage and arithmetic; mixed stores float32 and computes with float64.

    Raises
    ------
    InputError
        If one is unknown.
    """

    propagation: str = "aa"
    layout: str = "stream"
    order: str = "raster"
    encoding: str = "compact"
    precision: str = "float64"

    def __post_init__(self) -> None:
        for name, accepted in (
            ("propagation", PROPAGATIONS),
            ("layout", LAYOUTS),
            ("order", ORDERS),
            ("encoding", ENCODINGS),
            ("precision", PRECISIONS),
        ):
            value = getattr(self, name)
            if value not in accepted:
                raise InputError(f"{name} {value!r} is unknown; accepted: {', '.join(accepted)}")
        if self.encoding == "strips" and self.layout != "stream":
            raise InputError(
                f"encoding 'strips' needs layout 'stream', not {self.layout!r}; accepted with it: "
                "compact, wide"
            )

    @property
    def dtype(self) -> np.dtype:
        """Type in which populations are stored."""
        return np.dtype("float64" if self.precision == "float64" else "float32")

    @property
    def real(self) -> np.dtype:
        """Type with which is computed."""
        return np.dtype("float32" if self.precision == "float32" else "float64")

    @property
    def constants(self) -> dict[str, object]:
        """Compile-time constants of the kernels."""
        return {
            "LAYOUT": LAYOUTS.index(self.layout),
            "ENCODING": int(self.encoding == "compact"),
            "REAL": _REAL[self.precision],
            "STORED": "double" if self.precision == "float64" else "float",
        }

    def bytes_per_update(self, link_bytes: float) -> tuple[float, float]:
        """Return the compulsory bytes of the first and the second step of a pair, per site.

        Every population is read and written once; links are read once, by steps that use them.

        Parameters
        ----------
        link_bytes : float
            What the links of a site take.
        """
        populations = 2 * DIRECTIONS * self.dtype.itemsize
        linked = populations + link_bytes
        return (populations if self.propagation == "aa" else linked, linked)
