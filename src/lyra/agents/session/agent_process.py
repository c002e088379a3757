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
from collections.abc import Coroutine
from typing import Any

from lyra.agents.declaration.content import content_of
from lyra.agents.declaration.memory import Remembered
from lyra.agents.session.execution import AgentExecution, AgentState
from lyra.agents.session.replies import MarkedReply, Pending, Stream
from lyra.agents.session.session import Metrics
from lyra.agents.session.shared import runtime_of
from lyra.agents.session.time_won import time_won, wait_for_limits
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
        """The answer: text (a Reply), or the Agent's `output` type. Raises an error if the agent fails."""
        return self._send(message, timeout, budget)

    async def _send(self, message: Any, timeout_s: float | None, budget: Any) -> Any:
        if timeout_s is not None:
            timeout_s = real(timeout_s, "timeout")
        if time_won.get() is not None:
            await self._wait_for_limits(timed=timeout_s is not None)
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

    async def _wait_for_limits(self, *, timed: bool) -> None:
        runtime = runtime_of(self._kernel)
        session = runtime.sessions.get(self.pid)
        if session is not None:
            await wait_for_limits(runtime, session.agent, timed=timed)

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
            if time_won.get() is not None:
                await self._wait_for_limits(timed=False)
            self._mark(message)
            return runtime_of(self._kernel).ask(self._process, content, budget=budget, stream=True)

        return Stream(start, events=events)

    def _mark(self, message: Any) -> None:
        """Taint the process by an answer of an agent that has read text from outside."""
        if type(message) is MarkedReply:
            self._kernel.taint.mark(self._process.pid, "an agent's answer")

    def _check_loop(self) -> None:
        """Refuse a call from another event loop than the kernel's."""
        if asyncio._get_running_loop() is not self._kernel.loop:
            raise ConfigError(
                f"agent process {self.pid} belongs to another event loop",
                hint="ask it where its kernel runs, or use lyra.run(agent, …) here",
                pid=self.pid,
            )

    @named("lyra:AgentProcess.stop")
    async def stop(self, reason: str = "shutdown") -> None:
        """End the process in order; its work is cancelled."""
        await self.kill(reason)
        await self.wait()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        session = runtime_of(self._kernel).sessions.get(self.pid)
        return tuple(session.visible_messages) if session is not None else ()

    @property
    def execution(self) -> AgentExecution | None:
        """The run that is under way, or the last one: its steps, its outcome, its usage."""
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
        """The items that its agent remembers; an error where the agent has no memory."""
        session = runtime_of(self._kernel).sessions.get(self.pid)
        memory = session.agent.memory if session is not None else None
        if memory is None:
            raise ConfigError(f"agent process {self.pid} has no memory", hint="Agent(…, memory=True)", pid=self.pid)
        return memory.on(self._kernel)

    @property
    def metrics(self) -> Metrics:
        """Tokens, money, calls and errors so far."""
        session = runtime_of(self._kernel).sessions.get(self.pid)
        return session.metrics if session is not None else Metrics()
