"""Measured figures in documents agree with the records in `bench/results` and each other.

Each text below is made of the figures of records and has to stand in its document, word for word
but for line breaks. Every record is quoted: one that no page quotes any more is removed.
"""

import functools
import json
import re
import statistics
from pathlib import Path

import pytest

from advection_lines import lines_of
from slipstream.api.forecast import load_machine, spectral_counts, step_time
from slipstream.case import validate_case
from slipstream.engine.accepted import STRATEGIES

REPOSITORY = Path(__file__).parents[3]
RECORDS = {path.stem: path for path in (REPOSITORY / "bench" / "results").glob("*.json")}
used = set()


@functools.cache
def record(name):
    used.add(name)
    return json.loads(RECORDS[name].read_text(encoding="utf-8"))


def result(name):
    return record(name)["result"]


def figure(name, count=1):
    """Return a headline figure of one GPU, or of several."""
    what, _, part = name.partition(": ")
    wanted = f"{what}, {count} GPU{'s' if count > 1 else ''}: {part}"
    figures = result(f"headlines-{count}-h200")["figures"]
    return next(one for one in figures if one["name"] == wanted)


def step(name):
    return result(name)["seconds per step"]


def digits(number, count=3):
    """Return a number with this many significant digits, without an exponent."""
    whole = f"{number:.{count}g}"
    return f"{float(whole):.0f}" if "e" in whole or "." not in whole else whole


def fixed(number, count=3):
    """As `digits`, with the zeros at the end: 1.90."""
    text = f"{number:#.{count}g}"
    return f"{float(text):.0f}" if "e" in text else text.rstrip(".")


def ms(seconds, count=3):
    return fixed(1e3 * seconds, count)


def time(seconds):
    if seconds < 1e-3:
        return f"{1e6 * seconds:.0f} µs"
    return f"{1e3 * seconds:.1f} ms" if seconds >= 99.95e-3 else f"{ms(seconds)} ms"


def percent(share, form=".0f"):
    return f"{100 * share:{form}} %"


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def headline_row(name, count=1):
    """Return a row of the tables of headline figures."""
    entry = figure(name, count)
    label = name.replace(":", f", {count} GPUs:") if count > 1 else name
    bound = entry["bound (s)"]
    return row(
        label,
        time(entry["seconds"]),
        time(bound) if bound else "",
        percent(entry["fraction of the bound"]) if bound else "",
        percent(entry["spread of processes"], ".1f"),
        percent(entry["spread of repetitions"], ".1f"),
    )


def headline_rows(count):
    """Return those rows; of several GPUs, where one was measured too, those of several."""
    gpus = f", {count} GPU{'s' if count > 1 else ''}:"
    names = [one["name"] for one in result(f"headlines-{count}-h200")["figures"]]
    return [headline_row(name.replace(gpus, ":"), count) for name in names if gpus in name]


def headlines_told(count):
    return f"at commit {record(f'headlines-{count}-h200')['commit'][:7]} (`bench/results/headlines-"


_TABLES = {
    "hd": {"viscosity": 1e-3},
    "boussinesq": {"viscosity": 1e-3, "diffusivity": 1e-3, "buoyancy_frequency": 1.0},
    "mhd": {"viscosity": 1e-3, "resistivity": 1e-3},
    "gpe": {},
}


@functools.cache
def counted(points, ranks, model="hd"):
    """Return the bytes and seconds of a step on H200s, by the present program."""
    case = {
        "solver": "spectral",
        "grid": {"points": points},
        "equation": {"model": model} | _TABLES[model],
        "initial": {"flow": "formula"},
        "time": {"end": 1.0, "step": 1e-3, "integrator": "rk2"},
    }
    return spectral_counts(validate_case(case), load_machine("h200-nvl8-ib"), ranks)


def of_plain(seconds, name):
    return seconds / (16 * result(name)["seconds of a plain real transform"])


