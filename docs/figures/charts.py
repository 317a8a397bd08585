"""Charts of the records in `bench/results`, each with its device, commit and date.

python docs/figures/charts.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from style import COLOURS, GREY, plt, record, source, time_text

Chart = tuple[str, str, str]


def headlines(folder: Path) -> Chart:
    """Draw headline figures on one and two GPUs, as fractions of their bound."""
    names, rows = ("headlines-1-h200", "headlines-2-h200"), []
    for name, count in zip(names, (", 1 GPU:", ", 2 GPUs:"), strict=True):
        for headline in record(name)["result"]["figures"]:
            if (
                headline["bound (s)"]
                and count in headline["name"]
                and "pencils" not in headline["name"]
            ):
                rows.append((headline["name"], headline["seconds"], headline["bound (s)"]))
    families = {"DNS": "turbulence", "FFT": "transforms", "sandstone": "rock"}
    figure, axes = plt.subplots(figsize=(8, 0.34 * len(rows) + 0.9))
    for number, (name, seconds, bound) in enumerate(reversed(rows)):
        family = families.get(name.split()[0], "advection")
        axes.barh(number, 100 * bound / seconds, color=COLOURS[family], height=0.7)
        axes.text(
            100 * bound / seconds - 1,
            number,
            time_text(seconds),
            va="center",
            ha="right",
            color="white",
            fontsize=9,
        )
    axes.set_yticks(range(len(rows)), [name for name, _, _ in reversed(rows)], fontsize=9)
    axes.set(xlim=(0, 108), xlabel="percent of the bound")
    axes.axvline(100, color=GREY, linewidth=1)
    return save(
        figure,
        folder,
        "headlines",
        "Time of a step or a transform, and how near it is to its bound: the bytes that must cross"
        " memory or the wire, at the bandwidth of a copy in the same run.",
        *names,
    )


def turbulence(folder: Path) -> Chart:
    """Draw the time of a step against the number of GPUs."""
    lines = {
        "512³": ("dns-512-r1-h200", "dns-512-r2-h200", "dns-512-r4-h200"),
        "1024³": ("dns-1024-r1-h200", "dns-1024-r4-h200"),
    }
    figure, axes = plt.subplots(figsize=(6, 3.6))
    for points, names in lines.items():
        check_one_version(*names)
        ranks = [record(name)["result"]["ranks"] for name in names]
        times = [1e3 * record(name)["result"]["seconds per step"] for name in names]
        axes.plot(ranks, times, "o-", color=COLOURS["turbulence"])
        axes.plot(ranks, times[0] / np.array(ranks), ":", color=GREY)
        axes.annotate(f" {points}", (ranks[-1], times[-1]), va="center")
        axes.annotate(" ideal", (ranks[-1], times[0] / ranks[-1]), va="center", color=GREY)
    axes.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="ms per step", xlim=(0.9, 5.5))
    axes.set_xticks([1, 2, 4], ["1", "2", "4"])
    axes.minorticks_off()
    axes.set_yticks([5, 10, 20, 50, 100, 200], ["5", "10", "20", "50", "100", "200"])
    return save(
        figure,
        folder,
        "turbulence",
        "A second-order step of Navier-Stokes in double precision, 16 transforms.",
        *(name for names in lines.values() for name in names),
    )


def transforms(folder: Path) -> Chart:
    """Draw the time of a transform on some GPUs, and with less to send."""
    bars = {
        "1 GPU": ("fft-1024-r1-h200", "forward"),
        "2 GPUs": ("headlines-2-h200", "FFT 1024³, 2 GPUs: forward"),
        "4 GPUs": ("fft-1024-r4-h200", "forward"),
        "4 GPUs, modes kept by the 2/3 rule": ("fft-1024-pruned-r4-h200", "forward"),
        "4 GPUs, single precision": ("fft-1024-f32-r4-h200", "forward"),
    }
    figure, axes = plt.subplots(figsize=(7, 2.6))
    draw_bars(axes, bars, COLOURS["transforms"])
    axes.set(xlabel="ms of a forward transform of 1024³ points, real to complex")
    return save(
        figure,
        folder,
        "transforms",
        "Forward transforms of 1024³ points in slabs, double precision unless single is stated.",
        *(name for name, _ in bars.values()),
    )


def check_one_version(*names: str) -> None:
    """Refuse to join figures of different versions by a line."""
    commits = {record(name)["commit"] for name in names}
    if len(commits) > 1:
        raise ValueError(f"{names} are of different versions")


def draw_bars(axes: plt.Axes, bars: dict[str, tuple[str, str]], colour: str) -> None:
    """Draw a time of each record, by its name there, labelled with the time and the date."""
    for number, (name, what) in enumerate(reversed(bars.values())):
        run_record, result = record(name), record(name)["result"]
        times = {one["name"]: one["seconds"] for one in result.get("figures", ())}
        times |= {"seconds per step": result.get("seconds per step"), **result.get("seconds", {})}
        label = f"{time_text(times[what])}, {run_record['date'][:10]}"
        axes.barh(number, 1e3 * times[what], color=colour, height=0.7)
        axes.annotate(
            label,
            (1e3 * times[what], number),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.set_yticks(range(len(bars)), list(reversed(bars)))
    axes.margins(x=0.4)


def rock(folder: Path) -> Chart:
    """Draw updates of pores per second against the number of GPUs."""
    names = [f"lattice-645-r{ranks}-h200" for ranks in (1, 2, 4)]
    check_one_version(*names)
    ranks = [record(name)["result"]["ranks"] for name in names]
    rates = [record(name)["result"]["rows"][0]["MLUPS"] / 1e3 for name in names]
    figure, axes = plt.subplots(figsize=(6, 3.2))
    axes.plot(ranks, rates, "o-", color=COLOURS["rock"])
    axes.plot(ranks, rates[0] * np.array(ranks), ":", color=GREY)
    axes.annotate(" measured", (4, rates[-1]), va="top")
    axes.annotate(" ideal", (4, 4 * rates[0]), va="bottom", color=GREY)
    axes.set(xlabel="GPUs", ylabel="billion pore updates a second", xlim=(0.8, 4.9), ylim=0)
    axes.set_xticks([1, 2, 4])
    return save(
        figure,
        folder,
        "rock",
        "Flow through a sandstone of 645³ voxels, 34.9 million pores, double precision.",
        *names,
    )


def advection(folder: Path) -> Chart:
    """Draw strategies on one, two and four ranks."""
    names = [f"advection-420-r{ranks}-h200" for ranks in (1, 2, 4)]
    rates: dict[str, dict[int, float]] = {}
    for name in names:
        result = record(name)["result"]
        for row in result["rows"]:
            best = rates.setdefault(row["strategy"], {})
            best[result["ranks"]] = max(row["Gpoint/s"], best.get(result["ranks"], 0.0))
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for number, by_ranks in enumerate(reversed(rates.values())):
        for ranks, rate in by_ranks.items():
            axes.plot(rate, number, "o", color=COLOURS["advection"], alpha=0.3 + 0.17 * ranks)
            offset = (0, -13 if ranks == 4 else 6)
            axes.annotate(
                str(ranks),
                (rate, number),
                offset,
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    axes.set_yticks(range(len(rates)), list(reversed(rates)))
    axes.set(xscale="log", xlabel="billion points a second")
    axes.grid(axis="y", linewidth=0.4)
    return save(
        figure,
        folder,
        "advection",
        "Ten strategies for one advection step of 420³ points; numbers are ranks, each with a GPU"
        " where the strategy uses one.",
        *names,
    )


def processors(folder: Path) -> Chart:
    """Draw transforms on one CPU core as multiples of the fastest other library's time."""
    name = "transforms-1thread"
    rows = [one for one in record(name)["rows"] if one["row"] != "16^3"]
    labels = list(dict.fromkeys(one["row"] for one in rows))
    figure, axes = plt.subplots(figsize=(7, 4.6))
    for bits, colour, shift in ((64, COLOURS["transforms"], 0.2), (32, GREY, -0.2)):
        kinds = f"float{bits}", f"complex{2 * bits}"
        ratios = [one["ratio"] for one in rows if one["dtype"] in kinds]
        heights = [len(labels) - 1 - i + shift for i in range(len(labels))]
        label = "double precision" if bits == 64 else "single"
        axes.barh(heights, ratios, 0.38, color=colour, label=label)
    axes.axvline(1, color=GREY, linewidth=1)
    axes.set_yticks(range(len(labels)), list(reversed(labels)))
    axes.set(xlabel="time / time of the fastest of FFTW, ducc0 and SciPy")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)
    return save(
        figure,
        folder,
        "processors",
        "Forward and backward transforms on one CPU core, as multiples of the time of the fastest"
        " other library in the same process.",
        name,
    )


def save(figure: plt.Figure, folder: Path, name: str, caption: str, *records: str) -> Chart:
    """Write a picture, and return its name with its caption and where its figures come from."""
    figure.savefig(folder / f"{name}.png")
    plt.close(figure)
    return name, caption, source(*records)


CHARTS = {
    "Headline figures": headlines,
    "Turbulence on several GPUs": turbulence,
    "Transforms on several GPUs": transforms,
    "Transforms on a CPU core": processors,
    "Flow through rock on several GPUs": rock,
    "Overlap strategies of advection": advection,
}

if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for title, draw in CHARTS.items():
        print(title, *draw(target), sep="\n")
