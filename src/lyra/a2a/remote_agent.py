"""RemoteAgent: an agent of another program, reached by A2A, as a tool and as a process.

    writer = await connect("https://agents.example.org/a2a/writer", token="env:WRITER_TOKEN")
    lead = Agent("lead", model=…, tools=[writer])
    handle = await kernel.spawn(writer)
    print(await handle.send("Write a haiku about rain"))
    kernel.supervise([Child("writer", writer)], max_restarts=3, window_s=60)

`connect` reads the agent's card; a RemoteAgent that is made with its name needs no network before its first call, as a
program does that continues after a restart. Nothing is kept open between two calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.a2a.calls import RemoteCalls, RemoteLimits
from lyra.a2a.connection import RemoteConnection, is_lost
from lyra.agents.declaration.output import Image, content_of
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.replies import MarkedReply, Pending
from lyra.agents.session.shared import AgentRuntime, runtime_of
from lyra.agents.turn.loop import parse_message
from lyra.core.budgets.money import money
from lyra.core.checking.check import real, short_text
from lyra.core.codec import to_plain
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.core.secrets.secret import Secret
from lyra.core.secrets.visible import without_invisible
from lyra.core.tool import Tool
from lyra.errors import AgentFailed, ConfigError, EffectFailed, LyraError, ToolError
from lyra.kernel.process.process import GIVEN_UP
from lyra.tools.function import tool

if TYPE_CHECKING:
    from lyra.a2a.content import RemoteAnswer
    from lyra.kernel.interrupts.interrupt import Answer
    from lyra.kernel.programs.context import Context


TIMEOUT_S: Final = 600.0
CHECK_EVERY_S: Final = 30.0


class RemoteAgent:
    """`token` is the bearer token, or `env:NAME`. `inside` names addresses (`host:port`) of this network that may be
    reached. `timeout_s` is for one task, `max_cost` the most that one is charged with. A process that represents the
    agent looks every `check_every_s` seconds whether it is there; None: only when it is asked."""

    __slots__ = ("__weakref__", "_calls", "_connection", "_program", "description", "name", "url")

    __lyra_handle__ = AgentProcess

    def __init__(
        self,
        url: str,
        *,
        name: str,
        description: str = "",
        token: str | Secret | None = None,
        inside: Collection[str] = (),
        timeout_s: float = TIMEOUT_S,
        max_cost: Any = None,
        check_every_s: float | None = CHECK_EVERY_S,
    ) -> None:
        self.name = short_text(name, "the name of a remote agent", most=NAME_LENGTH_MAX)
        if not self.name:
            raise ConfigError("a remote agent has a name", key="name")
        secret = Secret.parse(token) if isinstance(token, str) else token
        self.description = description
        self._connection = RemoteConnection(url, token=secret, inside=inside)
        self.url = self._connection.url
        limits = RemoteLimits(real(timeout_s, "timeout_s", above=0.0), None if max_cost is None else money(max_cost))
        every_s = None if check_every_s is None else real(check_every_s, "check_every_s", above=0.0)
        self._calls = RemoteCalls(self.name, self._connection, limits)
        self._program = remote_program(self.name, self._calls, every_s)
        vars(self._program)["__lyra_handle__"] = AgentProcess  # by which `kernel.agent` finds it

    def __repr__(self) -> str:
        return f"<RemoteAgent {self.name} at {self.url}>"

    @property
    def __lyra_program__(self) -> Callable[..., Any]:
        return self._program

    def __lyra_tool__(self) -> Tool:
        """Return the tool by which an agent asks this one."""
        return remote_tool(self.name, self.description, self._connection.place, self._calls)


async def connect(url: str, *, name: str | None = None, description: str | None = None, **settings: Any) -> RemoteAgent:
    """Return the remote agent at a URL, with the name and the description of its card; EffectFailed where it is not
    there."""
    first = RemoteAgent(url, name=name or "agent", **settings)
    card = await first._connection.card()
    return RemoteAgent(
        url,
        name=name or clean_name(card.name),
        description=clean_description(card.description) if description is None else description,
        **settings,
    )


# ---------------------------------------------------------------- remote tool
# A remote agent as a tool of an agent.

PREFIX: Final = "a2a__"
DESCRIPTION_CHARS_MAX: Final = 4_000
_NAME_CHARS_MAX: Final = 56  # behind the prefix, within the limit of the strictest provider


def clean_name(name: str) -> str:
    """Return the name of an agent in the characters that every model provider accepts."""
    clean = "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in name)
    return clean[:_NAME_CHARS_MAX] or "agent"


def clean_description(text: str) -> str:
    """Return the description of a card as far as a model is told it, without characters that no screen shows."""
    return without_invisible(text[:DESCRIPTION_CHARS_MAX]).strip()


def remote_tool(name: str, description: str, place: str, calls: RemoteCalls) -> Tool:
    """Return the Tool by which an agent asks a remote one."""

    async def ask(ctx: Any, message: str, task: str = "") -> Any:
        """Args:
        message: what the agent is to do or to know, complete in itself; it cannot see this conversation
        task: the id of a task that asked for something, to answer it; left out for anything new
        """
        try:
            answer = await calls.ask(ctx, message, task_id=task)
        except EffectFailed as error:
            raise ToolError(error.message, tool=called, reason="exec_failed") from None
        return _output(answer, name)

    called = f"{PREFIX}{clean_name(name)}"  # no agent can have the name of another tool
    made_of_function = tool(
        ask,
        name=called,
        description=f"[remote agent {name} at {place}] {clean_description(description)}".strip(),
        needs=(f"net.http:{place}",),
        untrusted=True,
        guarded=True,
    )
    return msgspec.structs.replace(made_of_function, foreign=True)


def _output(answer: RemoteAnswer, name: str) -> Any:
    if answer.state == "completed":
        output = answer.output
        if isinstance(output, str):
            return output
        return [part["text"] if part["type"] == "text" else Image(part["media_type"], part["data"]) for part in output]
    if answer.state == "asks":
        question = answer.words or "it asks for something and does not say what"
        return f"The agent {name} asks: {question}\n(To answer, call this tool again with task={answer.task_id!r}.)"
    raise ToolError(f"the task of {name} {answer.state}: {answer.words or 'it does not say why'}", reason="exec_failed")


# ---------------------------------------------------------------- program
# The program of a remote agent's process: it represents the agent, passes messages on, and dies with it.


def remote_program(name: str, calls: RemoteCalls, check_every_s: float | None) -> Callable[..., Any]:
    """Return the program of a remote agent's processes; a journal knows it as `a2a:NAME`."""

    async def serve(ctx: Context, *task: Any) -> Any:
        """Without a task it passes messages on; with one it does that alone, and its result is the answer."""
        remote = _RemoteProcess(ctx, name, calls)
        if task:
            return (await remote.answer(content_of(task[0]))).output
        return await remote.serve(check_every_s)

    serve.__module__, serve.__qualname__ = "a2a", name
    return serve


