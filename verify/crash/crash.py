"""Killing for real: a child process runs a durable workload and is killed with SIGKILL, again and again, until it is
done.

`random_kills(n, seed)` kills at random moments, `point_kills()` at the first, a middle and the last visit of every
named point. After each workload `verify` reads what the child left behind (the store and the world's file, see
`workload`) and compares it with an undisturbed run: nothing acknowledged is lost, no finished effect
happened again, every attempt is charged, no more was performed than a budget allows, the store is sound, results are
equal, and every opening took less than five seconds. Works in temporary folders only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from lyra.core import codec, faultpoint
from lyra.core.ids import ProcessRandom, make_random
from lyra.kernel.journal import rows, snapshots
from lyra.kernel.journal.history import Fold
from lyra.store.ended import load_all
from lyra.store.sqlite import SqliteStore
from verify.crash import workload as errand
from verify.simulation.scenes import POINTS_OF_PARTS, POINTS_OF_SHARDS

__all__ = ["OPEN_S_MAX", "Result", "calm", "point_kills", "random_kills", "verify"]

OPEN_S_MAX: Final = 5.0  # of CPU: the wall clock also counts what other programs of the machine do
_LIFE_S_MAX: Final = 30.0
_KILLS_A_WORKLOAD: Final = 4
_DONE, _FAILED = 0, 1
# Small enough that the snapshots of the workload put the states of ended processes away.
_SNAPSHOT_SIZES: Final = {"_ENDED_KEPT": 2, "_STATES_A_SLICE": 2}


class Result(NamedTuple):
    """What came of some kills."""

    kills: int
    workloads: int
    open_s_max: float
    failures: list[str]


class Calm(NamedTuple):
    """An undisturbed workload: what it gives, how long it takes, which points it passes."""

    results: dict[str, Any]
    seconds: float
    visits: dict[str, int]


class _Folder:
    """Where one workload lives."""

    def __init__(self, path: Path) -> None:
        self.store = path / "run.db"
        self.world = path / "world.txt"
        self.result = path / "result"


@contextmanager
def _folder() -> Iterator[_Folder]:
    with tempfile.TemporaryDirectory(prefix="lyra-crash-") as name:
        yield _Folder(Path(name))


# ---------------------------------------------------------------------- one life in a child


def _live(folder: _Folder, durability: str, life: int, hook: Callable[[str], None] | None) -> int:
    """Fork; the child runs one life and leaves its results in a file. Gives the child's pid."""
    pid = os.fork()
    if pid:
        return pid
    status = _FAILED
    try:
        for name, size in _SNAPSHOT_SIZES.items():
            setattr(snapshots, name, size)
        if hook is not None:
            faultpoint.arm(hook)
        results = asyncio.run(
            errand.live(folder.store, folder.world, durability=durability, life=life, opened=lambda: None)
        )
        folder.result.write_bytes(codec.encode(results))
        status = _DONE
    except BaseException:  # noqa: BLE001 - whatever ended it, the parent is told by the status
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _end_of(pid: int, *, kill_after_s: float | None) -> str:
    """Wait for a child, killing it at its time: `done`, `killed` or a sentence."""
    deadline = time.monotonic() + (_LIFE_S_MAX if kill_after_s is None else kill_after_s)
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return _status(status)
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if kill_after_s is None:
        return f"a life took longer than {_LIFE_S_MAX:g} s"
    return _status(status)


def _status(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) == signal.SIGKILL else f"signal {os.WTERMSIG(status)}"
    return "done" if os.WEXITSTATUS(status) == _DONE else f"a life ended with status {os.WEXITSTATUS(status)}"


