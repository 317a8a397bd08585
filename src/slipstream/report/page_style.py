"""The frame of pages: one file, for screens, phones and paper, without scripts or network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from slipstream import __version__
from slipstream.printable_text import printable

# What says that a file is a page of ours, which another may replace.
GENERATOR = '<meta name="generator" content="Slipstream'

_STYLE = """
:root{--ink:#1d2126;--soft:#5b6470;--line:#dde1e6;--page:#fff;--card:#f6f7f9;--accent:#0072b2;
--warn:#b04400;--warnbg:#fff3e8;--good:#00694c;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#a3abb5;--line:#363b42;
--page:#14171b;--card:#1d2126;--accent:#56b4e9;--warn:#ffb27a;--warnbg:#33241a;--good:#5fd3a8}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:76rem;margin:0 auto;padding:1.2rem clamp(.8rem,3vw,2rem) 3rem}
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .7rem;padding-top:.4rem;border-top:1px solid var(--line)}
p{margin:.4rem 0}.soft{color:var(--soft)}
.badge{display:inline-block;padding:.05rem .6rem;border-radius:1rem;border:1px solid currentColor;
font-size:.9rem}.good{color:var(--good)}.warn{color:var(--warn)}
ul.warnings{list-style:none;margin:0;padding:0}
ul.warnings li{background:var(--warnbg);border-left:4px solid var(--warn);margin:.4rem 0;
padding:.45rem .8rem;overflow-wrap:anywhere}
.figures{display:grid;align-items:start;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,27rem),1fr))}
figure{margin:0;background:#fff;border:1px solid var(--line);border-radius:.4rem;padding:.5rem;
break-inside:avoid}
figure svg,figure img{display:block;width:100%;height:auto}
.wide{grid-column:1/-1}
.scroll{overflow-x:auto}.scroll td{overflow-wrap:normal}
.scroll td:first-child{min-width:5rem}.scroll td:last-child{min-width:10rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.28rem .8rem .28rem 0;
border-bottom:1px solid var(--line)}
th{font-weight:500;color:var(--soft)}td{overflow-wrap:anywhere}
td.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.facts{display:grid;gap:0 2.5rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}
.facts th{width:34%}
.bar{height:.75rem;background:var(--accent);border-radius:.15rem;min-width:2px;
print-color-adjust:exact;-webkit-print-color-adjust:exact}
.inner .bar{opacity:.55}.inner th{padding-left:1.2rem}
pre{background:var(--card);border:1px solid var(--line);border-radius:.4rem;padding:.7rem .9rem;
overflow-x:auto;font:13.5px/1.45 ui-monospace,"DejaVu Sans Mono",Consolas,monospace;margin:.5rem 0}
summary{cursor:pointer;color:var(--accent)}
a{color:var(--accent)}
footer{margin-top:2.5rem;color:var(--soft);font-size:.9rem}
@media print{:root{--ink:#000;--soft:#444;--line:#ccc;--page:#fff;--card:#fff;--accent:#0072b2;
--warn:#b04400;--warnbg:#fff;--good:#00694c}body{font-size:10.5pt}main{max-width:none;padding:0}
pre{white-space:pre-wrap;overflow-wrap:anywhere}h2{break-after:avoid}
.figures{grid-template-columns:1fr 1fr}}
"""


def escaped(text: object) -> str:
    """Return text that is shown as it is, whatever it holds."""
    return html.escape(printable(str(text)), quote=True)


def page(title: str, body: Iterable[str]) -> str:
    """Return a whole page; the title is a person's, and the body is HTML."""
    return "".join(
        [
            "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>\n",
            f'{GENERATOR} {escaped(__version__)}">\n',
            "<meta name='viewport' content='width=device-width,initial-scale=1'>\n",
            # Nothing is loaded or run, whatever has got into the page.
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
            " img-src data:; style-src 'unsafe-inline'\">\n",
            f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style></head>\n<body><main>\n",
            *body,
            "</main></body></html>\n",
        ]
    )


def section(title: str, *content: str) -> str:
    """Return a part of a page with a heading, or nothing if it is empty."""
    inside = "".join(content)
    return f"<section><h2>{escaped(title)}</h2>{inside}</section>\n" if inside else ""


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values, or nothing if there are none."""
    cells = "".join(
        f"<tr><th>{escaped(name)}</th><td>{escaped(value)}</td></tr>" for name, value in rows
    )
    return f"<table>{cells}</table>" if cells else ""


def grid_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a heading, which scrolls where it is wider than the screen."""
    top = "".join(f"<th>{escaped(one)}</th>" for one in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escaped(one)}</td>" for one in row) + "</tr>" for row in rows
    )
    return f"<div class='scroll'><table><tr>{top}</tr>{body}</table></div>" if body else ""


def figure(svg: str, is_wide: bool = False) -> str:
    """Return a figure, of SVG or an ``img``."""
    return f"<figure{' class=wide' if is_wide else ''}>{svg}</figure>\n"


def folded(title: str, content: str) -> str:
    """Return content that is shown on demand."""
    return f"<details><summary>{escaped(title)}</summary>{content}</details>"


def preformatted(text: str) -> str:
    """Return a text with its lines, such as a command or a case."""
    lines = "\n".join(escaped(line) for line in text.splitlines())
    return f"<pre>{lines}</pre>"
