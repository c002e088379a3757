"""A sandboxed `true`, beside bubblewrap by hand and beside no sandbox at all.

By hand means: the same program started with the mounts of a usual invocation, no filter of system calls, no
limits, no search for protected paths, no output to collect. CPU time includes the processes that were started.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable

from benchmarks.measure import Row, Size, Timing, interleave, ratio_at_most
from lyra.sandbox import Profile, Sandbox
from lyra.sandbox.bubblewrap import find_program
from lyra.sandbox.sandbox import examine


def _cpu_s() -> float:
    """Of this process and of every one that it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _sandboxed(tier: str, workspace: str, count: int) -> Timing:
    async def main() -> Timing:
        sandbox, profile = Sandbox(tiers=(tier,)), Profile(workspace)
        await sandbox.run(["true"], profile)
        before, began = _cpu_s(), time.perf_counter()
        for _ in range(count):
            result = await sandbox.run(["true"], profile)
            assert result.ok, result.output.text
        return Timing(_cpu_s() - before, time.perf_counter() - began, count)

    return asyncio.run(main())


def _by_hand(line: list[str], count: int) -> Timing:
    before, began = _cpu_s(), time.perf_counter()
    for _ in range(count):
        subprocess.run(line, check=True)
    return Timing(_cpu_s() - before, time.perf_counter() - began, count)


def _bare(program: str, workspace: str) -> list[str]:
    line = [program, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "lib", "lib64", "sbin"):
        line += ["--symlink", f"usr/{name}", f"/{name}"] if os.path.isdir(f"/usr/{name}") else []
    line += ["--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    return [*line, "--bind", workspace, workspace, "--chdir", workspace, "--", "true"]


def run(size: Size) -> list[Row]:
    working = [state.name for state in asyncio.run(examine()) if state.works]
    count = size.of(20, 2)
    with tempfile.TemporaryDirectory() as workspace:
        contenders: dict[str, Callable[[], Timing]] = {"plain": lambda: _by_hand(["/bin/true"], count)}
        program = find_program()
        if "bubblewrap" in working and program is not None:
            line = _bare(program, workspace)
            contenders["bare"] = lambda: _by_hand(line, count)
        for tier in working:
            contenders[tier] = lambda tier=tier: _sandboxed(tier, workspace, count)  # type: ignore[misc]
        found = interleave(contenders, size.repeats)
    rows = [Row("true without a sandbox, for scale", found["plain"])]
    if "bubblewrap" in found:
        bare = "bubblewrap by hand"
        rows.append(Row("true in bubblewrap", found["bubblewrap"], bare, found["bare"], (ratio_at_most(3),)))
    if "landlock" in found:
        theirs = found.get("bare")
        rows.append(Row("true in landlock", found["landlock"], "bubblewrap by hand" if theirs else "", theirs))
    return rows
