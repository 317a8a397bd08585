"""States at the start of a run, and refusals: the same on any number of ranks."""

import h5py
import numpy as np
import pytest

from field_values import formulas
from first_rank import on_first_rank
from flows import modes_of, own_part, start
from slipstream.engine.errors import InputError
from slipstream.files.zarr_store import FieldStore

pytestmark = pytest.mark.several_ranks

# Of four ranks some hold no plane of these points, or no modes.
BOX = ("grid.points=[10, 12, 3]",)
MHD = ("equation={ model = 'mhd', viscosity = 0.0, resistivity = 0.0, mean_field = 1.0 }",)
GPE = ("equation={ model = 'gpe', healing_length = 0.2 }", "numerics.dealiasing=none")
FLOWS = {
    "taylor-green": (*MHD, "initial.magnetic=alternative", "grid.points=[10, 12, 7]"),
    "orszag-tang-3d": (*MHD, "grid.points=[10, 12, 7]"),
    "lamb-dipole": ("equation.model=hd2d", "grid.points=[20, 18, 1]", "initial.radius=2.0"),
    "quantum-taylor-green": (*GPE, "initial.amplitude=2.0"),
    "trefoil": (*GPE, "initial.radius=1.2", "grid.points=[10, 12, 7]"),
    "quantum-abc": (*GPE, "initial.amplitude=0.5"),
    "solitons": (*GPE, "initial.speed=-0.3"),
    "wave": (*MHD, "initial.wavevector=[1, -2, 1]", "initial.branch=3", "grid.points=[10, 12, 5]"),
    "wave of gpe": (*GPE, "initial.wavevector=[1, -2, 0]", "initial.branch=1"),
}


@pytest.mark.parametrize(
    ("name", "precision"),
    [(name, "float64") for name in FLOWS]
    + [(name, "float32") for name in ("wave", "solitons", "trefoil")],
)
def test_state_does_not_depend_on_the_number_of_ranks(comm, device, name, precision):
    settings = (
        *BOX,
        f"initial.flow={name.split()[0]}",
        *FLOWS[name],
        f"numerics.precision={precision}",
    )
    expected = on_first_rank(comm, lambda: modes_of(start(device, *settings)))
    shared = start(device, *settings, comm=comm)
    error = np.abs(modes_of(shared) - own_part(shared, expected)).max(initial=0.0)
    assert np.abs(expected).max() > 0.1
    # Only the grouping of transforms differs.
    assert error <= (1e-14 if precision == "float64" else 1e-6)


# What is lost to the grid, to the projection, to the sphere; and forces, and a spectrum.
LOSING = (
    formulas(velocity=("sin(y) + 0.1*sin(5*y)", "0", "0")),
    formulas(velocity=("sin(y) + 0.1*sin(x)", "0", "0")),
    (
        *formulas(velocity=("sin(y)*(1 + 0.1*cos(3*x))*cos(z)", "0", "0")),
        'numerics.dealiasing="2/3 sphere"',
    ),
    ('forcing={ kind = "formula", formula = ["sin(y) + 0.1*sin(x)", "0", "0"] }',),
    ("initial.peak_wavenumber=6",),
)


@pytest.mark.parametrize("settings", LOSING)
def test_what_is_lost_is_said_alike_on_all_ranks(comm, device, settings):
    settings = ("grid.points=[10, 12, 4]", "initial.peak_wavenumber=1.0", *settings)
    if any(setting.startswith("initial.flow") for setting in settings):
        settings = [one for one in settings if not one.startswith("initial.peak")]
    alone = on_first_rank(comm, lambda: start(device, *settings).warnings())
    assert len(alone) > 0
    assert start(device, *settings, comm=comm).warnings() == alone


@pytest.fixture
def earlier(comm, device, shared_folder):
    """Return the folder of an earlier run, and its simulation on one rank."""
    settings = (*BOX, "scalars=[{}]", "initial.flow=random")
    alone, shared = start(device, *settings), start(device, *settings, comm=comm)
    store = FieldStore(shared_folder / "fields.zarr", comm)
    store.append(0.0, shared.fields())
    store.append(1.0, shared.fields())
    if comm is None or comm.rank == 0:
        arrays = {field.name: field.data for field in alone.fields()}
        np.savez(shared_folder / "fields.npz", **arrays)
        with h5py.File(shared_folder / "fields.h5", "w") as file:
            for name, array in arrays.items():
                file[name] = array
    if comm is not None:
        comm.Barrier()
    return shared_folder, alone


@pytest.mark.parametrize("name", ["", "fields.zarr", "fields.npz", "fields.h5"])
def test_run_begins_with_the_fields_of_an_earlier_one(comm, device, earlier, name):
    folder, alone = earlier
    simulation = start(
        device,
        *BOX,
        "scalars=[{}]",
        "initial.flow=file",
        f"initial.path={folder / name}",
        comm=comm,
    )
    expected = own_part(simulation, modes_of(alone))
    error = np.abs(modes_of(simulation) - expected).max(initial=0.0)
    assert error <= 1e-14
    assert simulation.time == 0


@pytest.mark.parametrize("plane", [0, 2])
def test_file_that_one_rank_cannot_use_is_refused_by_all(comm, device, shared_folder, plane):
    path = shared_folder / "a.h5"
    if comm is None or comm.rank == 0:
        values = np.zeros((3, 12, 10))
        values[plane, 4, 4] = np.nan
        with h5py.File(path, "w") as file:
            file["velocity_y"] = values
    if comm is not None:
        comm.Barrier()
    with pytest.raises(InputError, match=r"^initial\.path: velocity_y in .*NaN"):
        start(device, *BOX, "initial.flow=file", f"initial.path={path}", comm=comm)
