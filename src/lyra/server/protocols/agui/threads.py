"""Threads: conversations of users with agents, each a durable process, found by agent, user and the id of the client.

The pid is made of the three, so that a thread is the same one after a restart, and the threads of two users or of two
agents under one id have nothing to do with each other. A thread has one run at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.errors import InvalidTransition, LyraError
from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, Streamed
from lyra.server.owners import make_owned_pid, spawn_for
from lyra.server.protocols.agui.input import (
    AguiBody,
    AguiRequest,
    agui_types,
    answer_calls,
    answer_interrupts,
    open_questions,
    read_input,
)
from lyra.server.protocols.agui.messages import SharedState, assistant_count, without_context
from lyra.server.protocols.agui.run import AguiRun
from lyra.server.protocols.agui.turns import AguiTurn, begin_turn, take_up_turn

if TYPE_CHECKING:
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.core.message import Message
    from lyra.server.http.parts import HttpParts
    from lyra.server.identity import Caller


def thread_pid(agent: str, user_id: str, thread_id: str) -> str:
    """Return the pid of a thread."""
    digest = hashlib.sha256(f"{agent}\0{thread_id}".encode("utf-8", "surrogatepass")).hexdigest()
    return make_owned_pid("agui", user_id, digest[:40])


class AguiThreads:
    """The threads of one server; shared by its handlers."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel = parts.kernel
        self._turns: dict[str, AguiTurn] = {}  # by pid, those that are not over
        self._opening: set[str] = set()  # pids whose run is about to begin

    async def run(self, agent: Any, caller: Caller, request: AguiRequest) -> AguiRun:
        """Take what the request brings into its thread; gives the run that reads what follows."""
        pid = thread_pid(agent.name, caller.user_id, request.thread_id)
        known = self._turns.get(pid)
        if pid in self._opening or (known is not None and known.has_reader):
            raise InvalidTransition("a run of this thread is under way", hint="wait for its end, or stop it")
        self._opening.add(pid)
        try:
            return await self._open(agent, caller, request, pid)
        finally:
            self._opening.discard(pid)

    async def _open(self, agent: Any, caller: Caller, request: AguiRequest, pid: str) -> AguiRun:
        taken = [row["name"] for row in request.tools if row["name"] in agent.tools]
        if taken:
            raise InvalidTransition(f"the agent has a tool {taken[0]!r} of its own", hint="give yours another name")
        process = spawn_for(self._kernel, caller.user_id, agent, pid=pid)
        if not process.alive:
            raise InvalidTransition("the thread has ended", hint="take another threadId")
        process = await process
        state = SharedState(self._kernel, pid)
        state.check(request.state)
        history = request.history() if not process.messages else []
        turn = await self._current(process)
        is_new = request.has_new_content and not (turn is not None and _is_told_before(process, request))
        if turn is not None or request.resume:
            await self._answer(process, request, is_new=is_new)
        state_text = await state.take(request.state)
        content = request.new_content(state_text=state_text) if is_new else ""
        if turn is None and history and not process.messages:
            await self._fill(process, history)

        async def begin() -> AguiTurn:
            place = assistant_count(process.messages)
            begun = self._turns[pid] = await begin_turn(process, content, request.tools)
            begun.begin_reading(place, again=False)
            return begun

        place = assistant_count(process.messages)
        if turn is not None:
            place = turn.begin_reading(place, again=not request.ends_with_answer)
            self._turns[pid] = turn
        elif content:
            turn = await begin()
            content = ""
        return AguiRun(
            self._kernel,
            process,
            request,
            turn,
            state,
            place=place,
            has_output=agent.output is not None,
            begin_next=begin if content else None,
            forget=lambda turn: self._forget(pid, turn),
        )

    async def _current(self, process: AgentProcess[Any]) -> AguiTurn | None:
        """Return the turn that the thread is in. One that was stopped is waited for until the process is idle."""
        turn = self._turns.get(process.pid)
        if turn is not None and not turn.is_stopped and not turn.is_read:
            return turn
        if turn is not None:
            await turn.wait_end()
            self._forget(process.pid, turn)
        if turn is not None and turn.is_stopped:
            stopping = process.current
            if stopping is not None:
                with suppress(LyraError):
                    await stopping
        return take_up_turn(self._kernel, process)

    def _forget(self, pid: str, turn: AguiTurn) -> None:
        """Forget a turn that has ended, and that no run will read."""
        if self._turns.get(pid) is turn:
            del self._turns[pid]

    async def _answer(self, process: AgentProcess[Any], request: AguiRequest, *, is_new: bool) -> None:
        """Answer what the thread waits for. A run that brings nothing answers nothing."""
        questions = open_questions(self._kernel, process.pid)
        messages = request.tool_messages()
        if request.resume or (questions.interrupts and is_new):
            await answer_interrupts(self._kernel, questions.interrupts, request.resume)
        calls = questions.calls
        if not is_new:  # the front end may still be at work on the others
            calls = {call_id: asked for call_id, asked in calls.items() if call_id in messages}
        await answer_calls(self._kernel, calls, messages)

    async def _fill(self, process: AgentProcess[Any], history: list[Message]) -> None:
        """Give an empty thread the conversation that the front end has. What a tool is said to have answered in it is
        text from outside, like the answer of a tool that the front end runs."""
        if any(message.role == "tool" for message in history):
            self._kernel.taint.mark(process.pid, "a conversation of the front end")
        await process.revise(0, history)


