"""Long names of diagnostics and spectra, and which pictures a run draws at its end."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.equations import Lowered
from slipstream.equations.fourier_forms import AXES
from slipstream.simulation.solver_values import PictureChoice, PlaneChoice
from slipstream.spectral.energy_budget import budgets_of
from slipstream.spectral.spectral_problem import FieldParts, vectors_of

_LABELS = {
    "energy": "energy, mean of half the squares of all fields (non-dimensional)",
    "dissipation": "dissipation rate, at which linear terms that damp take energy away",
    "enstrophy": "enstrophy, mean of w.w/2, w = curl {} (non-dimensional)",
    "helicity": "helicity, mean of {}.w (non-dimensional)",
    "divergence": "root mean square of div {} (non-dimensional)",
    "budget_residual": "residual of the energy budget since the row before, "
    "(dE/dt + losses - gains) / dissipation; an error where products conserve energy; "
    "not a number in the first row",
    "wire_error": "error that the data of the last step got between ranks, relative to their size, "
    "the largest of all exchanges",
    "energy_spectrum": "energy spectrum, sums to the energy (non-dimensional)",
}
# Labels of fields with their own budgets.
_OWN_BUDGET = {
    "dissipation": "rate at which linear terms that damp take energy of {} away",
    "driving": "rate at which linear terms that amplify add energy to {}",
    "injection": "power of forces on {}",
    "residual": "residual of the budget of {}, as budget_residual is that of the energy",
}
# The endings of the columns and the spectrum of a scalar.
OF_SCALARS = ("energy", "spectrum", "production", *_OWN_BUDGET)
# Labels of scales, by whether the flow is two-dimensional.
_SCALES = {
    False: {
        "rms_velocity": "root mean square u' of a velocity component, without the mean",
        "integral_scale": "longitudinal integral scale L, pi/(2 u'^2) times the sum of E(k)/k",
        "turnover_time": "turnover time of the large eddies, integral scale over rms velocity",
        "taylor_scale": "transverse Taylor scale, u' sqrt(15 viscosity / eps), "
        "eps = 2 viscosity enstrophy",
        "taylor_reynolds": "Taylor-scale Reynolds number, rms velocity times Taylor scale over "
        "viscosity",
        "kolmogorov_scale": "Kolmogorov length (viscosity^3 / eps)^(1/4), eps = 2 viscosity "
        "enstrophy",
        "kolmogorov_time": "Kolmogorov time sqrt(viscosity / eps), eps = 2 viscosity enstrophy",
        "kmax_eta": "resolution, largest wavenumber times Kolmogorov length; 1 and more resolves",
    },
    True: {
        "rms_velocity": "root mean square u' of a velocity component in the plane, without the "
        "mean",
        "integral_scale": "longitudinal integral scale L in two dimensions, 2/u'^2 times the sum "
        "of E(k)/k",
        "turnover_time": "turnover time of the large eddies, integral scale over rms velocity",
        "taylor_scale": "transverse Taylor scale in two dimensions, u' sqrt(8 viscosity / eps), "
        "eps = 2 viscosity enstrophy",
        "taylor_reynolds": "Taylor-scale Reynolds number, rms velocity times Taylor scale over "
        "viscosity",
        "kraichnan_scale": "Kraichnan length (viscosity^3 / chi)^(1/6), chi = 2 viscosity "
        "palinstrophy",
        "kraichnan_time": "Kraichnan time chi^(-1/3), chi = 2 viscosity palinstrophy",
        "kmax_eta": "resolution in two dimensions, largest wavenumber times Kraichnan length; 1 "
        "and more resolves",
    },
}
# Pictures of more fields than these show their energies as one.
_MOST_PARTS = 4
_KINDS = {"velocity": "kinetic"}


def labels_of(
    fields: list[FieldParts],
    model: Lowered,
    is_forced: bool,
    has_driving: bool,
    is_plane: bool = False,
) -> dict[str, str]:
    """Return the long names of the diagnostics and spectra of a model."""
    labels = {name: text for name, text in _LABELS.items() if "{}" not in text}
    labels |= _SCALES[is_plane]
    if is_forced:
        labels["injection"] = "power of forces, mean of force times field"
    if has_driving:
        labels["driving"] = "rate at which linear terms that amplify add energy"
    if len(fields) > 1:
        labels["energy"] += f": {_sum_of_squares([f for f in fields if f.first < model.active])}"
        for field in fields:
            labels[f"{field.name}_energy"] = f"mean of half the square of {field.name}"
            labels[f"{field.name}_spectrum"] = f"spectrum of {field.name}, sums to its energy"
    for prefix, gains in budgets_of(model).items():
        name = prefix.removesuffix("_")
        labels |= {prefix + own: text.format(name) for own, text in _OWN_BUDGET.items()}
        for gain in gains:
            labels[gain] = f"rate at which {name} gains energy from other fields"
        if name in model.passive:
            labels[f"{prefix}energy"] = f"mean of half the square of {name}"
            for gain in gains:
                labels[gain] = f"rate at which the mean gradient adds to {prefix}energy"
    for name, gaining in model.gains.items():
        if not gaining:
            labels[name] = "rate at which the energy as a whole gains from outside"
    for name in model.losses:
        labels[name] = "rate at which products take energy away, a part of the dissipation"
    for name in model.plane_vectors:
        labels[f"{name}_spectrum"] = f"spectrum of {name}, sums to half its mean square"
    for prefix, field in vectors_of(fields):
        for name in ("enstrophy", "helicity", "divergence"):
            labels[prefix + name] = _LABELS[name].format(field.name)
        if field.is_magnetic:
            del labels[prefix + "helicity"]
            labels["current_helicity"] = f"current helicity, mean of {field.name}.curl {field.name}"
            labels["magnetic_helicity"] = (
                f"magnetic helicity, mean of a.{field.name}, curl a = {field.name} less its mean"
            )
    return labels


def _sum_of_squares(fields: list[FieldParts]) -> str:
    """Return the sum of squares in the energy, so that nobody takes it for the velocity's alone."""
    names = [field.name for field in fields]
    shown = names if len(names) < 6 else [*names[:4], "...", names[-1]]
    return f"({' + '.join(name if name == '...' else f'{name}^2' for name in shown)})/2"


