"""The program of a remote agent's process: it stands for the agent, passes messages on, and dies with it.

The process is asked as the process of an Agent is (`handle.send`). Where the remote agent asks for something, a person
is asked. A task that fails is an error for its caller, and the process lives on; a remote agent that does not answer,
or whose server fails, is a crash, which the supervisor of the process handles. While there is nothing to do, the
process looks from time to time whether the remote agent is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from lyra.a2a.calls import RemoteCalls
from lyra.a2a.connection import is_lost
from lyra.agents.declaration.output import content_of
from lyra.agents.session.replies import MarkedReply, Pending
from lyra.agents.session.shared import AgentRuntime, runtime_of
from lyra.agents.turn.loop import parse_message
from lyra.core.codec import to_plain
from lyra.errors import AgentFailed, LyraError
from lyra.kernel.process.process import GIVEN_UP

if TYPE_CHECKING:
    from lyra.a2a.answer import RemoteAnswer
    from lyra.kernel.interrupts.interrupt import Answer
    from lyra.kernel.programs.context import Context


def remote_program(name: str, calls: RemoteCalls, check_every_s: float | None) -> Callable[..., Any]:
    """The program of a remote agent's processes; a journal knows it as `a2a:NAME`."""

    async def serve(ctx: Context, *task: Any) -> Any:
        """Without a task it passes messages on; with one it does that alone, and its result is the answer."""
        remote = _RemoteProcess(ctx, name, calls)
        if task:
            return (await remote.answer(content_of(task[0]))).output
        return await remote.serve(check_every_s)

    serve.__module__, serve.__qualname__ = "a2a", name
    return serve


class _RemoteProcess:
    """One process that stands for a remote agent."""

    def __init__(self, ctx: Context, name: str, calls: RemoteCalls) -> None:
        self._ctx = ctx
        self._name = name
        self._calls = calls
        self._context_id = str(ctx.restored or "")  # of the conversation

    async def serve(self, check_every_s: float | None) -> None:
        ctx = self._ctx
        runtime = runtime_of(ctx.own_process.kernel)
        await self._check()
        ctx.ready()
        while True:
            message = await ctx.receive(timeout=check_every_s)
            if message is None:
                await self._check()
                continue
            request_id, content = parse_message(message)
            if content is not None:
                await self._pass_on(runtime, request_id, content)
                await ctx.checkpoint(self._context_id)

    async def _check(self) -> None:
        try:
            await self._calls.alive(self._ctx)
        except LyraError as error:
            raise self._gone(error) from None

    async def _pass_on(self, runtime: AgentRuntime, request_id: str, content: Any) -> None:
        """Have one message answered, and give its caller the answer or the error."""
        process = self._ctx.own_process
        withdrawals = process.kernel.withdrawals
        pending = runtime.questions.pending.get(request_id)

        def is_given_up() -> bool:
            """Whether the caller left before its message came here, in the life of this kernel or of an earlier one."""
            return withdrawals.holds(process, request_id) if pending is None else pending.abandoned

        if request_id and self._ctx.journaled_read("given_up", is_given_up):
            runtime.questions.take(request_id)
            withdrawals.passed(process, request_id)
            return
        if pending is not None:
            pending.running = process.pid
        try:
            answer = await self.answer(content_of(content))
        except asyncio.CancelledError as cancelled:
            if cancelled.args != (GIVEN_UP,) or process.kill_reason is not None:
                raise
            process.uncancel()  # its caller has left
            runtime.questions.take(request_id)
        except LyraError as error:
            if error.fields.get("status") == "unreachable":  # the process ends, and its callers with it
                raise
            self._deliver(runtime.questions.take(request_id), error)
        else:
            self._deliver(runtime.questions.take(request_id), _reply(answer))
        withdrawals.passed(process, request_id)

    @staticmethod
    def _deliver(pending: Pending[Any] | None, outcome: Any) -> None:
        if pending is None:
            return
        if isinstance(outcome, LyraError):
            pending.fail(outcome)
        else:
            pending.answer(outcome)

    async def answer(self, content: Any) -> RemoteAnswer:
        """The answer of the remote agent; AgentFailed where it gives none."""
        ctx, task_id = self._ctx, ""
        while True:
            try:
                answer = await self._calls.ask(ctx, content, context_id=self._context_id, task_id=task_id)
            except LyraError as error:
                raise self._gone(error) from None
            finally:
                ctx.own_process.kernel.taint.mark(ctx.own_process.pid, f"the remote agent {self._name}")
            self._context_id = answer.context_id or self._context_id
            if answer.state == "completed":
                return answer
            if answer.state != "asks":
                words = answer.words or "it does not say why"
                raise AgentFailed(f"the remote agent {self._name} {answer.state}: {words}", status=answer.state)
            reply = await ctx.ask(answer.words or "the remote agent asks for something", message=self._name)
            content, task_id = _answer_text(reply), answer.task_id

    def _gone(self, error: LyraError) -> LyraError:
        """A remote agent that is lost, as the reason of a crash; any other error as it is."""
        if is_lost(error):
            return AgentFailed(f"the remote agent {self._name} is gone: {error.message}", status="unreachable")
        return error


def _answer_text(answer: Answer) -> str:
    """Return what a person answered, as text for the remote agent."""
    if answer.text or answer.decision:
        return answer.text or answer.decision
    if answer.data is not None:
        return msgspec.json.encode(answer.data, enc_hook=to_plain).decode()
    return "yes" if answer.approved else "no"


def _reply(answer: RemoteAnswer) -> Any:
    if not isinstance(answer.output, str):
        return answer.output
    return MarkedReply.with_usage(answer.output, cost_usd=None, input_tokens=0, output_tokens=0)