def _is_told_before(process: AgentProcess[Any], request: AguiRequest) -> bool:
    """Return whether the last message of a request is the one that the turn under way answers: a client that reads it
    on, or answers a question, sends the same conversation again."""
    last = next((row for row in reversed(process.messages) if row.role == "user"), None)
    return bool(request.resume) or (last is not None and without_context(last.text) == request.new_text)


# ---------------------------------------------------------------- endpoint
# `POST /agui/{agent}`: what a front end asks, and `GET /agui/{agent}`, what the agent can do.


async def run_agent(call: HttpCall) -> Streamed:
    refuse_if_draining(call.parts.is_draining)
    request = AguiRequest(read_input(call.raw_body))
    agent = call.parts.chats.directory.declaration(call.path["agent"])
    threads: AguiThreads = call.parts.get_shared(AguiThreads)
    events = (await threads.run(agent, call.caller, request)).stream()
    first = await anext(events)  # from here on the run ends with its stream, also where the client has left by now
    return Streamed(_after(first, events))


async def _after(first: bytes, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        yield first
        async for piece in events:
            yield piece


async def capabilities(call: HttpCall) -> RawAnswer:
    types = agui_types()
    agent: Any = call.parts.chats.directory.declaration(call.path["agent"])
    described = types.AgentCapabilities(
        identity=types.IdentityCapabilities(name=agent.name, type="lyra", description=agent.description or None),
        transport=types.TransportCapabilities(streaming=True, resumable=False),
        tools=types.ToolsCapabilities(
            supported=True,
            client_provided=True,
            items=[
                types.Tool(name=tool.name, description=tool.description, parameters=tool.schema)
                for tool in agent.toolbox
            ],
        ),
        state=types.StateCapabilities(snapshots=True, deltas=True, persistent_state=True),
        human_in_the_loop=types.HumanInTheLoopCapabilities(supported=True, approvals=True, interrupts=True),
    )
    return RawAnswer(described.model_dump_json(by_alias=True).encode())


_PATH: Final = "/agui/{agent}"

ENDPOINTS: Final = (
    Endpoint(
        "agui.run",
        "POST",
        _PATH,
        "Run an agent for a front end by the AG-UI protocol",
        run_agent,
        body=AguiBody,
        streams=True,
        is_work=True,
        statuses=(404, 409, 402, 502),
        about="The stream has the events of AG-UI 1.0, each as one `data` line.",
    ),
    Endpoint(
        "agui.capabilities",
        "GET",
        _PATH,
        "What an agent can do, as AG-UI's AgentCapabilities",
        capabilities,
        statuses=(404,),
    ),
)
