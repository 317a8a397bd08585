"""Flow through the pores of a voxel image."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np

from slipstream.argument_checks import plain_value, table_of
from slipstream.array_types import Array, Comm
from slipstream.case import Case, LatticeCase, validate_case
from slipstream.device import Device
from slipstream.errors import InputError
from slipstream.interactive.interactive_simulation import (
    InteractiveSimulation,
    asks_for_output,
    made_together,
)
from slipstream.interactive.settings import Setting
from slipstream.printable_text import shown

if TYPE_CHECKING:
    from slipstream.lattice.lattice_simulation import LatticeSimulation
    from slipstream.lattice.population_layout import Storage

_FIELDS = ("velocity", "velocity_x", "velocity_y", "velocity_z", "density", "pressure", "pore")
# Stands for the path of the file in the case, where the image is an array.
ARRAY = "an array in memory.npy"


def _reversed(values: Any) -> Any:
    """Return numbers given for z, y and x in the order of cases, as far as there are several."""
    return values[::-1] if isinstance(values, list | tuple) else values


def _mirrored(mirror: Any, axis: str) -> Any:
    """Return the axes to mirror as a case lists them; None for none."""
    if isinstance(mirror, bool | np.bool_):
        return (("x", "y", "z") if axis == "all" else (axis,)) if mirror else None
    return tuple(mirror) if isinstance(mirror, str) else mirror


def _dtype_name(dtype: Any) -> str | None:
    """Return the name of a type of values as cases have it; what is no type is refused."""
    try:
        return None if dtype is None else np.dtype(dtype).name
    except (TypeError, ValueError, SyntaxError):
        raise InputError(
            f"dtype is {shown(dtype)}; accepted: a type of numbers, such as 'uint8'"
        ) from None


def _as_array(image: Any) -> np.ndarray:
    try:
        return np.asarray(image)
    except ValueError as error:  # of lists of different lengths
        raise InputError(f"image: {error}; accepted: an array of three axes") from None


def _storage_keys(storage: Any) -> dict[str, Any]:
    """Return the keys of ``numerics`` that a storage stands for."""
    if dataclasses.is_dataclass(storage) and not isinstance(storage, type):
        # A Storage; another object is refused by the names of its fields.
        return dict(vars(storage))
    return table_of("storage", storage)


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
        Direction of the flow; "all" for each axis in turn, which gives the tensor.
    voxel_size : float
        Edge length of a voxel in metres; with 1, lengths are in voxels.
    pore, pore_below, pore_above, shape, dtype, byte_order, offset, dataset, crop, mirror, buffer, \
walls, isolated
        As of `slipstream.lattice.permeability`: numbers per axis along z, y and x. In the table
        ``image`` of a case they are along x, y and z.
    relaxation_time, magic, force, pressure_drop, inertia
        See ``[flow]`` in docs/cases.md.
    viscosity, pressure_gradient, density : float, optional
        Of the fluid, in Pa s, Pa/m and kg/m³: fields and diagnostics are then in SI units, as for
        `slipstream.lattice.permeability`.
    tolerance : float
        `run` ends when the permeability is estimated to be this close, relatively, to that of the
        steady flow; 0 for never.
    interval : int
        Time steps between two checks of the permeability.
    vectors : int
        From how many of its last changes the steady flow is extrapolated; 0 for none, which follows
        the flow in time.
    max_steps : int
        Number of time steps after which `run` ends in any case.
    precision : {"float64", "float32", "mixed"}
        Of storage and arithmetic.
    storage, partition, schedule, transport
        As of `slipstream.lattice.permeability`; also keys of the tables `numerics` and `run`.
    restart : str or pathlib.Path, optional
        Output folder of an earlier run of the same image, to continue from.
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
        voxel_size: float = 1.0,
        pore: int | Sequence[int] | None = None,
        pore_below: float | None = None,
        pore_above: float | None = None,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        byte_order: str | None = None,
        offset: int | None = None,
        dataset: str | None = None,
        crop: Sequence[Sequence[int]] | None = None,
        mirror: bool | str | Sequence[str] = False,
        buffer: int = 0,
        walls: str | Sequence[str] = "",
        isolated: str = "remove",
        relaxation_time: float = 1.0,
        magic: float = 3 / 16,
        force: float | None = None,
        pressure_drop: float | None = None,
        inertia: bool = False,
        viscosity: float | None = None,
        pressure_gradient: float | None = None,
        density: float | None = None,
        tolerance: float = 1e-3,
        interval: int = 100,
        vectors: int = 10,
        max_steps: int = 200_000,
        precision: str = "float64",
        storage: Storage | Mapping[str, str] | None = None,
        partition: str | None = None,
        schedule: str | None = None,
        transport: str | None = None,
        restart: str | Path | None = None,
        device: str | Device = "auto",
        comm: Comm | Literal["world"] = "world",
        title: str = "",
        run: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
        numerics: Mapping[str, Any] | None = None,
    ) -> None:
        of_image = {
            "pore": plain_value(pore),
            "pore_below": pore_below,
            "pore_above": pore_above,
            "shape": _reversed(shape),
            "dtype": _dtype_name(dtype),
            "byte_order": byte_order,
            "offset": offset,
            "dataset": dataset,
            "crop": _reversed(crop),
            "mirror": _mirrored(mirror, axis),
            "buffer": None if buffer is None else plain_value(buffer),
            "walls": plain_value(walls) or None,
            "isolated": isolated,
        }
        of_image |= {"voxel_size": voxel_size}
        table = {key: value for key, value in of_image.items() if value is not None}
        source = None
        if isinstance(image, Mapping):
            table |= image
        elif isinstance(image, str | Path):
            table["path"] = str(image)
        else:
            source = image if hasattr(image, "read") else _as_array(image)
            if not hasattr(image, "read") and source.ndim != 3:
                raise InputError(
                    f"image has {source.ndim} axes; accepted: an array of three, in the order z, y,"
                    " x"
                )
            table["path"] = ARRAY
        drive = {
            "force": force,
            "pressure_drop": pressure_drop,
            "viscosity": viscosity,
            "pressure_gradient": pressure_gradient,
            "density": density,
        }
        of_run = {"partition": partition, "schedule": schedule, "transport": transport}
        tables: dict[str, Any] = {
            "solver": "lattice",
            "title": title,
            "image": table,
            "flow": {
                "axis": axis,
                "relaxation_time": relaxation_time,
                "magic": magic,
                "inertia": inertia,
                **{key: value for key, value in drive.items() if value is not None},
            },
            "initial": {} if restart is None else {"restart": str(restart)},
            "time": {"end": max_steps},
            "convergence": {
                "tolerance": tolerance,
                "interval": interval,
                "vectors": vectors,
            },
            "numerics": {
                "precision": precision,
                **_storage_keys(storage),
                **table_of("numerics", numerics),
            },
            "run": {
                **{key: one for key, one in of_run.items() if one is not None},
                **table_of("run", run),
            },
            "output": table_of("output", output),
        }
        super().__init__(validate_case(tables, source=type(self).__name__), comm, device)
        self._asks_for_output = asks_for_output(output)
        self._lattice.given_image = source

    relaxation_time = Setting[float](
        "flow.relaxation_time", "Relaxation time of the even populations, in time steps"
    )
    magic = Setting[float]("flow.magic", "Magic parameter")
    force = Setting[float | None](
        "flow.force",
        "Force per volume along the axis, in lattice units, or a pressure drop",
    )
    pressure_drop = Setting[float | None](
        "flow.pressure_drop", "Difference of pressure between the ends, in place of a force"
    )
    viscosity = Setting[float | None]("flow.viscosity", "Dynamic viscosity of the fluid, in Pa s")
    pressure_gradient = Setting[float | None](
        "flow.pressure_gradient", "Pressure gradient that drives the fluid, in Pa/m"
    )
    density = Setting[float | None]("flow.density", "Density of the fluid, in kg/m³")
    tolerance = Setting[float](
        "convergence.tolerance", "How close to steady `run` ends, relatively; 0 for never"
    )

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

        With all axes, the largest of those that have been reached. Collective.
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

    def _copy_state(self, other: Self) -> None:
        other._lattice.copy_state(self._lattice)

    def _summary(self) -> str:
        case = cast(LatticeCase, self.case)
        image = case.image.sample or Path(case.image.path or "").name.removesuffix(".npy")
        return f"flow along {case.flow.axis} through {image}, {case.numerics.precision}"
