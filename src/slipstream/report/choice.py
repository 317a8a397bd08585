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
        What distinguishes the plane: the one where the mean square of the field is largest.
    brightest : float
        Quantile of the values that is drawn brightest; 1 is the largest value.
    peak : str
        The diagnostic whose peak is marked; empty if none is.
    short_labels : mapping of str to str
        Labels of axes, for names whose long names are too long; mathematical text.
    """

    curves: tuple[str, ...]
    curves_file: str
    field: str
    field_file: str
    plane: str
    brightest: float = 1.0
    peak: str = ""
    short_labels: Mapping[str, str] = field(default_factory=dict)
