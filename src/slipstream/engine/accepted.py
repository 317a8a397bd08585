"""Names that cases, options and arguments accept, each with one line for people.

This module has only data and is at the bottom: cases, templates, help texts and messages take their
lists from it. What a name stands for is registered in the layer that implements it, and
``tests/unit/case/test_accepted.py`` compares both sides, so it finds a name that only one has.
"auto" is not in these lists: keys and options that choose for themselves accept it as well.
"""

from collections.abc import Iterable, Mapping

Names = Mapping[str, str]

SOLVERS: Names = {
    "spectral": "turbulence, or your own equations, in a periodic box",
    "advection": "a Gaussian carried through a periodic box",
    "lattice": "flow through a voxel image, its permeability",
}
VALIDATED: Names = {
    **SOLVERS,
    "fft": "transforms of divided arrays",
}
LOG_LEVELS = ("debug", "info", "warning", "error")
MACHINES: Names = {
    "h200-nvl8-ib": "8 H200 per node, InfiniBand",
    "summit": "6 V100 per node, InfiniBand",
    "frontier": "4 MI250X per node, Slingshot",
    "titan": "1 K20X per node, Gemini torus",
    "epyc-hdr": "128 cores of EPYC per node, InfiniBand; assumed",
}
DEVICES: Names = {
    "cpu": "the cores of the host",
    "cuda": "an NVIDIA GPU",
}
PRECISIONS: Names = {
    "float64": "double precision",
    "float32": "single precision",
}
SCHEDULES: Names = {
    "serial": "computation and communication take turns",
    "overlap": "communication hides behind computation",
}
TRANSPORTS: Names = {
    "peer": "memory that ranks share, on CPUs and GPUs; between nodes another one",
    "nccl": "NCCL, between GPUs",
    "mpi-p2p": "MPI's point-to-point messages, from the host",
    "mpi": "MPI's all-to-all, from the host",
    "mpi-hierarchical": "MPI's messages, aggregated on a node before they leave it",
    "mpi-device-p2p": "point-to-point messages by an MPI library that takes GPU memory",
    "mpi-device": "all-to-all by an MPI library that takes GPU memory",
}
# Transports that only GPUs have, so that they cannot move arrays of the host.
GPU_TRANSPORTS = frozenset({"nccl"})
RESIDENCIES: Names = {
    "device": "in the device's memory",
    "host": "in the host's memory, from which they stream through the device",
    "disk": "in files, from which they stream through memory and the device; on one rank",
}
DECOMPOSITIONS: Names = {
    "slab": "ranks divide z",
    "pencil": "ranks divide z and y, so that there can be more of them",
}
COPIES: Names = {
    "memcpy2D": "strided copies by the copy engines",
    "zero-copy": "kernels that read and write the host's memory",
    "packed": "contiguous copies, packed by the host's cores",
}
# Largest number of streams on one device; each takes tiles there and back.
MAX_STREAMS = 16
UPDATES: Names = {
    "device": "with their tile, on the device",
    "host": "by the host's cores, with more trips over the bus",
}

# The distributed FFT.
FFT_KINDS: Names = {
    "fft": "Fourier transform of a periodic axis",
    **{
        f"d{letter}t{number}": f"{name} transform of type {number}"
        for letter, name in (("c", "cosine"), ("s", "sine"))
        for number in range(1, 5)
    },
}
NORMS: Names = {
    "backward": "backward transforms divide by the number of points",
    "ortho": "both divide by its square root",
    "forward": "forward transforms divide by it",
}
FFT_DTYPES: Names = {
    "float32": "real points in single precision",
    "float64": "real points in double precision",
    "complex64": "complex points in single precision",
    "complex128": "complex points in double precision",
}
FFT_LAYOUTS: Names = {
    "slab": "one axis is divided",
    "pencil": "two axes are divided",
    "root": "the first rank has all",
}
FFT_ORDERS: Names = {
    "transposed": "modes stay where the last transform leaves them",
    "natural": "modes are divided as points are",
}
WIRES: Names = {
    "float32": "half of the bytes of double precision",
    "bfloat16": "a quarter of the bytes of double precision",
}
TUNES: Names = {
    "off": "nothing is measured",
    "quick": "every transport, then every division with the best of them",
    "full": "every division with every transport",
}

