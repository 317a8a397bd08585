"""The command line: ``run``, ``new``, ``explain`` and ``info``.

What a person can cure is printed as one line, with exit status 2 for input and 1 for a run
that failed; a traceback is shown only for defects of Slipstream itself, or on request by the
environment variable ``SLIPSTREAM_TRACEBACK=1``.
"""

import contextlib
import errno
import functools
import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slipstream import __version__
from slipstream.case import Case, case_file, load_case
from slipstream.case.command_options import (
    AnyDevice,
    CaseArgument,
    Device,
    LogLevel,
    Quiet,
    Ranks,
    RunArgument,
    RunsArgument,
    Settings,
    beginning_with,
    complete_case,
    flag,
    one_of,
    value,
)
from slipstream.engine import processes as mpi_launch
from slipstream.engine.accepted import (
    MACHINES,
    MODELS,
    MOVIE_FORMATS,
    PICTURE_FORMATS,
    SOLVERS,
    VALIDATED,
    listed,
)
from slipstream.engine.array_types import Comm
from slipstream.engine.collective import on_first_rank
from slipstream.engine.errors import InputError, RunError, SlipstreamError
from slipstream.engine.processes import thread_count
from slipstream.engine.stop_signals import StopRequest, listening
from slipstream.engine.text import allow_plain_output, lost_output, printable

if TYPE_CHECKING:
    from slipstream.runs import Simulation
    from slipstream.runs.run_case import RunOptions

# The status of commands whose result is in a folder, whatever becomes of what they print.
_SUCCESS = 0
# The error that Typer raises for wrong options: a class of the click that it brings.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="slipstream",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _console() -> Console:
    """Return the console on standard output; what it takes is loaded only now."""
    from slipstream.show.console import make_console

    return make_console()


def _tell(text: str) -> None:
    """Print a line that may quote files."""
    typer.echo(printable(text))


