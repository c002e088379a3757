"""`fork_run`: start a fork of a run at one of its steps, in a kernel that owns the store of the run.

    fork = await fork_run(kernel, store, "talk", 5, StepChange(reply="No."))

The fork is its own process. The run that it was forked from is read and not changed, and nothing of it is
performed again; what the fork does from there on is real, and counts in the fork's own budget.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.agents.agent import Agent
from lyra.agents.forks.change import StepChange, fork_point
from lyra.agents.session.session import AgentSession
from lyra.agents.turn.model_call import request_digest
from lyra.core.effect import canonical_hash
from lyra.core.message import Message
from lyra.errors import LyraError
from lyra.kernel.forks import start_fork
from lyra.kernel.journal import rows
from lyra.kernel.journal.fork_rows import ForkPoint, fork_records
from lyra.models.provider import Request
from lyra.models.tokens import ConversationTokens, Estimator
from lyra.observe.timeline.state import StoredRows
from lyra.observe.timeline.timeline import RunTimeline
from lyra.store.standing import vouch

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.kernel.programs.handle import Handle
    from lyra.observe.timeline.step import RunStep
    from lyra.store.protocol import Record, Store


_LOOK_S: Final = 0.02  # between two looks whether a fork has come to a stand


class PreparedFork(NamedTuple):
    """All that starting a fork needs, read from the store."""

    point: ForkPoint
    records: list[Record]
    agent: Any = None  # restored from the journal, where the kernel does not know it


def prepare_fork(
    store: Store,
    timeline: RunTimeline,
    number: int,
    change: StepChange,
    *,
    is_known: Callable[[str], bool],
) -> PreparedFork:
    """Read what a fork begins with. Blocks; a signed store is checked as it is read. `is_known` says whether the kernel
    knows a program."""
    vouch(store)
    point = fork_point(timeline, store, number, change)
    agent = None if is_known(timeline.program) else restore_agent(timeline, store)
    return PreparedFork(point, fork_records(store.read(), point.run), agent)


async def start_prepared(kernel: Kernel, prepared: PreparedFork, *, new_pid: str | None = None) -> str:
    """Start a fork that was prepared; gives its pid, once it is in the store."""
    if prepared.agent is not None:
        kernel.register(prepared.agent)
    return await start_fork(kernel, prepared.point, prepared.records, pid=new_pid)


async def fork_run(
    kernel: Kernel, store: Store, pid: str, number: int, change: StepChange, *, new_pid: str | None = None
) -> str:
    """Both in one; `store` is read: the kernel's own, or a reader of it."""
    timeline = RunTimeline(StoredRows(store), pid)
    prepared = prepare_fork(store, timeline, number, change, is_known=partial(_is_known, kernel))
    return await start_prepared(kernel, prepared, new_pid=new_pid)


def _is_known(kernel: Kernel, program: str) -> bool:
    return kernel.programs.get(program) is not None


async def wait_for_fork(kernel: Kernel, pid: str) -> Handle[Any]:
    """Return when the fork has ended, its turn is over where it is a conversation, or it waits for a message."""
    process = kernel.processes[pid]
    run = process.stands_for or process
    if getattr(kernel.programs.get(run.program), "__lyra_handle__", None) is not None:
        current = kernel.agent(pid).current
        if current is not None:
            await current
    else:
        while process.exit is None and not _is_idle(process):
            await kernel.outside_pause(_LOOK_S)
    await kernel.durable()
    return kernel.process(pid)


def _is_idle(process: Process) -> bool:
    """Return whether a process and all below it wait for messages, and none is there."""
    return all(
        member.exit is not None or (member.replay is None and member.receiver is not None and not member.inbox)
        for member in members_of(process)
    )


def members_of(process: Process) -> list[Process]:
    """Return a process and all below it."""
    members = [process]
    for member in members:
        members += (member.children or {}).values()
    return members


# An agent made again from the journal alone: name and model, where that is all there was to it.


def restore_agent(timeline: RunTimeline, store: Store) -> Agent[Any] | None:
    """Return the agent that a run is a conversation with; None where the journal does not have enough."""
    word, _, name = timeline.program.partition(":")
    asked = next((step for step in timeline.steps if step.kind == "model" and step.pid == timeline.pid), None)
    if word != "agent" or asked is None or asked.agent != name or "/" not in asked.model:
        return None
    try:
        agent = Agent(name, model=asked.model)
    except LyraError:
        return None
    return agent if _is_same(agent, timeline, store, asked) else None


def _is_same(agent: Agent[Any], timeline: RunTimeline, store: Store, asked: RunStep) -> bool:
    """Return whether the agent asks what was asked then, in the same words and with the same settings."""
    record = next(store.read(after=asked.seq - 1, upto=asked.seq))
    started = rows.DECODERS[record.kind].decode(record.data)
    conversation = timeline.state(asked.number - 1).conversations[timeline.pid]
    session = AgentSession(agent, ConversationTokens(Estimator()), durable=True)
    session.messages += [Message(message["role"], message["text"]) for message in conversation.messages]
    request = Request(
        model=asked.model,
        messages=session.select_messages(),
        max_tokens=agent.max_tokens,
        temperature=agent.temperature,
        top_p=agent.top_p,
    )
    digest = request_digest(session, request)
    return bool(canonical_hash(started.name, (digest,), {}) == started.hash)
