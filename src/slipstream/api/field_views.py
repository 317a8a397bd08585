"""A field of a simulation, to be read and set like an array.

Arrays are this rank's part, in the order z, y, x, with the component first for vectors. They are
NumPy or CuPy arrays, on the device of the simulation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from slipstream.engine.array_types import Array
from slipstream.engine.collective import check_agreement, on_every_rank, sum_over_ranks, together
from slipstream.engine.decomposition import Box, whole
from slipstream.engine.errors import InputError, KnownAttributes, check_type, whole_number
from slipstream.engine.fields import AXES, Layout, interpolated, places_of
from slipstream.engine.stop_signals import signals_held
from slipstream.engine.text import shown

if TYPE_CHECKING:
    from slipstream.api.interactive_simulation import InteractiveSimulation
    from slipstream.spectral.evaluation import Evaluation

COMPONENTS = ["x", "y", "z"]
# The axes before z, y and x for scalars, vectors and tensors.
_LEADING: tuple[tuple[str, ...], ...] = ((), ("component",), ("row", "component"))


class FieldView(KnownAttributes, np.lib.mixins.NDArrayOperatorsMixin):
    """A field at the points: nothing is computed until it is read.

    ``view[...]`` reads this rank's part, any other index a part of that, and assignment sets it;
    arithmetic and NumPy's functions take it as an array. Reading and setting are collective.

    Attributes
    ----------
    name : str
        Its name.
    long_name, unit : str
        Descriptive name and unit; "1" if it is non-dimensional.
    dims : tuple of str
        Names of the axes: "z", "y", "x", after "component" for vectors, "row" before that for
        tensors.
    """

    name: str
    long_name: str
    unit: str
    dims: tuple[str, ...]

    def __init__(
        self,
        simulation: InteractiveSimulation,
        name: str,
        lead: tuple[int, ...],
        long_name: str = "",
        unit: str = "1",
        evaluation: Evaluation | None = None,
    ) -> None:
        self._simulation, self._lead = simulation, lead
        self.name, self.long_name, self.unit = name, long_name or name, unit
        self._evaluation = evaluation  # of fields derived from the state, which cannot be set
        self.dims = (*_LEADING[len(lead)], *AXES)

    # -- what it is ----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of this rank's part."""
        return (*self._lead, *self._box.shape)

    @property
    def global_shape(self) -> tuple[int, ...]:
        """Shape of the whole field."""
        return (*self._lead, *self._layout.shape)

    @property
    def dtype(self) -> np.dtype:
        """Type of the values."""
        if self._evaluation is not None:
            return self._evaluation.dtype
        return self._simulation._field_dtype(self.name)

    @property
    def offset(self) -> tuple[int, ...]:
        """Global index of this rank's first element."""
        return (0,) * len(self._lead) + tuple(self._box.start)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.dims)

    @property
    def region(self) -> tuple[slice, ...]:
        """Slices of the whole field that are this rank's part."""
        return tuple(slice(low, low + n) for low, n in zip(self.offset, self.shape, strict=True))

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        """Coordinates of this rank's points along z, y and x."""
        slices = dict(zip(AXES, self._box.slices(), strict=True))
        return {axis: values[slices[axis]] for axis, values in self._layout.coordinates.items()}

    @property
    def _layout(self) -> Layout:
        return self._simulation.solver.layout()

    @property
    def _box(self) -> Box:
        return self._layout.boxes[self._simulation.rank]

    def __repr__(self) -> str:
        where = "x".join(map(str, self.global_shape))
        return f"<field {self.name!r}: {self.long_name}, {where} ({', '.join(self.dims)})>"

    def _repr_html_(self) -> str:
        from slipstream.api.notebook_views import field_html

        return field_html(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # The evaluation of a derived field is not copied: the copy's simulation makes its own.
        return _view_of, (self._simulation, self.name)

    # -- reading -------------------------------------------------------------------------------

    @signals_held
    def _read(self) -> Array:
        simulation = self._simulation
        simulation._ready()
        with together(simulation.comm, f"fields[{self.name!r}]"):
            if self._evaluation is not None:
                return self._evaluation.at_points(simulation.solver.time)
            return simulation._read(self.name)

    def __getitem__(self, index: Any) -> Array:
        return item_of(self._read(), index, f"fields[{self.name!r}]")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self._simulation.device.to_host(self._read())
        return values if dtype is None else values.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        arrays = [one[...] if isinstance(one, FieldView) else one for one in inputs]
        result = getattr(ufunc, method)(*arrays, **options)
        if out is None:
            return result
        # ``sim.fields["velocity"] *= 2``
        (target,) = out
        target[...] = result
        return target

    def __array_function__(
        self, function: Any, types: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        keywords = {name: _as_arrays(value) for name, value in options.items()}
        return function(*_as_arrays(arguments), **keywords)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return iter(self._read())

    def __dlpack__(self, **options: Any) -> Any:
        values: Any = self._read()
        return values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        place: tuple[int, int] = self._simulation.array_module.empty(0).__dlpack_device__()
        return place

    @signals_held
    def gather(self, root: int | None = None) -> np.ndarray | None:
        """Return the whole field on the host: on all ranks, or only on `root`. Collective."""
        from slipstream.engine.decomposition import redistribute

        simulation, layout = self._simulation, self._layout
        with together(simulation.comm):
            if root is not None:
                root = whole_number("root", root, 0, simulation.ranks - 1)
            check_agreement(simulation.comm, {"root": root})
        values = simulation.device.to_host(self._read())
        if simulation.comm is None:
            return values
        empty = Box((0,) * 3, (0,) * 3)
        wanted = [
            whole(layout.shape) if root in (None, rank) else empty
            for rank in range(simulation.ranks)
        ]
        parts = values.reshape(-1, *values.shape[len(self._lead) :])
        moved = [redistribute(one, layout.boxes, wanted, simulation.comm) for one in parts]
        if root not in (None, simulation.rank):
            return None
        return np.stack(moved).reshape(self.global_shape)

    def mean(self) -> Any:
        """Return the mean over all points of all ranks, by component. Collective."""
        return self._reduce("mean")

    def rms(self) -> Any:
        """Return the root mean square over all points of all ranks, by component. Collective."""
        return self._reduce("rms")

    def max(self) -> Any:
        """Return the largest value of all ranks, by component. Collective."""
        return self._reduce("max")

    def min(self) -> Any:
        """Return the smallest value of all ranks, by component. Collective."""
        return self._reduce("min")

    @signals_held
    def _reduce(self, how: str) -> Any:
        simulation = self._simulation
        simulation._ready()
        with together(simulation.comm, f"fields[{self.name!r}].{how}"):
            return simulation._reduced(self, how)

    @signals_held
    def plane(self, axis: str, position: float) -> np.ndarray:
        """Return the values in the plane of points next to a position, on all ranks. Collective.

        Parameters
        ----------
        axis : {"x", "y", "z"}
            The axis normal to the plane.
        position : float
            Coordinate along that axis.

        Returns
        -------
        numpy.ndarray
            Over the other two axes, slowest first, preceded by the component for vectors.
        """
        simulation = self._simulation
        simulation._ready()
        with together(simulation.comm, f"fields[{self.name!r}].plane"):
            if not isinstance(axis, str) or axis not in AXES:
                raise InputError(f"axis is {shown(axis)}; accepted: x, y, z")
            index = self._layout.nearest(axis, position, "plane")
            check_agreement(simulation.comm, {"plane": (axis, index)})
            return self._plane(axis, index)

    def _plane(self, axis: str, index: int) -> np.ndarray:
        along, lead, box = AXES.index(axis), len(self._lead), self._box
        values = self._read()
        shape = [n for a, n in enumerate(self._layout.shape) if a != along]
        result = np.zeros((*self._lead, *shape), np.result_type(values.dtype, np.float64))
        local = index - box.start[along]
        if box.size and 0 <= local < box.shape[along]:
            rows, columns = (part for a, part in enumerate(box.slices()) if a != along)
            section = values.take(local, axis=along + lead)
            result[..., rows, columns] = self._simulation.device.to_host(section)
        return sum_over_ranks(self._simulation.comm, result).astype(values.dtype)

    @signals_held
    def at(self, points: Any) -> np.ndarray:
        """Return values between the points, by cubic interpolation, on all ranks. Collective.

        Parameters
        ----------
        points : array of shape (n, 3)
            Places as x, y and z, the same on all ranks; the box repeats beyond its ends, but for
            walls.

        Returns
        -------
        numpy.ndarray
            Of shape (n,) for a scalar, (n, 3) for a vector. The error is of fourth order in the
            grid spacing.
        """
        simulation = self._simulation
        simulation._ready()
        with together(simulation.comm, f"fields[{self.name!r}].at"):
            places = self._places(points)
            check_agreement(simulation.comm, {"points": places.shape})
            parts = self._read().reshape(-1, *self._box.shape)
            local = interpolated(parts, places, self._layout, self._box)
            result = sum_over_ranks(simulation.comm, local)
            return result.reshape(len(places), *self._lead)

    def _places(self, points: Any) -> np.ndarray:
        """Return points as an array, or refuse them."""
        places = places_of("points", points)
        if self._layout.walls is not None:
            from slipstream.runs.output_formats import check_places

            axis = "xyz".index(self._layout.walls)
            inside = np.full(places.shape, self._layout.coordinates["x"][0])
            inside[:, 1] = self._layout.coordinates["y"][0]
            inside[:, axis] = places[:, axis]
            check_places(self._layout, inside, "points")
        return places

    def to_xarray(self, gather: bool = False) -> Any:
        """Return this rank's part, or with `gather` the whole field, as an ``xarray.DataArray``.

        It has coordinates, long name and unit. This rank's part is read lazily, and only what is
        asked for: ``field.to_xarray().sel(z=0).values`` copies one plane from the device. Every
        read is collective, and is refused once the simulation has been stepped or set, since the
        field has changed by then: ``load()`` keeps the present values. With `gather` they are read
        immediately. Collective.
        """
        try:
            import xarray

            from slipstream.api.lazy_arrays import lazily
        except ImportError:
            raise InputError("to_xarray needs xarray: pip install xarray") from None
        check_type("gather", gather, bool)
        time = self._simulation.time  # prepares
        if gather:
            values: Any = self.gather()
        else:
            mark = self._simulation._state_mark()

            def read(index: tuple[Any, ...]) -> np.ndarray:
                simulation = self._simulation
                if simulation._state_mark() != mark:
                    raise InputError(
                        f"fields[{self.name!r}]: the simulation has been stepped or set since"
                        " to_xarray; call it again, or load() what it returns before"
                    )
                part = simulation.array_module.asarray(self._read()[index])
                return np.asarray(simulation.device.to_host(part))

            values = lazily(self.shape, self.dtype, read)
        lines = self._layout.coordinates if gather else self.coordinates
        unit = self._layout.unit
        coordinates: dict[str, Any] = {
            axis: (axis, line, {"units": unit, "long_name": axis}) for axis, line in lines.items()
        }
        for dimension, size in zip(self.dims, self._lead, strict=False):
            if size == len(COMPONENTS):
                coordinates[dimension] = COMPONENTS
        coordinates["time"] = time
        attributes = {"long_name": self.long_name, "units": self.unit}
        variable = xarray.Variable(self.dims, values, attributes)
        return xarray.DataArray(variable, coordinates, name=self.name)

    # -- setting -------------------------------------------------------------------------------

    @signals_held
    def __setitem__(self, index: Any, values: Any) -> None:
        simulation = self._simulation
        simulation._ready()
        with together(simulation.comm, f"fields[{self.name!r}] = ..."):
            if self._evaluation is not None:
                raise InputError(f"fields[{self.name!r}] can be read only")
            is_whole = index is Ellipsis or (isinstance(index, slice) and index == slice(None))
            if is_whole:
                whole_part = on_every_rank(simulation.comm, lambda: self._as_part(values))
            else:
                module, whole_part = simulation.array_module, simulation._read(self.name)

                def assign() -> None:
                    part = self._as_array(values)
                    try:
                        whole_part[index] = part if not part.ndim else module.asarray(part)
                    except (ValueError, IndexError, TypeError) as error:
                        raise InputError(f"fields[{self.name!r}]: {error}") from None

                on_every_rank(simulation.comm, assign)
            simulation._write(self.name, whole_part)
            simulation._tell()

    def _as_array(self, values: Any) -> Any:
        """Return values as an array of the device, or as NumPy's."""
        module = self._simulation.array_module
        if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray | module.ndarray):
            values = self._from_dlpack(values)
        elif module is np and hasattr(values, "__cuda_array_interface__"):
            values = values.get()  # CuPy's
        elif not isinstance(values, module.ndarray):
            # NumPy's stay on the host: they go to a GPU some planes at a time.
            try:
                values = np.asarray(values)
            except ValueError:  # of lists of different lengths
                raise InputError(
                    f"fields[{self.name!r}]: {shown(values)} is no array; accepted: real numbers"
                ) from None
        kind = np.dtype(values.dtype).kind
        if kind not in "biuf":
            raise InputError(
                f"fields[{self.name!r}]: the values are of type {values.dtype}; accepted: real"
                " numbers"
            )
        return values

    def _from_dlpack(self, values: Any) -> Any:
        """Return another library's array as one of the device's, by a copy where needed."""
        failures = (BufferError, RuntimeError, TypeError, ValueError)
        try:
            return self._simulation.array_module.from_dlpack(values)
        except failures:
            pass
        try:
            return np.from_dlpack(values.to("cpu") if hasattr(values, "to") else values)
        except failures as error:  # such as PyTorch's for tensors that require a gradient
            raise InputError(f"fields[{self.name!r}]: {error}") from None

    def _as_part(self, values: Any) -> Array:
        """Return this rank's part as an array of the device, or of the host."""
        simulation = self._simulation
        array = simulation._at_own_points(self, self._as_array(values))
        if array.ndim and tuple(array.shape) != self.shape:
            whose = "" if simulation.ranks == 1 else f" on rank {simulation.rank} of the"
            hint = ""
            if tuple(array.shape) == self.global_shape:
                hint = f"; of a whole array take values[fields[{self.name!r}].region]"
            raise InputError(
                f"fields[{self.name!r}]: the values have shape {tuple(array.shape)}; accepted:"
                f" {self.shape}{whose}{' ' + str(self.global_shape) if whose else ''}, or one"
                f" number{hint}"
            )
        if array.ndim == 0:
            everywhere: Array = array.astype(self.dtype)[None].repeat(math.prod(self.shape))
            return everywhere.reshape(self.shape)
        if isinstance(array, np.ndarray):
            return np.ascontiguousarray(array, self.dtype)
        part: Array = array.astype(self.dtype, copy=False)
        return part


def _view_of(simulation: InteractiveSimulation, name: str) -> FieldView:
    """Return a view that was copied or pickled with its simulation."""
    fields = simulation.fields
    view: FieldView = fields[name] if name in fields else simulation.evaluate(name)  # type: ignore[attr-defined]
    return view


def item_of(values: Array, index: Any, key: str) -> Array:
    """Return a part of an array, by any index that arrays take."""
    try:
        part: Array = values if index is Ellipsis else values[index]
        return part
    except (IndexError, TypeError, ValueError) as error:
        raise InputError(f"{key}: {error}; accepted: indices into {values.shape}") from None


def _as_arrays(value: Any) -> Any:
    """Return an argument of a NumPy function with fields, also in sequences, replaced by arrays."""
    if isinstance(value, FieldView):
        return value[...]
    if isinstance(value, tuple | list):
        return type(value)(map(_as_arrays, value))
    return value