def _start_ranks(ranks: int | None) -> None:
    """Run this command on ranks of MPI instead, if it is asked to start them."""
    if mpi_launch.should_relaunch(ranks):
        raise typer.Exit(mpi_launch.relaunch(ranks or 1))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slipstream {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Simulate flow on structured grids, on CPUs and GPUs, on one rank or many."""


@app.command()
def run(
    case: CaseArgument,
    settings: Settings = None,
    ranks: Ranks = None,
    device: Device = None,
    out: Annotated[Path | None, value("DIR", "Output folder (default: runs/CASE).")] = None,
    overwrite: Annotated[
        bool, flag("--overwrite", "Replace the output of an earlier run.")
    ] = False,
    resumes: Annotated[
        bool, flag("--resume", "Continue the run in the folder, if it has a state.")
    ] = False,
    check: Annotated[bool, flag("--check", "Predict the cost of the run; write nothing.")] = False,
    resolve: Annotated[
        float | None, value("KMAX_ETA", "With --check: warn of a lower kmax_eta (default: 1).")
    ] = None,
    quiet: Quiet = False,
    log_level: LogLevel = "info",
) -> int | None:
    """Run a case and write its output into a folder."""
    from slipstream.files.output_folder import check_folder, claim_folder
    from slipstream.show.picture_process import PictureProcess

    if overwrite and resumes:
        raise InputError(
            "--resume continues an earlier run, --overwrite replaces it; use one of them"
        )
    if check and resumes:
        raise InputError("--resume runs, --check only predicts the cost of a run; use one of them")
    if resolve is not None and not (check and resolve > 0):
        raise InputError("--resolve: goes with --check; accepted: a number more than 0")
    overrides, case = _overrides(settings, device), case_file(case)
    folder = out if out is not None else Path("runs") / case.stem
    comm = _launched_comm(ranks)
    if resumes:
        from slipstream.runs.resuming import has_state

        if on_first_rank(comm, lambda: has_state(folder)):
            _resume(folder, overrides, ranks, comm, quiet, log_level, case)
            return _SUCCESS
    # Without a state there is nothing to resume, but perhaps the rows of a run that was killed.
    overwrite = overwrite or resumes

    def read() -> Case:
        loaded = load_case(case, overrides)
        if not check:
            check_folder(folder, overwrite, loaded.inputs(case))
        return loaded

    if ranks is not None and mpi_launch.should_relaunch(ranks):
        # Mistakes are found before any rank is started, while one line can say them.
        raise typer.Exit(_relaunch(ranks, read()))
    settled = on_first_rank(comm, read)
    if check:
        from slipstream.runs import make_simulation
        from slipstream.runs.trial_run import check_run

        wanted = 1.0 if resolve is None else resolve
        with _exit_unfinished():
            made = functools.partial(make_simulation, settled, comm)
            check_run(made, settled, folder, comm, kmax_eta=wanted)
        return None
    draws = settled.output.pictures and (comm is None or comm.rank == 0)
    with (
        _exit_unfinished(),
        claim_folder(folder, comm, overwrite, settled.inputs(case)) as claimed,
        PictureProcess() if draws else contextlib.nullcontext() as artist,
    ):
        # Only now, while the process that draws loads what it needs.
        from slipstream.runs import make_simulation
        from slipstream.runs.run_case import run_case

        options = replace(_run_options(overrides, log_level), artist=artist)
        run_case(make_simulation(settled, comm), claimed, _stream_of_run(quiet), options=options)
    return _SUCCESS


@app.command()
def resume(
    folder: RunArgument,
    settings: Settings = None,
    ranks: Ranks = None,
    device: Device = None,
    quiet: Quiet = False,
    log_level: LogLevel = "info",
    from_state: Annotated[
        bool, flag("--from-state", "Take the case from the state, not from the folder.")
    ] = False,
) -> int:
    """Continue a run where it stopped, in its folder, on any number of ranks."""
    overrides, comm = _overrides(settings, device), _launched_comm(ranks)
    _resume(folder, overrides, ranks, comm, quiet, log_level, from_state=from_state)
    return _SUCCESS


def _overrides(settings: list[str] | None, device: str | None) -> list[str]:
    return [*(settings or []), *([] if device is None else [f"run.device={device}"])]


def _launched_comm(ranks: int | None) -> Comm:
    """Return the communicator of the present ranks; None if they are yet to be started."""
    is_alone = ranks is not None and mpi_launch.should_relaunch(ranks)
    return None if is_alone else mpi_launch.world_comm()


def _relaunch(ranks: int, case: Case) -> int:
    """Run this command on several ranks, if there is work for them; return the exit status."""
    from slipstream.engine.processes import own_age

    most = case.most_ranks
    if most is not None and ranks > most:
        raise InputError(f"--ranks {ranks}: the grid has too few points; use at most {most}")
    return mpi_launch.relaunch(ranks, seconds_before=own_age())


def _stream_of_run(quiet: bool) -> Console | None:
    """Return the stream to which a run prints; None for standard output."""
    return Console(quiet=True) if quiet else None


def _run_options(overrides: list[str], log_level: str) -> "RunOptions":
    from slipstream.engine.processes import process_age
    from slipstream.runs.run_case import RunOptions

    return RunOptions(elapsed=process_age(), settings=overrides, log_level=log_level)


def _resume(
    folder: Path,
    overrides: list[str],
    ranks: int | None,
    comm: Comm,
    quiet: bool,
    log_level: str,
    case: Path | None = None,
    from_state: bool = False,
) -> None:
    """Resume a run, with the case in its folder unless another is given."""
    from slipstream.runs.resuming import case_to_resume, resume_run

    with _exit_unfinished():
        # Mistakes are found before any rank is started, while one line can say them.
        wanted = None if case is None else on_first_rank(comm, lambda: load_case(case, overrides))
        if ranks is not None and mpi_launch.should_relaunch(ranks):
            now = case_to_resume(folder, overrides, wanted, from_state)
            raise typer.Exit(_relaunch(ranks, now))
        resume_run(
            folder,
            overrides,
            comm,
            console=_stream_of_run(quiet),
            case=wanted,
            options=_run_options(overrides, log_level),
            from_state=from_state,
        )


@contextlib.contextmanager
def _exit_unfinished() -> Iterator[None]:
    """Exit without the word "error" if a run is finished already or was asked to stop."""
    try:
        yield
    except SlipstreamError as end:
        from slipstream.runs import Interrupted
        from slipstream.runs.run_case import AtItsEnd

        if not isinstance(end, (AtItsEnd, Interrupted)):
            raise
        _fail(end, heading="")


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the case; writes NAME.toml.")
    ],
    solver: Annotated[str | None, one_of(SOLVERS, "Solver family: {} (default: spectral)")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="CASE",
            help="A case to copy, by its file or its name.",
            autocompletion=complete_case,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help=f"A model whose keys to fill in: {', '.join(MODELS)} or FILE.py:FUNCTION.",
        ),
    ] = None,
    overwrite: Annotated[bool, flag("--overwrite", "Replace a file that exists.")] = False,
) -> None:
    """Write a commented case to start from: for a solver, another case, or a model."""
    from slipstream.case import write_template

    path = write_template(name, overwrite, solver, source=source, model=model)
    typer.echo(f"wrote {path}; run it with: slipstream run {path}")


@app.command()
def schema(
    solver: Annotated[str | None, one_of(SOLVERS, "Only cases of this family: {}")] = None,
    out: Annotated[Path | None, value("FILE", "Write it there instead of printing it.")] = None,
) -> None:
    """Print the JSON schema of cases, with which editors complete and check them."""
    from slipstream.case.json_schema import schema_of_cases

    text = json.dumps(schema_of_cases(solver), indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
    else:
        out.write_text(text + "\n", encoding="utf-8")
        typer.echo(f"wrote {out}")


@app.command()
def cases() -> None:
    """List the shipped cases."""
    from slipstream.show.console import list_of_cases

    _console().print(list_of_cases(), highlight=False)


@app.command()
def explain(
    case: Annotated[
        Path | None,
        typer.Argument(
            metavar="CASE", help="Case of the spectral family.", autocompletion=complete_case
        ),
    ] = None,
    settings: Settings = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"A model instead of a case: {', '.join(MODELS)} or FILE.py:FUNCTION."),
    ] = None,
) -> None:
    """Show the transforms, kernels and memory of a model's equations."""
    from slipstream.case import SpectralCase
    from slipstream.spectral.explanation import explanation_of_case, explanation_of_model

    if case is not None and model is None:
        loaded = load_case(case, settings or [])
        if not isinstance(loaded, SpectralCase):
            raise InputError(f"{case}: explain is for cases of solver 'spectral'")
        explanation = explanation_of_case(loaded)
    elif model is not None and case is None:
        explanation = explanation_of_model(model)
    else:
        raise InputError("explain takes either a case or --model NAME")
    _console().print(explanation, highlight=False)


@app.command()
def info(
    calibrate: Annotated[
        Path | None, value("FILE", "Measure this machine's rates for `slipstream project`.")
    ] = None,
    out: Annotated[
        Path, value("FOLDER", "With --calibrate: the folder whose storage is measured.")
    ] = Path("runs"),
    device: AnyDevice = "auto",
    ranks: Ranks = None,
) -> None:
    """Show the devices, compilers, MPI and transports of this machine."""
    from slipstream.runs.run_recorder import gather_facts

    if calibrate is not None:
        _start_ranks(ranks)
        from slipstream.api.forecast.step_rates import calibrate_here

        calibrate_here(calibrate, device, out, _console())
        return
    table = Table(show_header=False, box=box.HORIZONTALS)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, fact in gather_facts().items():
        table.add_row(name, Text(fact))
    _console().print(table, highlight=False)


@app.command()
def watch(
    folder: RunArgument,
    once: Annotated[bool, flag("--once", "Show the present status, and end.")] = False,
    interval: Annotated[float, value("SECONDS", "Time between two updates.")] = 2.0,
    series: Annotated[
        str | None, value("NAME,...", "Columns to show (default: main ones).")
    ] = None,
) -> None:
    """Show the progress of a run, also on another machine; only files are read."""
    from slipstream.show.run_status import watch as show

    names = tuple(one.strip() for one in (series or "").split(",") if one.strip())
    try:
        show(folder, _console(), once=once, interval=interval, names=names)
    except StopRequest as stop:
        if not stop.is_interrupt:
            raise
        # Ctrl-C ends the display; the run continues.


@app.command()
def validate(
    family: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY",
            help=f"{listed(VALIDATED)} (default: all).",
            autocompletion=beginning_with(VALIDATED),
        ),
    ] = None,
    device: AnyDevice = "auto",
    ranks: Ranks = None,
    json: Annotated[Path | None, value("FILE", "Record the results and the machine.")] = None,
) -> None:
    """Compare this installation with theory and literature, in a minute or two."""
    from slipstream.api.validation import validate_command

    _start_ranks(ranks)
    validate_command.validate(family, device, mpi_launch.world_comm(), json, _console())