def readme():
    best = figure("DNS 512³: step")["seconds"]
    large = result("dns-1024-r1-h200")
    rates = {
        name: strategy_rate(f"advection-420-{name}", strategy)
        for name, strategy in (("r1-h200", "gpu"), ("r4-h200", "gpu-peer"), ("2cores", "single"))
    }
    stone = {n: result(f"lattice-645-r{n}-h200")["rows"][0]["MLUPS"] / 1e3 for n in (1, 4)}
    sites = result("lattice-645-r1-h200")["pore sites"] / 1e6
    return [
        f"takes {ms(best)} ms on one NVIDIA H200, {percent(of_plain(best, 'dns-512-r1-h200'))} of",
        f"Four H200s take {ms(step('dns-512-r4-h200'), 2)} ms, and 1024³ points"
        f" {ms(step('dns-1024-r4-h200'))} ms ({ms(large['seconds per step'])} ms,"
        f" in {large['memory of fields (GiB)']:.0f} GiB, on one)",
        f"{rates['r1-h200']:.0f} billion points per second on one H200, {rates['r4-h200']:.0f} on"
        f" four, {rates['2cores']:.1f} on two CPU cores",
        f"a sandstone with {sites:.0f} million pore voxels advances {stone[1]:.0f} billion sites"
        f" per second on one H200 and {stone[4]:.0f} on four",
    ]


def performance():
    large = result("dns-1024-r1-h200")
    best, single = figure("DNS 512³: step"), figure("DNS 512³ single: step")
    lines = [headline for count in (1, 2) for headline in headline_rows(count)]
    lines += [headlines_told(1), headlines_told(2)]
    for way in ("forward", "backward"):
        lines.remove(headline_row(f"FFT 1024³ pencils: {way}", 2))
    lines.append("Transforms in pencils are not in the table: they have no record")

    def memory(name):
        return f"{result(name)['memory of fields (GiB)']:.1f} GiB"

    lines += [
        row(
            *("512³", "double", f"{ms(best['seconds'])} ms"),
            f"{of_plain(best['seconds'], 'dns-512-r1-h200'):.2f}",
            f"{best['fraction of the bound']:.2f}",
            memory("dns-512-r1-h200"),
        ),
        row(
            *("512³", "single", f"{ms(single['seconds'])} ms", ""),
            f"{single['fraction of the bound']:.2f}",
            memory("dns-512-f32-h200"),
        ).replace("|  |", "| |"),
        row(
            *("1024³", "double", f"{ms(large['seconds per step'])} ms"),
            f"{large['step / as many plain transforms']:.2f}",
            f"{large['fraction of the bound']:.2f}",
            memory("dns-1024-r1-h200"),
        ),
        f"| `hd`, 512³, fields on the GPU | {memory('dns-512-r1-h200')} |"
        f" {ms(best['seconds'])} ms | | | {step('dns-512-hd-16cores'):.2f} s |",
        f"one rank of 16 threads takes {step('dns-512-hd-16threads'):.1f} s for `hd`",
    ]
    return [*lines, *streamed_steps(), *several_gpus(), *two_cores()]


