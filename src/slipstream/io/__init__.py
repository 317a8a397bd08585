"""Files: fields and checkpoints in parallel, time series and spectra from rank 0.

Everything except the CSV and VTK files is zarr (version 3) with named dimensions and coordinates,
so that ``xarray.open_zarr(path)`` shows a labelled data set.
"""

from slipstream.field import Field
from slipstream.io.array_files import read_array, write_arrays
from slipstream.io.checkpoint import Checkpoint, open_checkpoint, write_checkpoint
from slipstream.io.time_series import Series, spectrum_fields
from slipstream.io.zarr_store import FieldStore, read_field

__all__ = [
    "Checkpoint",
    "Field",
    "FieldStore",
    "Series",
    "open_checkpoint",
    "read_array",
    "read_field",
    "spectrum_fields",
    "write_arrays",
    "write_checkpoint",
]