@app.command()
def verify(
    folder: RunArgument,
    since: Annotated[
        float | None, value("T", "From this time on (default: the first state).", "--from")
    ] = None,
    until: Annotated[
        float | None, value("T", "Up to this time (default: the last digest).", "--to")
    ] = None,
    settings: Settings = None,
    ranks: Ranks = None,
    device: Device = None,
) -> None:
    """Repeat a run, or a part of it, and compare it with its digests; its folder is only read.

    The exit status is 1 if it deviates.
    """
    from slipstream.runs.recomputing import verify_run
    from slipstream.show.console import verification_table

    _start_ranks(ranks)

    comm, wanted = mpi_launch.world_comm(), "auto" if device is None else device
    verdicts = verify_run(folder, since, until, comm, wanted, settings or (), _tell)
    if comm is None or comm.rank == 0:
        _console().print(verification_table(verdicts), highlight=False)
        for text in (text for verdict in verdicts for text in verdict.remarks):
            _tell(text)
    if all(verdict.problem for verdict in verdicts):
        raise InputError(f"{folder}: no part of it can be repeated")
    if any(verdict.deviates for verdict in verdicts):
        raise typer.Exit(1)


@app.command()
def plot(
    folders: RunsArgument,
    field: Annotated[
        str | None, value("NAME", "Draw a plane of this field, instead of everything.")
    ] = None,
    plane: Annotated[
        str | None, value("z=0.5", "Which plane (default: largest mean square).")
    ] = None,
    time: Annotated[
        float | None, value("T", "At this time, computed again if no snapshot is of it.")
    ] = None,
    nearest: Annotated[
        bool, flag("--nearest", "With --time: the nearest snapshot; nothing is computed.")
    ] = False,
    limits: Annotated[
        str | None, value("A,B", "Values of the first and the last colour.", "--range")
    ] = None,
    colours: Annotated[
        str | None, value("MAP", "A colour map of Matplotlib.", "--colormap")
    ] = None,
    format: Annotated[
        str | None, one_of([*PICTURE_FORMATS, *MOVIE_FORMATS], "{} (the last two: --movie)")
    ] = None,
    size: Annotated[
        int | None, value("PIXELS", "With --movie: its longer side (default: by the grid).")
    ] = None,
    spectrum: Annotated[
        str | None, value("NAME", "Draw this spectrum alone (default: the first).")
    ] = None,
    compensate: Annotated[
        str | None, value("5/3", "Multiply a spectrum by this power of the wavenumber.")
    ] = None,
    average: Annotated[
        bool, flag("--average", "Draw a spectrum's average over time, with its error.")
    ] = False,
    since: Annotated[
        float | None, value("T", "With --average: start time (default: after the spin-up).")
    ] = None,
    out: Annotated[Path | None, value("DIR", "Where to (default: plots/RUN).")] = None,
    movie: Annotated[
        bool, flag("--movie", "Draw the plane at the times of all snapshots.")
    ] = False,
) -> None:
    """Draw the pictures of a run, also while it is under way; its folder is only read."""
    from slipstream.show.plot_command import (
        PlaneWishes,
        plot,
        plot_together,
        spectrum_wishes,
        usual_folder,
    )

    def recompute(time: float) -> "Simulation":
        from slipstream.runs.recomputing import recomputed

        return recomputed(folders[0], time, _tell)

    if nearest and time is None:
        raise InputError("--nearest: goes with --time")
    wishes = PlaneWishes.of_options(plane, time, limits, colours)
    of_spectrum = spectrum_wishes(spectrum, compensate, average, since)
    folder_out = out or usual_folder(*folders)
    if len(folders) > 1:
        if field is not None or movie or size is not None or not wishes.is_empty:
            raise InputError(
                "several runs are drawn in one figure of series and spectra: without --field,"
                " --plane, --time, --range, --colormap and --movie"
            )
        drawn = plot_together(folders, folder_out, spectrum=of_spectrum, format=format, tell=_tell)
    else:
        drawn = plot(
            folders[0],
            folder_out,
            field=field,
            wishes=wishes,
            format=format,
            movie=movie,
            size=size,
            spectrum=of_spectrum,
            tell=_tell,
            recompute=None if nearest else recompute,
        )
    for path in drawn:
        _tell(f"{'movie' if movie else 'picture'}: {path}")


