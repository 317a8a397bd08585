"""What is drawn of a run: a solver family chooses, `run_pictures` draws."""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as attribute


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
