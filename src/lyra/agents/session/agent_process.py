"""AgentProcess: the handle by which a program uses an agent process: send, stream, stop.

    helper = await kernel.spawn(agent)
    print(await helper.send("What is the capital of France?", timeout=30, budget="$0.05"))
    async for piece in helper.stream("Tell me more"):
        print(piece, end="")

One process is one conversation: messages are answered one after the other, each with the conversation before it. `send`
raises an error if the agent fails; an answer is never an error in disguise.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic

from lyra.agents.declaration.memory import Remembered
from lyra.agents.declaration.output import Content, content_of
from lyra.agents.session.agent_handle import AgentHandle, check_rules, make_late_error
from lyra.agents.session.early_call import time_won, wait_for_limits
from lyra.agents.session.events import AgentEvent, Text, Thinking, ToolProgress
from lyra.agents.session.model_call import AgentExecution, AgentState
from lyra.agents.session.replies import FeedSink, MarkedReply, Pending, Reply
from lyra.agents.session.session import Metrics
from lyra.agents.session.shared import runtime_of
from lyra.core.budgets.budget import Limits
from lyra.core.checking.check import check_integer, real
from lyra.core.hints import Out_co
from lyra.core.message import Message
from lyra.core.naming import SUPERVISE, give_name
from lyra.core.tool import caller
from lyra.errors import AgentFailed, ConfigError
from lyra.kernel.process.process import Process
from lyra.kernel.programs.context import require_send
from lyra.kernel.programs.handle import Handle, ProcessCommands

if TYPE_CHECKING:
    from lyra.agents.session.agent_abroad import AgentAbroad
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.context import Context


class AgentProcess(AgentHandle[Out_co], Handle[Out_co], Generic[Out_co]):
    """A spawned Agent, whose answers are each an `Out_co`."""

    __slots__ = ("_read_answer",)

    def __init__(
        self, kernel: ProcessCommands, process: Process, read_answer: Callable[[str], Any] | None = None
    ) -> None:
        self._kernel: Any = kernel
        self._process = process
        self._read_answer = read_answer  # gives the agent's output type; None for an agent that answers in text

    def _read_result(self, result: Any) -> Any:
        """Return the answer to the task of the process: its `output` type, or a Reply."""
        if type(result) is not str:  # it failed, or was a conversation, which has no result
            return result
        if self._read_answer is not None:
            return self._read_answer(result)
        process = self._process
        reply_type = MarkedReply if process.pid in self._kernel.taint.state.pids else Reply
        runtime = runtime_of(self._kernel)
        session = runtime.sessions.get(process.pid)
        if session is None or process.exit is None:
            session = runtime.find_session(process.pid)
        if session is None:  # it ended before a restart, which knows what its process has spent
            spent = process.spent
            reply = reply_type.with_usage(
                result,
                cost_usd=int(spent.usd) / 1_000_000 if spent.usd or not spent.tokens else None,  # no price was known
                input_tokens=spent["input_tokens"],
                output_tokens=spent["output_tokens"],
            )
            reply.status = self._process.result_status or reply.status
            return reply
        figures = session.metrics
        reply = reply_type.with_usage(
            result,
            cost_usd=figures.cost_usd,
            input_tokens=figures.input_tokens,
            output_tokens=figures.output_tokens,
        )
        if session.execution is not None:
            reply.status = session.execution.status
        return reply

    @staticmethod
    def abroad(kernel: Kernel, address: str) -> AgentAbroad:
        """Return an agent process on another shard of the cluster."""
        from lyra.agents.session.agent_abroad import AgentAbroad

        return AgentAbroad(kernel, address)

    @give_name("lyra:AgentProcess.send")
    async def send(  # type: ignore[override]  # a message to an agent has an answer
        self,
        message: Content,
        *,
        timeout: float | None = None,
        budget: Limits | None = None,
        only: Sequence[str] | None = None,
        wait_for_person: bool = False,
    ) -> Out_co:
        """Return the answer: text (a Reply), or the Agent's `output` type. Raises an error if the agent fails.

        `only` are permission rules, such as `Read` or `Bash(git diff *)`: for this message, a call that none of them
        matches is denied. They allow nothing that is not allowed without them.

        After a crash the agent may stand still until a person says what became of an effect. Then this raises
        EffectInDoubt after a few seconds, unless there is a `timeout` or it should `wait_for_person`.
        """
        timeout_s = None if timeout is None else real(timeout, "timeout")
        if time_won.get() is not None:
            await self._wait_for_limits(timed=timeout_s is not None)
        if caller.get() and runtime_of(self._kernel).is_waited_for(self.pid):
            raise AgentFailed(
                f"agent process {self.pid} is asked by its own tool, and answers one message after the other",
                hint="let the tool ask another process of the agent, or send_async without waiting for the answer",
                status="deadlock",
                pid=self.pid,
            )
        process = self._process
        if (process.coroutine is None or process.program == SUPERVISE) and self._kernel.missing_program(process):
            await self._kernel.until_known(process)
        waits = wait_for_person or timeout_s is not None
        pending = self.send_async(message, budget=budget, only=only, wait_for_person=waits)
        if timeout_s is None:
            return await pending
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await pending
        except TimeoutError:
            if not limit.expired():
                raise
            raise make_late_error(self.pid, timeout_s, pid=self.pid) from None

    async def _wait_for_limits(self, *, timed: bool) -> None:
        runtime = runtime_of(self._kernel)
        session = runtime.sessions.get(self.pid)
        if session is not None:
            await wait_for_limits(runtime, session.agent, timed=timed)

    def send_async(
        self,
        message: Content,
        *,
        budget: Limits | None = None,
        only: Sequence[str] | None = None,
        wait_for_person: bool = False,
    ) -> Pending[Out_co]:
        """Send a message without waiting for its answer: await the result, ask whether it is done, or cancel it."""
        self._check_loop()
        process = self._process
        reader = require_send(process)
        if type(message) is MarkedReply:
            self._mark()
        rules = None if only is None else check_rules(only)
        questions = runtime_of(self._kernel).questions
        pending = questions.ask(process, content_of(message), budget=budget, only=rules, reader=reader)
        if not wait_for_person:
            questions.doubts.limit(pending)
        return pending

    async def _begin_stream(
        self, message: Content, content: Any, budget: Limits | None, rules: tuple[str, ...] | None, *, waits: bool
    ) -> Pending[Out_co]:
        self._check_loop()
        require_send(self._process)
        if time_won.get() is not None:
            await self._wait_for_limits(timed=False)
        if type(message) is MarkedReply:
            self._mark()
        runtime = runtime_of(self._kernel)
        pending = runtime.ask(self._process, content, budget=budget, stream=True, only=rules)
        if not waits:
            runtime.questions.doubts.limit(pending)
        return pending

    async def ask(self, ctx: Context, message: Content, *, budget: Limits | None = None) -> Out_co:
        """Return the answer in a program, whose journal has it: a replay does not ask again."""
        from lyra.agents.session.agent_abroad import AgentAbroad, describe_answer, read_answer

        remote = self._process.core.remote
        if remote is not None:  # as on every shard of a cluster: once, also where the host is killed meanwhile
            answer: Out_co = await AgentAbroad(self._kernel, remote.address_of(self.pid)).ask(
                ctx, message, budget=budget
            )
            return answer

        async def send() -> dict[str, Any]:
            return describe_answer(await self.send(message, budget=budget), self._process)

        told = await ctx.do(send)
        own: Out_co = read_answer(self._kernel, told)
        return own

    async def history(self) -> tuple[Message, ...]:
        return self.messages

    async def revise(self, keep: int, add: Iterable[Message] = ()) -> None:
        """Keep the first `keep` messages of the conversation and put others behind them, once the agent is idle."""
        messages = [message.to_data() for message in add]
        await self._order({"lyra.revise": {"keep": check_integer(keep, "keep", least=0), "add": messages}})

    async def compact(self, focus: str = "", *, on_event: Callable[[AgentEvent], object] | None = None) -> None:
        """Replace all but the last turn by a summary in what the model is sent; `focus` says what it must keep, and
        `on_event` is told of waits for the provider."""
        await self._order({"lyra.compact": focus}, on_event)

    async def _order(self, order: dict[str, Any], on_event: Callable[[AgentEvent], object] | None = None) -> None:
        self._check_loop()
        require_send(self._process)
        pending = runtime_of(self._kernel).ask(self._process, order)
        if on_event is not None:
            pending.sink = FeedSink(self._kernel, on_event)
        await pending

    def _mark(self) -> None:
        """Taint the process by an answer of an agent that has read text from outside."""
        self._kernel.taint.mark(self.pid, "an agent's answer")

    def _check_loop(self) -> None:
        """Refuse a call from another event loop than the kernel's."""
        if asyncio._get_running_loop() is not self._process.core.loop:
            raise ConfigError(
                f"agent process {self.pid} belongs to another event loop",
                hint="ask it where its kernel runs, or use lyra.run(agent, …) here",
                pid=self.pid,
            )

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        session = runtime_of(self._kernel).session_to_read(self.pid)
        return tuple(session.visible_messages) if session is not None else ()

    @property
    def current(self) -> Pending[Out_co] | None:
        """The turn that the agent is in, to await its answer, also one from before a restart; None if it is in none.

        Giving it up leaves the turn to its own caller. Behind an effect in doubt it fails with EffectInDoubt after a
        few seconds, as `send` does; once a person has answered, `current` can be awaited again.
        """
        self._check_loop()
        return runtime_of(self._kernel).questions.follow(self._process)

    @property
    def execution(self) -> AgentExecution | None:
        """The run that is under way, or the last one: its steps, its outcome, its usage."""
        session = runtime_of(self._kernel).session_to_read(self.pid)
        return session.execution if session is not None else None

    @property
    def agent_state(self) -> AgentState:
        """Return where the agent is: `ready` between two messages, `initializing` before its program has begun."""
        session = runtime_of(self._kernel).sessions.get(self.pid)
        execution = session.execution if session is not None and not session.is_given_up else None
        if execution is not None and execution.running:
            waits = execution.state is AgentState.EXECUTING_TOOLS and self._kernel.interrupts._open_questions(self.pid)
            return AgentState.WAITING_PERMISSION if waits else execution.state
        ended = self._process.exit
        if ended is not None:
            if ended.error is not None:
                return AgentState.ERROR
            return AgentState.COMPLETED if ended.reason == "normal" else AgentState.CANCELLED
        begun = self.pid in runtime_of(self._kernel).sessions
        return AgentState.READY if begun else AgentState.INITIALIZING

    @property
    def memory(self) -> Remembered:
        """The items that its agent remembers; an error where the agent has no memory."""
        agent = runtime_of(self._kernel).find_agent(self.pid)
        memory = agent.memory if agent is not None else None
        if memory is None:
            raise ConfigError(f"agent process {self.pid} has no memory", hint="Agent(…, memory=True)", pid=self.pid)
        return memory.on(self._kernel)

    @property
    def metrics(self) -> Metrics:
        """Tokens, money, calls and errors so far."""
        session = runtime_of(self._kernel).find_session(self.pid)
        return session.metrics if session is not None else Metrics()


