"""Threads: conversations of users with agents, each a durable process, found by agent, user and the id of the client.

The pid is made of the three, so that a thread is the same one after a restart, and the threads of two users or of two
agents under one id have nothing to do with each other. A thread has one run at a time: `AguiRun` is a stream of AG-UI
events that reads a turn until it ends, or waits for a person or for the front end.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.session.events import (
    AgentEvent,
    AnswerDone,
    HookNotice,
    Interrupted,
    Restart,
    Text,
    Thinking,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    UsageTold,
)
from lyra.agents.turn.model_effect import CallDraft
from lyra.core.codec import to_plain
from lyra.core.limits import SERVER_HEARTBEAT_S
from lyra.errors import InvalidTransition, LyraError
from lyra.models.stream import CUT_BY_BUDGET, CUT_BY_PROVIDER
from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, Streamed
from lyra.server.http.problems import problem_of
from lyra.server.owners import make_owned_pid, spawn_for
from lyra.server.protocols.agui.input import (
    AguiBody,
    AguiRequest,
    QuestionsToPage,
    agui_types,
    answer_calls,
    answer_interrupts,
    event_bytes,
    interrupt_of,
    open_questions,
    read_input,
)
from lyra.server.protocols.agui.messages import (
    MessageIds,
    SharedState,
    as_json,
    as_text,
    assistant_count,
    snapshot_messages,
    without_context,
)
from lyra.server.protocols.agui.turns import AguiTurn, begin_turn, take_up_turn

if TYPE_CHECKING:
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.parts import HttpParts
    from lyra.server.identity import Caller


_QUIET_S: Final = 2.0  # a run with an open question ends after this time, also where another call is under way
_MAY_WAIT: Final = (Interrupted, ToolEnded)  # after these the open questions are others
_HEARTBEAT: Final = b": ping\n\n"


class AguiRun:
    """See the module. Without a `turn` there is nothing to answer: the run tells the conversation and ends."""

    def __init__(
        self,
        kernel: Kernel,
        process: AgentProcess[Any],
        request: AguiRequest,
        turn: AguiTurn | None,
        state: SharedState,
        *,
        place: int,
        has_output: bool,
        begin_next: Callable[[], Awaitable[AguiTurn]] | None = None,
        forget: Callable[[AguiTurn], None] = lambda _turn: None,
    ) -> None:
        self._kernel = kernel
        self._process = process
        self._request = request
        self._turn = turn
        self._state = state
        self._has_output = has_output
        self._begin_next = begin_next  # a message that waits for the end of the turn
        self._forget = forget  # called with a turn that is over
        self._questions = QuestionsToPage([], {})
        self._ids = MessageIds(process.pid)
        self._types = agui_types()
        client_tools = frozenset(row["name"] for row in request.tools)
        self._translator = EventTranslator(turn or AguiTurn(), self._ids, place, client_tools)

    async def stream(self) -> AsyncGenerator[bytes, None]:
        is_over = False
        try:
            yield self._bytes(self._begin())
            while self._turn is not None:
                async with aclosing(self._read(self._turn)) as pieces:
                    async for piece in pieces:
                        yield piece
                if self._begin_next is None or not self._turn.is_read or self._turn.failure is not None:
                    break
                self._turn, self._begin_next = await self._begin_next(), None
                self._translator.follow(self._turn)
            is_over = True
            yield self._bytes(self._end())
        finally:
            # Leave the turn: the run reads no more; a client that left in the middle may have stopped the turn.
            if self._turn is not None:
                self._turn.end_reading(is_over=is_over)
                if not is_over and self._request.on_disconnect == "stop":
                    self._turn.stop(self._kernel, self._process.pid)
                if self._turn.is_read and not self._turn.is_stopped:
                    self._forget(self._turn)

    def _begin(self) -> list[Any]:
        types, request = self._types, self._request
        events = [
            types.RunStartedEvent(
                thread_id=request.thread_id,
                run_id=request.run_id,
                parent_run_id=request.parent_run_id,
                protocol_version=types.PROTOCOL_VERSION,
            )
        ]
        return events + self._state.snapshot()

    # ------------------------------------------------------------------ the turn

    async def _read(self, turn: AguiTurn) -> AsyncGenerator[bytes, None]:
        """Yield what happens in the turn, until it ends or waits."""
        self._look()
        while not turn.is_read:
            waiting = self._questions.total
            if waiting and waiting >= len(turn.calls) and not turn.has_events:
                return
            event = await turn.next(_QUIET_S if waiting else SERVER_HEARTBEAT_S)
            if event is None or isinstance(event, _MAY_WAIT):
                self._look()
            if event is not None:
                events = self._translator.feed(event) + self._state.changes()
                if events:
                    yield self._bytes(events)
            elif self._questions.total:
                return
            elif not turn.ended:
                yield _HEARTBEAT

    def _look(self) -> None:
        self._questions = open_questions(self._kernel, self._process.pid)

    # ------------------------------------------------------------------ the end

    def _end(self) -> list[Any]:
        turn = self._turn
        events = self._translator.close() + self._state.changes()
        if turn is not None and turn.is_read and turn.failure is not None:
            if not isinstance(turn.failure, asyncio.CancelledError):
                return [*events, self._error(turn.failure)]
            return [*events, *self._snapshot(), self._make_finished(self._types.RunFinishedCancelledOutcome())]
        result = to_plain_value(turn.value) if turn is not None and turn.is_read and self._has_output else None
        return [*events, *self._snapshot(), self._make_finished(self._outcome(), result)]

    def _snapshot(self) -> list[Any]:
        messages = snapshot_messages(self._process.messages, self._ids, self._request)
        return [self._types.MessagesSnapshotEvent(messages=messages)]

    def _outcome(self) -> Any:
        types, turn = self._types, self._turn
        if turn is None or turn.is_read:
            return types.RunFinishedSuccessOutcome()
        questions = self._questions
        if questions.interrupts:
            interrupts = [interrupt_of(asked, turn.call_of.get(asked.id, "")) for asked in questions.interrupts]
            return types.RunFinishedInterruptOutcome(interrupts=interrupts)
        return types.RunFinishedSuccessOutcome(pending_tool_call_ids=list(questions.calls) or None)

    def _make_finished(self, outcome: Any, result: Any = None) -> Any:
        request = self._request
        return self._types.RunFinishedEvent(
            thread_id=request.thread_id,
            run_id=request.run_id,
            outcome=outcome,
            result=result,
            usage=self._usage(),
        )

    def _error(self, failure: BaseException) -> Any:
        problem = problem_of(failure, self._kernel)
        return self._types.RunErrorEvent(message=problem.message, code=problem.code, usage=self._usage())

    def _usage(self) -> list[Any] | None:
        usage = self._translator.usage
        if not usage:
            return None
        inputs, outputs = sum(row.input_tokens for row in usage), sum(row.output_tokens for row in usage)
        return [self._types.TokenUsage(input_tokens=inputs, output_tokens=outputs, total_tokens=inputs + outputs)]

    def _bytes(self, events: list[Any]) -> bytes:
        return b"".join(map(event_bytes, events))


def to_plain_value(value: Any) -> Any:
    """Return the value of an agent with an output type as JSON has it."""
    try:
        return msgspec.to_builtins(value, enc_hook=to_plain)
    except (TypeError, ValueError):
        return str(value)


# From the events of an agent's turn to the events of AG-UI: which message, reasoning, call or step is open.


class EventTranslator:
    """Translates for one run. `place` is the number of the assistant's next message in the transcript."""

    def __init__(self, turn: AguiTurn, ids: MessageIds, place: int, client_tools: frozenset[str]) -> None:
        self._types = agui_types()
        self._turn = turn
        self._ids = ids
        self._place = place
        self._client_tools = client_tools
        self._text_id = ""  # the message that is open
        self._thought_id = ""  # the reasoning that is open
        self._thoughts = 0
        self._restarts = 0
        self._step = ""  # the step that is open
        self._steps = 0
        self._drafts: dict[str, bool] = {}  # ids of calls that were told while they were written; whether still open
        self.usage: list[UsageTold] = []

    def feed(self, event: AgentEvent) -> list[Any]:
        handler = _FEEDS.get(type(event))
        return [] if handler is None else handler(self, event)

    def follow(self, turn: AguiTurn) -> None:
        """Continue with another turn of the same thread."""
        self._turn = turn

    def close(self) -> list[Any]:
        """End all that is open."""
        events = self._close_text() + self._close_thought() + self._close_drafts()
        if self._step:
            events.append(self._types.StepFinishedEvent(step_name=self._step))
            self._step = ""
        return events

    # ------------------------------------------------------------------ steps, messages, reasoning

    def _begin_step(self) -> list[Any]:
        """Begin a step, which is a call of the model with the tool calls that it asks for."""
        if self._step:
            return []
        self._steps += 1
        self._step = f"step {self._steps}"
        return [self._types.StepStartedEvent(step_name=self._step)]

    def _close_text(self) -> list[Any]:
        if not self._text_id:
            return []
        ended, self._text_id = self._text_id, ""
        return [self._types.TextMessageEndEvent(message_id=ended)]

    def _close_thought(self) -> list[Any]:
        if not self._thought_id:
            return []
        ended, self._thought_id = self._thought_id, ""
        return [
            self._types.ReasoningMessageEndEvent(message_id=ended),
            self._types.ReasoningEndEvent(message_id=ended),
        ]

    @property
    def _message_id(self) -> str:
        base = self._ids.assistant(self._place)
        return f"{base}-{self._restarts}" if self._restarts else base

    def _text(self, event: Text) -> list[Any]:
        events = self._close_thought() + self._begin_step()
        if not self._text_id:
            self._text_id = self._message_id
            events.append(self._types.TextMessageStartEvent(message_id=self._text_id, role="assistant"))
        events.append(self._types.TextMessageContentEvent(message_id=self._text_id, delta=event.delta))
        return events

    def _thinking(self, event: Thinking) -> list[Any]:
        events = self._close_text() + self._begin_step()
        if not self._thought_id:
            self._thought_id = self._ids.reasoning(self._place, self._thoughts)
            self._thoughts += 1
            events += [
                self._types.ReasoningStartEvent(message_id=self._thought_id),
                self._types.ReasoningMessageStartEvent(message_id=self._thought_id, role="reasoning"),
            ]
        events.append(self._types.ReasoningMessageContentEvent(message_id=self._thought_id, delta=event.delta))
        return events

    def _restart(self, _event: Restart) -> list[Any]:
        """Restart the answer, as the text so far does not hold: it is closed, and the answer comes as another message.
        The snapshot at the end of the run has the second alone."""
        self._restarts += 1
        return self._close_text() + self._close_thought()

    def _usage(self, event: UsageTold) -> list[Any]:
        """End the model's message, which is whole."""
        self.usage.append(event)
        events = self._close_text() + self._close_thought()
        self._place += 1
        self._restarts = 0
        return events

    # ------------------------------------------------------------------ tools

    def _draft(self, event: CallDraft) -> list[Any]:
        """Return a call as the model writes it. The answer may begin anew; what was told of it then stands until the
        snapshot at the end of the run, and a call under the same id is told whole."""
        if not event.id:
            return self._close_drafts()
        types, events = self._types, []
        if event.id not in self._drafts:
            self._drafts[event.id] = True
            events = self._close_text() + self._close_thought() + self._begin_step()
            parent = self._ids.assistant(self._place)
            events.append(
                types.ToolCallStartEvent(tool_call_id=event.id, tool_call_name=event.name, parent_message_id=parent)
            )
        if event.delta and self._drafts[event.id]:
            events.append(types.ToolCallArgsEvent(tool_call_id=event.id, delta=event.delta))
        return events

    def _close_drafts(self) -> list[Any]:
        still_open = [call_id for call_id, is_open in self._drafts.items() if is_open]
        self._drafts.update(dict.fromkeys(still_open, False))
        return [self._types.ToolCallEndEvent(tool_call_id=call_id) for call_id in still_open]

    def _tool_started(self, event: ToolStarted) -> list[Any]:
        self._turn.calls.add(event.id)
        types = self._types
        if self._drafts.pop(event.id, False):
            return [types.ToolCallEndEvent(tool_call_id=event.id)]
        return [
            *self._close_text(),
            *self._close_thought(),
            *self._begin_step(),
            types.ToolCallStartEvent(
                tool_call_id=event.id,
                tool_call_name=event.name,
                parent_message_id=self._ids.assistant(max(0, self._place - 1)),
            ),
            types.ToolCallArgsEvent(tool_call_id=event.id, delta=as_json(event.arguments)),
            types.ToolCallEndEvent(tool_call_id=event.id),
        ]

    def _tool_ended(self, event: ToolEnded) -> list[Any]:
        self._turn.calls.discard(event.id)
        events: list[Any] = []
        if event.name not in self._client_tools:  # the front end has the result of its own tool
            message_id, text = self._ids.tool(event.id), as_text(event.output)
            result = self._types.ToolCallResultEvent(message_id=message_id, tool_call_id=event.id, content=text)
            events.append(result)
        if not self._turn.calls and self._step:
            events.append(self._types.StepFinishedEvent(step_name=self._step))
            self._step = ""
        return events

    def _tool_progress(self, event: ToolProgress) -> list[Any]:
        value = {"toolCallId": event.id, "text": event.text, "fraction": event.fraction}
        return [self._types.CustomEvent(name="lyra.tool_progress", value=value)]

    def _on_interrupted(self, event: Interrupted) -> list[Any]:
        """Note an interrupt. The run's outcome tells it; what is noted here is the call that it is about, where the
        front end knows it: the call of a helper is not told."""
        call_id = str(event.about.get("call_id", ""))
        if event.id and call_id in self._turn.calls:
            self._turn.call_of[event.id] = call_id
        return []

    def _on_done(self, event: AnswerDone) -> list[Any]:
        """Tell an answer that was cut off; how any other ended is in the end of the run."""
        is_cut = event.status in (CUT_BY_PROVIDER, CUT_BY_BUDGET) and event.text
        return [self._types.CustomEvent(name="lyra.cut_off", value={"status": event.status})] if is_cut else []

    def _notice(self, event: HookNotice) -> list[Any]:
        return [self._types.CustomEvent(name="lyra.notice", value={"text": event.text, "level": event.level})]


