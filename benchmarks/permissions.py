"""What a decision costs: permission rules and the Grant together, for lines seen before and for new ones; and what a
search in a large tree costs beside `find` and ripgrep."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, at_most, interleave
from lyra.core.capability import Capability, Grant
from lyra.core.tool import Tool
from lyra.tools.builtin import Workspace
from lyra.tools.builtin.search import search_tools
from lyra.tools.permissions import Permissions, Rule, subject_of

_GRANT = Grant(allow=["process.exec:**", "fs.read:/work/**", "fs.write:/work/src/**"], deny=["fs.write:/work/.git/**"])
_RULES = [
    *(Rule(f"Bash({name} *)", "deny") for name in ("rm", "sudo", "dd", "mkfs", "shutdown", "git push", "curl", "ssh")),
    *(Rule(f"Bash({name} *)", "allow") for name in ("ls", "cat", "make", "pytest", "ruff", "mypy", "git")),
    Rule("Edit(src/**)", "allow", workspace="/work"),
    Rule("Edit(secrets/**)", "deny", workspace="/work"),
]
_LINES = ("git log --oneline -{}", 'git commit -m "part {}"', "cd src && make test{} 2>&1 | tail -5")


def _decide(permissions: Permissions, tool: str, arguments: dict[str, str], need: Capability) -> None:
    permissions.decide(subject_of(tool, arguments, workspace="/work"))
    _GRANT.allows(need)


def _lines(rounds: int, *, new: bool) -> Timing:
    permissions = Permissions(_RULES, workspace="/work")
    numbers = itertools.count()
    lines = [line.format(next(numbers) if new else 0) for _ in range(rounds) for line in _LINES]
    with Stopwatch(len(lines)) as watch:
        for line in lines:
            _decide(permissions, "Bash", {"command": line}, Capability("process.exec", "git"))
    return watch.timing


def _paths(rounds: int) -> Timing:
    permissions = Permissions(_RULES, workspace="/work")
    with Stopwatch(rounds) as watch:
        for number in range(rounds):
            path = f"src/part{number % 100}/module.py"
            _decide(permissions, "Edit", {"file_path": path}, Capability("fs.write", f"/work/{path}"))
    return watch.timing


def run(size: Size) -> list[Row]:
    rounds = size.of(1_000, 5)
    best = interleave(
        {
            "seen": lambda: _lines(rounds, new=False),
            "new": lambda: _lines(rounds, new=True),
            "path": lambda: _paths(rounds),
        },
        size.repeats,
    )
    goal = (at_most(50, "µs"),)
    return [
        Row("permission and grant for a command line seen before", best["seen"], goals=goal),
        Row("permission and grant for a new command line, read anew", best["new"]),
        Row("permission and grant for a file's path", best["path"], goals=goal),
        *_searches(size),
    ]


# ---------------------------------------------------------------- searches
def _searches(size: Size) -> list[Row]:
    files = size.of(50_000, 60)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(files):
            place = Path(folder, f"d{number // 100}")
            if number % 100 == 0:
                place.mkdir()
            (place / f"f{number}.{'py' if number % 5 else 'md'}").write_text(f"line one\nneedle{number % 1000}\nend\n")
        with_it = {each.name: each for each in search_tools(Workspace(folder))}
        without = {each.name: each for each in search_tools(Workspace(folder), ripgrep=False)}
        contenders = {
            "Glob": lambda: _asked(with_it["Glob"], pattern="**/*.md"),
            "find": lambda: _ran("find", ".", "-name", "*.md", "-type", "f", folder=folder),
            "own": lambda: _asked(without["Grep"], pattern="needle7$"),
            "Grep": lambda: _asked(with_it["Grep"], pattern="needle7$"),
        }
        if shutil.which("rg"):
            contenders["rg"] = lambda: _ran("rg", "-l", "--no-ignore", "--hidden", "needle7$", ".", folder=folder)
        best = interleave(contenders, min(size.repeats, 3))
    wall = {name: Figure((figure.wall or 0.0) / 1000, "ms") for name, figure in best.items()}
    return [
        Row(f"Glob **/*.md in {files} files (wall)", wall["Glob"], "find", wall["find"]),
        Row(f"Grep in {files} files (wall)", wall["Grep"], "ripgrep", wall.get("rg")),
        Row(f"Grep without ripgrep in {files} files (wall)", wall["own"], "ripgrep", wall.get("rg")),
    ]


def _asked(tool: Tool, **arguments: str) -> Timing:
    assert tool.run is not None
    with Stopwatch(1) as watch:
        asyncio.run(tool.run(**arguments))
    return watch.timing


def _ran(*command: str, folder: str) -> Timing:
    with Stopwatch(1) as watch:
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return watch.timing
