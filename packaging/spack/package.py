"""A recipe for Spack 1.0 and later.

From a checkout, whose folder is SOURCE:

    spack repo create slipstream-repo slipstream
    spack repo add slipstream-repo/spack_repo/slipstream
    cd slipstream-repo/spack_repo/slipstream/packages
    mkdir py_slipstream && cp SOURCE/packaging/spack/package.py py_slipstream/
    spack dev-build --source-path SOURCE py-slipstream@0.2.0
"""

from spack.package import *  # noqa: F403
from spack_repo.builtin.build_systems.python import PythonPackage


class PySlipstream(PythonPackage):
    """Flow on structured grids, from one laptop to many GPUs."""

    # The recipe builds a checkout (spack dev-build); there is no archive to download yet.
    has_code = True
    license("BSD-3-Clause")  # noqa: F405

    version("0.2.0")  # noqa: F405

    variant("mpi", default=True, description="Run on several ranks")  # noqa: F405
    variant("cuda", default=False, description="Run on NVIDIA GPUs")  # noqa: F405

    depends_on("python@3.11:", type=("build", "run"))  # noqa: F405
    depends_on("py-hatchling@1.27:", type="build")  # noqa: F405
    # Kernels are compiled when they are first used.
    depends_on("cxx", type=("build", "run"))  # noqa: F405
    depends_on("py-h5py@3.11:", type="run")  # noqa: F405
    depends_on("py-matplotlib@3.8:", type="run")  # noqa: F405
    depends_on("py-numcodecs@0.16.6:", type="run")  # noqa: F405
    depends_on("py-numpy@2:", type="run")  # noqa: F405
    depends_on("py-pydantic@2.6:", type="run")  # noqa: F405
    depends_on("py-rich@13.7:", type="run")  # noqa: F405
    depends_on("py-sympy@1.13:", type="run")  # noqa: F405
    depends_on("py-tifffile@2023.7:", type="run")  # noqa: F405
    depends_on("py-typer@0.12:", type="run")  # noqa: F405
    depends_on("py-zarr@3.0.8:", type="run")  # noqa: F405
    depends_on("py-mpi4py@4.1:", type="run", when="+mpi")  # noqa: F405
    depends_on("py-cupy@13:", type="run", when="+cuda")  # noqa: F405