_FEEDS: Final[dict[type[AgentEvent], Callable[[EventTranslator, Any], list[Any]]]] = {
    AnswerDone: EventTranslator._on_done,
    Text: EventTranslator._text,
    Thinking: EventTranslator._thinking,
    Restart: EventTranslator._restart,
    UsageTold: EventTranslator._usage,
    CallDraft: EventTranslator._draft,
    ToolStarted: EventTranslator._tool_started,
    ToolEnded: EventTranslator._tool_ended,
    ToolProgress: EventTranslator._tool_progress,
    Interrupted: EventTranslator._on_interrupted,
    HookNotice: EventTranslator._notice,
}


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
            # Give an empty thread the conversation that the front end has. What a tool is said to have answered in it
            # is text from outside, like the answer of a tool that the front end runs.
            if any(message.role == "tool" for message in history):
                self._kernel.taint.mark(process.pid, "a conversation of the front end")
            await process.revise(0, history)

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


def _is_told_before(process: AgentProcess[Any], request: AguiRequest) -> bool:
    """Return whether the last message of a request is the one that the turn under way answers: a client that reads it
    on, or answers a question, sends the same conversation again."""
    last = next((row for row in reversed(process.messages) if row.role == "user"), None)
    return bool(request.resume) or (last is not None and without_context(last.text) == request.new_text)


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
