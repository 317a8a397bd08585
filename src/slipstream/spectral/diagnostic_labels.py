"""Long names of diagnostics and spectra, and which pictures a run draws at its end."""

from __future__ import annotations

from slipstream.report.picture_choice import PictureChoice
from slipstream.spectral.spectral_problem import FieldParts, vectors_of

_LABELS = {
    "energy": "energy, mean of half the squares of all fields (non-dimensional)",
    "dissipation": "dissipation rate, at which linear terms that damp take energy away",
    "enstrophy": "enstrophy, mean of w.w/2, w = curl {} (non-dimensional)",
    "helicity": "helicity, mean of {}.w (non-dimensional)",
    "divergence": "root mean square of div {} (non-dimensional)",
    "taylor_reynolds": "Taylor-scale Reynolds number, E sqrt(20 / (3 viscosity dissipation))",
    "kmax_eta": "resolution, largest wavenumber times Kolmogorov length; 1 and more resolves",
    "budget_residual": "(dE/dt + dissipation - injection) / dissipation since the row before; "
    "an error where products conserve energy",
    "energy_spectrum": "energy spectrum, sums to the energy (non-dimensional)",
}


def labels_of(fields: list[FieldParts], is_forced: bool, has_driving: bool) -> dict[str, str]:
    """Return the long names of the diagnostics and spectra of a model."""
    labels = {name: text for name, text in _LABELS.items() if "{}" not in text}
    if is_forced:
        labels["injection"] = "power of forces, mean of force times field"
    if has_driving:
        labels["driving"] = "rate at which linear terms that amplify add energy"
    if len(fields) > 1:
        labels["energy"] += f": {_sum_of_squares(fields)}"
        for field in fields:
            labels[f"{field.name}_energy"] = f"mean of half the square of {field.name}"
            labels[f"{field.name}_spectrum"] = f"spectrum of {field.name}, sums to its energy"
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
    """Return what the energy is a mean of, so that nobody takes it for the velocity's alone."""
    names = [field.name for field in fields]
    shown = names if len(names) < 6 else [*names[:4], "...", names[-1]]
    return f"({' + '.join(name if name == '...' else f'{name}^2' for name in shown)})/2"


def pictures_of(fields: list[FieldParts], densities: list[str], means: list[str]) -> PictureChoice:
    """Return what is drawn at the end of a run: curl, density of a complex field, or a scalar.

    Curves against time are energy and dissipation, or the means that a model without vectors has.
    """
    vectors = [field for field in fields if field.is_vector]
    curves = ("energy", "dissipation") if vectors or not means else tuple(means[:3])
    name = "vorticity_magnitude" if vectors else [*densities, fields[0].name][0]
    return PictureChoice(
        curves=curves,
        curves_file="energy.png",
        peak="dissipation" if "dissipation" in curves else "",
        field=name,
        field_file="vorticity.png" if vectors else f"{name}.png",
        plane="plane of largest enstrophy" if vectors else "plane of largest mean square",
        # A few intense filaments would otherwise leave everything else black.
        brightest=0.998 if vectors else 1.0,
        # Long names suit files; an axis needs few words.
        short_labels={
            "energy": r"energy of all fields $E$"
            if len(fields) > 1
            else r"energy $E$"
            if not vectors
            else r"kinetic energy $\langle u^2 \rangle / 2$",
            "dissipation": r"dissipation $\varepsilon$",
            "energy_spectrum": "energy per shell $E(k)$",
            "vorticity_magnitude": r"magnitude of vorticity $|\omega|$",
            **{name: rf"density $|{_symbol(name)}|^2$" for name in densities},
        },
    )


def _symbol(density: str) -> str:
    """Return the mathematical name of a complex field, from the name of its density."""
    name = density.removesuffix("_density")
    return rf"\{name}" if name in ("psi", "phi") else rf"\mathrm{{{name}}}"
