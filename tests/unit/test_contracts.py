"""The floors of the house hold, and the check that says so can fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter as `make contracts` does, over the package in `root`."""
    program = Path(sys.executable).with_name("lint-imports")
    # The working folder comes before the installed package on its search path.
    return subprocess.run(
        [program, "--no-cache", "--no-logo"],
        cwd=root,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture
def copy(tmp_path):
    """A copy of the package and its contracts, to be spoilt."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tangram_workers", tmp_path / "tangram_workers", ignore=ignore)
    return tmp_path


def test_every_contract_is_kept():
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout
    assert ", 0 broken." in done.stdout


@pytest.mark.parametrize(
    ("planted_in", "line", "contract", "named"),
    [
        (
            "domain/queues.py",
            "import redis",
            "Decisions do no I/O and read no clock",
            "tangram_workers.domain.queues -> redis",
        ),
        (
            "router/policy.py",
            "import time",
            "Decisions do no I/O and read no clock",
            "tangram_workers.router.policy -> time",
        ),
        (
            "domain/queues.py",
            "import tangram_workers.runtime.settings",
            "Imports go down the floors, never up or sideways",
            "tangram_workers.domain.queues -> tangram_workers.runtime.settings",
        ),
        (
            "sandbox/protocol.py",
            "import tangram_workers.broker",
            "Imports go down the floors, never up or sideways",
            "tangram_workers.sandbox.protocol -> tangram_workers.broker",
        ),
        (
            "cli/doctor.py",
            "import redis",
            "Only stores and broker import redis",
            "tangram_workers.cli.doctor -> redis",
        ),
        (
            "sdk/__init__.py",
            "import celery",
            "Only tasks and broker import Celery and kombu",
            "tangram_workers.sdk -> celery",
        ),
    ],
)
def test_a_planted_violation_is_caught_and_named(copy, planted_in, line, contract, named):
    module = copy / "tangram_workers" / planted_in
    module.write_text(module.read_text() + f"\n{line}\n")
    done = lint_imports(copy)
    assert done.returncode != 0
    assert f"{contract} BROKEN" in done.stdout
    assert named in done.stdout


def test_a_package_without_a_floor_is_caught_and_named(copy):
    room = copy / "tangram_workers" / "attic"
    room.mkdir()
    (room / "__init__.py").write_text('"""A room that nobody gave a floor."""\n')
    done = lint_imports(copy)
    assert done.returncode != 0
    assert "- tangram_workers.attic" in done.stdout