# The spectral family.
MODELS: Names = {
    "hd": "incompressible Navier-Stokes equations",
    "boussinesq": "incompressible flow with buoyancy",
    "mhd": "incompressible magnetohydrodynamics, on demand with the Hall term",
    "gpe": "Gross-Pitaevskii equation of a quantum fluid",
    "argle": "real Ginzburg-Landau equation that relaxes states of gpe to a flow",
    "hd2d": "two-dimensional Navier-Stokes equations by vorticity, drag, beta plane",
    "mhd2d": "two-dimensional magnetohydrodynamics by vorticity and flux function",
    "sqg": "surface quasi-geostrophic flow",
    "chm": "Charney-Hasegawa-Mima equation",
    "lans-alpha": "Lagrangian-averaged Navier-Stokes equations",
    "leray-alpha": "Leray's regularised Navier-Stokes equations",
    "smagorinsky": "large-eddy simulation with the eddy viscosity of Smagorinsky",
    "dynamic-smagorinsky": "the same, with a constant that follows from the flow",
    "chollet-lesieur": "large-eddy simulation with a spectral eddy viscosity",
    "isothermal": "compressible flow at one temperature",
    "rayleigh-benard": "flow that is heated from below",
}
INTEGRATORS: Names = {
    "rk2": "midpoint rule",
    "heun": "Heun's method of second order",
    "rk3": "Heun's method of third order",
    "rk4": "the classical method",
    "jst3": "Jameson, Schmidt and Turkel's, as in GHOST: second order, three substages",
    "jst4": "Jameson, Schmidt and Turkel's, as in GHOST: second order, four substages",
    "etdrk2": "exponential time differencing of second order, all linear terms exact",
    "etdrk4": "exponential time differencing of fourth order, all linear terms exact",
    "ars222": "implicit-explicit of second order, all linear terms implicit",
    "ars233": "implicit-explicit of third order, all linear terms implicit",
}
# Integrators that integrate all linear terms, whatever `EXACT_TERMS` and the factor say.
ALL_LINEAR = "etdrk2", "etdrk4", "ars222", "ars233"
EXACT_TERMS: Names = {
    "decay": "terms that only damp a mode, with integrating_factor (all, with etdrk and ars)",
    "all": "also waves and coupled components; only speeds limit the step",
}
DEALIASINGS: Names = {
    "2/3": "two thirds of the modes along each axis",
    "2/3 sphere": "of these, the modes in a sphere",
    "phase-shift": 'a larger sphere, with shifted grids; for "rk4", and to first order "heun"',
    "1/2": "half of the modes along each axis, for products of three",
    "none": "all modes, with their errors",
}
PLANES: Names = {
    "2D3C": "three components; the flow carries the third",
    "2D2C": "the two components in the plane; the third stays 0",
}
INITIAL_FLOWS: Names = {
    "taylor-green": "the Taylor-Green vortex",
    "abc": "Arnold, Beltrami and Childress",
    "random": "random modes in every vector",
    "orszag-tang": 'of "mhd": the vortex of Orszag and Tang',
    "orszag-tang-3d": 'of "mhd": the same in three dimensions',
    "lamb-dipole": 'of "hd2d" and "mhd2d": a pair of vortices that moves along x',
    "quantum-taylor-green": 'of "gpe": vortex lines, arranged as in the Taylor-Green flow',
    "quantum-abc": 'of "gpe" and "argle": vortex lines, arranged as in the flow of "abc"',
    "solitons": 'of "gpe": two dark solitons',
    "vortex-ring": 'of "gpe" and "argle": a vortex ring in the middle of the box, along z',
    "trefoil": 'of "gpe" and "argle": a vortex line tied to a trefoil knot',
    "cinquefoil": 'of "gpe" and "argle": a vortex line tied to a knot of five crossings',
    "wave": "a plane wave of the model's linear part",
    "file": "fields from an earlier run, or from a file of yours",
    "formula": "formulas of x, y and z",
}
MAGNETIC_FIELDS: Names = {
    "none": "no field",
    "insulating": "of Lee et al. (2010), insulating walls",
    "conducting": "of Lee et al. (2010), conducting walls",
    "alternative": "of Lee et al. (2010), the alternative one",
}
FORCINGS: Names = {
    "random": "random modes, at times that are interpolated, or one pattern",
    "ornstein-uhlenbeck": "random modes, each an Ornstein-Uhlenbeck process",
    "linear": "the field itself times a rate: of all wavenumbers, or of some shells",
    "constant-energy": "what keeps the energy of each of some shells",
    "taylor-green": "the pattern of the Taylor-Green vortex",
    "abc": "the pattern of Arnold, Beltrami and Childress",
    "formula": "formulas of x, y, z and t",
    "mean-flow": "what keeps the mean velocity, of a flow past bodies",
}
# The keys of each kind of forcing, besides the common ones.
FORCING_KEYS: dict[str, tuple[str, ...]] = {
    "random": ("amplitude", "shells", "seed", "correlation_time", "helicity", "injection"),
    "ornstein-uhlenbeck": ("amplitude", "shells", "seed", "correlation_time", "helicity"),
    "linear": ("rate", "shells", "injection"),
    "constant-energy": ("shells", "energy"),
    "taylor-green": ("amplitude", "wavenumber", "injection"),
    "abc": ("amplitude", "wavenumber", "coefficients", "injection"),
    "formula": ("formula", "injection"),
    "mean-flow": ("velocity",),
}
# Each goes to a file of that name, and has a key for its interval.
STATISTICS: Names = {
    "transfer": "energy transfer to shells of wavenumbers, and flux through them",
    "anisotropic": "spectra of wavenumbers across z and along it",
    "correlation": "two-point correlations",
    "structure": "structure functions",
    "pdf": "probability densities and moments",
}

