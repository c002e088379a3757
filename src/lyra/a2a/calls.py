"""A call of a remote agent from a process: a message is sent once, and its task awaited, also across restarts.

    send     not idempotent. The message has an id and its own context, which are journaled before it is sent.
             After a kill in the middle the remote agent is asked for the tasks of that context: a task that is there is
             taken up. Where there is none, the same message is sent under the same id to a server that declares that
             it takes such a message once (`IDEMPOTENT_MESSAGES`); of any other, a person is asked.
    wait     idempotent: the task is looked up by its id, followed while it works, and looked up again. A connection
             that breaks is tried again.
    cancel   idempotent: the task of a call that took too long is stopped.

Each is an effect with a time-out, and needs the right to reach the host. What the other side says that the task cost is
charged to the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.a2a.connection import RemoteConnection, is_lost
from lyra.a2a.content import ENDED, RemoteAnswer, answer_of_message, answer_of_task, parts_of_content, read_cost
from lyra.a2a.sdk import IDEMPOTENT_MESSAGES, messages
from lyra.core.budgets.budget import Usage
from lyra.core.budgets.money import Money
from lyra.core.effect import Charged, Effect
from lyra.core.policies.retry import Backoff, Retry
from lyra.core.secrets.process_keys import mask_process_keys
from lyra.core.tool import report
from lyra.errors import DeadlineExceeded, EffectFailed, LyraError, OutcomeUnknown

if TYPE_CHECKING:
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
        needs = (f"net.http:{connection.place}",)
        cost = None if limits.max_cost is None else {"usd": limits.max_cost}
        self._send: Effect[..., Any] = Effect(
            self.send,
            name=f"a2a:{name}.send",
            needs=needs,
            cost=cost,
            timeout_s=limits.timeout_s,
            outside=self,
            about=lambda order: f"message {order.message_id} to the remote agent {name}",
        )
        self._wait: Effect[..., Any] = Effect(
            self.wait,
            name=f"a2a:{name}.wait",
            needs=needs,
            cost=cost,
            timeout_s=limits.timeout_s,
            idempotent=True,
            retry=_RETRY,
        )
        self._cancel: Effect[..., Any] = Effect(
            self.cancel, name=f"a2a:{name}.cancel", needs=needs, timeout_s=_CANCEL_S, idempotent=True
        )
        self._check: Effect[..., Any] = Effect(
            self.check, name=f"a2a:{name}.check", needs=needs, timeout_s=_CHECK_S, idempotent=True, retry=_RETRY
        )

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