def streamed_steps():
    """Return the rows of steps whose fields are on the host."""
    lines, shown_models = [], {"hd"}
    for label, name in (
        ("`hd`, 512³, all columns stay", "hd-512-h200-resident"),
        ("`hd`, 512³", "hd-512-h200-resident-3GiB"),
        ("`hd`, 512³", "hd-512-h200-resident-2GiB"),
        ("`hd`, 512³, no columns stay", "hd-512-h200"),
        ("`boussinesq`, 512³, all stay", "boussinesq-512-h200-resident"),
        ("`boussinesq`, 512³, none stay", "boussinesq-512-h200"),
        ("`mhd`, 512³, all stay", "mhd-512-h200-resident"),
        ("`mhd`, 512³, none stay", "mhd-512-h200"),
        ("`gpe`, 512³, all stay", "gpe-512-h200-resident"),
        ("`gpe`, 512³, none stay", "gpe-512-h200"),
        ("`hd`, 512³, two ranks with a GPU each, all stay", "hd-512-r2-h200-resident"),
        ("`hd`, 512³, two ranks with a GPU each, none stay", "hd-512-r2-h200"),
        ("`hd`, 512³, two GPUs of one rank, none stay", "hd-512-h200-2gpus"),
        ("`hd`, 512³, four GPUs of one rank, none stay", "hd-512-h200-4gpus"),
        ("`hd`, 512³, two ranks with two GPUs each, none stay", "hd-512-r2-2gpus-h200"),
        ("`hd`, 512³, four ranks with a GPU each, none stay", "hd-512-r4-h200"),
        ("`hd`, 512³, four ranks with a GPU each, all stay", "hd-512-r4-h200-resident"),
        ("`hd`, 256³, all stay", "hd-256-h200-resident"),
        ("`hd`, 256³, none stay", "hd-256-h200-streams"),
    ):
        asked, serial = result(f"dns-host-{name}")["rows"][:2]
        seconds = asked["seconds per step"]
        each = " each" if "each" in label or "of one rank" in label else ""
        lines.append(
            f"| {label} | {asked['device memory (bytes)'] / 2**30:.1f} GiB{each} |"
            f" {ms(seconds)} ms | {asked['of the bound']:.2f} |"
            f" {ms(serial['seconds per step'])} ms |"
        )
        model = label.split("`")[1]
        if "ranks" not in label and "GPUs" not in label and "512³" in label:
            cores = step(f"dns-512-{model}-16cores")
            ratio = digits(cores / seconds, 2)
            lines[-1] += f" {ratio}" if model in shown_models else f" {cores:.2f} s: {ratio}"
            shown_models.add(model)
    return lines


def several_gpus():
    lines = []
    for points, ranks, name in (
        (512, 1, "512-r1"),
        (512, 2, "512-r2"),
        (512, 4, "512-r4-serial"),
        (512, 4, "512-r4"),
        (1024, 1, "1024-r1"),
        (1024, 4, "1024-r4"),
    ):
        record_row = result(f"dns-{name}-h200")
        moved = record_row["timers (s per step)"].get("communication")
        exposed = record_row["exposed communication (s per step)"]
        cells = [f"{points}³", str(ranks)]
        cells += ["", ""] if ranks == 1 else [record_row["transport"], record_row["schedule"]]
        cells += [f"{ms(record_row['seconds per step'])} ms"]
        cells += [f"{1e3 * moved:.1f} ms, {1e3 * exposed:.1f} ms" if moved else ""]
        lines.append(row(*cells).replace("|  |", "| |").replace("|  |", "| |"))
    gain = 1 - step("dns-512-r4-h200") / step("dns-512-r4-serial-h200")
    return [
        *lines,
        f"The exchange by `peer` and its overlap take {percent(gain)} off the bulk-synchronous",
    ]


def two_cores():
    one, two = result("dns-128-2cores"), result("dns-128-2ranks")
    costs = [f"{100 * (each['step / its transforms alone'] - 1):.0f} %" for each in (one, two)]
    return [
        f"one rank with two threads: {ms(one['seconds per step'], 2)} ms per step; the physics adds"
        f" {costs[0]} to the step's own transforms ({costs[1]} on two ranks of one thread)",
    ]


def compared_transforms():
    """Return rows of transforms: ratios to the best library, on one thread and on two."""
    found = {}
    for name in ("1thread", "2threads"):
        for one in record(f"transforms-{name}")["rows"]:
            found.setdefault(one["row"], []).append(f"{one['ratio']:.2f}")
    powers = str.maketrans("230", "²³⁰")

    def printed(name):
        return re.sub(r"\^(\d+)", lambda power: power[1].translate(powers), name)

    return [
        row(printed(name), ", ".join(ratios[:2]), ", ".join(ratios[2:]))
        for name, ratios in found.items()
    ]