def pictures_of(
    fields: list[FieldParts],
    densities: list[str],
    means: list[str],
    cospectra: list[str],
    plane_vectors: list[str],
    flat: str = "",
    cutoff: float = 0.0,
    passive: Sequence[str] = (),
    forces: Sequence[str] = (),
) -> PictureChoice:
    """Return the pictures of a run: curls, the density of a complex field, or a scalar.

    Curves against time are energies, dissipation and injection, or the means of a model without
    vectors, and the `forces` on bodies. Where `plane_vectors` follow from scalars, the spectra are
    those of the vectors, since the energy of the scalars is not that of the flow. `flat` is the
    axis that a plane flow does not depend on, None for other flows; spectra end at the `cutoff`.
    `passive` fields do not count in the energy.
    """
    vectors = [field for field in fields if field.is_vector]
    # The two parts of a wave function are drawn as one: its phase turns one into the other.
    parts = fields if 1 < len(fields) <= _MOST_PARTS and not densities else []
    active = [field for field in fields if field.name not in passive]
    if len(active) == 1:  # the energy of the only field is that of all
        parts = [field for field in parts if field not in active]
    energies = ("energy", *(f"{field.name}_energy" for field in parts))
    has_energy = bool(vectors) or not means
    own_spectra = [f"{name}_spectrum" for name in plane_vectors] or [
        "energy_spectrum",
        *(f"{field.name}_spectrum" for field in parts),
    ]
    curves = (energies, ("dissipation", "injection", "driving"), tuple(forces))
    return PictureChoice(
        curves=curves if has_energy else tuple((name,) for name in means[:3]),
        curves_file="energy.png",
        peak="dissipation" if has_energy else "",
        planes=_planes(fields, densities, flat, len(plane_vectors)),
        spectra=(*own_spectra, *cospectra),
        cutoff=cutoff,
        # A wave function has no inertial range.
        may_have_inertial_range=bool(vectors or plane_vectors) and not densities,
        # Long names suit files; an axis needs few words.
        short_labels={
            "energy": r"energy of all fields $E$"
            if len(active) > 1 and not parts
            else r"energy $E$"
            if parts or not vectors
            else ("kinetic energy\n" if forces else "kinetic energy ")
            + r"$\langle u^2 \rangle / 2$",
            "dissipation": r"dissipation $\varepsilon$",
            own_spectra[0]: "energy per shell $E(k)$",
            "vorticity_magnitude": r"magnitude of vorticity $|\omega|$",
            "current_density_magnitude": r"magnitude of current density $|j|$",
            **{f"vorticity_{axis}": rf"vorticity $\omega_{axis}$" for axis in AXES},
            **{f"current_density_{axis}": rf"current density $j_{axis}$" for axis in AXES},
            **{name: rf"density $|{_symbol(name)}|^2$" for name in densities},
            **{name: name.replace("_", "\n") for name in means},
            **{f.name: f.name.replace("_", " ") for f in fields if not f.is_vector},
        },
        group_labels={
            "energy": "energy $E$",
            "dissipation": "power",
            **dict.fromkeys(forces[:1], "force"),
        },
        legend={
            "energy": "all fields"
            if len(active) > 1
            else _KINDS.get(active[0].name, active[0].name),
            "dissipation": r"dissipation $\varepsilon$",
            "injection": "injection",
            "driving": "driving",
            **{name: f"on {name.replace('_force_', ', along ')}" for name in forces},
            **{f"{field.name}_energy": _KINDS.get(field.name, field.name) for field in parts},
            **{f"{name}_spectrum": _KINDS.get(name, name) for name in plane_vectors},
            **{f"{field.name}_spectrum": _KINDS.get(field.name, field.name) for field in parts},
        },
    )


