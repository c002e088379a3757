"""A plugin of pytest that writes down what each passed test uses: `pytest -p verify.recorder`.

Uses are of entries of the surface (verify.surface), and of the functions around the sampled changes (verify.mutants).
Each process of the run writes a file into the folder of LYRA_TESTS_USES when it ends, the first one `main.json`, a
worker `PID.json`: the uses by test, and how long each test took. Only uses in the process of the test itself are seen.
`read_uses` reads them.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from verify.mutants.sample import tap_functions
from verify.surface.taps import record

__all__ = ["FOLDER", "read_uses"]

FOLDER: Final = "LYRA_TESTS_USES"

_uses: dict[str, list[str]] = {}
_seconds: dict[str, float] = {}
_now: set[str] = set()


def pytest_configure() -> None:
    record(_now.add)
    tap_functions(_now.add)
    atexit.register(_write, os.getpid() if "PYTEST_XDIST_WORKER" not in os.environ else 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _now.clear()
    result = yield
    if item.nodeid in _seconds:
        _uses[item.nodeid] = sorted(_now)
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _seconds[report.nodeid] = report.duration


def _write(first: int) -> None:
    path = Path(os.environ[FOLDER]) / f"{'main' if os.getpid() == first else os.getpid()}.json"
    rows = {test: {"seconds": round(_seconds[test], 4), "uses": uses} for test, uses in _uses.items()}
    path.write_text(json.dumps(rows), encoding="utf-8")


def read_uses(folder: Path) -> dict[str, list[tuple[float, str]]]:
    """For each use, the tests that have it, with their seconds."""
    tests: dict[str, list[tuple[float, str]]] = {}
    for path in sorted(folder.glob("*.json")):
        for test, row in json.loads(path.read_text(encoding="utf-8")).items():
            for use in row["uses"]:
                tests.setdefault(use, []).append((row["seconds"], test))
    return tests
