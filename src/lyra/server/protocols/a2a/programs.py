"""The programs of an A2A task: one process keeps its record, the one below it is the agent at work.

The process of the task lives on when the agent has answered: it stands for the task until the server forgets it, so
that a client can ask for it, also after a restart. What a client sends to a running task comes as a message: the answer
to a question (`REPLY`) or that it is cancelled (`CANCEL`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.a2a.content import content_of_parts
from lyra.a2a.sdk import from_json, messages
from lyra.agents.session.agent_process import FeedSink
from lyra.agents.session.shared import runtime_of
from lyra.agents.turn.loop import once
from lyra.core.codec import to_plain
from lyra.core.message import Message
from lyra.core.naming import A2A_TASK, A2A_TURN, named
from lyra.kernel.process.links import Down
from lyra.server.protocols.a2a.record import CANCELED, A2aRecord

if TYPE_CHECKING:
    from lyra.kernel.programs.context import Context
    from lyra.server.protocols.a2a.tasks import A2aTasks


PART: Final = "a2a"  # of the kernel
REPLY: Final = "reply"
CANCEL: Final = "cancel"


@named(A2A_TASK)
async def a2a_task(ctx: Context, record: A2aRecord, history: list[dict[str, Any]]) -> None:
    """The program of a task. `history` is the conversation of its context before it."""
    tasks: A2aTasks = ctx.own_process.kernel.parts[PART]
    if ctx.restored is not None:
        tasks.enter(ctx.pid, A2aRecord(**ctx.restored))
    else:
        live = tasks.enter(ctx.pid, record)
        record = live.record
        agent = tasks.agent(record.agent)
        live.is_streamed = agent.output is None
        turn = ctx.spawn(
            a2a_turn,
            ctx.pid,
            record.agent,
            record.messages[0],
            history,
            budget=agent.budget,
            supervision=agent.supervision,
        )
        ctx.monitor(turn)
        record.state = "working"
        live.changed()
        while not record.has_ended:
            message = await ctx.receive()
            if isinstance(message, Down):
                record.end(await turn.wait(), ctx.own_process.kernel, ctx.now())
            elif isinstance(message, dict) and REPLY in message:
                record.messages += [row for row in message[REPLY] if not record.has_message(row.get("messageId", ""))]
            elif isinstance(message, dict) and CANCEL in message:
                ctx.stop(turn, reason=CANCELED)
        tasks.told(live)
        await ctx.checkpoint(record)
    while True:
        await ctx.receive()


@named(A2A_TURN)
async def a2a_turn(
    ctx: Context, task_pid: str, agent_name: str, message: dict[str, Any], history: list[dict[str, Any]]
) -> dict[str, Any]:
    """The agent at work on a task: its answer, and what it took."""
    kernel = ctx.own_process.kernel
    tasks: A2aTasks = kernel.parts[PART]
    agent = tasks.agent(agent_name)
    content = content_of_parts(from_json(message, messages().Message()).parts)
    sink = FeedSink(kernel, tasks.listener(task_pid))
    text = await once(ctx, agent, content, sink=sink, history=_messages(history))
    session = runtime_of(kernel).sessions.get(ctx.own_process.pid)
    usage: dict[str, Any] = {}
    if session is not None:
        tokens_in, tokens_out, _, _ = session.metrics.totals
        cost_usd = session.metrics.cost_usd
        usage = {"input_tokens": tokens_in, "output_tokens": tokens_out}
        usage |= {} if cost_usd is None else {"cost_usd": cost_usd}
    if agent.output is not None:  # the value as its type reads it, whatever the model wrote around it
        text = msgspec.json.encode(agent.output.read(text), enc_hook=to_plain).decode()
    execution = session.execution if session is not None else None
    status = execution.status if execution is not None else "success"
    return {"text": text, "is_data": agent.output is not None, "usage": usage, "status": status}


def _messages(history: Iterable[dict[str, Any]]) -> list[Message]:
    return [Message.from_data(row) for row in history]


TASK_PROGRAMS: Final = (a2a_task, a2a_turn)