def drawn_curls(fields: list[FieldParts]) -> dict[str, FieldParts]:
    """Return the names of the curls that are written and drawn, with their vectors.

    They are the vorticity of the first vector, and the current density of a magnetic field.
    """
    vectors = [field for field in fields if field.is_vector]
    magnetic = [field for field in vectors[1:] if field.is_magnetic]
    found = dict(zip(["vorticity"], vectors, strict=False))
    return found | dict(zip(["current_density"], magnetic, strict=False))


def _planes(
    fields: list[FieldParts], densities: list[str], flat: str, scalars: int
) -> tuple[PlaneChoice, ...]:
    """Return the planes to draw; curls of plane flows have one component.

    Without vectors it is the first density or scalar, or those `scalars` from which vectors follow.
    """
    curls = drawn_curls(fields)
    if not curls:
        names = [*densities[:1], *(field.name for field in fields)][: max(1, scalars)]
        remark = "plane of largest mean square"
        return tuple(PlaneChoice(name, f"{name}.png", remark) for name in names)
    remarks = {"vorticity": "plane of largest enstrophy"}
    return tuple(
        PlaneChoice(
            field=f"{name}_{flat or 'magnitude'}",
            file=f"{name.removesuffix('_density')}.png",
            remark=remarks.get(name, "plane of largest mean square"),
            # Otherwise a few intense filaments would leave everything else black.
            brightest=0.998,
        )
        for name in curls
    )


def _symbol(density: str) -> str:
    """Return the mathematical name of a complex field, from the name of its density."""
    name = density.removesuffix("_density")
    return rf"\{name}" if name in ("psi", "phi") else rf"\mathrm{{{name}}}"
