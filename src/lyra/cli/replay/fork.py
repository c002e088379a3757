"""Forks made by `lyra replay`: the store is opened by a kernel in which only the fork runs.

All other processes of the store stand still, the run that is forked among them. The fork's rows are in the store as any
process's: after a crash `lyra replay STORE FORK --resume` goes on with it, and so does every kernel that knows its
programs.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lyra.cli.render import note
from lyra.cli.replay.opened import opened_store, store_target, timeline_of
from lyra.errors import ConfigError, LyraError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lyra.agents.forks.change import StepChange
    from lyra.cli.app import Invocation
    from lyra.cli.replay.program_file import ProgramFile
    from lyra.kernel.kernel import Kernel
    from lyra.observe.timeline.timeline import RunTimeline


def make_fork(
    invocation: Invocation,
    target: str,
    timeline: RunTimeline,
    *,
    number: int,
    change: StepChange,
    programs: ProgramFile | None,
    new_pid: str | None = None,
) -> dict[str, Any]:
    """Start a fork, run it to its end or to the end of its turn, and tell what came of it."""
    from lyra.agents.forks.fork import fork_run

    async def start(kernel: Kernel) -> str:
        with opened_store(target) as store:
            return await fork_run(kernel, store, timeline.pid, number, change, new_pid=new_pid)

    facts = asyncio.run(_run(invocation, target, programs, start, wakes=()))
    with opened_store(target) as store:
        fork = timeline_of(store, facts["fork"])
        facts |= _failed_turn(fork) | _compared(timeline_of(store, timeline.pid), fork)
    return {**facts, "of": timeline.pid, "at": number, "change": change.to_data()}


def go_on(
    invocation: Invocation, target: str, timeline: RunTimeline, *, programs: ProgramFile | None
) -> dict[str, Any]:
    """Go on with a process that its kernel left in the middle of its work, such as a fork; the others stand still."""

    async def start(_: Kernel) -> str:
        return timeline.pid

    facts = asyncio.run(_run(invocation, target, programs, start, wakes=(timeline.pid,)))
    with opened_store(target) as store:
        return facts | _failed_turn(timeline_of(store, timeline.pid))


async def _run(
    invocation: Invocation,
    target: str,
    programs: ProgramFile | None,
    start: Callable[[Kernel], Awaitable[str]],
    *,
    wakes: tuple[str, ...],
) -> dict[str, Any]:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.seams import Seams

    kernel = Kernel.from_config(invocation.config, store=store_target(target), seams=Seams(wakes=wakes))
    async with kernel:
        if programs is not None:
            await programs.register(kernel)
        try:
            pid = await start(kernel)
        except ConfigError as error:
            raise _with_file(error, programs) from None
        note(f"process {pid} runs; Ctrl-C leaves it in the store, to be gone on with by --resume")
        facts = await _outcome(kernel, pid)
    return {"fork": pid, **facts}


def _with_file(error: ConfigError, programs: ProgramFile | None) -> ConfigError:
    """The same mistake; where a program is not known, with what a person who types the command can do about it."""
    if "program" not in error.fields:
        return error
    hint = "name the file that declares it: --load FILE.py" if programs is None else "the file of --load has none such"
    return ConfigError(error.message, hint=hint, **error.fields)


async def _outcome(kernel: Kernel, pid: str) -> dict[str, Any]:
    """Wait until it has ended, its turn is over, or it waits for a person."""
    from lyra.agents.forks.fork import wait_for_fork

    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def heard(event: Any) -> None:
        if not asked.done():
            asked.set_result(str(event.data.get("question") or event.data.get("message") or ""))

    stop = kernel.on_event(heard, ["interrupt.created"])
    question = _question(kernel, pid)  # asked before this listened, or before the process was left
    if question is not None:
        asked.set_result(question)
    work = kernel.tasks.start(wait_for_fork(kernel, pid), name="lyra-fork")
    try:
        await asyncio.wait((work, asked), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop()
    failure: LyraError | None = None
    if work.done():
        try:
            work.result()
        except LyraError as error:
            failure = error
        return _ended(kernel, pid, failure)
    work.cancel()
    with suppress(asyncio.CancelledError, LyraError):
        await work
    return {"state": "waiting", "question": asked.result(), "answer": None, "error": None}


def _question(kernel: Kernel, pid: str) -> str | None:
    """What the process, or one below it, asks a person now."""
    from lyra.agents.forks.fork import members_of

    pids = {member.pid for member in members_of(kernel.processes[pid])}
    waiting = (row for row in kernel.interrupts.pending() if row.pid in pids)
    return next((row.question or row.message for row in waiting), None)


def _ended(kernel: Kernel, pid: str, failure: LyraError | None) -> dict[str, Any]:
    process = kernel.processes[pid]
    ended = process.exit
    if failure is None and ended is not None and ended.error is not None:
        error: Any = ended.error
        failure = error if isinstance(error, LyraError) else LyraError(f"{type(error).__name__}: {error}")
    error_text = None if failure is None else failure.message
    if ended is not None:
        return {"state": ended.reason, "answer": ended.result, "error": error_text}
    if getattr(kernel.programs.get((process.stands_for or process).program), "__lyra_handle__", None) is None:
        return {"state": "waits for a message", "answer": None, "error": error_text}
    messages = kernel.agent(pid).messages
    answer = messages[-1].text if messages and messages[-1].role == "assistant" else None
    return {"state": "idle", "answer": answer if failure is None else None, "error": error_text}


def _failed_turn(timeline: RunTimeline) -> dict[str, Any]:
    """What replaces the answer where the last turn of a conversation failed: it may be over before it is waited for."""
    turn = next((step for step in reversed(timeline.steps) if step.pid == timeline.pid), None)
    if turn is None or turn.kind != "turn" or not turn.error:
        return {}
    return {"answer": None, "error": turn.error}


def _compared(old: RunTimeline, new: RunTimeline) -> dict[str, Any]:
    from lyra.observe.timeline.difference import compare_runs

    first = compare_runs(old, new).first
    totals = new.totals()
    return {
        "first_difference": first,
        "cost_usd": totals["cost_usd"],
        "usage": totals["usage"],
        "recorded": totals["recorded"],
    }
