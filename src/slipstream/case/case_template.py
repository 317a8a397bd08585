"""Writing a commented case to start from."""

from importlib import resources
from pathlib import Path

from slipstream.case.case_loading import SOLVERS
from slipstream.case.toml_writer import toml_value
from slipstream.errors import InputError

_TITLE = '"TITLE"'


def write_template(name: str, overwrite: bool = False, solver: str = "spectral") -> Path:
    """Write ``NAME.toml``, a case in which every key is explained.

    Parameters
    ----------
    name : str
        Path of the file, with or without ``.toml``.
    overwrite : bool
        Whether a file that exists may be replaced.
    solver : str
        Solver family whose template to write.

    Returns
    -------
    pathlib.Path
        The file written.

    Raises
    ------
    InputError
        If there is no such solver family, the file exists or its folder does not.
    """
    if solver not in SOLVERS:
        raise InputError(f"--solver: {solver!r} is not accepted; accepted: {', '.join(SOLVERS)}")
    path = Path(name) if name.endswith(".toml") else Path(f"{name}.toml")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists; choose another name or add --overwrite")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder; make it first")
    template = resources.files("slipstream.case") / "templates" / f"{solver}.toml"
    text = template.read_text(encoding="utf-8").replace(_TITLE, toml_value(path.stem))
    path.write_text(text, encoding="utf-8")
    return path