def fft():
    ways = ("forward", "backward")

    def shown(seconds):
        return [f"{1e3 * one:.{2 if one < 2e-3 else 1}f}" for one in seconds]

    def pair(name):
        return shown(result(f"fft-{name}")["seconds"][way] for way in ways)

    def headline_pair(points, count):
        return shown(figure(f"FFT {points}³: {way}", count)["seconds"] for way in ways)

    def plain(name):
        actual = result(f"fft-{name}")["comparison"]["cuFFT, 1 GPU"]
        return f"{ms(actual['forward'])}, {ms(actual['backward'])}"

    lines = [
        row("1024³", "1", *pair("1024-r1-h200"), plain("1024-r1-h200")),
        f"| 1024³ | 2 | {' | '.join(headline_pair(1024, 2))} | |",
        f"| 1024³ | 4 | {' | '.join(pair('1024-r4-h200'))} | |",
        f"| 1024³, modes kept by the 2/3 rule | 4 | {' | '.join(pair('1024-pruned-r4-h200'))} | |",
        f"| 1024³, single precision | 4 | {' | '.join(pair('1024-f32-r4-h200'))} | |",
        row("512³", "1", *headline_pair(512, 1), plain("512-r1-h200")),
        f"| 512³ | 4 | {' | '.join(pair('512-r4-h200'))} | |",
        f"| 1024³, FP32 on the wire | 4 | {' | '.join(pair('1024-r4-wire-h200'))} | |",
        *compared_transforms(),
    ]
    four = result("fft-1024-r4-h200")
    shares = four["wire bound / time"]
    lines.append(
        f"reaches {four['all-to-all alone (GB/s per rank)']:.0f} GB/s per GPU in the same run, so"
        f" that the data need at least {1e3 * four['wire bound (s)']:.1f} ms at 1024³: the"
        f" transforms take {1 / shares['forward']:.1f} and {1 / shares['backward']:.1f} times that"
    )
    small, root = pair("64-r4-h200"), pair("64-r4-root-h200")
    lines.append(f'64³ takes {small[0]} ms on four, and {root[0]} ms by layout "root"')
    for n in (128, 256):
        actual = result(f"fft-{n}-2ranks")["comparison"]
        ours, theirs = (
            actual[name]["pair / plain pair"] for name in ("slipstream", "mpi4py-fft, 2 ranks")
        )
        lines.append(row(f"{n}³", fixed(ours, 2), fixed(theirs, 2)))
    largest = max(row["GB/s per rank"] for row in result("exchange-r4-h200")["rows"])
    lines.append(f"In this picture an exchange reaches at most {largest:.0f} GB/s per GPU")
    return [*lines, *streamed_transforms()]


def streamed(name, which=0):
    """Return the seconds forward, and the share of the bound, of a transform from the host."""
    one = result(f"fft-host-{name}-h200")["rows"][which]
    return one["seconds"]["forward"], one["of the bound"]["forward"]


