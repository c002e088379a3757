"""What a run of the tests left out, and why: `python -m tests.skips FILE`, the last step of `make test`.

Each run of pytest adds its skipped tests to the file that `LYRA_TESTS_SKIPS` names (see `conftest`). A part that needs
something of the machine is left out where that is missing; where it is there, a skipped part is a failure: the tests
would be green about something that they never tried.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from lyra.sandbox import landlock
from tests.mcp.node import FOLDER

__all__ = ["PARTS", "Part", "Skipped", "main", "summary"]

_MODULE: Final = re.compile(r"could not import '([\w.]+)'")


class Skipped(NamedTuple):
    """One test (or one file of tests) that was not run."""

    test: str
    reason: str


class Part(NamedTuple):
    """`reasons` is found in what its tests say when they are skipped; `is_here` says that they need not be."""

    name: str
    reasons: str
    is_here: Callable[[], bool]

    def is_meant(self, reason: str) -> bool:
        return re.search(self.reasons, reason) is not None


def _has(*programs: str) -> bool:
    return all(map(shutil.which, programs))


def _bubblewrap_works() -> bool:
    """It is installed, and the kernel lets it make a namespace."""
    program = shutil.which("bwrap")
    return program is not None and not subprocess.run([program, "--ro-bind", "/", "/", "true"], check=False).returncode


def _postgres_is_here() -> bool:
    """Its programs are installed, and as root there is the user to run them as. The tests ask `verify.servers`."""
    programs = _has("initdb") or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return programs and (os.geteuid() != 0 or "postgres" in {user.pw_name for user in pwd.getpwall()})


def _landlock_works() -> bool:
    return landlock.abi() >= landlock.LEAST


PARTS: Final = (
    Part("bubblewrap", r"bubblewrap", _bubblewrap_works),
    Part("Landlock", r"(?i)landlock", _landlock_works),
    Part("a sandbox", r"no sandbox", lambda: _bubblewrap_works() or _landlock_works()),
    Part("PostgreSQL", r"PostgreSQL", _postgres_is_here),
    Part("Ray", r"Ray is not installed", lambda: importlib.util.find_spec("ray") is not None),
    Part("Redis", r"Redis", partial(_has, "redis-server")),
    Part("Erlang", r"Erlang", partial(_has, "escript")),
    Part("packages from npm", r"\.ci/node", (FOLDER / "installed").is_file),
    Part("Node", r"\b(no|needs) (node|npm)\b", partial(_has, "node", "npm")),
    Part("ripgrep", r"needs ripgrep", partial(_has, "rg")),
    Part("Chromium", r"needs chromium", partial(_has, "chromium")),
    Part("bash", r"needs bash", partial(_has, "bash")),
    Part("OpenSSL", r"needs openssl", partial(_has, "openssl")),
    Part("fork", r"needs fork", lambda: hasattr(os, "fork")),
    Part("llvmlite", r"llvmlite", lambda: importlib.util.find_spec("llvmlite") is not None),
)


def _part(reason: str) -> Part | None:
    module = _MODULE.search(reason)
    if module:
        name = module[1].partition(".")[0]
        return Part(name, "", lambda: importlib.util.find_spec(name) is not None)
    return next((part for part in PARTS if part.is_meant(reason)), None)


def _read(path: str) -> list[Skipped]:
    lines = Path(path).read_text(encoding="utf-8").splitlines() if os.path.exists(path) else []
    return sorted({Skipped(*json.loads(line)) for line in lines})


def summary(skipped: Iterable[Skipped]) -> tuple[list[str], int]:
    """The list, a line for each part and reason, and the exit code: 1 where a part is skipped that is here."""
    counts: dict[tuple[str, str], int] = {}
    here: dict[str, bool] = {}
    for _, reason in skipped:
        part = _part(reason)
        name = part.name if part else ""
        if part and name not in here:
            here[name] = part.is_here()
        counts[name, reason] = counts.get((name, reason), 0) + 1
    lines = ["nothing was skipped"] if not counts else ["skipped:"]
    for (name, reason), count in sorted(counts.items()):
        wrong = "  <- it is here: its tests must run" if here.get(name) else ""
        lines.append(f"  {name or 'some cases'} ({count}): {reason}{wrong}")
    return lines, int(any(here.values()))


def main(path: str) -> int:
    lines, code = summary(_read(path))
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