@app.command()
def average(
    folder: RunArgument,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="What to average (default: all series)."),
    ] = None,
    since: Annotated[
        float | None, value("T", "From this time on (default: after the spin-up).")
    ] = None,
    until: Annotated[float | None, value("T", "Up to this time (default: the last).")] = None,
    out: Annotated[
        Path | None, value("FILE", "Write them: .csv, or .zarr for arrays of any shape.")
    ] = None,
) -> None:
    """Average series, spectra and fields of a run over time, with standard errors."""
    from slipstream.show.stored_run import average_command

    for line in average_command(folder, names or (), since, until, out):
        _console().print(line, highlight=False, markup=False, soft_wrap=isinstance(line, str))


@app.command()
def project(
    case: Annotated[
        Path | None,
        typer.Argument(help="The case: a TOML file, or one of `slipstream cases`.", metavar="CASE"),
    ] = None,
    machine: Annotated[str, value("NAME", f"{', '.join(MACHINES)} or a TOML file.")] = next(
        iter(MACHINES)
    ),
    nodes: Annotated[str, typer.Option(help="Numbers of nodes.")] = "1,8,64,512",
    devices: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Devices of each node to use; 1: one GPU."),
    ] = None,
    settings: Settings = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Steps of the run, for node hours.")
    ] = None,
    json: Annotated[Path | None, value("FILE", "Record the forecast.")] = None,
    plot: Annotated[Path | None, value("FILE", "Draw it: PNG, PDF, SVG.")] = None,
    papers: Annotated[bool, flag("--papers", "Compare forecasts with published figures.")] = False,
) -> None:
    """Forecast the time of a step on a machine that you do not have."""
    from slipstream.api.forecast import project_command

    if papers and case is None:
        project_command.compare_with_papers(_console())
    elif case is None or papers:
        raise InputError("project takes either a case or --papers")
    else:
        loaded = load_case(case, settings or [])
        project_command.print_forecast(
            loaded, machine, nodes, steps, _console(), json, plot, devices
        )


