"""The lock is complete: it can be installed without anything being resolved.

What a distribution requires is read from the metadata of what is installed here. It is followed
for every supported version of Python and both machine types, as far as these are given the same
releases; where a release differs by Python, its requirements are followed on that Python.
"""

from __future__ import annotations

import platform
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements" / "dev.txt"

#: Variables of markers: their names and values.
Environment = dict[str, str]
#: Gives what a locked release requires; None if its metadata is not at hand.
ReadRequirements = Callable[[str, Version], list[str] | None]


def environment_of(python_full_version: str, machine: str = "x86_64") -> Environment:
    """Return the markers of Linux, with another version of Python and on another machine."""
    here = {name: str(value) for name, value in default_environment().items()}
    minor = ".".join(python_full_version.split(".")[:2])
    there = {"python_full_version": python_full_version, "python_version": minor}
    return {**here, **there, "platform_machine": machine}


HERE = ".".join(map(str, sys.version_info[:3]))
# A marker may turn on a patch release, so the first of each is asked as well.
PYTHONS = sorted({HERE, "3.11.0", "3.12.0", "3.13.0"})


def entries_of(text: str) -> list[Requirement]:
    """Return the requirements of a lock's text, with their markers, without their hashes."""
    lines = re.findall(r"^(?![#\s]).+?(?=\s*\\?$)", text, re.M)
    return [Requirement(line) for line in lines]


def versions_for(entries: Iterable[Requirement], environment: Environment) -> dict[str, Version]:
    """Return the version that a lock gives each name in an environment.

    Raises:
        AssertionError: An entry is not one exact version, or two entries name one distribution.
    """
    versions: dict[str, Version] = {}
    for entry in entries:
        if entry.marker is not None and not entry.marker.evaluate(dict(environment)):
            continue
        [pin] = entry.specifier
        assert pin.operator == "==", entry
        name = canonicalize_name(entry.name)
        assert name not in versions, f"{name} is locked twice"
        versions[name] = Version(pin.version)
    return versions


def lacks_of(
    versions: dict[str, Version],
    roots: Iterable[str],
    read_requirements: ReadRequirements,
    environment: Environment,
) -> list[str]:
    """Return what is required and not locked, each with who requires it.

    Requirements are followed from the roots. A distribution is visited once for each extra that is
    asked of it, and once for none (the empty extra), as the marker `extra` then tells which of its
    requirements hold.
    """
    lacks: list[str] = []
    seen: set[tuple[str, str]] = set()
    waiting = [("the project", "", text) for text in roots]
    # What is locked and required by nobody still has to have what it requires.
    waiting += [("the lock", "", name) for name in versions]
    while waiting:
        requirer, extra, text = waiting.pop()
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is not None and not marker.evaluate({**environment, "extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        version = versions.get(name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            lacks.append(f"{requirer} requires {text}, locked is {version}")
            continue
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                required = read_requirements(name, version) or []
                waiting += [(name, wanted, each) for each in required]
    return lacks


def read_installed(name: str, version: Version) -> list[str] | None:
    try:
        found = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    return (found.requires or []) if Version(found.version) == version else None


def roots_of_project() -> list[str]:
    """Return what pyproject.toml asks for: to run, with every extra, to develop and to build."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lists = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
        project["build-system"]["requires"],
    ]
    own = project["project"]["name"]
    return [text for texts in lists for text in texts if Requirement(text).name != own]


ENTRIES = entries_of(LOCK.read_text(encoding="utf-8"))


def test_every_entry_of_the_lock_is_read() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert len(ENTRIES) == len(re.findall(r"^\w", text, re.M)) > 80
    assert {"celery", "coverage", "pytest"} <= {entry.name for entry in ENTRIES}


def test_what_is_installed_here_is_what_is_locked() -> None:
    versions = versions_for(ENTRIES, environment_of(HERE, platform.machine()))
    differing = [
        f"{name} {version}"
        for name, version in versions.items()
        if read_installed(name, version) is None
    ]
    assert differing == [], "run `make setup`"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("python", PYTHONS)
def test_whatever_a_locked_distribution_requires_is_locked(python: str, machine: str) -> None:
    environment = environment_of(python, machine)
    versions = versions_for(ENTRIES, environment)
    assert lacks_of(versions, roots_of_project(), read_installed, environment) == []


# --- it can fail --------------------------------------------------------------------------------

RELEASES = {
    "app": [
        "base>=2",
        "old; python_version < '3.12'",
        "wheels[fast]",
        "extra-tool; extra == 'dev'",
    ],
    "base": [],
    "old": [],
    "wheels": ["speed<2; extra == 'fast'"],
    "speed": [],
}
COMPLETE = "app==1\nbase==2.1\nold==1 ; python_full_version < '3.12'\nwheels==3\nspeed==1.5\n"


def lacks_in(lock: str, root: str = "app", python: str = "3.11.0") -> list[str]:
    environment = environment_of(python)
    versions = versions_for(entries_of(lock), environment)
    return lacks_of(versions, [root], lambda name, _: RELEASES.get(name), environment)


def test_a_complete_lock_lacks_nothing() -> None:
    assert lacks_in(COMPLETE) == []
    assert lacks_in(COMPLETE, python="3.12.0") == []


@pytest.mark.parametrize(
    ("lock", "lack"),
    [
        (COMPLETE.replace("base==2.1\n", ""), "app requires base>=2, locked is None"),
        (COMPLETE.replace("base==2.1", "base==1.9"), "app requires base>=2, locked is 1.9"),
        (
            COMPLETE.replace("'3.12'", "'3.10'"),
            "app requires old; python_version < '3.12', locked is None",
        ),
        (
            COMPLETE.replace("speed==1.5", "speed==2.0"),
            "wheels requires speed<2; extra == 'fast', locked is 2.0",
        ),
        (COMPLETE.replace("app==1\n", ""), "the project requires app, locked is None"),
    ],
    ids=["absent", "too old", "on one Python only", "of an extra", "of the project"],
)
def test_a_lack_is_found(lock: str, lack: str) -> None:
    assert lack in lacks_in(lock)


def test_what_an_extra_brings_is_required_with_the_extra_alone() -> None:
    [lack] = lacks_in(COMPLETE, root="app[dev]")
    assert lack == "app requires extra-tool; extra == 'dev', locked is None"


def test_a_lock_that_names_one_distribution_twice_is_refused() -> None:
    with pytest.raises(AssertionError, match="base is locked twice"):
        lacks_in(f"{COMPLETE}Base==2.2\n")
