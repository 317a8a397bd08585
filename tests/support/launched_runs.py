"""Runs from the command line to the files, in the test's own process and in an empty folder."""

from refusals import status_of

# What tells a process that a launcher has started it: then it would join the other ranks.
LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID", "SLURM_STEP_ID")

# The shortest run of another family.
SPECTRAL = """
solver = "spectral"
[grid]
points = 8
[equation]
viscosity = 0.1
[initial]
flow = "abc"
[time]
end = 0.1
step = 0.1
[run]
device = "cpu"
[output]
pictures = false
"""


def leave_launcher(monkeypatch):
    """Make the process one that no launcher has started, until the test ends."""
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


def enter(folder, monkeypatch, **cases):
    """Work in a folder, outside any launcher, until the test ends; return the folder.

    Each case is written there, into the file that has its name.
    """
    leave_launcher(monkeypatch)
    monkeypatch.chdir(folder)
    for name, text in cases.items():
        (folder / f"{name}.toml").write_text(text)
    return folder


def run(*settings, out="out", case="case.toml"):
    """Run a case with some settings changed, each "section.key=value"; return the exit status."""
    overrides = [argument for setting in settings for argument in ("--set", setting)]
    return status_of("run", case, "--out", out, *overrides)
