"""Searches in a tree of fifty thousand files: Glob beside `find`, Grep beside ripgrep, with ripgrep's help and without.

Each of ours starts a process of its own, sorts, and passes over what is hidden. CPU time includes the processes that
were started.
"""

from __future__ import annotations

import asyncio
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Figure, Row, Size, Timing, interleave, ratio_at_most
from lyra.core.tool import Tool
from lyra.tools.builtin import Workspace
from lyra.tools.builtin.search import search_tools
from lyra.tools.permissions import Permissions

PATTERN = "needle7$"  # in one file of a thousand


def cpu_s() -> float:
    """Of this process and of every one that it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def fill(folder: str, files: int) -> None:
    """A hundred files a folder, one in five of them Markdown."""
    for number in range(files):
        place = Path(folder, f"d{number // 100}")
        if number % 100 == 0:
            place.mkdir()
        (place / f"f{number}.{'py' if number % 5 else 'md'}").write_text(f"line one\nneedle{number % 1000}\nend\n")


def tools_of(folder: str, *, ripgrep: bool) -> dict[str, Tool]:
    """As an agent has them: what the permission rules hide is hidden."""
    workspace = Workspace(folder, hidden=Permissions(workspace=folder).is_hidden)
    return {tool.name: tool for tool in search_tools(workspace, ripgrep=ripgrep)}


def _timed(work: Callable[[], object]) -> Timing:
    before, began = cpu_s(), time.perf_counter()
    work()
    return Timing(cpu_s() - before, time.perf_counter() - began, 1)


def _asked(tool: Tool, pattern: str) -> Callable[[], Timing]:
    assert tool.run is not None
    run = tool.run
    return lambda: _timed(lambda: asyncio.run(run(pattern=pattern)))


def _ran(*command: str, folder: str) -> Callable[[], Timing]:
    return lambda: _timed(lambda: subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True))


def run(size: Size) -> list[Row]:
    files = size.of(50_000, 60)
    with tempfile.TemporaryDirectory() as folder:
        fill(folder, files)
        ours, alone = tools_of(folder, ripgrep=True), tools_of(folder, ripgrep=False)
        contenders = {
            "Glob": _asked(ours["Glob"], "**/*.md"),
            "find": _ran("find", ".", "-name", "*.md", "-type", "f", folder=folder),
            "Grep": _asked(ours["Grep"], PATTERN),
            "own": _asked(alone["Grep"], PATTERN),
            "all": _asked(alone["Grep"], "line|needle"),
        }
        if shutil.which("rg"):
            contenders["rg"] = _ran("rg", "-l", "--no-ignore", "--hidden", PATTERN, ".", folder=folder)
            contenders["rg all"] = _ran("rg", "-l", "--no-ignore", "--hidden", "line|needle", ".", folder=folder)
        best = interleave(contenders, min(size.repeats, 5))
    rows: list[Row] = []
    for name, what, baseline, other, goal in (
        ("Glob", "Glob **/*.md", "find", "find", 0),
        ("Grep", "Grep", "ripgrep", "rg", 3),
        ("own", "Grep without ripgrep", "ripgrep", "rg", 0),
        ("all", "Grep without ripgrep, every file matches", "ripgrep", "rg all", 0),
    ):
        goals = (ratio_at_most(goal),) if goal else ()
        rows += _both(f"{what} in {files} files", best[name], baseline, best.get(other), goals)
    return rows


def _both(what: str, ours: Figure, baseline: str, theirs: Figure | None, goals: tuple[Any, ...]) -> list[Row]:
    """A row by CPU time and one by the wall clock, in ms."""
    cpu = Row(f"{what}: CPU", _ms(ours.value), baseline, theirs and _ms(theirs.value))
    wall = Row(f"{what}: wall", _ms(ours.wall), baseline, theirs and _ms(theirs.wall), goals)
    return [cpu, wall]


def _ms(micro: float | None) -> Figure:
    return Figure((micro or 0.0) / 1000, "ms")
