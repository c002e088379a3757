"""Both type checkers over a user's program: they find each planted mistake, and nothing in honest code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
PAGES = (FOLDER / "honest.py", FOLDER / "mistakes.py")
Place = tuple[str, int]


def planted() -> set[Place]:
    """The lines that a checker has to complain about."""
    return {
        (page.name, number)
        for page in PAGES
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if line.endswith("# wrong")
    }


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command, *map(str, PAGES)], check=False, capture_output=True, text=True, cwd=FOLDER
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def by_mypy(cache: Path) -> dict[Place, str]:
    output = run(
        "mypy", "--config-file", "mypy.ini", "--cache-dir", str(cache), "--no-error-summary", "--hide-error-context"
    )
    errors = re.findall(r"^(?:.*/)?(\w+\.py):(\d+): error: (.*)$", output, re.MULTILINE)
    return {(name, int(line)): message for name, line, message in errors}


def by_pyright() -> dict[Place, str]:
    report = json.loads(run("pyright", "--outputjson", "--pythonpath", sys.executable))
    return {
        (Path(problem["file"]).name, problem["range"]["start"]["line"] + 1): problem["message"]
        for problem in report["generalDiagnostics"]
        if problem["severity"] == "error"
    }


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_checker_finds_each_planted_mistake_and_nothing_else(checker: str, tmp_path: Path) -> None:
    """A wrong field of an output, wrong arguments of a tool, program or effect, a wrong budget or tools value."""
    complaints = by_mypy(tmp_path) if checker == "mypy" else by_pyright()
    missed = sorted(planted() - complaints.keys())
    unfounded = {place: complaints[place] for place in sorted(complaints.keys() - planted())}
    assert not missed, missed
    assert not unfounded, unfounded