# EventFeed: the events of an agent's answers for any number of readers, who come and go while it works.

_WAITING_MAX: Final = 4_096  # events for one reader, before pieces of text are left out
_LEFT_OUT: Final = (Text, Thinking, ToolProgress)


class FeedReader:
    """The events from the moment it was made; `async for` ends after `close`."""

    __slots__ = ("_closed", "_feed", "_queue", "_waker")

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed
        self._queue: deque[AgentEvent] = deque()
        self._waker: asyncio.Future[None] | None = None
        self._closed = False

    def put(self, event: AgentEvent) -> None:
        if len(self._queue) < _WAITING_MAX or not isinstance(event, _LEFT_OUT):
            self._queue.append(event)
            self._wake()

    def close(self) -> None:
        """Give no further events; those that wait are still read."""
        self._closed = True
        self._feed.leave(self)
        self._wake()

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    def __aiter__(self) -> AsyncIterator[AgentEvent]:
        return self

    async def __anext__(self) -> AgentEvent:
        while not self._queue:
            if self._closed:
                raise StopAsyncIteration
            self._waker = asyncio.get_running_loop().create_future()
            await self._waker
        return self._queue.popleft()


class EventFeed:
    """One agent process's events."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        self._readers: list[FeedReader] = []

    def read(self) -> FeedReader:
        reader = FeedReader(self)
        self._readers.append(reader)
        return reader

    def put(self, event: AgentEvent) -> None:
        for reader in self._readers:
            reader.put(event)

    def leave(self, reader: FeedReader) -> None:
        with suppress(ValueError):
            self._readers.remove(reader)

    def close(self) -> None:
        """End all readers: the agent works no more."""
        for reader in tuple(self._readers):
            reader.close()
