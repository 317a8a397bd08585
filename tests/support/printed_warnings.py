"""The warnings that runs print, raise in Python, or show in their reports."""

import html
import re

# As commands print them, and as Python does on standard error.
_PRINTED = re.compile(r"^(?:.*: )?(?:[A-Z]\w*Warning|warning): (.*)$", re.M)
_LISTED = re.compile(r"<ul class='warnings'>(.*?)</ul>", re.S)


def warnings_in(text):
    """Return the warnings in what was printed, each once."""
    return list(dict.fromkeys(_PRINTED.findall(text)))


def warnings_of_reports(folder):
    """Return what the reports in a folder, and in those below, say needs attention."""
    found = []
    for path in sorted(folder.rglob("report.html")):
        for content in _LISTED.findall(path.read_text()):
            found += [html.unescape(one) for one in re.findall(r"<li>(.*?)</li>", content)]
    return list(dict.fromkeys(found))


def assert_intended(found, intended, all_appear=False):
    """Every warning matches a pattern, and every pattern a warning if `all_appear`."""
    matched = {one: [text for text in intended if re.search(text, one)] for one in found}
    assert [one for one, texts in matched.items() if not texts] == []
    if all_appear:
        assert {text for texts in matched.values() for text in texts} == intended.keys()
