"""An agent process as its user holds it: send, stream, stop.

    helper = await kernel.spawn(agent)
    print(await helper.send("What is the capital of France?", timeout=30, budget="$0.05"))
    async for piece in helper.stream("Tell me more"):
        print(piece, end="")

One process is one conversation: messages are answered one after the other, each with what was said before. `send`
raises what went wrong as an error; an answer is never an error in disguise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from lyra.agents.declaration.content import content_of
from lyra.agents.session.execution import AgentExecution, AgentState
from lyra.agents.session.replies import MarkedReply, Pending, Stream
from lyra.agents.session.session import Metrics
from lyra.agents.session.shared import runtime_of
from lyra.agents.session.time_won import in_its_time, lead
from lyra.agents.turn.memory import Remembered
from lyra.core.checking.check import real
from lyra.core.message import Message
from lyra.core.naming import named
from lyra.core.tool import caller
from lyra.errors import AgentFailed, ConfigError, DeadlineExceeded
from lyra.kernel.programs.handle import Handle

__all__ = ["AgentProcess"]


class AgentProcess(Handle):
    """A spawned Agent."""

    __slots__ = ()

    @named("lyra:AgentProcess.send")
    def send(  # type: ignore[override]  # a message to an agent has an answer
        self, message: Any, *, timeout: float | None = None, budget: Any = None
    ) -> Coroutine[Any, Any, Any]:
        """The answer: text (a Reply), or the Agent's `output` type. Raises what went wrong."""
        return self._send(message, timeout, budget)

    async def _send(self, message: Any, timeout_s: float | None, budget: Any) -> Any:
        if timeout_s is not None:
            timeout_s = real(timeout_s, "timeout")
        if lead.get() is not None:
            await self._in_its_time(timed=timeout_s is not None)
        if caller.get() and runtime_of(self._kernel).is_waited_for(self.pid):
            raise AgentFailed(
                f"agent process {self.pid} is asked by its own tool, and answers one message after the other",
                hint="let the tool ask another process of the agent, or send_async without waiting for the answer",
                status="deadlock",
                pid=self.pid,
            )
        if self._kernel.missing_program(self._process) is not None:
            await self._kernel.until_known(self._process)
        pending = self.send_async(message, budget=budget)
        if timeout_s is None:
            return await pending
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await pending
        except TimeoutError:
            if not limit.expired():
                raise
            raise DeadlineExceeded(
                f"agent process {self.pid} did not answer within {timeout_s:g} s", timeout_s=timeout_s, pid=self.pid
            ) from None

    async def _in_its_time(self, *, timed: bool) -> None:
        runtime = runtime_of(self._kernel)
        session = runtime.sessions.get(self.pid)
        if session is not None:
            await in_its_time(runtime, session.agent, timed=timed)

    def send_async(self, message: Any, *, budget: Any = None) -> Pending:
        """The same without waiting: await the result, ask whether it is done, or cancel it."""
        self._check_loop()
        self._mark(message)
        return runtime_of(self._kernel).ask(self._process, content_of(message), budget=budget)

    def stream(self, message: Any, *, events: bool = False, budget: Any = None) -> Stream:
        """The answer piece by piece: text, or with `events=True` everything that happens on the way."""
        content = content_of(message)

        async def start() -> Pending:
            self._check_loop()
            if lead.get() is not None:
                await self._in_its_time(timed=False)
            self._mark(message)
            return runtime_of(self._kernel).ask(self._process, content, budget=budget, stream=True)

        return Stream(start, events=events)

    def _mark(self, message: Any) -> None:
        """An answer of an agent that has read text from outside is text from outside."""
        if type(message) is MarkedReply:
            self._kernel.taint.mark(self._process.pid, "an agent's answer")

    def _check_loop(self) -> None:
        """A kernel lives in one loop, and so do those who ask its agents."""
        if asyncio._get_running_loop() is not self._kernel.loop:
            raise ConfigError(
                f"agent process {self.pid} belongs to another event loop",
                hint="ask it where its kernel runs, or use lyra.run(agent, …) here",
                pid=self.pid,
            )

    @named("lyra:AgentProcess.stop")
    async def stop(self, reason: str = "shutdown") -> None:
        """End it in order; what it is doing is cancelled."""
        await self.kill(reason)
        await self.wait()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        session = runtime_of(self._kernel).sessions.get(self.pid)
        return tuple(session.said) if session is not None else ()

    @property
    def execution(self) -> AgentExecution | None:
        """The run that is under way, or the last one: its steps, its outcome, what it took."""
        session = runtime_of(self._kernel).sessions.get(self.pid)
        return session.execution if session is not None else None

    @property
    def agent_state(self) -> AgentState:
        """Where the agent is: `ready` between two messages, `initializing` before its program has begun."""
        session = runtime_of(self._kernel).sessions.get(self.pid)
        execution = session.execution if session is not None and not session.is_given_up else None
        if execution is not None and execution.running:
            waits = execution.state is AgentState.EXECUTING_TOOLS and self._kernel.interrupts.pending(self.pid)
            return AgentState.WAITING_PERMISSION if waits else execution.state
        ended = self._process.exit
        if ended is not None:
            return AgentState.ERROR if ended.error is not None else AgentState.CANCELLED
        begun = self.pid in runtime_of(self._kernel).sessions
        return AgentState.READY if begun else AgentState.INITIALIZING

    @property
    def memory(self) -> Remembered:
        """What its agent remembers; refused where it has no memory."""
        session = runtime_of(self._kernel).sessions.get(self.pid)
        memory = session.agent.memory if session is not None else None
        if memory is None:
            raise ConfigError(f"agent process {self.pid} has no memory", hint="Agent(…, memory=True)", pid=self.pid)
        remembered: Remembered = memory.on(self._kernel)
        return remembered

    @property
    def metrics(self) -> Metrics:
        """Tokens, money, calls and errors so far."""
        session = runtime_of(self._kernel).sessions.get(self.pid)
        return session.metrics if session is not None else Metrics()