class _RemoteProcess:
    """One process that represents a remote agent."""

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
            raise self._to_crash_reason(error) from None

    async def _pass_on(self, runtime: AgentRuntime, request_id: str, content: Any) -> None:
        """Have one message answered, and give its caller the answer or the error."""
        process = self._ctx.own_process
        withdrawals = process.kernel.withdrawals
        pending = runtime.questions.pending.get(request_id)

        def is_given_up() -> bool:
            """Return whether the caller left before its message came here, in the life of this kernel or of an earlier
            one."""
            return withdrawals.holds(process, request_id) if pending is None else pending.abandoned

        if request_id and self._ctx.journaled_read("given_up", is_given_up):
            runtime.questions.take(request_id)
            withdrawals.forget_withdrawn(process, request_id)
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
        withdrawals.forget_withdrawn(process, request_id)

    @staticmethod
    def _deliver(pending: Pending[Any] | None, outcome: Any) -> None:
        if pending is None:
            return
        if isinstance(outcome, LyraError):
            pending.fail(outcome)
        else:
            pending.answer(outcome)

    async def answer(self, content: Any) -> RemoteAnswer:
        """Return the answer of the remote agent; AgentFailed where it gives none."""
        ctx, task_id = self._ctx, ""
        while True:
            try:
                answer = await self._calls.ask(ctx, content, context_id=self._context_id, task_id=task_id)
            except LyraError as error:
                raise self._to_crash_reason(error) from None
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

    def _to_crash_reason(self, error: LyraError) -> LyraError:
        """Return a remote agent that is lost, as the reason of a crash; any other error as it is."""
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
