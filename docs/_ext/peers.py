"""The tables of the page of comparisons, from records of runs and from published figures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

# Slipstream's records in the table of published transforms.
OURS = ("fft-1024-r4-h200", "fft-1024-f32-r4-h200")


def peer_tables(folder: Path) -> str:
    """Return a section for each record of `bench/peers`."""
    return "\n".join(
        _section(path.name, json.loads(path.read_text(encoding="utf-8")))
        for path in sorted(folder.glob("*.json"))
    )


def _section(file: str, record: dict[str, Any]) -> str:
    name, rows = record["peer"], record["rows"]
    k = [row["said"][0].get("permeability (voxels²)") for row in rows]
    load = record["load"]
    lines = [
        f"### {name} {record['version']}",
        "",
        " ".join([f"{record['work']}.", record["differs"], record.get("note", "")]).rstrip(),
        "",
        f"| n | {name} | Slipstream | ratio |"
        + (" k of both, exact (voxels²) |" if any(k) else ""),
        "|---|---|---|---|" + ("---|" if any(k) else ""),
    ]
    for row in rows:
        theirs, ours = row["peer seconds"], row["slipstream seconds"]
        medians = row.get("medians") or [None, None]
        permeabilities = [one.get("permeability (voxels²)") for one in row["said"]]
        both = ""
        if all(permeabilities):
            exact = row.get("exact permeability")
            both = f" {permeabilities[0]:.3g}, {permeabilities[1]:.3g}" + (
                f", {exact:.3g} |" if exact else " |"
            )
        # Times to other results are not compared.
        same = not all(permeabilities) or abs(permeabilities[0] / permeabilities[1] - 1) < 0.05
        ratio = f"{theirs / ours:.2g}" if same else "other k"
        what = f"{row['n']}, {row['sample']}" if "sample" in row else row["n"]
        lines.append(
            f"| {what} | {_with_median(theirs, medians[0])} | {_with_median(ours, medians[1])}"
            f" | {ratio} |{both}"
        )
    where = record["device"] or record["machine"]
    cores = {row["cores"] for row in rows}
    several = "" if record["device"] else f", on {max(cores)} {'core' if cores == {1} else 'cores'}"
    lines += [
        "",
        f"{where}{several}, {record['date'][:10]}, Slipstream {record['slipstream']} at commit"
        f" {record['commit'][:7] or '(not recorded)'}, load {load:.1f} from other work."
        f" Script: `bench/peers/{record['script']}`. Record: `bench/results/peers/{file}`.",
        "",
    ]
    return "\n".join(lines)


def published_table(published: Path, results: Path) -> str:
    """Return published times of transforms and our own, each with what it was divided by."""
    rows = json.loads(published.read_text(encoding="utf-8"))
    for name in OURS:
        record = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        result = record["result"]
        single = result["dtype"] == "float32"
        rows.append(
            {
                "program": "Slipstream",
                "grid": result.get("shape", [1024] * 3),
                "kind": "real",
                "bytes per mode": 8 if single else 16,
                "devices": result["ranks"],
                "machine": f"{record['device'].removeprefix('NVIDIA ')}, one host, NVLink",
                "seconds": result["seconds"]["forward"],
                "source": f"`bench/results/{name}.json`",
            }
        )
    lines = [
        "| program | transform | GPUs | time | exchanges | TFLOP/s of a GPU | GB/s that a GPU"
        " sends |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        points, devices = math.prod(row["grid"]), row["devices"]
        real = row["kind"] == "real"
        flops = (2.5 if real else 5) * points * math.log2(points)
        seconds = row.get("seconds") or flops / row["gigaflops"] / 1e9
        sent = row["bytes per mode"] * points / (2 if real else 1) / devices
        exchanges = row.get("exchanges", 1)
        derived = "" if "seconds" in row else f", from {row['gigaflops']} GFLOP/s"
        rate = exchanges * sent * (devices - 1) / devices / seconds
        precision = "single" if row["bytes per mode"] == 8 else "double"
        source = row["source"]
        text = f"[source]({source})" if source.startswith("http") else source
        lines.append(
            f"| {row['program']} | {row['grid'][0]}³ {row['kind']}, {precision} | {devices} "
            f"{row['machine']} | {_time(seconds)}{derived} | {exchanges} |"
            f" {flops / seconds / devices / 1e12:.2g} | {rate / 1e9:.3g} | {text} |"
        )
    lines[:2] = [line + (" source |" if n == 0 else "---|") for n, line in enumerate(lines[:2])]
    return "\n".join(lines) + "\n"


def _with_median(least: float, median: float | None) -> str:
    return _time(least) + (f" ({_time(median)})" if median else "")


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
