"""The table of the ``spectral`` family that tells of the state at the start of a run.

Each flow has keys of its own; those of others are refused, so that no key is without effect.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from slipstream.case.common_tables import Positive, Table, as_tuple

# The keys of each flow and their defaults; `...` is none.
_FLOW_KEYS: dict[str, dict[str, Any]] = {
    "taylor-green": {"amplitude": 1.0, "wavenumber": 1, "magnetic": "none"},
    "abc": {"amplitude": 1.0, "wavenumber": 1, "coefficients": (1.0, 1.0, 1.0)},
    "random": {"amplitude": 1.0, "seed": 0, "peak_wavenumber": 4.0},
    "orszag-tang": {"amplitude": 1.0},
    "orszag-tang-3d": {"amplitude": 1.0},
    "quantum-taylor-green": {"amplitude": 1.0},
    "solitons": {"speed": 0.5},
    "wave": {"wavevector": ..., "amplitude": 1.0, "branch": 0},
    "file": {"path": ..., "time": None},
    "formula": {"fields": {}},
}


def as_three(value: Any) -> Any:
    """Let a list of three pass as a tuple, and nothing else.

    Raises
    ------
    ValueError
        If it is none.
    """
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise ValueError(f"accepted: a list of three numbers, not {value!r}")
    return tuple(value)


class Initial(Table):
    """``[initial]``: the state at the start; keys of other flows are refused.

    Attributes
    ----------
    flow : str or None
        "taylor-green", "abc", "random", "orszag-tang", "orszag-tang-3d", "quantum-taylor-green",
        "solitons", "wave", "formula" or "file"; exactly one of `flow` and `restart` is given. What
        it does not tell of is zero.
    amplitude : float
        Velocity scale; for "random" the root-mean-square velocity (non-dimensional), for "wave"
        that of all components of the state together, of which half the square is the energy.
    wavenumber : int
        Number of waves of "taylor-green" and "abc" along each axis of the box.
    magnetic : {"none", "insulating", "conducting", "alternative"}
        Magnetic field that "taylor-green" has, of the same energy.
    coefficients : tuple of 3 float
        A, B and C of "abc".
    seed : int
        Seed of "random": the same seed gives the same flow on any number of ranks.
    peak_wavenumber : float
        Wavenumber at which the spectrum of "random" is largest.
    fields : dict
        Of "formula": by field, a formula of x, y and z, or three for a vector.
    speed : float
        Of "solitons": that of the first, in units of the speed of sound, above -1 and below 1.
    wavevector : tuple of 3 int
        Of "wave": number of waves along x, y and z.
    branch : int
        Of "wave": which one, from 0 for that of the highest frequency.
    path : str
        Of "file": output folder of a run, zarr folder, HDF5 file or .npz file, with arrays that are
        named as components are and have the grid's points.
    time : int or None
        Of "file": which snapshot, from 0; by default the last.
    restart : str or None
        Output folder of an earlier run whose last state to go on from.
    """

    flow: Literal[tuple(_FLOW_KEYS)] | None = None
    amplitude: float | None = None
    wavenumber: Annotated[int, Field(gt=0)] | None = None
    magnetic: Literal["none", "insulating", "conducting", "alternative"] | None = None
    coefficients: Annotated[tuple[float, float, float], BeforeValidator(as_three)] | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    peak_wavenumber: Positive | None = None
    fields: dict[str, Annotated[Any, BeforeValidator(as_tuple)]] | None = None
    speed: Annotated[float, Field(gt=-1, lt=1)] | None = None
    wavevector: Annotated[tuple[int, int, int], BeforeValidator(as_three)] | None = None
    branch: Annotated[int, Field(ge=0)] | None = None
    path: Annotated[str, Field(min_length=1)] | None = None
    time: Annotated[int, Field(ge=0)] | None = None
    restart: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _only_the_flows_own_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        flow, others = data.get("flow"), set(data) - {"flow", "restart"}
        if (flow is None) == (data.get("restart") is None):
            raise ValueError(
                f"exactly one of 'flow' ({', '.join(_FLOW_KEYS)}) and 'restart' (an earlier run's"
                f" output folder) is needed, {'neither' if flow is None else 'both'} given"
            )
        if flow is not None and flow not in _FLOW_KEYS:
            return data
        accepted = _FLOW_KEYS[flow] if flow is not None else {}
        for key in sorted(others & set(cls.model_fields) - set(accepted)):
            belongs = f"flow = {flow!r}" if flow is not None else "'restart'"
            raise ValueError(
                f"{key!r} does not belong to {belongs}; accepted with it:"
                f" {', '.join(accepted) or 'nothing else'}"
            )
        needed = [key for key, default in accepted.items() if default is ... and key not in data]
        if needed:
            raise ValueError(f"{needed[0]!r} is missing, which flow = {flow!r} needs")
        return {**{key: one for key, one in accepted.items() if one is not ...}, **data}
