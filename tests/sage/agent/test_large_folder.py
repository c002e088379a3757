"""What a folder of 30 000 files adds to a command of a session."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.limits import within
from tests.sage.open_session import Project, call, say
from tests.sage.session.test_scan_cost import walk

_FILES = 30_000
_WALKS_MAX = 2.2  # bare walks that ask for each status, of some 90 ms on a usual machine: 0.2 s


def make_files(folder: Path) -> None:
    for number in range(_FILES):
        path = folder / f"part{number % 50}/inner{number % 1_500}/file{number}.py"
        if number < 1_500:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))


@pytest.mark.long  # `test_scan_cost` and `test_protected` hold its parts in `make test`
@pytest.mark.timed
async def test_a_command_among_30_000_files_adds_little(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU of a turn with one command where nothing changes: the looks for undo and for protected paths, both twice."""
    monkeypatch.setattr("lyra.sage.session.files.observed._FRESH_S", 0.0)
    monkeypatch.setattr("lyra.sandbox.paths._SETTLED_S", 0.0)
    make_files(project.folder)
    turns = 5
    replies = [call("Bash", command="true"), {"text": "."}] * turns
    ratios = []
    async with project.open(*replies, options={"mode": "bypass"}) as session:
        for _ in range(turns):
            began = time.process_time()
            assert walk(project.folder) > _FILES
            walked = time.process_time() - began
            assert (await say(session, "go"))[-1]["status"] == "success"
            ratios.append((time.process_time() - began - walked) / walked)
    within(min(ratios), _WALKS_MAX, ratios)
