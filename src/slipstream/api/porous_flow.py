"""Flow through the pores of a voxel image."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import numpy as np

from slipstream.api.interactive_simulation import (
    InteractiveSimulation,
    asks_for_output,
    made_together,
)
from slipstream.api.settings import Setting
from slipstream.case import Case, LatticeCase
from slipstream.case.keyword_options import KeywordOptions, class_with_options
from slipstream.case.lattice_case import MAX_STEPS
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.device import Device
from slipstream.engine.error_terms import ARGUMENTS, CASES
from slipstream.engine.errors import InputError, table_of

if TYPE_CHECKING:
    from slipstream.lattice.lattice_simulation import LatticeSimulation
    from slipstream.lattice.permeability import PorousFlowOptions
    from slipstream.lattice.velocity_set import Storage


def _as_array(image: Any) -> np.ndarray:
    try:
        values = np.asarray(image)
    except ValueError as error:  # of lists of different lengths
        raise InputError(f"image: {error}; accepted: an array of three axes") from None
    if values.ndim not in (2, 3):
        raise InputError(
            f"image has {values.ndim} axes; accepted: an array of three, in the order z, y, x, or"
            " of two, y and x"
        )
    return values


def _options() -> KeywordOptions:
    # Only now: what the command line needs to begin loads no family.
    from slipstream.lattice.permeability import OPTIONS

    return OPTIONS


@class_with_options(_options)
class PorousFlow(InteractiveSimulation):
    """Flow through the pores of an image, by a lattice Boltzmann method.

    Its time counts time steps, which are taken in pairs; `run` ends when the flow is steady.

    >>> rock = PorousFlow("rock.tif", voxel_size=2e-6)
    >>> rock.run()
    >>> rock.diagnostics["permeability_millidarcy"]

    Parameters
    ----------
    image : str, pathlib.Path, array or mapping
        A file, a folder of TIFF slices, an array in the order z, y, x (the same on all ranks), or
        the table ``image`` of a case, such as ``{"sample": "sandstone", "shape": (64, 64, 64),
        "radius": 8}``.
    **options
        Keys of the tables ``[flow]``, ``[image]``, ``[convergence]`` and some others of a case.
    max_steps : int
        Number of time steps after which `run` ends in any case; even.
    storage : Storage or mapping, optional
        The storage of populations, as for `slipstream.lattice.permeability`: a `Storage`, or some
        of the keys of ``[numerics]``.
    device, comm, title, run, output
        See `slipstream.Flow`.
    numerics : mapping, optional
        Further keys of the table of that name in a case.

    Raises
    ------
    InputError
        If anything is not accepted; on all ranks, if on one.
    """

    @made_together
    def __init__(
        self,
        image: Any,
        *,
        max_steps: int = MAX_STEPS,
        storage: Storage | Mapping[str, str] | None = None,
        device: str | Device = "auto",
        comm: Comm | Literal["world"] = "world",
        title: str = "",
        run: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
        numerics: Mapping[str, Any] | None = None,
        **options: Unpack[PorousFlowOptions],
    ) -> None:
        # Only now: what the command line needs to begin loads no family.
        from slipstream.lattice.permeability import case_of_arguments

        tables = {
            "title": title,
            "numerics": table_of("numerics", numerics),
            "run": table_of("run", run),
            "output": table_of("output", output),
        }
        is_table = isinstance(image, Mapping)
        if is_table:
            tables["image"], image = table_of("image", image), None
        elif not (isinstance(image, str | Path) or hasattr(image, "read")):
            image = _as_array(image)
        arguments = {**options, "max_steps": max_steps, "storage": storage}
        case, given = case_of_arguments(image, arguments, type(self).__name__, tables)
        terms = CASES if is_table else ARGUMENTS
        super().__init__(case, comm, device, image=given, terms=terms)
        self._asks_for_output = asks_for_output(output)

    relaxation_time = Setting[float | None](LatticeCase, "flow.relaxation_time")
    magic = Setting[float](LatticeCase, "flow.magic")
    force = Setting[float | None](LatticeCase, "flow.force")
    pressure_drop = Setting[float | None](LatticeCase, "flow.pressure_drop")
    viscosity = Setting[float | None](LatticeCase, "flow.viscosity")
    pressure_gradient = Setting[float | None](LatticeCase, "flow.pressure_gradient")
    density = Setting[float | None](LatticeCase, "flow.density")
    tolerance = Setting[float](LatticeCase, "convergence.tolerance")

    def _together_with(self, key: str, value: Any) -> dict[str, Any]:
        if value is None:  # which cases take for the default
            raise InputError(f"{key} is None; accepted: a number")
        return super()._together_with(key, value)

    @property
    def _lattice(self) -> LatticeSimulation:
        return cast("LatticeSimulation", self.solver)

    @property
    def permeability(self) -> float:
        """Permeability in squares of voxels, or in m^2 if their size is known. Collective.

        Along the axis; with all axes, the mean of the diagonal of the tensor, as of
        `slipstream.lattice.permeability`, and NaN until the flow along the last one has begun. For
        the present flow, steady or not: see `residual`.
        """
        diagnostics = self.diagnostics
        if cast(LatticeCase, self.case).flow.axis == "all":
            return float(np.trace(self.tensor)) / 3
        return diagnostics.get("permeability", diagnostics["permeability_lattice"])

    @property
    def tensor(self) -> np.ndarray:
        """Permeability tensor, rows and columns x, y and z, in the unit of `permeability`.

        Columns of axes along which nothing has flowed yet are NaN, as they all are but one where
        the flow is along one axis. Collective.
        """
        self._ready()
        size = cast(LatticeCase, self.case).image.voxel_size
        return self._lattice.tensor(missing=np.nan) * size**2

    @property
    def residual(self) -> float:
        """Estimated relative distance of the permeability from the steady flow's; 1 if unknown.

        With all axes, the largest number of any axis so far. Collective.
        """
        self._ready()
        return self._lattice.residual

    def _field_shapes(self) -> dict[str, tuple[int, ...]]:
        # Imported late: starting the command line loads no solver family.
        from slipstream.lattice.voxel_fields import FIELDS

        # The speed follows from the velocity.
        return {name: (3,) if name == "velocity" else () for name in FIELDS if name != "speed"}

    def _describe_field(self, name: str) -> tuple[str, str]:
        # Imported late: starting the command line loads no solver family.
        from slipstream.lattice.voxel_fields import describe_field

        return describe_field(name, cast(LatticeCase, self.case).flow.viscosity is not None)

    def _field_dtype(self, name: str) -> np.dtype:
        self._ready()
        if name == "pore":
            return self._lattice.subdomain.own.dtype
        return np.dtype(self._lattice.flow.storage.real)

    def _read(self, name: str) -> Array:
        fields = self.solver.fields()
        if name == "velocity":
            values = np.stack([field.data for field in itertools.islice(fields, 3)])
        else:
            # All ranks must handle the same number, since each is moved between them.
            values = next(field.data for field in fields if field.name == name)
        return values if self.array_module is np else self.array_module.asarray(values)

    def _case_from_rest(self) -> Case:
        # Only now: what the command line needs to begin loads no family.
        from slipstream.lattice.velocity_set import TUNED

        # The same storage as was found fastest, so that populations can be copied.
        case, storage = cast(LatticeCase, self.case), self._lattice.flow.storage
        chosen = {name: getattr(storage, name) for name in TUNED}
        return case.model_copy(
            update={
                "initial": type(case.initial)(),
                "numerics": case.numerics.model_copy(update=chosen),
            }
        )

    def _beside_the_case(self) -> dict[str, Any]:
        return {"image": self._lattice.given_image, "terms": self._lattice.terms}

    def _summary(self) -> str:
        case = cast(LatticeCase, self.case)
        image = case.image.sample or Path(case.image.path or "").name.removesuffix(".npy")
        return f"flow along {case.flow.axis} through {image}, {case.numerics.precision}"
