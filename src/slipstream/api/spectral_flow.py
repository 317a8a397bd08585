"""Turbulence, and flows of any equations, in periodic boxes."""

from __future__ import annotations

import difflib
import functools
import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Required,
    TypeAlias,
    TypedDict,
    Unpack,
    cast,
    overload,
)

import numpy as np

from slipstream.api.field_views import FieldView, item_of
from slipstream.api.interactive_simulation import (
    NO_END,
    InteractiveSimulation,
    asks_for_output,
    collective,
    made_together,
)
from slipstream.api.particle_views import Particles
from slipstream.api.settings import (
    ForcingSettings,
    NamedViews,
    Parameters,
    ScalarSettings,
    Setting,
    common_tables,
    tables_of,
)
from slipstream.case import Case, SpectralCase, validate_case
from slipstream.case.keyword_options import KeywordOptions, class_with_options
from slipstream.case.output_tables import DensitiesOutput
from slipstream.case.spectral_case import COURANT_NUMBER, FLOW_KEYS
from slipstream.case.table import argument_keys
from slipstream.engine.accepted import FORCINGS, STATISTICS
from slipstream.engine.array_types import Array, Comm
from slipstream.engine.collective import check_agreement, on_every_rank, together
from slipstream.engine.device import Device
from slipstream.engine.errors import (
    InputError,
    KnownAttributes,
    UnknownName,
    check_given_once,
    nearest,
    plain_value,
    table_of,
)
from slipstream.engine.fields import Field
from slipstream.engine.text import shown

if TYPE_CHECKING:
    from slipstream.equations import Model, Quantity
    from slipstream.spectral.evaluation import Evaluation
    from slipstream.spectral.spectral_problem import FieldParts
    from slipstream.spectral.spectral_simulation import SpectralSimulation

# The arguments that are keys of cases.
_KEYS = argument_keys(
    SpectralCase,
    ("grid", "time.step", "time.cfl", "time.max_step", "time.integrator", "numerics"),
)


_Force: TypeAlias = str | Mapping[str, Any] | Callable[..., Any]
ForcesGiven: TypeAlias = _Force | Sequence[_Force] | None
TablesGiven: TypeAlias = int | Mapping[str, Any] | Sequence[Mapping[str, Any]]


class FlowOptions(TypedDict, total=False):
    """The arguments of `Flow` that are keys of cases, and the others behind the model."""

    points: Required[int | Sequence[int]]
    length: float | str | Sequence[float | str]
    walls: str | None
    zero_at_walls: Sequence[str]
    step: float | None
    cfl: float | None
    max_step: float | None
    integrator: str
    precision: str
    dealiasing: str
    integrating_factor: bool
    linear: str
    plane: str
    wire: str
    initial: str | Mapping[str, Any] | None
    forcing: ForcesGiven
    scalars: TablesGiven
    particles: TablesGiven
    bodies: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    device: str | Device
    comm: Comm | Literal["world"]
    title: str
    run: Mapping[str, Any] | None
    output: Mapping[str, Any] | None
    time: Mapping[str, Any] | None


class TurbulenceOptions(FlowOptions, total=False):
    """The arguments of `Turbulence`."""

    viscosity: Required[float]
    viscosity_power: int
    rotation: float | Sequence[float]
    drag: float
    hypoviscosity: float
    hypoviscosity_power: int
    shear: float