def streamed_transforms():
    lines = []
    for label, name, share in (
        ("256³, 2 GiB: once each way, in before out", "256-r1", None),
        ("512³, 1 GiB", "512-r1", 0),
        ("1024³, 8 GiB", "1024-r1", 0),
        ("512³ on two ranks, by MPI from host to host", "512-r2-mpi", 0),
    ):
        (seconds, of_bound), (serial, _) = streamed(name), streamed(name, 1)
        bound = "0.88" if share is None else f"{of_bound:.2f}"
        count = 2 if name.startswith("256") else 3
        lines.append(row(label, f"{ms(seconds, count)} ms", bound, f"{ms(serial, count)} ms"))
    rows = result("fft-host-2048-r1-h200")["rows"]
    ways = rows[0]["seconds"]
    lines.append(
        row(
            "2048³ in place, 40 GiB",
            f"{ways['forward']:.2f} s, and {ways['backward']:.2f} s back",
            f"{rows[0]['of the bound']['forward']:.2f}",
            f"{rows[1]['seconds']['forward']:.2f} s",
        )
    )
    for gpus, ranks, small, large in (
        (1, 1, "512-r1", "1024-r1"),
        (2, 1, "512-2gpus", "1024-2gpus"),
        (2, 2, "512-r2-of-4", "1024-r2"),
        (4, 2, "512-r2-2gpus", "1024-r2-2gpus"),
    ):
        cells = [
            f"{ms(streamed(name, which)[0])} ms" for name in (small, large) for which in (0, 1)
        ]
        lines.append(row(str(gpus), str(ranks), *cells, f"{streamed(large)[1]:.2f}"))
    for gpus, ranks, small, large, other, what in (
        (4, 1, "512-4gpus", "1024-4gpus-128-pencils", "1024-4gpus", "{} with 64 tiles for 128"),
        (4, 4, "512-r4", "1024-r4", "1024-r4-device", "{} from the device"),
    ):
        cells = [f"{ms(streamed(small, which)[0])} ms" for which in (0, 1)]
        cells.append(f"{ms(streamed(large)[0])} ms; " + what.format(ms(streamed(other)[0])))
        cells.append(f"{ms(streamed(large, 1)[0])} ms; {ms(streamed(other, 1)[0])}")
        cells.append(f"{streamed(large)[1]:.2f}; {streamed(other)[1]:.2f}")
        lines.append(row(str(gpus), str(ranks), *cells))
    seconds, share = streamed("1024-r2-nccl")
    lines.append(
        f"by NCCL 1024³ points take {ms(seconds)} ms ({share:.2f} of the bound of its run)"
    )
    seconds, share = streamed("512-r2-nccl")
    lines.append(f"and 512³ points {ms(seconds)} ms ({share:.2f})")
    return [*lines, *ways_of_sending()]


def ways_of_sending():
    def named(name, *names):
        rows = result(f"fft-host-{name}-h200")["rows"]
        return next(one["seconds"]["forward"] for one in rows if one["name"] in names)

    ways = (
        ("synchronous",),
        ("pipelined, as asked",),
        ("1 at a time, from the host", "1 pencils an exchange"),
        ("4 at a time, from the host", "4 pencils an exchange"),
        ("1 at a time, from the device", "1, from the device"),
        ("4 at a time, from the device", "4, from the device"),
    )
    lines = []
    for n, names in ((256, ("256-r2", "256-r2-of-4")), (512, ("512-r2", "512-r2-of-4"))):
        count = 2 if n == 256 else 3
        cells = [", ".join(ms(named(name, *way), count) for name in names) for way in ways]
        one_rank = streamed(f"{n}-2gpus")[0]
        lines.append(row(f"{n}³", *(f"{cell} ms" for cell in cells), f"{ms(one_rank, count)} ms"))
    cells = [ms(named("1024-r2", *way)) for way in ways] + [ms(streamed("1024-2gpus")[0])]
    return [*lines, row("1024³", *(f"{cell} ms" for cell in cells))]


def strategy_rate(name, strategy):
    rows = result(name)["rows"]
    return next(one["Gpoint/s"] for one in rows if one["strategy"] == strategy)


