"""Pages and pictures that are made of the program and its records, before the site is built.

All of it goes into docs/generated, which is not in the repository. Pictures are drawn again only
if their script, or a record, is newer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer
from notebooks import write_notebooks
from peers import peer_tables, published_table
from sphinx.application import Sphinx

from slipstream import cli
from slipstream.api.validation.validate_command import CASES
from slipstream.engine.accepted import VALIDATED

DOCS = Path(__file__).resolve().parents[1]
GENERATED = DOCS / "generated"


def make_pages(app: Sphinx) -> None:
    """Write the files that have changed."""
    GENERATED.mkdir(exist_ok=True)
    draw("landing", [DOCS / "figures" / "landing.py"])
    results = DOCS.parent / "bench" / "results"
    records = results.glob("*.json")
    captions = draw("charts", [DOCS / "figures" / "charts.py", *records])
    write("charts_table.md", charts(captions))
    write("validation_table.md", validation(DOCS / "data" / "validation-2cores.json"))
    write("commands_table.md", commands())
    write("peers_table.md", peer_tables(results / "peers"))
    published = DOCS / "data" / "published_transforms.json"
    write("published_table.md", published_table(published, results))
    write_notebooks(DOCS, GENERATED)


def draw(name: str, sources: list[Path]) -> str:
    """Return the output of a script of docs/figures, run only if a source is newer."""
    said = GENERATED / f"{name}.txt"
    sources.append(DOCS / "figures" / "style.py")
    if said.exists() and said.stat().st_mtime > max(one.stat().st_mtime for one in sources):
        return said.read_text(encoding="utf-8")
    command = [sys.executable, str(DOCS / "figures" / f"{name}.py"), str(GENERATED)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    said.write_text(output, encoding="utf-8")
    return output


def write(name: str, text: str) -> None:
    """Write a file, unless it has this text already, so that Sphinx reads only changed files."""
    path = GENERATED / name
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def charts(captions: str) -> str:
    """Return the charts with their captions: four lines for each, from the script."""
    lines = captions.splitlines()
    return "\n".join(
        f"## {title}\n\n![{caption}](generated/{name}.png)\n\n{caption}\n\n{origin}\n"
        for title, name, caption, origin in zip(*(lines[n::4] for n in range(4)), strict=True)
    )


def validation(path: Path) -> str:
    """Return a table for each family, after checking that the record has today's cases."""
    record = json.loads(path.read_text(encoding="utf-8"))
    recorded = [(one["family"], one["case"]) for one in record["cases"]]
    present = [(name, case.title) for name in VALIDATED for case in CASES[name]]
    if recorded != present:
        raise ValueError(
            f"{path.name} has other cases than the program: make it again by"
            f" `slipstream validate --json {path}`"
        )
    lines = [
        f"Slipstream {record['version']}, commit {record['commit'][:7]}, {record['date'][:10]},"
        f" on {record['device']}: {len(recorded)} cases in {record['seconds']:.0f} s.",
        "",
    ]
    for family in VALIDATED:
        lines += ["", f"## `{family}`", ""]
        lines += [
            "| case | result | expected | computed | error | allowed |",
            "|---|---|---|---|---|---|",
        ]
        sources: list[str] = []
        for case in (one for one in record["cases"] if one["family"] == family):
            title = case["case"]
            for finding in case["findings"]:
                if finding["source"] not in sources:
                    sources.append(finding["source"])
                number = sources.index(finding["source"]) + 1
                lines.append(
                    f"| {title} | {finding['what']} [{number}] | {finding['expected']:.7g}"
                    f" | {finding['got']:.7g} | {finding['error']:.1e}"
                    f" | {finding['tolerance']:.0e} |"
                )
                title = ""
        lines += ["", *(f"- [{number}] {text}" for number, text in enumerate(sources, 1))]
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Return the commands with their options, from the command line itself."""
    text = "\n".join(describe_command(typer.main.get_command(cli.app), "slipstream"))
    if "`--set`" not in text:
        raise ValueError("the page of commands has no options")
    return text


def describe_command(command: Any, name: str) -> list[str]:
    """Return the section of a command, or those of its subcommands."""
    if hasattr(command, "commands"):
        parts = (describe_command(one, f"{name} {word}") for word, one in command.commands.items())
        return [line for part in parts for line in part]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join([name, *map(shown_argument, arguments)])
    lines = [f"## `{name}`", "", plain(command.help), "", f"```text\n{usage} [OPTIONS]\n```", ""]
    rows = [one for one in options if not one.hidden and "--help" not in one.opts]
    if rows:
        lines += ["| option | meaning |", "|---|---|"]
        for option in rows:
            names = ", ".join(f"`{word}`" for word in [*option.opts, *option.secondary_opts])
            shown = f" `{option.metavar}`" if option.metavar and not option.is_flag else ""
            lines.append(f"| {names}{shown} | {plain(option.help)} |")
        lines.append("")
    return lines


def shown_argument(argument: Any) -> str:
    """Return an argument as usage shows it, in brackets if it is optional."""
    name = argument.metavar or argument.human_readable_name
    return name if argument.required or "[" in name else f"[{name}]"


def plain(text: str | None) -> str:
    """Return a help text in one line, safe within a table."""
    return " ".join((text or "").split()).replace("|", "\\|").replace("[", "\\[")


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the pages first."""
    app.connect("builder-inited", make_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
