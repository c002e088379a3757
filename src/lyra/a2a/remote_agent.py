"""RemoteAgent: an agent of another program, reached by A2A, as a tool and as a process.

    writer = await connect("https://agents.example.org/a2a/writer", token="env:WRITER_TOKEN")
    lead = Agent("lead", model=…, tools=[writer])
    handle = await kernel.spawn(writer)
    print(await handle.send("Write a haiku about rain"))
    kernel.supervise([Child("writer", writer)], max_restarts=3, window_s=60)

`connect` reads the agent's card; a RemoteAgent that is made with its name needs no network before its first call, as a
program does that continues after a restart. Nothing is kept open between two calls. A message is sent once, and its
task awaited, also across restarts (`RemoteCalls`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.a2a.connection import RemoteConnection, is_lost
from lyra.a2a.content import ENDED, RemoteAnswer, answer_of_message, answer_of_task, parts_of_content, read_cost
from lyra.a2a.sdk import IDEMPOTENT_MESSAGES, messages
from lyra.agents.declaration.output import Image, content_of
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.replies import MarkedReply, Pending
from lyra.agents.session.shared import AgentRuntime, runtime_of
from lyra.agents.turn.loop import parse_message
from lyra.core.budgets.budget import Usage
from lyra.core.budgets.money import Money, money
from lyra.core.checking.check import real, short_text
from lyra.core.codec import to_plain
from lyra.core.effect import Charged, Effect
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.core.policies.retry import Backoff, Retry
from lyra.core.secrets.process_keys import mask_process_keys
from lyra.core.secrets.secret import Secret
from lyra.core.secrets.visible import without_invisible
from lyra.core.tool import Tool, report
from lyra.errors import AgentFailed, ConfigError, DeadlineExceeded, EffectFailed, LyraError, OutcomeUnknown, ToolError
from lyra.kernel.process.process import GIVEN_UP
from lyra.tools.function import tool

if TYPE_CHECKING:
    from lyra.kernel.interrupts.interrupt import Answer
    from lyra.kernel.programs.context import Context


_RETRY: Final = Retry(
    max_attempts=3,
    backoff=Backoff(initial_s=0.5, factor=2.0, max_s=5.0, jitter=0.2),
    on=("rate_limit", "overloaded", "temporary"),  # a time-out is not tried again; every try has the whole time
)
_CANCEL_S: Final = 10.0
_CHECK_S: Final = 30.0
_POLL_FIRST_S: Final = 0.2  # between two looks at a task that cannot be followed
_POLL_MAX_S: Final = 5.0
_LOOKS: Final = 3  # for a task that a message may have begun before a restart
_PAGE: Final = 100
_REFUSED: Final = 400


class RemoteOrder(msgspec.Struct, frozen=True):
    """A message to a remote agent: the argument of its effect. `task_id` names the task that it answers; `is_first`: it
    is the first of its context, whose id no other message has."""

    message_id: str
    context_id: str
    content: Any
    task_id: str = ""
    is_first: bool = True


class RemoteLimits(NamedTuple):
    """What one call may take."""

    timeout_s: float
    max_cost: Money | None


class RemoteCalls:
    """The effects of one remote agent."""

    def __init__(self, name: str, connection: RemoteConnection, limits: RemoteLimits) -> None:
        self._name = name
        self._connection = connection
        self._limits = limits

        def effect(act: Callable[..., Any], timeout_s: float, **options: Any) -> Effect[..., Any]:
            needs = (f"net.http:{connection.place}",)
            return Effect(act, name=f"a2a:{name}.{act.__name__}", needs=needs, timeout_s=timeout_s, **options)

        def describe(order: RemoteOrder) -> str:
            return f"message {order.message_id} to the remote agent {name}"

        cost = None if limits.max_cost is None else {"usd": limits.max_cost}
        self._send = effect(self.send, limits.timeout_s, cost=cost, outside=self, about=describe)
        self._wait = effect(self.wait, limits.timeout_s, cost=cost, idempotent=True, retry=_RETRY)
        self._cancel = effect(self.cancel, _CANCEL_S, idempotent=True)
        self._check = effect(self.check, _CHECK_S, idempotent=True, retry=_RETRY)

    # ------------------------------------------------------------------ for programs

    async def ask(self, ctx: Context, content: Any, *, context_id: str = "", task_id: str = "") -> RemoteAnswer:
        """Put a message to the remote agent and wait until its task has ended, or asks for something."""
        draw = ctx.own_process.core.entropy.text
        ids = ctx.journaled_read("a2a.ids", lambda: [draw(32), draw(32)])
        order = RemoteOrder(ids[0], context_id or ids[1], content, task_id, not context_id)
        answer = msgspec.convert(await ctx.do(self._send, order), RemoteAnswer)
        if answer.state == "working":
            try:
                answer = msgspec.convert(await ctx.do(self._wait, answer.task_id), RemoteAnswer)
            except DeadlineExceeded:
                with suppress(LyraError):
                    await ctx.do(self._cancel, answer.task_id)
                raise
        return answer

    def alive(self, ctx: Context) -> Awaitable[Any]:
        """Check that the remote agent is there; EffectFailed where it is not."""
        return ctx.do(self._check)

    # ------------------------------------------------------------------ effects

    async def send(self, order: RemoteOrder, *, begin: Callable[[], Awaitable[None]]) -> Charged[Any]:
        """Send the message; gives the answer, or the task that it began."""
        await self._connection.card()  # before anything is sent: a failure here leaves nothing in doubt
        await begin()
        return await self._post(order)

    async def _post(self, order: RemoteOrder) -> Charged[Any]:
        request, response = _request(order), None
        try:
            async with self._connection.client() as client:
                async for event in client.send_message(request):
                    response = event
        except EffectFailed as error:
            if is_lost(error) and not order.task_id:
                with suppress(EffectFailed):  # the answer was lost, and the task may be there
                    task = await self._find_begun_task(order, looks=1)
                    if task is not None:
                        return self._charge_answer(task)
            raise
        if response is None:
            raise EffectFailed(f"the remote agent {self._name} answered nothing", status=_REFUSED)
        return self._charge_answer(response.message if response.HasField("message") else response.task)

    async def find_out(self, *call: Any, may_repeat: bool = False, idempotency_key: str = "") -> Charged[Any]:  # noqa: ARG002 (one signature)
        """After a restart: what became of a message that may have been sent."""
        order: RemoteOrder = call[0]
        if order.task_id:  # an answer to a question: the task says whether it still asks
            task = await self._look_up_task(order.task_id)
            if task is None:
                raise OutcomeUnknown(f"the remote agent {self._name} does not say whether it got an answer")
            charged = self._charge_answer(task)
            has_come = any(row.message_id == order.message_id for row in task.history)
            if has_come or charged.value["state"] != "asks":
                return charged
            if not task.history:  # it may ask something else by now, and would take this for the answer
                raise OutcomeUnknown(f"the remote agent {self._name} does not say which answers it got")
            return await self._post(order)
        try:
            task = await self._find_begun_task(order, looks=_LOOKS)
            card = await self._connection.card()
        except EffectFailed as error:
            raise OutcomeUnknown(f"the remote agent {self._name} cannot say what it got: {error.message}") from None
        if task is not None:
            return self._charge_answer(task)
        if all(row.uri != IDEMPOTENT_MESSAGES for row in card.capabilities.extensions):
            raise OutcomeUnknown(f"the remote agent {self._name} has no task of the message, and may yet begin one")
        return await self._post(order)

    async def _find_begun_task(self, order: RemoteOrder, *, looks: int) -> Any:
        """Return the task that a message has begun, by the message's context; None where it has begun none."""
        request = messages().ListTasksRequest(
            context_id=order.context_id, page_size=_PAGE, include_artifacts=True, history_length=_PAGE
        )
        for look in range(1, looks + 1):
            try:
                async with self._connection.client() as client:
                    listed = await client.list_tasks(request)
                return self._select_task(order, listed.tasks)
            except EffectFailed as error:
                if not is_lost(error) or look == looks:
                    raise
                await asyncio.sleep(_RETRY.backoff.initial_s * look)
        return None

    def _select_task(self, order: RemoteOrder, tasks: Any) -> Any:
        """Return the task among those of a context that a message has begun."""
        for task in tasks:
            if order.is_first or any(row.message_id == order.message_id for row in task.history):
                return task
        if all(task.history for task in tasks):
            return None
        raise EffectFailed(f"the remote agent {self._name} does not tell its tasks apart", status=_REFUSED)

    async def _look_up_task(self, task_id: str) -> Any:
        try:
            async with self._connection.client() as client:
                return await client.get_task(messages().GetTaskRequest(id=task_id))
        except EffectFailed:
            return None

    async def wait(self, task_id: str) -> Charged[Any]:
        """Follow a task until it has ended or asks for something."""
        pause_s, is_believed = _POLL_FIRST_S, True
        while True:
            async with self._connection.client(streaming=True) as client:
                charged = self._charge_answer(await client.get_task(messages().GetTaskRequest(id=task_id)))
                if charged.value["state"] != "working":
                    return charged
                has_changed = await _follow(client, task_id)
            if has_changed and is_believed:
                is_believed = False  # where the task is at work all the same, the next look is not made at once
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_MAX_S)

    async def cancel(self, task_id: str) -> None:
        async with self._connection.client() as client:
            await client.cancel_task(messages().CancelTaskRequest(id=task_id))

    async def check(self) -> None:
        await self._connection.check()

    def on_asked(self, interrupt_id: str, *args: Any, idempotency_key: str) -> None:
        """Do nothing: the kernel asks a person about a message in doubt."""

    def on_settled(self, is_durable: bool, /, *args: Any, idempotency_key: str) -> None:
        """Do nothing: no state of a finished call is kept."""

    def _charge_answer(self, told: Any) -> Charged[Any]:
        """Return the answer that a message or a task gives, without known keys, and what it cost."""
        with self._connection.reading():
            answer = answer_of_task(told) if hasattr(told, "status") else answer_of_message(told)
            cost = read_cost(told) if answer.state in ENDED else Money(0)
        if self._limits.max_cost is not None:
            cost = min(cost, self._limits.max_cost)
        return Charged(_without_keys(msgspec.to_builtins(answer)), Usage(usd=cost))