def _die_at(name: str, visit: int) -> Callable[[str], None]:
    """A hook that kills its own process at the n-th visit of a point."""
    left = visit

    def hook(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


# ---------------------------------------------------------------------- workloads


def calm(durability: str = "process") -> Calm:
    """Run the workload once in peace."""
    with _folder() as folder:
        visits: Counter[str] = Counter()
        began = time.monotonic()
        faultpoint_file = folder.store.with_name("points")

        def count(name: str) -> None:
            visits[name] += 1
            if name in _LATE:
                faultpoint_file.write_bytes(codec.encode(dict(visits)))

        ended = _end_of(_live(folder, durability, 0, count), kill_after_s=None)
        if ended != "done":
            raise AssertionError(f"the undisturbed workload failed: {ended}")
        results = codec.decode(folder.result.read_bytes())
        return Calm(results, time.monotonic() - began, codec.decode(faultpoint_file.read_bytes()))


_LATE: Final = ("journal.after_commit", "snapshot.after", "recovery.done")  # after these the counts are written down


def random_kills(
    kills: int, seed: int = 1, *, progress: Callable[[int, int], None] = lambda _done, _of: None
) -> Result:
    """Kill at random moments until so many kills are done; every fifth workload waits for the disk at each commit."""
    peace = {durability: calm(durability) for durability in ("process", "power")}
    failures: list[str] = []
    done = workloads = 0
    slowest = 0.0
    while done < kills:
        rng = make_random(seed * 1_000_003 + workloads)
        durability = "power" if workloads % 5 == 4 else "process"
        killed, problems, open_s = _until_done(
            rng, durability, peace[durability], wanted=min(_KILLS_A_WORKLOAD, kills - done)
        )
        failures += [f"workload {workloads} of seed {seed}: {problem}" for problem in problems]
        done += max(killed, 1) if problems else killed
        workloads += 1
        slowest = max(slowest, open_s)
        progress(done, kills)
    return Result(done, workloads, slowest, failures)


def _until_done(rng: ProcessRandom, durability: str, peace: Calm, *, wanted: int) -> tuple[int, list[str], float]:
    """One workload, killed up to `wanted` times: how often it was, what is wrong, and the slowest opening."""
    with _folder() as folder:
        killed = life = 0
        while True:
            kill_after_s = rng.uniform(0.0, 0.7 * peace.seconds) if killed < wanted else None
            ended = _end_of(_live(folder, durability, life, None), kill_after_s=kill_after_s)
            life += 1
            if ended == "killed":
                killed += 1
            elif ended == "done":
                problems, open_s = verify(folder.store, folder.world, codec.decode(folder.result.read_bytes()), peace)
                return killed, problems, open_s
            else:
                return killed, [ended], 0.0


def point_kills(
    points: list[str] | None = None,
    *,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Result:
    """Kill at the first, a middle and the last visit of each named point; every fourth with `power` durability."""
    peace = calm()
    visits = dict(peace.visits)
    elsewhere = (*POINTS_OF_PARTS, *POINTS_OF_SHARDS)  # see crash_pipeline and tests/kernel/remote
    points = points or [name for name in faultpoint.POINTS if name not in elsewhere]
    places = [
        (name, visit)
        for name in points
        for visit in sorted({1, max(1, visits.get(name, 1) // 2), max(1, visits.get(name, 1))})
    ]
    failures = [f"the workload never passes {name}" for name in points if not visits.get(name)]
    slowest = 0.0
    for number, (name, visit) in enumerate(places):
        durability = "power" if number % 4 == 3 else "process"
        with _folder() as folder:
            ended = _end_of(_live(folder, durability, 0, _die_at(name, visit)), kill_after_s=None)
            if ended == "killed":
                ended = _end_of(_live(folder, durability, 1, None), kill_after_s=None)
            if ended != "done":
                failures.append(f"{name} visit {visit}: {ended}")
                continue
            problems, open_s = verify(folder.store, folder.world, codec.decode(folder.result.read_bytes()), peace)
            failures += [f"{name} visit {visit}: {problem}" for problem in problems]
            slowest = max(slowest, open_s)
        progress(number + 1, len(places))
    return Result(len(places), len(places), slowest, failures)


# ---------------------------------------------------------------------- the verdict


def verify(store_file: Path, world_file: Path, results: dict[str, Any], peace: Calm) -> tuple[list[str], float]:
    """Everything wrong with what a finished workload left behind, and its slowest opening in seconds."""
    store = SqliteStore(store_file)
    try:
        journal = list(store.read())
        problems = store.check()
        snapshot = load_all(store)
        fold = Fold.load(snapshot.seq, snapshot.states)
        fold.add_all(store.read(after=snapshot.seq))
    finally:
        store.close()
    lines = world_file.read_text().splitlines()
    problems += _dense(journal)
    problems += _kept(journal, lines, fold)
    problems += _repeated(lines)
    problems += _charged(journal, fold)
    problems += _over_budget(journal, lines)
    if results != peace.results:
        problems.append(f"the results differ: {results} instead of {peace.results}")
    openings = [float(line.split()[1]) for line in lines if line.startswith("open ")]
    slowest = max(openings, default=0.0)
    if slowest > OPEN_S_MAX:
        problems.append(f"an opening took {slowest:.1f} s of CPU")
    return problems, slowest


def _dense(journal: list[Any]) -> list[str]:
    wrong = [record.seq for number, record in enumerate(journal, start=1) if record.seq != number]
    return [f"the journal has a hole before row {wrong[0]}"] if wrong else []


def _kept(journal: list[Any], lines: list[str], fold: Fold) -> list[str]:
    """What was acknowledged is there."""
    sent = [
        codec.decode(bytes(row.message))
        for row in (
            rows.DECODERS["message.sent"].decode(record.data) for record in journal if record.kind == "message.sent"
        )
    ]
    problems = []
    for line in lines:
        words = line.split()
        if words[:2] == ["ack", "spawn"] and words[2] not in fold.processes:
            problems.append(f"the start of {words[2]} was acknowledged and is lost")
        elif words[:2] == ["ack", "end"] and fold.processes[words[2]].exit is None:
            problems.append(f"the end of {words[2]} was acknowledged and is lost")
        elif words[:2] == ["ack", "send"] and ["outside", int(words[2])] not in sent:
            problems.append(f"message {words[2]} was acknowledged and is lost")
    finished = Counter(record.pid for record in journal if record.kind == "effect.finished" and not _is_cut_off(record))
    for pid, count in Counter(line.split()[1] for line in set(lines) if line.startswith("seen ")).items():
        if finished[pid] < count:
            problems.append(f"{pid} has seen {count} answers, and its journal holds {finished[pid]}")
    return problems


def _repeated(lines: list[str]) -> list[str]:
    """Acts that must happen once happened once; none happened after its answer was seen."""
    lives = sum(1 for line in lines if line.startswith("open "))
    acts: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[str, str, str]] = set()
    problems = []
    for line in lines:
        word, who, *rest = line.split()
        if word == "seen":
            seen.add((who, rest[0], rest[1]))
        elif word == "act":
            acts[who, rest[0]] += 1
            if (who.partition(":")[0], rest[0], rest[1]) in seen:
                problems.append(f"{who} ({rest[0]}) was performed after its answer had been seen")
    for (key, what), count in acts.items():
        if count > (1 if what == "pay" else lives):
            problems.append(f"{key} ({what}) was performed {count} times in {lives} lives")
    return problems


def _is_cut_off(record: Any) -> bool:
    error = rows.DECODERS[record.kind].decode(record.data).error
    return error is not None and error.get("code") == "cut_off"


def _charged(journal: list[Any], fold: Fold) -> list[str]:
    """Every attempt at a paid act is charged once, those that a kill cut off included; the sums are exact."""
    charged: Counter[tuple[str, Any]] = Counter()
    attempts: Counter[tuple[str, Any]] = Counter()
    for record in journal:
        if record.kind == "effect.started":
            row = rows.DECODERS[record.kind].decode(record.data)
            attempts[record.pid, row.key] += bool(row.cost)
        elif record.kind == "effect.finished":
            row = rows.DECODERS[record.kind].decode(record.data)
            charged[record.pid, row.key] += (row.usage or {}).get("usd", 0)
    problems = [
        f"{pid}:{key} was charged {charged[pid, key]} micro-dollars for {count} attempts"
        for (pid, key), count in attempts.items()
        if charged[pid, key] != count * errand.COST_MICRO_USD
    ]
    total = fold.spent.get("usd", 0) + sum(state.spent.get("usd", 0) for state in fold.processes.values())
    if total != attempts.total() * errand.COST_MICRO_USD:
        problems.append(f"{total} micro-dollars were spent on {attempts.total()} attempts at paid acts")
    return problems


def _over_budget(journal: list[Any], lines: list[str]) -> list[str]:
    """No family has bought more, over all lives, than its budget allows; each has used all of it."""
    performed: Counter[str] = Counter()
    for line in lines:
        word, _, *rest = line.split()
        if word == "act" and rest[0] == "buy":
            performed[rest[1].partition(".")[0]] += 1
    parents: dict[str, str] = {}
    used: Counter[str] = Counter()
    for record in journal:
        if record.kind == "process.created":
            parents[record.pid] = rows.DECODERS[record.kind].decode(record.data).parent
        elif record.kind == "effect.finished":
            used[parents[record.pid]] += (rows.DECODERS[record.kind].decode(record.data).usage or {}).get(
                "tool_calls", 0
            )
    problems = []
    for pid, most in errand.PURCHASES_MAX.items():
        if performed[pid] > most:
            problems.append(f"{pid} has bought {performed[pid]} times, its budget allows {most}")
        if used[pid] != most:
            problems.append(f"{pid} was charged for {used[pid]} purchases, its budget ends at {most}")
    return problems