# Output that users choose.
OUTPUT_FORMATS: Names = {
    "zarr": "a zarr group with an axis of time",
    "hdf5": "an HDF5 file for each time",
    "vtk": "VTK's image data for each time, and a collection that ParaView opens",
}
# What names of files end with, by format; the first is usual.
OUTPUT_ENDINGS = {"zarr": (".zarr",), "hdf5": (".h5", ".hdf5"), "vtk": (".vti", ".pvd")}
OUTPUT_PRECISIONS: Names = {
    **PRECISIONS,
    "float16": "half precision, up to 65504",
}
REDUCTIONS: Names = {
    "mean": "the mean over all points",
    "max": "the largest value",
    "min": "the smallest value",
    "rms": "the root mean square",
}
PARTICLES: Names = {
    "tracer": "with the velocity of the fluid",
    "inertial": "heavy and small: with Stokes drag, and gravity",
}
BODIES: Names = {
    "sphere": "a sphere, or a disc where the grid has one point along an axis",
    "cylinder": "a circular cylinder along an axis",
    "box": "a box along the axes",
    "image": "the solid voxels of an image",
    "formula": "where a signed distance of x, y, z and t is negative",
}
INTERPOLATIONS: Names = {
    "spline": "cubic splines, for which the velocity is transformed once more",
    "lagrange": "cubic polynomials, with no transform and up to nine times the error",
}
PICTURE_FORMATS: Names = {
    "png": "PNG",
    "pdf": "PDF",
    "svg": "SVG",
}
MOVIE_FORMATS: Names = {
    "gif": "GIF",
    "mp4": "MP4, written by ffmpeg",
}
# The least pixels of the longer side of a movie.
SMALLEST_MOVIE = 320
# The most pixels of the longer side of a movie.
LARGEST_MOVIE = 4096

# The advection family.
STRATEGIES: Names = {
    "single": "the CPU's threads, on one rank",
    "mpi": "CPUs: a step, then its exchange by MPI",
    "mpi-nonblocking": "CPUs: the exchange travels while the rest is advanced",
    "mpi-threaded": "CPUs: the same, with one core that only communicates",
    "gpu": "a GPU, on one rank",
    "gpu-mpi": "GPUs: a step, then its exchange by MPI",
    "gpu-mpi-streams": "GPUs: the exchange travels while the rest is advanced",
    "gpu-peer": "GPUs: the same, stored into each other's memory",
    "hybrid": "GPUs with a shell that the CPU advances, then the exchange by MPI",
    "hybrid-overlap": "the same, overlapped, with one core that only communicates",
}

# The lattice family.
LATTICE_PRECISIONS: Names = {
    **PRECISIONS,
    "mixed": "stores float32, computes float64",
    "float16": "stores float16, computes float32",
}
PROPAGATIONS: Names = {
    "two-lattice": "from one array to another",
    "aa": "in place, in even and odd steps",
}
POPULATION_LAYOUTS: Names = {
    "stream": "direction by direction",
    "collision": "site by site",
    "bundle": "directions that move to the same row together",
    "vector-collision": '"collision" for vectors of sites, of 128 bytes',
    "vector-bundle": '"bundle" for vectors of sites, of 128 bytes',
}
SITE_ORDERS: Names = {
    "raster": "rows one after the other",
    "row-tiles": "rows in tiles of 8 x 8",
}
ENCODINGS: Names = {
    "wide": "72 bytes of links a site",
    "compact": "20 bytes of links a site",
    "strips": 'links of vectors of sites; CPUs only, with layout "stream"',
}
PARTITIONS: Names = {
    "bisection": "ranks get boxes with as many pores each",
    "cartesian": "ranks get boxes of the same size",
}
SAMPLES: Names = {
    "channel": "between two walls",
    "duct": "between four walls",
    "spheres": "a regular lattice of spheres",
    "random-pack": "spheres at random that do not overlap",
    "sandstone": "overlapping grains",
}
SPHERE_LATTICES: Names = {
    "simple": "one sphere in a cell",
    "body-centred": "two spheres in a cell",
    "face-centred": "four spheres in a cell",
}
# Metres: voxels of images are smaller, and who gives more means micrometres.
LARGEST_VOXEL = 0.01
# What drives a flow, in lattice units: single precision holds velocities and pressures of these.
FORCES = (1e-15, 1e15)
# By suffix: the format of a file; "/" is a folder whose suffix is no other one.
IMAGE_FORMATS: Names = {
    ".raw": "raw values",
    ".bin": "raw values",
    ".dat": "raw values",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".npy": "NumPy",
    ".h5": "HDF5",
    ".hdf5": "HDF5",
    ".nxs": "HDF5",
    ".zarr": "Zarr",
    "/": "folder of TIFF slices",
}


def listed(names: Iterable[str]) -> str:
    """Return names as people list them: ``a, b or c``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