@class_with_options(lambda: KeywordOptions(SpectralCase, _KEYS))
class Flow(InteractiveSimulation):
    """Any model's equations in a periodic box, by a pseudospectral method.

    Steps are adaptive, with a Courant number of 0.8, unless `step` or `cfl` is given. Forced flows
    need a `max_step` then.

    >>> flow = Flow("mhd", points=64, viscosity=0.01, resistivity=0.01, initial="orszag-tang-3d")
    >>> flow.run(until=1.0)

    Parameters
    ----------
    model : str, Model or callable
        A built-in model ("hd", "mhd", "hd2d" ...), ``"FILE.py:FUNCTION"``, or your own: a
        `slipstream.equations.Model`, or a function of the model's parameters that returns one.
    **options
        Keys of the tables ``[grid]``, ``[time]`` and ``[numerics]`` of a case.
    initial : str or mapping, optional
        The state at the start: the name of a flow, such as "taylor-green"; the table ``initial`` of
        a case, such as ``{"flow": "random", "seed": 2}`` or ``{"restart": "runs/earlier"}``; or,
        by field, an array of this rank's part, a function of x, y and z (arrays that broadcast to
        this rank's part), or formulas as text. By default all fields are zero.
    forcing : str, mapping, callable or list of these, optional
        The kind, such as "abc"; the table ``forcing`` of a case, such as
        ``{"kind": "abc", "amplitude": 0.1}``; or a function of x, y, z and t, or of x, y and z,
        that returns the components at this rank's points. In a table a function may be the
        formula. Several of them add up.
    scalars : int, mapping or sequence of mapping
        The number of passive scalars that the flow carries along, or tables as ``[[scalars]]`` of a
        case: ``{"name": "temperature", "diffusivity": 0.01, "mean_gradient": [0, 0, 1]}``. By
        number they are "scalar", or "scalar_1", "scalar_2" ..., without diffusion.
    particles : int, mapping or sequence of mapping
        The number of tracers that the flow carries, or tables as ``[[particles]]`` of a case:
        ``{"number": 1000, "kind": "inertial", "response_time": 0.1}``.
    bodies : mapping or sequence of mapping
        Solid bodies in the box, tables as ``[[bodies]]`` of a case:
        ``{"shape": "sphere", "radius": 0.5}``. The formula may be a function of x, y, z and t, or
        of x, y and z, that returns the signed distance from the surface, negative inside.
    device : {"auto", "cpu", "cuda"} or Device
        Device that computes.
    comm : mpi4py.MPI.Comm, None or "world"
        The ranks that share the work. "world" is all that an MPI launcher has started, or a single
        process without one.
    title : str
        Title of the run, shown in its output.
    run, output, time : mapping, optional
        Further keys of the tables of the same names in a case.
    **parameters : float or sequence of 3 float
        Parameters of the model, such as the viscosity.

    Raises
    ------
    InputError
        If anything is not accepted; on all ranks, if on one.
    """

    # The first for editors, the second for parameters of the model, whose names are not known.
    @overload
    def __init__(
        self,
        model: str | Model | Callable[..., Model] = ...,
        **options: Unpack[FlowOptions],
    ) -> None: ...
    @overload
    def __init__(
        self, model: str | Model | Callable[..., Model] = ..., **parameters: Any
    ) -> None: ...
    @made_together
    def __init__(
        self,
        model: str | Model | Callable[..., Model] = "hd",
        *,
        initial: str | Mapping[str, Any] | None = None,
        forcing: ForcesGiven = None,
        scalars: TablesGiven = (),
        particles: TablesGiven = (),
        bodies: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
        device: str | Device = "auto",
        comm: Comm | Literal["world"] = "world",
        title: str = "",
        run: Mapping[str, Any] | None = None,
        output: Mapping[str, Any] | None = None,
        time: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> None:
        # SymPy takes a while to import: imported late.
        from slipstream.equations import models

        options = {name: parameters.pop(name) for name in _KEYS if name in parameters}
        tables: dict[str, Any] = tables_of(SpectralCase, _KEYS, options)
        table, self._given = _initial_table(initial)
        further = table_of("time", time)
        for name in further.keys() & options.keys():
            check_given_once(name, options[name], f"time[{name!r}]", further[name])
        tables["time"] |= {"end": NO_END, **further}
        tables |= {
            "solver": "spectral",
            "equation": {"model": models.name_of(model), **_numbers(parameters)},
            "initial": table,
            "scalars": _scalar_tables(scalars),
            "particles": _particle_tables(particles),
            "bodies": _several_tables("bodies", bodies),
            **common_tables(title, run, output),
        }
        if forcing is not None:
            tables["forcing"] = _forcing_tables(forcing)
        try:
            case = validate_case(tables, source=type(self).__name__)
        except InputError as error:
            # A misspelt argument is taken for a parameter of the model.
            known = inspect.signature(Flow).parameters.keys() - {"model", "parameters"}
            guesses = [difflib.get_close_matches(name, known, 1) for name in parameters]
            guess = next(
                (f"; did you mean the argument {near[0]!r}?" for near in guesses if near), ""
            )
            raise InputError(f"{error}{guess}") from None
        super().__init__(case, comm, device)
        self._asks_for_output = asks_for_output(output)

    @functools.cached_property
    def _evaluations(self) -> dict[str, Evaluation]:
        return {}

    # -- settings ------------------------------------------------------------------------------

    cfl = Setting[float | None](SpectralCase, "time.cfl", "; setting it makes steps adaptive")
    max_step = Setting[float | None](
        SpectralCase, "time.max_step", "; setting it makes steps adaptive"
    )

    @property
    @collective
    def time_step(self) -> float:
        """The size of the next time step, unless it is shortened. Collective.

        Setting it makes all steps from the next on of that size.
        """
        return self._ready().step_size()

    @time_step.setter
    def time_step(self, size: float) -> None:
        self._change("time_step", "time.step", size)

    def _together_with(self, key: str, value: Any) -> dict[str, Any]:
        time = cast(SpectralCase, self.case).time
        if value is None and key in ("time.step", "time.cfl"):  # cases take it for the default
            raise InputError(
                f"{key} is None; accepted: a number. Setting time_step fixes the step, setting cfl"
                " makes it adaptive"
            )
        # Steps of one size become adaptive, as where only the largest is given at first.
        implied = key == "time.max_step" and time.cfl is None
        return {**({"time.cfl": COURANT_NUMBER} if implied else {}), key: value}

    @property
    def forcing(self) -> ForcingSettings:
        """The numbers of what drives the flow: ``sim.forcing.amplitude = 0.2``.

        Of several forces: ``sim.forcing[1].amplitude = 0.2``.
        """
        if not cast(SpectralCase, self.case).forcing:
            raise InputError(f"this {type(self).__name__} has no forcing; give it when it is made")
        return ForcingSettings(self)

    @forcing.setter
    def forcing(self, value: Any) -> None:
        raise InputError("forcing: set one of its numbers, such as sim.forcing.amplitude = 0.2")

    @property
    def scalars(self) -> ScalarSettings:
        """The passive scalars by name: ``sim.scalars["temperature"].diffusivity = 0.02``."""
        return ScalarSettings(self)

    @property
    def parameters(self) -> Parameters:
        """The parameters of the model: ``sim.parameters["viscosity"] = 0.02``."""
        return Parameters(self, cast(SpectralCase, self.case).equation.parameters)

    def _further(self) -> dict[str, Any]:
        has_case = vars(self).get("_solver") is not None
        return cast(SpectralCase, self.case).equation.parameters if has_case else {}

    def _set_further(self, name: str, value: Any) -> None:
        self.parameters[name] = value

    # Every parameter of the model is an attribute too, if no attribute has its name. Type checkers
    # know those of `Turbulence`.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Nothing has been made yet where an object is copied.
            is_public = not name.startswith("_") and vars(self).get("_solver") is not None
            if is_public and name in self._further():
                return self.parameters[name]
            names = [one for one in dir(self) if one[0] != "_"] if is_public else []
            raise AttributeError(
                f"{type(self).__name__!r} has no attribute {name!r}{nearest(name, names)}"
            )

        def __dir__(self) -> list[str]:
            return sorted({*super().__dir__(), *self._further()})

    # The part of the initial state that is not in the case: arrays or functions, by field.
    _given: Mapping[str, Any] = {}

    # -- what families share -------------------------------------------------------------------

    @property
    def _spectral(self) -> SpectralSimulation:
        return cast("SpectralSimulation", self.solver)

    def _parts(self) -> dict[str, slice]:
        """Return the slices of the state that hold each field, and each component of a vector."""
        places = {}
        for part in self._spectral.parts:
            places[part.name] = slice(part.first, part.first + part.size)
            for number, name in enumerate(part.components):
                places.setdefault(name, slice(part.first + number, part.first + number + 1))
        return places

    def _vectors(self) -> dict[str, FieldParts]:
        return {part.name: part for part in self._spectral.parts if part.size > 1}

    def _field_shapes(self) -> dict[str, tuple[int, ...]]:
        vectors = self._vectors()
        return {name: (vectors[name].size,) if name in vectors else () for name in self._parts()}

    def _view(self, name: str) -> FieldView:
        """Return a field of the state by its name, or one that is derived from the state."""
        from slipstream.spectral.expressions import accepted_names, listed_names

        if name in self._parts():
            return super()._view(name)
        names = accepted_names(self._spectral.problem)
        if name not in names:
            listed = listed_names(self._spectral.problem.model)
            text = f"fields: there is no {shown(name)}{nearest(name, list(names))}"
            raise UnknownName(f"{text}; there are: {listed}; of others, evaluate an expression")
        evaluation = self._evaluation(name)
        return FieldView(self, name, evaluation.shape, names[name], evaluation=evaluation)

    def _evaluation(self, expression: Any) -> Evaluation:
        """Return the evaluation of an expression, which is cached if this is text."""
        from slipstream.spectral.evaluation import Evaluation

        flow = self._ready_flow()
        if not isinstance(expression, str):
            return Evaluation(flow, expression)
        if expression not in self._evaluations:
            self._evaluations[expression] = Evaluation(flow, expression)
        return self._evaluations[expression]

    @property
    @collective
    def courant_number(self) -> float:
        """The Courant number of the next time step. Collective.

        It is ``time_step * (max(|u|/dx + |v|/dy + |w|/dz) + w)``, with the velocity at the start of
        the step before, or as it was set since, and the largest frequency w of the model's waves.
        A fixed step is warned of above 1, or above the limit of stability if that is less.
        """
        step = self._ready().step_size()
        return self._spectral.courant_of(step)

    @collective
    def evaluate(self, expression: str | Quantity | float) -> FieldView:
        """Return an expression of the fields that can be read like a field. Collective.

        >>> sim.evaluate("dot(velocity, curl(velocity))").mean()

        Parameters
        ----------
        expression : str, Quantity or number
            In the language of equations: text, or a quantity such as
            ``curl(Vector("velocity"))``; see docs/equations.md for its names and operators.

        Returns
        -------
        FieldView
            Evaluated from the state whenever it is read; it cannot be set.

        Raises
        ------
        InputError
            If the expression has a name that the model lacks, or makes no sense.
        """
        check_agreement(self.comm, {"expression": _text_of(expression)})
        evaluation = self._evaluation(expression)
        text = evaluation.quantity.text
        return FieldView(self, text, evaluation.shape, text, evaluation=evaluation)

    @collective
    def spectrum(self, expression: str | Quantity, other: Any = None) -> tuple[Array, Array]:
        """Return wavenumbers and the energy in their shells, for a field or an expression.

        With `other`, it is the co-spectrum of both, which sums to the mean of their product;
        otherwise it sums to half the mean square. The same on all ranks. Collective.
        """
        given = {"expression": _text_of(expression), "other": _text_of(other)}
        check_agreement(self.comm, given)
        flow, first = self._ready_flow(), self._evaluation(expression)
        waves = flow.wavenumbers.unit * np.arange(flow.wavenumbers.shell_count)
        if other is None:
            return waves, first.spectrum(self.comm, self.solver.time)
        second = self._evaluation(other)
        return waves, first.cospectrum(second, self.comm, self.solver.time)

    @collective
    def statistics(self, kind: str) -> dict[str, Field]:
        """Return one kind of statistics of the state, by name: the same on all ranks. Collective.

        >>> sim.statistics("structure")["velocity_longitudinal_x"].data[1]

        Parameters
        ----------
        kind : {"transfer", "anisotropic", "correlation", "structure", "pdf"}
            What ``output.KIND_interval`` of a case writes into ``KIND.zarr``.

        Returns
        -------
        dict of str to Field
            Small arrays: `data`, `dims` and `coordinates`; `to_xarray` makes an
            `xarray.DataArray`.

        Raises
        ------
        InputError
            If the kind is none of these.
        """
        if not isinstance(kind, str) or kind not in STATISTICS:
            raise InputError(f"statistics: {shown(kind)}; accepted: {', '.join(STATISTICS)}")
        check_agreement(self.comm, {"kind": kind})
        self._ready_flow()
        return {field.name: field for field in self._spectral.statistics(kind)}

    @collective
    def density(
        self,
        of: Any,
        range: Any = None,
        bins: int | Sequence[int] = DensitiesOutput.model_fields["bins"].default,
        means: Any = (),
    ) -> dict[str, Field]:
        """Return the density of points over values, and means of others by bins. Collective.

        >>> found = sim.density(["q_criterion", "r_invariant"], means="abs2(strain)")
        >>> found["density"].data, found["abs2_strain_mean"].data

        Parameters
        ----------
        of : str or Quantity, or sequence of one or two
            A real scalar, or two for a joint density: names of fields, or expressions.
        range : sequence of 2 float, or two of these, optional
            First and last edge of the bins of each. What lies beyond is not counted. By default
            the least and the largest value of the state.
        bins : int or sequence of 2 int
            Number of bins of each: 1000 at most.
        means : str or Quantity, or sequence
            Scalars to be averaged over the points in each bin.

        Returns
        -------
        dict of str to Field
            ``"density"``, whose integral over the bins is the share of points in them, and
            ``"NAME_mean"`` of each of the means, not-a-number where there are no points. The same
            on all ranks, in double precision; the coordinates are the middles of the bins.

        Raises
        ------
        InputError
            If anything is not accepted.
        """
        from slipstream.api.output_methods import validated

        self._ready_flow()
        of, means = (list(one) if isinstance(one, list | tuple) else [one] for one in (of, means))
        texts = [list(map(_text_of, group)) for group in (of, means)]
        keys = {"of": texts[0], "means": texts[1], "bins": plain_value(bins)}
        # By default it follows from the state.
        keys["range"] = [[0.0, 1.0]] * len(texts[0]) if range is None else plain_value(range)
        settings = validated(DensitiesOutput, keys, "density")
        check_agreement(self.comm, {"density": (settings, range is None)})
        density = self._spectral.density(of, means, settings.bins_each, "density")
        return density.fields(None if range is None else settings.range)

    def _reduced(self, view: FieldView, how: str) -> Any:
        # Plane by plane, without a whole field in memory.
        evaluation = view._evaluation or self._evaluation(view.name)
        return evaluation.reduce(how, self.comm, self.solver.time)

    def _read(self, name: str) -> Array:
        values = self._spectral.read_points(self._parts()[name])
        return values if name in self._vectors() else values[0]

    def _write(self, name: str, values: Array) -> None:
        values = values if name in self._vectors() else values[None]
        key = f"fields[{name!r}]"
        self._spectral.warn(self._spectral.set_points(self._parts()[name], values, key))

    def _at_own_points(self, view: FieldView, values: Any) -> Any:
        from slipstream.spectral.restart_state import is_other_resolution, resampled, text_of

        def planes(component: np.ndarray, low: int, high: int) -> np.ndarray:
            return component[low:high]

        lead, grid = view.global_shape[:-3], view.global_shape[-3:]
        shape = tuple(values.shape[len(lead) :])
        is_other = self.solver.layout().walls is None and is_other_resolution(shape, grid)
        if tuple(values.shape[: len(lead)]) != lead or not is_other:
            return values
        host = np.asarray(self.device.to_host(values)).reshape(-1, *shape)
        box = self.solver.layout().boxes[self.rank]
        parts = [resampled(functools.partial(planes, one), shape, grid, box) for one in host]
        self._spectral.warn([text_of(f"fields[{view.name!r}]: the array", shape, grid)])
        return np.stack(parts).reshape(view.shape)

    def _set_initial(self) -> None:
        for name, value in self._given.items():
            view = self.fields[name]
            values = on_every_rank(
                self.comm, functools.partial(_initial_values, view, value, self._places())
            )
            self._write(name, values)

    def _places(self) -> list[np.ndarray]:
        """Return x, y and z of this rank's points, as arrays that broadcast."""
        layout = self.solver.layout()
        slices = zip("zyx", layout.boxes[self.rank].slices(), strict=True)
        lines = [layout.coordinates[axis][part] for axis, part in slices]
        return list(reversed(np.meshgrid(*lines, indexing="ij", sparse=True)))

    def _case_from_rest(self) -> Case:
        case = cast(SpectralCase, self.case)
        at_rest = type(case.initial).model_validate(_AT_REST)
        return case.model_copy(update={"initial": at_rest})

    def _named(self) -> Any:
        from slipstream.equations import models

        if self._given:
            self._ready()  # the state has what functions and arrays have set
        name = cast(SpectralCase, self.case).equation.model
        if not name.startswith("python:"):
            return None
        function = models.find(name)
        model = function.model if isinstance(function, models.Constant) else function
        try:
            pickle.dumps(model)
        except Exception as error:
            raise InputError(
                f"pickle: the model cannot be pickled ({error}); accepted: a function that a module"
                " defines, not one within a function"
            ) from None
        return model

    @staticmethod
    def _take_named(named: Any, settings: dict[str, Any]) -> dict[str, Any]:
        from slipstream.equations import models

        if named is None:
            return settings
        return {**settings, "equation": {**settings["equation"], "model": models.name_of(named)}}

    def _summary(self) -> str:
        case = cast(SpectralCase, self.case)
        points = "x".join(map(str, case.grid.points_xyz))
        return f"{case.equation.model} on {points} points, {case.numerics.precision}"

    # -- Fourier space -------------------------------------------------------------------------

    @property
    def modes(self) -> Modes:
        """The Fourier coefficients by field: ``sim.modes["velocity"][...]``."""
        _ = self.solver  # refused once closed
        return Modes(self)

    @collective
    def _read_modes(self, name: str) -> Array:
        self._ready()
        modes = self._spectral.read_modes(self._parts()[name])
        return modes if name in self._vectors() else modes[0]

    @collective
    def _set_modes(self, name: str, index: Any, modes: Any) -> None:
        self._ready()
        expected = self._read_modes(name)
        module = self.array_module
        key = f"modes[{name!r}]"

        def checked() -> Any:
            try:
                is_array = isinstance(modes, np.ndarray | module.ndarray)
                array = modes if is_array else np.asarray(modes)
            except ValueError:  # of lists of different lengths
                raise InputError(f"{key}: {shown(modes)} is no array; accepted: numbers") from None
            if np.dtype(array.dtype).kind not in "biufc":
                raise InputError(f"{key}: the values are of type {array.dtype}; accepted: numbers")
            if index is not Ellipsis:
                changed = expected.copy()
                try:
                    changed[index] = module.asarray(array) if array.ndim else array
                except (IndexError, TypeError, ValueError) as error:
                    raise InputError(f"{key}: {error}") from None
                return changed
            if array.ndim and array.shape != expected.shape:
                raise InputError(
                    f"{key}: the values have shape {array.shape}; accepted:"
                    f" {expected.shape}, or one number"
                )
            if array.ndim:
                return array.astype(expected.dtype)
            result = module.empty(expected.shape, expected.dtype)
            result[...] = array
            return result

        values = on_every_rank(self.comm, checked)
        values = values if name in self._vectors() else values[None]
        self._spectral.warn(self._spectral.set_modes(self._parts()[name], values, key))
        self._tell()

    @property
    def particles(self) -> Particles:
        """The particles by the names of their sets: ``sim.particles["tracers"].positions``."""
        _ = self.solver  # refused once closed
        return Particles(self)

    @collective
    def _read_particles(self, name: str, expression: str) -> np.ndarray:
        self._ready()
        return self._spectral.particles.whole(name, expression, self._spectral.time)

    @collective
    def _place_particles(self, name: str, places: Any) -> None:
        self._ready()
        self._spectral.place_particles(name, places)

    def _check_result(self) -> None:
        self._spectral.check_resolution()
        self._tell()

    @property
    def wavenumbers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The wavenumbers kz, ky and kx of this rank's modes, as arrays that broadcast."""
        waves = self._ready_flow().wavenumbers
        return waves.z[:, None, None], waves.along_y, waves.x

    def _ready_flow(self) -> Any:
        self._ready()
        return self._spectral.flow


def _turbulence_options() -> KeywordOptions:
    """Return the keys of `Turbulence`: the points, the parameters of its model, and the rest."""
    table = SpectralCase.suited_to({})
    keys = argument_keys(table, ["grid.points", "equation"], without=["equation.model"])
    return KeywordOptions(table, {**keys, **_KEYS}, hidden=("self", "model", "parameters"))


@class_with_options(_turbulence_options, Flow.__init__)
class Turbulence(Flow):
    """Incompressible turbulence in a periodic box: the Navier-Stokes equations.

    >>> sim = Turbulence(points=64, viscosity=1 / 400, initial="taylor-green")
    >>> sim.run(until=1.0)

    Parameters
    ----------
    **options
        Parameters of the equations, and keys of the same tables as of `Flow`.
    initial, forcing, scalars, particles, bodies, device, comm, title, run, output, time
        See `Flow`.

    Raises
    ------
    InputError
        If anything is not accepted; on all ranks, if on one.
    """

    @made_together
    def __init__(self, **options: Unpack[TurbulenceOptions]) -> None:
        super().__init__("hd", **options)

    viscosity = Setting[float](SpectralCase, "equation.viscosity")
    viscosity_power = Setting[int](SpectralCase, "equation.viscosity_power")
    rotation = Setting[float | tuple[float, float, float]](SpectralCase, "equation.rotation")
    drag = Setting[float](SpectralCase, "equation.drag")
    hypoviscosity = Setting[float](SpectralCase, "equation.hypoviscosity")
    hypoviscosity_power = Setting[int](SpectralCase, "equation.hypoviscosity_power")
    shear = Setting[float](SpectralCase, "equation.shear")


def _text_of(expression: Any) -> str:
    return str(getattr(expression, "text", expression))


_AT_REST = {"flow": "formula", "fields": {}}


def _initial_values(view: FieldView, value: Any, places: list[np.ndarray]) -> Array:
    """Return this rank's part of a field from an array, or from a function of x, y and z."""
    if callable(value):
        values = np.zeros(view.shape)
        returned = _call_formula(view.name, value, places)
        if view.ndim == 4 and not np.iterable(returned):
            raise InputError(
                f"initial[{view.name!r}]: the function returns {type(returned).__name__}; accepted:"
                f" {view.shape[0]} components"
            )
        parts = list(returned) if view.ndim == 4 else [returned]
        if len(parts) != len(values.reshape(-1, *view.shape[-3:])):
            raise InputError(
                f"initial[{view.name!r}]: the function returns {len(parts)} components; accepted:"
                f" {view.shape[0]}"
            )
        for target, part in zip(values.reshape(-1, *view.shape[-3:]), parts, strict=True):
            try:
                target[...] = part
            except (TypeError, ValueError):
                raise InputError(
                    f"initial[{view.name!r}]: the function returns {shown(part)}; accepted: real"
                    f" numbers that broadcast to {target.shape}"
                ) from None
        value = values
    return view._as_part(value)


def _call_formula(name: str, function: Any, places: list[np.ndarray]) -> Any:
    """Call a function of x, y and z; errors that it raises itself are not caught."""
    try:
        inspect.signature(function).bind(*places)
    except TypeError as error:
        raise InputError(
            f"initial[{name!r}]: the function has {error}; accepted: a function of x, y and z"
        ) from None
    except ValueError:  # of some that Python is made of
        pass
    return function(*places)


def _initial_table(initial: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the table ``initial`` of a case, and the remaining values by field."""
    if initial is None:
        return dict(_AT_REST), {}
    if isinstance(initial, str):
        return {"flow": initial}, {}
    if not isinstance(initial, Mapping):
        raise InputError(
            f"initial is {type(initial).__name__}; accepted: {', '.join(FLOW_KEYS)}, a table with"
            " 'flow' or 'restart', or values by field"
        )
    if "flow" in initial or "restart" in initial:
        return {key: plain_value(value) for key, value in initial.items()}, {}
    formulas: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for name, value in initial.items():
        if not isinstance(name, str):
            raise InputError(f"initial has {name!r}; accepted: names of fields")
        texts = [value] if isinstance(value, str) else value
        is_text = isinstance(texts, list | tuple) and all(isinstance(one, str) for one in texts)
        (formulas if is_text else values)[name] = value
    return {"flow": "formula", "fields": {k: plain_value(v) for k, v in formulas.items()}}, values


def _forcing_tables(forcing: Any) -> Any:
    """Return the table ``forcing`` of a case, or several."""
    is_list = isinstance(forcing, list | tuple)
    if (
        is_list
        and all(isinstance(term, str | Mapping) or callable(term) for term in forcing)
        and forcing
    ):
        tables = [_forcing_table(term) for term in forcing]
        return tables if len(tables) > 1 else tables[0]
    return _forcing_table(forcing)


def _forcing_table(forcing: Any) -> dict[str, Any]:
    if isinstance(forcing, str):
        return {"kind": forcing}
    if callable(forcing):
        forcing = {"kind": "formula", "formula": forcing}
    formula = forcing.get("formula") if isinstance(forcing, Mapping) else forcing
    parts = formula if isinstance(formula, list | tuple) else [formula]
    if callable(formula):
        from slipstream.spectral.formula_parser import name_of

        forcing = {"kind": "formula", **forcing, "formula": name_of(formula)}
    elif any(map(callable, parts)):
        raise InputError(
            "forcing: functions of single components are not accepted; accepted: one function of"
            " x, y, z and t that returns all, or formulas as text, such as"
            " {'kind': 'formula', 'formula': ['sin(y)', '0', '0']}"
        )
    if not isinstance(forcing, Mapping):
        raise InputError(
            f"forcing is {type(forcing).__name__}; accepted: {', '.join(FORCINGS)}, a table with"
            " 'kind', or a list of these"
        )
    return {key: plain_value(value) for key, value in forcing.items()}


def _scalar_tables(scalars: Any) -> Any:
    """Return the tables of passive scalars, which may be a number of them."""
    if isinstance(scalars, int) and not isinstance(scalars, bool) and 0 <= scalars <= 8:
        names = ["scalar"] if scalars == 1 else [f"scalar_{i + 1}" for i in range(scalars)]
        return [{"name": name} for name in names]
    return _several_tables("scalars", scalars)


def _particle_tables(particles: Any) -> Any:
    """Return the tables of sets of particles; a set may be given as a number."""
    if isinstance(particles, int) and not isinstance(particles, bool):
        return [{"number": particles}]
    return _several_tables("particles", particles)


# Accepted values for each of several tables, for messages.
_ACCEPTED_TABLES = {
    "scalars": 'a number from 0 to 8, {"name": "temperature"}',
    "particles": 'a number of tracers, {"number": 1000}',
    "bodies": '{"shape": "sphere", "radius": 0.5}',
}


def _several_tables(name: str, value: Any) -> list[Any]:
    """Return a table, or several, whose formulas may be functions."""
    several = [value] if isinstance(value, Mapping) else value
    if not isinstance(several, Sequence) or isinstance(several, str):
        raise InputError(
            f"{name}: {shown(value)} is not accepted; accepted: {_ACCEPTED_TABLES[name]} or another"
            " such table, or a list of these"
        )
    tables = [table_of(name, table) for table in several]
    for table in tables:
        if callable(table.get("formula")):
            from slipstream.spectral.formula_parser import name_of

            table["formula"] = name_of(table["formula"])
    return [plain_value(table) for table in tables]


def _numbers(parameters: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("self", "model"):
        if name in parameters:
            raise InputError(f"{name} is no parameter of a model")
    return {name: plain_value(value) for name, value in parameters.items()}


class Modes(NamedViews["ModesView"]):
    """The Fourier coefficients of a flow, by field."""

    _kind = "modes"

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def _names(self) -> list[str]:
        return list(self._flow._parts())

    def _view(self, name: str) -> ModesView:
        return ModesView(self._flow, name)

    def __setitem__(self, name: str, modes: Any) -> None:
        # A name that one rank alone gives wrongly is refused on all.
        with together(self._flow.comm, "modes[...] = ..."):
            self[name][...] = modes


class ModesView(KnownAttributes):
    """The Fourier coefficients of a field: this rank's part, in the order kz, ky, kx.

    They are those of ``u(x) = sum_k u_hat(k) exp(i k . x)`` for kx >= 0, without the modes that
    dealiasing discards; `Flow.wavenumbers` has their k. Reading gives the state itself, not a copy:
    change it only by assignment, which dealiases it and removes its divergence where need be.
    Collective.
    """

    name: str

    def __init__(self, flow: Flow, name: str) -> None:
        self._flow, self.name = flow, name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of this rank's part."""
        return tuple(self._flow._read_modes(self.name).shape)

    def __getitem__(self, index: Any) -> Array:
        modes = self._flow._read_modes(self.name)
        if isinstance(modes, np.ndarray):
            modes = modes.view()
            modes.flags.writeable = False
        return item_of(modes, index, f"modes[{self.name!r}]")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        modes = np.array(self._flow.device.to_host(self[...]))
        return modes if dtype is None else modes.astype(dtype)

    def __setitem__(self, index: Any, values: Any) -> None:
        self._flow._set_modes(self.name, index, values)

    def __repr__(self) -> str:
        return f"<modes of {self.name!r}>"