async def _follow(client: Any, task_id: str) -> bool:
    """Read the events of a task until one changes its state, and report them; whether one did. A server that does not
    stream tells no event."""
    try:
        async for event in client.subscribe(messages().SubscribeToTaskRequest(id=task_id)):
            if event.HasField("status_update"):
                status = event.status_update.status
                for part in status.message.parts:
                    report(mask_process_keys(part.text))
                if answer_of_task(messages().Task(status=status)).state != "working":
                    return True
    except NotImplementedError:
        return False
    except Exception as error:
        if type(error).__name__ in _CANNOT_FOLLOW:
            return False
        raise
    return False


# Errors of the SDK for a task that has ended meanwhile, or for a server that does not stream.
_CANNOT_FOLLOW: Final = frozenset({"UnsupportedOperationError", "MethodNotFoundError", "TaskNotFoundError"})


def _request(order: RemoteOrder) -> Any:
    module = messages()
    message = module.Message(
        message_id=order.message_id,
        context_id="" if order.task_id else order.context_id,
        task_id=order.task_id,
        role=module.ROLE_USER,
        parts=parts_of_content(order.content),
    )
    return module.SendMessageRequest(
        message=message, configuration=module.SendMessageConfiguration(return_immediately=True)
    )


def _without_keys(value: Any) -> Any:
    """Plain data with the keys that this process knows masked, the token of the remote agent among them."""
    if isinstance(value, str):
        return mask_process_keys(value)
    if isinstance(value, dict):
        return {key: _without_keys(item) for key, item in value.items()}
    return [_without_keys(item) for item in value] if isinstance(value, list) else value


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
