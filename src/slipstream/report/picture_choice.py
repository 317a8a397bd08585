"""What is drawn of a run: a solver family chooses, `run_pictures` draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute

import numpy as np

# Each a time, and wavenumbers and values by name.
Spectra = Sequence[tuple[float, Mapping[str, tuple[np.ndarray, np.ndarray]]]]

_SPECTRA_SHOWN = 6


@dataclass(frozen=True)
class PictureChoice:
    """What is drawn of the runs of a solver family, besides their spectra."""

    # Diagnostics to draw against time, one above the other, and the file of their picture.
    curves: tuple[str, ...]
    curves_file: str
    # The field (dimensions z, y and x) of which a plane is drawn, and the file of that picture.
    field: str
    field_file: str
    # What distinguishes the plane: where the mean square is largest, unless `is_central`.
    plane: str
    # Quantile of the values that is drawn brightest; 1 is the largest value.
    brightest: float = 1.0
    # The diagnostic whose peak is marked, if any.
    peak: str = ""
    # Mathematical text for names whose long names are too long, and units other than 1.
    short_labels: Mapping[str, str] = attribute(default_factory=dict)
    units: Mapping[str, str] = attribute(default_factory=dict)
    time_label: str = "time $t$ (non-dimensional)"
    # Fields of which `field` is the magnitude; empty if it is a field itself.
    components: tuple[str, ...] = ()
    # A field that is 0 where there is nothing to draw, if any.
    mask: str = ""
    # Dimension that the plane is normal to.
    normal: str = "z"
    is_central: bool = False

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the fields of which planes are needed."""
        return (*(self.components or (self.field,)), *((self.mask,) if self.mask else ()))


def shown_spectra(spectra: Spectra) -> Spectra:
    """Return those spectra that pictures show: the last and some earlier ones."""
    spread = np.linspace(0, len(spectra) - 1, min(len(spectra), _SPECTRA_SHOWN))
    return [spectra[i] for i in sorted({round(i) for i in spread})]
