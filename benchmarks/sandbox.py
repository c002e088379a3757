"""A sandboxed `true`, beside bubblewrap by hand and beside no sandbox at all.

By hand means: the same program with the same mounts, and nothing else: no filter of system calls, no limits, no search
for protected paths, no output to collect. Samples are taken in turn, one command each. By the wall clock half of them
are faster than p50 and one in twenty is slower than p95; CPU time is the mean and includes the processes that were
started.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from benchmarks.measure import Figure, Row, Size, ratio_at_most
from lyra.sandbox import Profile, Sandbox
from lyra.sandbox import bubblewrap as wrapped
from lyra.sandbox.protected import find
from lyra.sandbox.sandbox import examine

Once = Callable[[], Awaitable[object]]


class Sampled(NamedTuple):
    p50: float
    p95: float
    cpu: float  # all in µs


def _cpu_s() -> float:
    """Of this process and of every one that it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


async def _sample(contenders: dict[str, Once], count: int) -> dict[str, Sampled]:
    wall: dict[str, list[float]] = {name: [] for name in contenders}
    cpu = dict.fromkeys(contenders, 0.0)
    for once in contenders.values():
        await once()  # probes, caches, the first import
    for _ in range(count):
        for name, once in contenders.items():
            before, began = _cpu_s(), time.perf_counter()
            await once()
            wall[name].append(1e6 * (time.perf_counter() - began))
            cpu[name] += 1e6 * (_cpu_s() - before)
    return {
        name: Sampled(statistics.median(taken), sorted(taken)[int(0.95 * len(taken))], cpu[name] / count)
        for name, taken in wall.items()
    }


def _sandboxed(tier: str, workspace: str) -> Once:
    sandbox, profile = Sandbox(tiers=(tier,)), Profile(workspace)

    async def once() -> None:
        result = await sandbox.run(["true"], profile)
        assert result.ok, result.output.text

    return once


def _by_hand(line: list[str]) -> Once:
    async def once() -> None:
        subprocess.run(line, check=True)  # noqa: ASYNC221 - nothing else runs, and it is the quickest way there is

    return once


def _same_mounts(program: str, workspace: str) -> list[str]:
    """Our own command line without the filter, and with mounts for the files that we hand over in memory."""
    profile = Profile(workspace)
    line, fds = wrapped.arguments(program, profile, find(profile), by_descriptor=True, filter_fd=0, info_fd=0, extra=())
    for fd in fds:
        os.close(fd)
    words = iter(line[:-1])
    kept: list[str] = []
    for word in words:
        if word in ("--seccomp", "--info-fd", "--perms"):
            next(words)
        elif word == "--file":
            next(words)
            path = next(words)
            kept += ["--ro-bind", path, path]
        else:
            kept.append(word)
    return [*kept, "--", "true"]


def run(size: Size) -> list[Row]:
    working = [state.name for state in asyncio.run(examine()) if state.works]
    with tempfile.TemporaryDirectory() as workspace:
        contenders: dict[str, Once] = {"plain": _by_hand(["/bin/true"])}
        program = wrapped.find_program()
        if "bubblewrap" in working and program is not None:
            contenders["bare"] = _by_hand(_same_mounts(program, workspace))
        for tier in working:
            contenders[tier] = _sandboxed(tier, workspace)
        samples = asyncio.run(_sample(contenders, size.of(200, 3)))
    rows = [Row("true without a sandbox, for scale: p50", Figure(samples["plain"].p50))]
    bare = samples.get("bare")
    for tier in working:
        by = "bubblewrap by hand, same mounts" if bare else ""
        goals = (ratio_at_most(3),) if tier == "bubblewrap" else ()
        for field in Sampled._fields:
            ours, theirs = getattr(samples[tier], field), getattr(bare, field, None)
            word = "CPU" if field == "cpu" else f"{field} (wall)"
            rows.append(
                Row(
                    f"true in {tier}: {word}",
                    Figure(ours),
                    by,
                    None if theirs is None else Figure(theirs),
                    goals if field != "p95" else (),
                )
            )
    return rows