def advection():
    def rate(ranks, strategy):
        number = strategy_rate(f"advection-420-r{ranks}-h200", strategy)
        return f"{number:.1f}" if number < 9.95 else f"{number:.0f}"

    one = {each["strategy"]: each for each in result("advection-420-r1-h200")["rows"]}
    copy = {name: f"{one[name]['fraction of copy']:.2f} of copy" for name in ("single", "gpu")}
    lines = [
        f"| `single` | {rate(1, 'single')} Gpoint/s, {copy['single']} | | |",
        f"| `gpu` | {rate(1, 'gpu')}, {copy['gpu']} | | |",
        *(
            f"| `{name}` | | {rate(2, name)} | {rate(4, name)} |"
            for name in ("mpi", "mpi-nonblocking", "mpi-threaded", "gpu-mpi", "gpu-mpi-streams")
        ),
        f"| `gpu-peer` | | {rate(2, 'gpu-peer')} | {rate(4, 'gpu-peer')} |",
        *(
            row(f"`{name}`, best shell (0)", *(rate(ranks, name) for ranks in (1, 2, 4)))
            for name in ("hybrid", "hybrid-overlap")
        ),
    ]
    weak = [
        strategy_rate("advection-weak-r1-h200", "gpu"),
        strategy_rate("advection-weak-r4-h200", "gpu-peer"),
    ]
    lines.append(
        f"`gpu-peer` on four does {weak[1]:.0f} Gpoint/s, {weak[1] / weak[0] / 4:.2f} of four times"
        f" what one GPU does alone ({weak[0]:.0f})"
    )
    by_peer, by_mpi = (
        strategy_rate("advection-420-r4-h200", name) for name in ("gpu-peer", "gpu-mpi")
    )
    lines.append(f"`gpu-peer` on four GPUs is {by_peer / by_mpi:.1f} times as fast as `gpu-mpi`")
    shell = [
        strategy_rate("advection-shell-r2-h200", name)
        for name in ("hybrid-overlap", "gpu-mpi-streams")
    ]
    lines.append(f"({shell[0]:.0f} against {shell[1]:.0f} Gpoint/s on two ranks)")
    alone = result("advection-420-2cores")
    copy = alone["copy bandwidth (B/s)"]
    share = alone["rows"][0]["fraction of copy"]
    lines.append(
        f"`single` reaches {strategy_rate('advection-420-2cores', 'single'):.1f} Gpoint/s,"
        f" {share:.2f} of the bandwidth of a plain copy and"
        f" {share * copy['cpu'] / copy['cpu, bypassing caches']:.2f} of a copy"
    )
    on_two = [strategy_rate("advection-420-2ranks", name) for name in ("mpi-nonblocking", "mpi")]
    assert 0.98 < on_two[0] / on_two[1] < 1.1
    return [*lines, *lines_of_strategies()]


def lines_of_strategies():
    """Return the rows of the table of lines of code, which the program counts."""
    groups = {}
    for name in STRATEGIES:
        groups.setdefault(lines_of([name]), []).append(f"`{name}`")
    rows = [row(", ".join(names), str(count)) for count, names in sorted(groups.items())]
    first, every = list(STRATEGIES)[:2], list(STRATEGIES)
    rows.append(row(f"`{first[0]}` and `{first[1]}` together", str(lines_of(first))))
    each = [lines_of([name]) for name in every]
    return [
        *rows,
        row("all ten together", str(lines_of(every))),
        f"Here that ratio is {max(each) / min(each):.1f}, and all ten strategies are"
        f" {lines_of(every) / lines_of(first):.1f} times the first two",
    ]


def lattice():
    rows = {one["name"]: one for one in result("lattice-645-r1-h200")["rows"]}
    asked = rows["as asked"]
    two, four, weak = (
        result(f"lattice-{name}-h200")["rows"] for name in ("645-r2", "645-r4", "weak-r4")
    )
    named = {one["name"]: one for one in four}
    even, odd = (one / 1e3 for one in asked["MLUPS of the two steps"])
    shares = asked["fraction of copy"]
    dense = result("lattice-dense-r1-h200")["rows"][0]
    lines = [
        f"| even step | 304 | {even:.1f} | {shares[0]:.2f} |",
        f"| odd step | 324 | {odd:.2f} | {shares[1]:.2f} |",
        f"| both | 314 | {asked['MLUPS'] / 1e3:.1f} | {asked['fraction of copy, pair']:.2f} |",
        "| dense box 320³, `stream`, wide links: even, odd | 304, 376 | "
        + ", ".join(f"{one / 1e3:.1f}" for one in dense["MLUPS of the two steps"])
        + " | "
        + ", ".join(f"{one:.2f}" for one in dense["fraction of copy"])
        + " |",
        f"| both, float32 | 162 | {rows['float32']['MLUPS'] / 1e3:.1f} |"
        f" {rows['float32']['fraction of copy, pair']:.2f} |",
        f"gives {two[0]['MLUPS'] / 1e3:.1f} GLUPS on two and {four[0]['MLUPS'] / 1e3:.1f} on four,"
        f" {four[0]['MLUPS'] / asked['MLUPS'] / 4:.2f} of four times one (bulk-synchronous"
        f" {named['serial']['MLUPS'] / 1e3:.1f}; Cartesian blocks"
        f" {named['cartesian']['MLUPS'] / 1e3:.1f}",
        f"on each of four, {weak[0]['MLUPS'] / 1e3:.1f} GLUPS,"
        f" {weak[0]['MLUPS'] / asked['MLUPS'] / 4:.2f} of four times one",
    ]
    small = result("lattice-256-2cores")["rows"][0]
    lines.append(
        f"{small['MLUPS']:.0f} million sites per second, {small['fraction of copy, pair']:.2f} of"
        f" the copy bandwidth of the same run ({small['copy bandwidth (B/s)'] / 1e9:.0f} GB/s;"
    )
    return lines


