"""What a decision costs: permission rules and the Grant together, for lines seen before and for new ones."""

from __future__ import annotations

import itertools

from benchmarks.measure import Row, Size, Stopwatch, Timing, at_most, interleave
from lyra.core.rights.capability import Capability, Grant
from lyra.tools.permissions import Permissions, Rule, subject_of

_WORK = "/workspace"  # no such folder: what a real one holds is looked at once a second, and not measured here
_GRANT = Grant(
    allow=["process.exec:**", f"fs.read:{_WORK}/**", f"fs.write:{_WORK}/src/**"], deny=[f"fs.write:{_WORK}/.git/**"]
)
_RULES = [
    *(Rule(f"Bash({name} *)", "deny") for name in ("rm", "sudo", "dd", "mkfs", "shutdown", "git push", "curl", "ssh")),
    *(Rule(f"Bash({name} *)", "allow") for name in ("ls", "cat", "make", "pytest", "ruff", "mypy", "git")),
    Rule("Edit(src/**)", "allow", workspace=_WORK),
    Rule("Edit(secrets/**)", "deny", workspace=_WORK),
]
_LINES = ("git log --oneline -{}", 'git commit -m "part {}"', "cd src && make test{} 2>&1 | tail -5")


def _decide(permissions: Permissions, tool: str, arguments: dict[str, str], need: Capability) -> None:
    permissions.decide(subject_of(tool, arguments, workspace=_WORK))
    _GRANT.allows(need)


def _lines(rounds: int, *, new: bool) -> Timing:
    permissions = Permissions(_RULES, workspace=_WORK)
    numbers = itertools.count()
    lines = [line.format(next(numbers) if new else 0) for _ in range(rounds) for line in _LINES]
    with Stopwatch(len(lines)) as watch:
        for line in lines:
            _decide(permissions, "Bash", {"command": line}, Capability("process.exec", "git"))
    return watch.timing


def _paths(rounds: int) -> Timing:
    permissions = Permissions(_RULES, workspace=_WORK)
    with Stopwatch(rounds) as watch:
        for number in range(rounds):
            path = f"src/part{number % 100}/module.py"
            _decide(permissions, "Edit", {"file_path": path}, Capability("fs.write", f"{_WORK}/{path}"))
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
        Row("permission and grant for a new command line, read anew", best["new"], goals=goal),
        # It looks at the disk for repositories and links that other programs obey.
        Row("permission and grant for a file's path", best["path"], goals=(at_most(150, "µs"),)),
    ]
