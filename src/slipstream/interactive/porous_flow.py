"""Flow through the pores of a voxel image."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np

from slipstream.argument_checks import table_of
from slipstream.array_types import Array, Comm
from slipstream.case import Case, LatticeCase
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.interactive.interactive_simulation import (
    InteractiveSimulation,
    asks_for_output,
    made_together,
)
from slipstream.interactive.settings import Setting
from slipstream.io.image_errors import ARGUMENTS, CASES

if TYPE_CHECKING:
    from slipstream.lattice.lattice_simulation import LatticeSimulation
    from slipstream.lattice.population_layout import Storage

_FIELDS = ("velocity", "velocity_x", "velocity_y", "velocity_z", "density", "pressure", "pore")


def _as_array(image: Any) -> np.ndarray:
    try:
        found = np.asarray(image)
    except ValueError as error:  # of lists of different lengths
        raise InputError(f"image: {error}; accepted: an array of three axes") from None
    if found.ndim != 3:
        raise InputError(
            f"image has {found.ndim} axes; accepted: an array of three, in the order z, y, x"
        )
    return found


class PorousFlow(InteractiveSimulation):
    """Flow through the pores of an image, by a lattice Boltzmann method.

    Its time counts time steps, which are taken in pairs; `run` goes on until the flow is steady.

    >>> rock = PorousFlow("rock.tif", voxel_size=2e-6)
    >>> rock.run()
    >>> rock.diagnostics["permeability_millidarcy"]

    Parameters
    ----------
    image : str, pathlib.Path, array or mapping
        A file, a folder of TIFF slices, an array in the order z, y, x (the same on all ranks), or
        the table ``image`` of a case, such as ``{"sample": "sandstone", "shape": (64, 64, 64),
        "radius": 8}``.
    axis : {"x", "y", "z", "all"}
        Axis along which the fluid flows; "all": along each in turn, for the whole tensor, with a
        share of the steps each.
    relaxation_time : float, optional
        Relaxation time of the even part of the populations, in time steps, which sets the viscosity
        to (relaxation_time - 0.5) / 3. The permeability does not depend on it, the number of steps
        does. Default, or "auto": 1.25 to 1.5 by the width of pores for Stokes flow that is
        extrapolated, else 1; without vectors, 0.6 needs far fewer in narrow pores.
    magic : float
        Magic parameter, (relaxation_time - 0.5) * (odd - 0.5), from which the relaxation time of
        the odd part follows; with 3/16, walls are half way between pore and solid.
    force : float, optional
        Force per volume along the axis, in lattice units (default: 1e-05, without pressure_drop).
    pressure_drop : float, optional
        Instead of a force: difference of pressure between both ends of the axis, in lattice units.
    inertia : bool
        True for Navier-Stokes instead of Stokes flow; the permeability then depends on the drive.
    viscosity : float, optional
        Dynamic viscosity of the fluid in Pa s; with pressure_gradient, output is in SI units, which
        needs voxel_size. Stokes flow is scaled to these units.
    pressure_gradient : float, optional
        Pressure gradient that drives the fluid, in Pa/m.
    density : float, optional
        Density of the fluid in kg/m³, for its Reynolds number; with inertia, density, viscosity and
        pressure_gradient determine the force on the lattice, so give neither force nor
        pressure_drop.
    shape : sequence of 3 int, optional
        Number of voxels along z, y and x, of raw values.
    pore : int or sequence of int, optional
        Of segmented images: value of pores, or several, such as [0, 1] (default: all but 0, if that
        is one value).
    pore_below : float, optional
        Of grey images: voxels darker than this are pore.
    pore_above : float, optional
        Of grey images: voxels brighter than this are pore; with both, those between.
    dataset : str, optional
        Of HDF5 and zarr: name of the array, if there are several.
    dtype : dtype, optional
        Of raw values: their type.
    byte_order : {"little", "big"}, optional
        Of raw values, if they have several bytes.
    offset : int, optional
        Of raw values: bytes before the first one (default: 0).
    voxel_size : float
        Edge of a voxel in metres, such as 2e-6; with 1, lengths stay in voxels.
    crop : sequence of 3 (sequence of 2 int), optional
        Part to use: first voxel, and last voxel plus one, along z, y and x.
    mirror : bool, str or sequence of str
        Axes along which the mirror image follows, so that opposite faces match, such as "xy"; True
        for the axis of the flow.
    buffer : int
        Layers of pore at both ends of the flow's axis.
    walls : str or sequence of str
        Axes whose faces are walls; the others are periodic.
    isolated : {"remove", "keep"}
        Whether to remove pores through which nothing flows.
    tolerance : float
        Estimated relative distance to the permeability of the steady flow at which the run ends; 0:
        the run takes all its steps.
    interval : int
        Time steps between two rows of the time series, and between two checks of the permeability
        without convergence.vectors; even. With these each extrapolation is a check, at which the
        run can end.
    vectors : int
        Number of changes from which the steady flow is extrapolated, which saves most time steps
        (fewer if memory is short); 0: none, to follow the flow in time.
    coarse_start : bool
        Whether Stokes flow begins from that through voxels twice and four times as large, which
        also shows how well the pores are resolved; a restart begins from its state.
    precision : {"float64", "float32", "mixed", "float16"}
        Precision of populations and arithmetic.
    restart : str or pathlib.Path, optional
        Output folder of an earlier run, from whose last state to continue.
    partition : {"bisection", "cartesian"}
        How ranks share the image.
    schedule : {"serial", "overlap"}
        Whether communication hides behind computation; the bits are the same.
    transport : str
        How ranks exchange data; "auto" chooses by devices and nodes. One of "auto", "peer", "nccl",
        "mpi-p2p", "mpi", "mpi-hierarchical", "mpi-device-p2p" or "mpi-device".
    max_steps : int
        Number of time steps after which `run` ends in any case; even.
    storage : Storage or mapping, optional
        How populations are stored, as of `slipstream.lattice.permeability`: a `Storage`, or some of
        the keys of ``[numerics]``.
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
        axis: str = "z",
        relaxation_time: float | None = None,
        magic: float = 0.1875,
        force: float | None = None,
        pressure_drop: float | None = None,
        inertia: bool = False,
        viscosity: float | None = None,
        pressure_gradient: float | None = None,
        density: float | None = None,
        shape: Sequence[int] | None = None,
        pore: int | Sequence[int] | None = None,
        pore_below: float | None = None,
        pore_above: float | None = None,
        dataset: str | None = None,
        dtype: Any = None,
        byte_order: str | None = None,
        offset: int | None = None,
        voxel_size: float = 1.0,
        crop: Sequence[Sequence[int]] | None = None,
        mirror: bool | str | Sequence[str] = (),
        buffer: int = 0,
        walls: str | Sequence[str] = (),
        isolated: str = "remove",
        tolerance: float = 0.001,
        interval: int = 100,
        vectors: int = 10,
        coarse_start: bool = False,
        precision: str = "float64",
        restart: str | Path | None = None,
        partition: str = "bisection",
        schedule: str = "overlap",
        transport: str = "auto",
        max_steps: int = 200_000,
        storage: Storage | Mapping[str, str] | None = None,
        device: str | Device = "auto",
        comm: Comm | Literal["world"] = "world",
        title: str = "",
        run: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
        numerics: Mapping[str, Any] | None = None,
    ) -> None:
        # Only now: what the command line needs to begin loads no family.
        from slipstream.lattice.lattice_arguments import case_of_arguments

        arguments = locals()
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
        case, source = case_of_arguments(image, arguments, type(self).__name__, tables)
        super().__init__(case, comm, device)
        self._lattice.terms = CASES if is_table else ARGUMENTS
        self._asks_for_output = asks_for_output(output)
        self._lattice.given_image = source

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
        found = self.diagnostics
        if cast(LatticeCase, self.case).flow.axis == "all":
            return float(np.trace(self.tensor)) / 3
        return found.get("permeability", found["permeability_lattice"])

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
        return {name: (3,) if name == "velocity" else () for name in _FIELDS}

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
        from slipstream.lattice.population_layout import TUNED

        # The same storage as was found fastest, so that populations can be copied.
        case, storage = cast(LatticeCase, self.case), self._lattice.flow.storage
        chosen = {name: getattr(storage, name) for name in TUNED}
        return case.model_copy(
            update={
                "initial": type(case.initial)(),
                "numerics": case.numerics.model_copy(update=chosen),
            }
        )

    def _named(self) -> Any:
        return self._lattice.given_image

    def _accept_named(self, named: Any) -> None:
        self._lattice.given_image = named

    def _give(self, other: Self) -> None:
        other._lattice.given_image = self._lattice.given_image
        other._lattice.terms = self._lattice.terms

    def _copy_state(self, other: Self) -> None:
        other._lattice.copy_state(self._lattice)

    def _summary(self) -> str:
        case = cast(LatticeCase, self.case)
        image = case.image.sample or Path(case.image.path or "").name.removesuffix(".npy")
        return f"flow along {case.flow.axis} through {image}, {case.numerics.precision}"
