"""Start-up in a fresh interpreter: CPU milliseconds of the whole process, the interpreter's own start included."""

from __future__ import annotations

import os
import sys
import time

from benchmarks.measure import Figure, Row, Size, at_most
from benchmarks.spawn import environment

_RUNS = {
    "python": "pass",
    "import": "import lyra",
    "help": "import sys; from lyra.cli.main import main; sys.exit(main(['--help']))",
    "asyncio": "import asyncio",
    "agent": "import lyra; lyra.Agent('a', model='claude-sonnet-4-5')",
}


def _start(code: str) -> tuple[float, float]:
    """CPU and wall milliseconds of one interpreter that runs `code`."""
    silence = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    began = time.perf_counter()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], environment(), file_actions=silence)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - began
    assert os.waitstatus_to_exitcode(status) == 0, f"{code} failed"
    return (usage.ru_utime + usage.ru_stime) * 1e3, wall * 1e3


def run(size: Size) -> list[Row]:
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in _RUNS}
    for _ in range(size.of(10, 1)):
        for name, code in _RUNS.items():
            samples[name].append(_start(code))
    best = {
        name: Figure(min(cpu for cpu, _ in runs), "ms", min(wall for _, wall in runs)) for name, runs in samples.items()
    }
    bare = "python -c pass"
    return [
        Row("import lyra", best["import"], bare, best["python"], (at_most(60, "ms"),)),
        Row("lyra --help", best["help"], bare, best["python"], (at_most(150, "ms"),)),
        Row("import lyra, one agent declared", best["agent"], bare, best["python"], (at_most(150, "ms"),)),
        Row("import asyncio, for scale", best["asyncio"], bare, best["python"]),
    ]