def ranks_rows():
    """Return the table of what one rank of very many takes."""

    def name(one):
        if one["what"] == "transform":
            return "forward transform in pencils"
        return f"RK4 step in {one['what'].removesuffix(' step')}s"

    def size(count):
        large = count >= 2**20
        return f"{count / 2 ** (20 if large else 10):.3g} {'MiB' if large else 'KiB'}"

    return [
        row(
            name(one),
            str(one["ranks"]),
            f"{one['seconds']:.1f} s",
            size(one["bytes"]),
            str(one["peers"]),
            str(one["messages"]),
            size(one["largest message"]),
        )
        for one in result("ranks-16384-1core")["rows"]
        if one["ranks"] >= (1024 if one["what"] == "slab step" else 16384)
    ]


def forecast_rows():
    """Return rows of forecasts that were made before anything was measured."""
    lines = []
    for ranks, machine in ((1, "xeon"), (2, "xeon"), (1, "h100")):
        for entry in result(f"forecast-r{ranks}-{machine}")["rows"]:
            low, middle, high = (1e3 * x for x in statistics.quantiles(entry["measured"], n=4))
            actual = 1e3 * entry["forecast"]
            lines.append(
                row(
                    f"{entry['family']} {entry['points']}³, {ranks}",
                    f"{fixed(middle)} ms",
                    f"{fixed(low)} to {fixed(high)} ms",
                    f"{fixed(actual)} ms",
                    percent(actual / middle - 1, "+.0f").replace("-0 %", "0 %"),
                )
            )
    return lines


def scaling():
    lines = [*ranks_rows(), *forecast_rows()]
    machine = load_machine("h200-nvl8-ib")
    for points, ranks, seconds in (
        (512, 1, step("dns-512-r1-h200")),
        (1024, 1, step("dns-1024-r1-h200")),
        (512, 2, step("dns-512-r2-h200")),
        (1024, 2, figure("DNS 1024³: step", 2)["seconds"]),
        (512, 4, step("dns-512-r4-h200")),
        (1024, 4, step("dns-1024-r4-h200")),
    ):
        found = step_time(counted(points, ranks), machine).total
        error = percent(found / seconds - 1, "+.0f").replace("-0 %", "0 %")
        lines.append(row(f"{points}³, {ranks}", f"{ms(seconds)} ms", f"{ms(found)} ms", error))
    rates = {n: result(f"lattice-645-r{n}-h200")["rows"][0]["MLUPS"] / 1e3 for n in (1, 2, 4)}
    lines.append(f"| 1 | {rates[1]:.1f} Gupdates/s |")
    lines += [f"| {n} | {rates[n]:.1f} |" for n in (2, 4)]

    def took(ranks, name, unit=1e6):
        rows = result(f"advection-420-r{ranks}-h200")["rows"]
        return next(unit * one["seconds per step"] for one in rows if one["strategy"] == name)

    lines.append(f"| gpu, 1 | {took(1, 'gpu'):.0f} µs |")
    for name in ("gpu-peer", "gpu-mpi"):
        lines.append(f"| {name}, 2 and 4 | {took(2, name):.0f}, {took(4, name):.0f} µs |")
    lines.append(f"| gpu-mpi-streams, 2 | {took(2, 'gpu-mpi-streams'):.0f} µs |")
    for name in ("hybrid", "hybrid-overlap"):
        lines.append(f"| {name}, 1 and 2 | {took(1, name):.0f}, {took(2, name):.0f} µs |")
    lines.append(f"| single | {took(1, 'single', 1e3):.1f} ms |")
    lines.append(
        f"| mpi, 2 and 4 ranks | {took(2, 'mpi', 1e3):.1f}, {took(4, 'mpi', 1e3):.1f} ms |"
    )
    return lines


