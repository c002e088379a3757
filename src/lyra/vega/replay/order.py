"""The order of a timeline: that in which the program comes to its effects.

Processes happen beside each other, so their steps are in the order of the rows that answered them. A function that was
called ahead of its turn is a process as well, but no part of what it did counts before the program comes to the call:
its steps stand between the step before the call and the call's own, however early they were answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lyra.vega.replay.timeline import TimelineStep


def in_program_order(steps: Iterable[TimelineStep], pids: Iterable[str]) -> list[TimelineStep]:
    """The steps of all processes, those of each in its own order; the `seq` of each is where it counts."""
    by_pid: dict[str, list[TimelineStep]] = {pid: [] for pid in pids}
    for step in steps:
        by_pid[step.pid].append(step)
    inner = {child for own in by_pid.values() for step in own for child in _called(step, by_pid)}
    placed: list[TimelineStep] = []
    for pid in by_pid:
        if pid not in inner:
            _place(pid, by_pid, placed)
    ranked = sorted(range(len(placed)), key=lambda index: (placed[index].seq, index))
    return [placed[index] for index in ranked]


def _called(step: TimelineStep, by_pid: dict[str, list[TimelineStep]]) -> list[str]:
    """The processes of the functions that a step was the call of."""
    return [child for child in step.children if child in by_pid] if step.kind == "ahead_take" else []


def _place(root: str, by_pid: dict[str, list[TimelineStep]], placed: list[TimelineStep]) -> None:
    """A process with all that it calls. Calls inside calls may be deep, so this does not call itself."""
    reached = 0
    lines: list[Iterator[tuple[TimelineStep, str]]] = [_line(root, by_pid)]
    while lines:
        step, child = next(lines[-1], (None, ""))
        if child:
            lines.append(_line(child, by_pid))
        elif step is None:
            lines.pop()
        else:
            step.seq = reached = max(step.seq, reached)
            placed.append(step)


def _line(pid: str, by_pid: dict[str, list[TimelineStep]]) -> Iterator[tuple[TimelineStep, str]]:
    """Each step of a process, and before it the processes that it waited for, by name."""
    for step in by_pid[pid]:
        for child in _called(step, by_pid):
            yield step, child
        yield step, ""
