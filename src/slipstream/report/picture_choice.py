"""What of a run is drawn: a solver family chooses, `pictures` draws."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PictureChoice:
    """What is drawn of the runs of a solver family, besides their spectra.

    Attributes
    ----------
    curves : tuple of str
        Diagnostics to draw against time, one above the other.
    curves_file : str
        File of their picture.
    field : str
        The field of which a plane is drawn; its dimensions are z, y and x.
    field_file : str
        File of its picture.
    plane : str
        What distinguishes the plane: by default the one where the mean square of the field is
        largest.
    brightest : float
        Quantile of the values that is drawn brightest; 1 is the largest value.
    peak : str
        The diagnostic whose peak is marked; empty if none is.
    short_labels : mapping of str to str
        Labels of axes, for names whose long names are too long; mathematical text.
    units : mapping of str to str
        Units for these labels; what has none there is non-dimensional.
    time_label : str
        Label of the axis of time.
    components : tuple of str
        Fields of which `field` is the magnitude; empty if it is a field itself.
    mask : str
        A field that is 0 where there is nothing to draw; empty if there is none.
    normal : str
        Dimension that the plane is normal to.
    is_central : bool
        Whether the plane is the one in the middle of the box instead.
    """

    curves: tuple[str, ...]
    curves_file: str
    field: str
    field_file: str
    plane: str
    brightest: float = 1.0
    peak: str = ""
    short_labels: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    time_label: str = "time $t$ (non-dimensional)"
    components: tuple[str, ...] = ()
    mask: str = ""
    normal: str = "z"
    is_central: bool = False

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the fields of which planes are needed."""
        return (*(self.components or (self.field,)), *((self.mask,) if self.mask else ()))
