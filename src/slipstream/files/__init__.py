"""Files: fields and checkpoints in parallel, time series and spectra from rank 0.

Everything except the CSV and VTK files is zarr (version 3) with named dimensions and coordinates,
so that ``xarray.open_zarr(path)`` shows a labelled data set.
"""

from slipstream.engine.fields import Field
from slipstream.files.array_files import read_array, write_arrays
from slipstream.files.checkpoint import Checkpoint, open_checkpoint, write_checkpoint
from slipstream.files.time_series import Series, spectrum_fields
from slipstream.files.zarr_store import FieldStore, read_field

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
