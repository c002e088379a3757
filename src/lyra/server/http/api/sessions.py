"""Sessions: the conversations that were begun over HTTP; each is a durable process of its user."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.agents.session.agent_process import AgentProcess
from lyra.server.http.endpoint import Endpoint, HttpCall
from lyra.server.owners import owner_of


class SessionView(msgspec.Struct, kw_only=True):
    """A conversation; `state` is where the agent is: ready between two messages."""

    session_id: str
    pid: str
    agent: str
    user_id: str
    state: str
    alive: bool
    created_at: float
    message_count: int
    cost_usd: float


class SessionList(msgspec.Struct):
    sessions: list[SessionView]


class SpokenMessage(msgspec.Struct, kw_only=True):
    role: str
    text: str
    tool_calls: list[str] = []


class SessionDetail(SessionView, kw_only=True):
    messages: list[SpokenMessage]


class CancelAnswer(msgspec.Struct):
    """How many answers that were on their way were given up."""

    cancelled: int


def _view(call: HttpCall, session_id: str, pid: str) -> dict[str, Any]:
    process = call.kernel.processes[pid]
    run = process.stands_for or process
    agent = None if call.kernel.missing_program(process) is not None else call.kernel.agent(pid)
    return {
        "session_id": session_id,
        "pid": pid,
        "agent": run.program.partition(":")[2],
        "user_id": owner_of(call.kernel, pid),
        "state": "dormant" if agent is None else agent.agent_state.value,
        "alive": process.alive,
        "created_at": process.created_at,
        "message_count": 0 if agent is None else len(agent.messages),
        "cost_usd": int(process.spent.usd) / 1_000_000,
    }


async def list_sessions(call: HttpCall) -> SessionList:
    owned = call.parts.chats.sessions.of(call.caller)
    return SessionList([SessionView(**_view(call, name, process.pid)) for name, process in owned])


async def get_session(call: HttpCall) -> SessionDetail:
    session_id = call.path["session_id"]
    process: AgentProcess[Any] = call.parts.chats.handle(session_id, call.caller)
    messages = [
        SpokenMessage(role=message.role, text=message.text, tool_calls=[tool.name for tool in message.tool_calls])
        for message in process.messages
    ]
    return SessionDetail(**_view(call, session_id, process.pid), messages=messages)


async def end_session(call: HttpCall) -> SessionView:
    session_id = call.path["session_id"]
    process = call.parts.chats.sessions.get(session_id, call.caller)
    await call.kernel.kill(process.pid, "shutdown")
    return SessionView(**_view(call, session_id, process.pid))


async def cancel_answer(call: HttpCall) -> CancelAnswer:
    cancelled = call.parts.chats.cancel(call.path["session_id"], call.caller)
    await call.kernel.durable()  # a message that is told to be cancelled is not carried out by a later server
    return CancelAnswer(cancelled)


_PATH: Final = "/api/sessions/{session_id}"

ENDPOINTS: Final = (
    Endpoint(
        name="sessions.list",
        method="GET",
        path="/api/sessions",
        summary="The conversations of the caller",
        handler=list_sessions,
        answer=SessionList,
    ),
    Endpoint(
        name="sessions.get",
        method="GET",
        path=_PATH,
        summary="One conversation with its messages",
        handler=get_session,
        answer=SessionDetail,
        statuses=(404,),
    ),
    Endpoint(
        name="sessions.end",
        method="DELETE",
        path=_PATH,
        summary="End a conversation",
        handler=end_session,
        answer=SessionView,
        statuses=(404,),
    ),
    Endpoint(
        name="sessions.cancel",
        method="POST",
        path=f"{_PATH}/cancel",
        summary="Give up the answer that is on its way; the conversation goes on",
        handler=cancel_answer,
        answer=CancelAnswer,
        statuses=(404,),
    ),
)