@app.command()
def report(
    folders: RunsArgument,
    out: Annotated[Path | None, value("FILE", "Where to (default: reports/RUN.html).")] = None,
) -> None:
    """Write a report of a run, or of several side by side; their folders are only read."""
    from slipstream.show.report_command import write_report

    _tell(f"report: {write_report(folders, out)}")


def main(
    arguments: list[str] | None = None,
    command: typer.Typer = app,
    name: str = "slipstream",
) -> None:
    """Run a command and exit: 0 is success, 1 a failed run, 2 wrong input."""
    with listening(), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        # NumPy's remarks: numbers that are not finite are refused, or end a run, by name.
        remarks = "(overflow|invalid value|divide by zero) encountered"
        warnings.filterwarnings("ignore", remarks, RuntimeWarning)
        try:
            allow_plain_output()
            thread_count()  # before libraries with OpenMP are loaded
            status = command(arguments, prog_name=name, standalone_mode=False)
            if reason := lost_output():
                _report_loss(reason, is_failure=status is None)
            sys.exit(status or 0)
        except _UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()  # the help, unless rich has printed it
                sys.exit(error.exit_code)
            _fail(InputError(error.format_message()))
        except SlipstreamError as error:
            _fail(error)
        except StopRequest as stop:
            message = "slipstream: interrupted"
            sys.exit(mpi_launch.leave(_communicator_if_started(), stop.exit_status, message))
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            is_name = error.errno == errno.ENAMETOOLONG
            _fail((InputError if is_name else RunError)(f"{error.strerror or error}{where}"))
        except Exception:
            _crash()


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning of the library as one line, without the code that it comes from."""
    print(f"slipstream: warning: {printable(' '.join(str(message).split()))}", file=sys.stderr)


def _report_loss(reason: str, is_failure: bool) -> None:
    """Say that some output could not be written: a failure where nothing else has the result."""
    text = f"standard output: {reason}, so some of it is missing"
    if is_failure:
        raise RunError(text)
    _show_warning(text)


def _fail(error: SlipstreamError, heading: str = "error: ") -> None:
    if os.environ.get("SLIPSTREAM_TRACEBACK") == "1":
        traceback.print_exc()
    message = f"slipstream: {heading}{' '.join(str(error).split())}"
    sys.exit(mpi_launch.leave(_communicator_if_started(), error.exit_status, message))


def _crash() -> None:
    """Report a defect; where other ranks would wait for this one for ever, end them too."""
    comm = _communicator_if_started()
    if comm is not None and comm.size > 1:
        mpi_launch.abort(comm, traceback.format_exc())
    traceback.print_exc()
    sys.exit(1)


def _communicator_if_started() -> Any:
    """Return the communicator if there is a usable one, without failing a second time."""
    if "mpi4py.MPI" not in sys.modules:
        return None
    try:
        return mpi_launch.world_comm()
    except InputError:
        return None
