"""Promises of a release: licences of a default installation, and one version in all files."""

import json
import re
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from check_container import apptainer_steps, docker_steps
from flows import REPOSITORY
from slipstream import __version__
from slipstream.engine.processes import REQUIREMENTS, how_to_install

PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PROJECT, BUILT_WITH = PYPROJECT["project"], PYPROJECT["build-system"]["requires"]
# Runtime libraries of GCC that wheels carry: their exception allows any licence for linked code.
EXCEPTION = r"GPL-3\.0-or-later WITH GCC-exception-3\.1"


def installed_with(requirements):
    """Return the distributions that some requirements bring, directly or through others."""
    results, waiting = {}, [Requirement(one) for one in requirements]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        extras = {"", *one.extras}
        if one.marker and not one.marker.evaluate({"extra": ""}):
            continue
        if name in results:
            continue
        results[name] = metadata.distribution(name)
        for text in results[name].requires or []:
            needed = Requirement(text)
            if not needed.marker or any(needed.marker.evaluate({"extra": e}) for e in extras):
                needed.marker = None
                waiting.append(needed)
    return results


def licence_of(distribution):
    """Return the licence of a distribution from its metadata, in one line."""
    of = distribution.metadata
    classifiers = [one for one in of.get_all("Classifier") or [] if one.startswith("License ::")]
    # Some put the whole text there, whose first line names it.
    first = (of.get("License") or "").strip().partition("\n")[0]
    return "; ".join(filter(None, [of.get("License-Expression"), first, *classifiers]))


def test_no_part_of_a_default_installation_is_under_the_gpl():
    distributions = installed_with(PROJECT["dependencies"])
    assert {"numpy", "zarr", "pydantic-core", "contourpy"} <= distributions.keys()
    assert "pyfftw" not in distributions  # whose wheels carry FFTW
    licences = {name: licence_of(one) for name, one in sorted(distributions.items())}
    print(*(f"{name}: {licence}" for name, licence in licences.items()), sep="\n")
    assert not [name for name, licence in licences.items() if not licence]
    words = re.compile(r"GPL|General Public")
    refused = [n for n, one in licences.items() if words.search(re.sub(EXCEPTION, "", one))]
    assert not refused


@pytest.mark.parametrize("extra", REQUIREMENTS)
def test_commands_that_messages_print_install_what_the_extra_does(extra):
    assert list(REQUIREMENTS[extra]) == PROJECT["optional-dependencies"][extra]
    for one in REQUIREMENTS[extra]:
        assert f'"{one}"' in how_to_install(extra)


def test_all_files_name_one_version():
    for name, pattern in {
        "CITATION.cff": r"^version: (\S+)$",
        "packaging/conda/meta.yaml": r'^{% set version = "(\S+)" %}$',
        "packaging/spack/package.py": r'^    version\("(\S+?)"',
        "docs/citing.md": r"version = \{(\S+)\},",
        "CHANGELOG.md": r"^## (\d\S+)",
    }.items():
        found = re.search(pattern, (REPOSITORY / name).read_text(), re.M)
        assert found and found[1] == __version__, name
    assert json.loads((REPOSITORY / ".zenodo.json").read_text())["version"] == __version__


def test_recipes_need_what_the_package_needs():
    conda = (REPOSITORY / "packaging/conda/meta.yaml").read_text()
    spack = (REPOSITORY / "packaging/spack/package.py").read_text()
    for text in [*PROJECT["dependencies"], *BUILT_WITH]:
        requirement = Requirement(text)
        lowest = re.search(r">=([\d.]+)", text)[1]
        name = {"matplotlib": "matplotlib-base"}.get(requirement.name, requirement.name)
        assert re.search(rf"- {name} >={re.escape(lowest)}\b", conda), text
        version = re.search(rf'"py-{requirement.name}@([\d.]+):"', spack)
        assert version and Version(version[1]) == Version(lowest), text


def test_workflow_and_containers_run_what_exists():
    """The steps are those of `make`, `.ci/run` and pip: their targets, files and extras exist."""
    makefile = (REPOSITORY / "Makefile").read_text()
    recipes = [
        *(REPOSITORY / ".github/workflows").glob("*.yml"),
        *(path for path in (REPOSITORY / "containers").iterdir()),
        REPOSITORY / "docs/install.md",
    ]
    for path in recipes:
        text = path.read_text()
        for target in re.findall(r"(?:run: |`)make (\w[\w-]*)", text):
            assert re.search(rf"^{target}:", makefile, re.M), f"{path.name}: {target}"
        for extras in re.findall(r"\.\[([\w,]+)\]|EXTRA=\[([\w,]+)\]", text):
            for extra in "".join(extras).split(","):
                assert extra in PROJECT["optional-dependencies"], f"{path.name}: {extra}"
    assert (REPOSITORY / ".ci/run").exists()


def test_both_containers_have_the_same_steps():
    """Those that `tools/check_container.py` runs in a system without Docker."""
    docker = docker_steps((REPOSITORY / "containers/Dockerfile").read_text())
    apptainer = apptainer_steps((REPOSITORY / "containers/slipstream.def").read_text())
    found = [part.strip() for step in docker for part in step.split("&&")]
    assert found == [one.replace("{{ EXTRA }}", "${EXTRA}") for one in apptainer]
    assert len(found) == 6