def equations():
    """Return rows of models: times, and of as many plain transforms as GHOST needs for them."""
    lines = []
    for model, sizes, transforms, theirs in (
        ("hd", "3, 5", 8, 9),
        ("boussinesq", "4, 8", 12, 16),
        ("mhd", "6, 8", 14, 27),
        ("gpe", "2, 2", 4, 8),
    ):
        one = result(f"dns-512-{'r1' if model == 'hd' else model}-h200")
        newer = {"hd": "DNS 512³: step", "mhd": "DNS mhd 512³: step"}.get(model)
        seconds = figure(newer)["seconds"] if newer else one["seconds per step"]
        share = seconds / (2 * theirs * one["seconds of a plain real transform"])
        cells = [f"`{model}`", sizes, str(transforms), str(theirs), f"{1e3 * seconds:.1f} ms"]
        lines.append(row(*cells, f"{share:.2f}"))
    # Of the program itself, as less memory is needed than when some of the records were made.
    memory = [f"{counted(512, 1, model).fields_bytes / 512**3:.0f}" for model in _TABLES]
    lines.append(f"memory: [{', '.join(memory[:-1])} and {memory[-1]} bytes per point]")
    return lines


QUOTED = {
    "README.md": readme,
    "docs/performance.md": performance,
    "docs/fft.md": fft,
    "docs/advection.md": advection,
    "docs/lattice.md": lattice,
    "docs/scaling.md": scaling,
    "docs/equations.md": equations,
}


def words_of(document):
    return " ".join((REPOSITORY / document).read_text().replace("**", "").split())


def test_examples_are_as_many_and_as_short_as_told():
    """A table of docs/python.md lists them; their number, and most lines of each, are promised."""
    text = (REPOSITORY / "docs" / "python.md").read_text()
    section = text.partition("## Twelve programs\n")[2].partition("\n## ")[0]
    programs = re.findall(r"\]\(\.\./(examples/\w+\.py)\)", section)
    assert len(programs) == 12
    most = max(len((REPOSITORY / name).read_text().splitlines()) for name in programs)
    limit = int(re.search(r"at most (\d+) lines", section)[1])
    assert most <= limit
    assert f"twelve programs of at most {limit} lines" in words_of("README.md")


@pytest.mark.slow
@pytest.mark.parametrize("document", QUOTED)
def test_figures_of_documents_are_those_of_records(document):
    text = words_of(document)
    missing = [quote for quote in QUOTED[document]() if " ".join(quote.split()) not in text]
    assert not missing, f"{document} lacks:\n" + "\n".join(missing)


@pytest.mark.slow
def test_every_record_is_quoted():
    for quotes in QUOTED.values():
        quotes()
    assert used == set(RECORDS)


def test_a_step_takes_the_memory_that_its_record_says():
    """The figure of the documents, of the record, and what a run asks for today are one."""
    for points, name in ((512, "dns-512-r1-h200"), (1024, "dns-1024-r1-h200")):
        now = counted(points, 1).fields_bytes / 2**30
        assert now == pytest.approx(result(name)["memory of fields (GiB)"], rel=0.01)
