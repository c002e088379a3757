"""A2aTasks: the tasks of one server: begun, looked up, answered, cancelled, forgotten.

A task is a durable process of its user, and its id follows from the message that began it: a client that sends the same
message twice, because it lost the first answer, gets the same task. A task of another user does not exist for the
caller. Tasks of one context are one conversation: the agent of the next is told what was said in those before. A task's
states are posted to servers that the client named (push notifications).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.a2a.content import content_of_parts
from lyra.a2a.sdk import PROTOCOL, compat, from_json, messages, to_json
from lyra.agents.session.events import AgentEvent
from lyra.agents.session.replies import FeedSink
from lyra.agents.session.shared import runtime_of
from lyra.agents.turn.loop import once
from lyra.core.codec import to_plain
from lyra.core.limits import (
    A2A_CONTEXT_BYTES_MAX,
    A2A_CONTEXT_TURNS_MAX,
    A2A_PUSH_CONFIGS_MAX,
    A2A_TASKS_BYTES_MAX,
    A2A_TASKS_KEPT,
    A2A_TASKS_OPEN_MAX,
    SERVER_WEBHOOK_WAITING_MAX,
)
from lyra.core.message import Message
from lyra.core.naming import A2A_PUSH, A2A_TASK, A2A_TURN, give_name
from lyra.errors import ConfigError, EffectFailed, LyraError, Overloaded
from lyra.kernel.process.links import Down
from lyra.server.http.problems import HttpRefusal
from lyra.server.http.webhooks.deliveries import POST_RETRY, POST_TIMEOUT_S, Deliveries, check_url, post, seal, unseal
from lyra.server.owners import OwnedPid, draw_id, make_owned_pid, spawn_for
from lyra.server.protocols.a2a.errors import RpcError
from lyra.server.protocols.a2a.live_task import CANCELED, A2aRecord, LiveTask, agent_message, answer_of, question_text

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.core.event import Event
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.context import Context
    from lyra.server.http.parts import HttpParts
    from lyra.server.identity import Caller


_PART: Final = "a2a.push"
_POST: Final = "a2a.push"
_RETRY: Final = POST_RETRY
_TOKEN_HEADER: Final = "x-a2a-notification-token"  # noqa: S105 (a name)
_CONFIG_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_URL_CHARS_MAX: Final = 2_000
_SECRET_CHARS_MAX: Final = 4_000
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,40}\Z")


class PushTarget(msgspec.Struct):
    """Where one configuration posts; `sealed` has its token and its credentials."""

    task_id: str
    id: str
    url: str
    scheme: str = ""
    sealed: str = ""
    version: str = PROTOCOL


@give_name(A2A_PUSH)
async def a2a_push(ctx: Context, target: PushTarget) -> None:
    """Run the program of a configuration: it posts what it is told, each status once."""
    configs: PushConfigs = ctx.own_process.kernel.parts[_PART]
    configs.enter(ctx.pid, target)
    last = ctx.restored
    while True:
        told = await ctx.receive()
        if told["status"] == last:
            continue
        with suppress(LyraError):  # the receiver takes nothing; the next status is tried again
            await ctx.do(
                configs.post, ctx.pid, told["task"], name=_POST, idempotent=True, retry=_RETRY, timeout_s=POST_TIMEOUT_S
            )
        last = told["status"]
        await ctx.checkpoint(last)


class PushConfigs:
    """The configurations of one kernel."""

    __slots__ = ("_deliveries", "_kernel", "_targets")

    def __init__(self, kernel: Kernel, deliveries: Deliveries) -> None:
        self._kernel = kernel
        self._deliveries = deliveries  # which has the key, and the addresses that may be reached
        self._targets: dict[str, PushTarget] = {}  # by pid

    def open(self) -> None:
        """Have the configurations of the store continue."""
        self._kernel.parts[_PART] = self
        self._kernel.register(a2a_push)

    async def close(self) -> None:
        """Called with the kernel."""
        self._targets.clear()

    def enter(self, pid: str, target: PushTarget) -> None:
        self._targets[pid] = target

    # ------------------------------------------------------------------ for clients

    def check(self, config: Any) -> None:
        """Refuse a configuration that could not be posted to."""
        if len(config.url) > _URL_CHARS_MAX:
            raise RpcError("invalid_params", f"the URL has at most {_URL_CHARS_MAX} characters")
        check_url(config.url, self._deliveries.inside)
        if config.authentication.scheme and not _SCHEME.match(config.authentication.scheme):
            raise RpcError("invalid_params", "the scheme of an authentication is a word such as Bearer")
        if config.id and not _CONFIG_ID.match(config.id):
            raise RpcError("invalid_params", "the id of a configuration is 1 to 64 letters, digits, - and _")
        for name, secret in (("token", config.token), ("credentials", config.authentication.credentials)):
            if len(secret) > _SECRET_CHARS_MAX or not secret.isascii() or not secret.isprintable():
                message = f"the {name} is printable ASCII text of at most {_SECRET_CHARS_MAX} characters"
                raise RpcError("invalid_params", message)

    async def set(self, live: LiveTask, caller: Caller, config: Any, version: str) -> PushTarget:
        """Add a configuration of a task, or replace the one of that id. One without an id that is given twice, such as
        with a message that is sent again, is one configuration."""
        self.check(config)
        scheme = config.authentication.scheme
        config_id = config.id or self._id_of(config)
        known = {target.id: target for target in self.list_for(live)}
        if not config.id and config_id in known:
            return known[config_id]
        if config_id in known:
            await self.remove(live, config_id)
        elif len(known) >= A2A_PUSH_CONFIGS_MAX:
            raise Overloaded(f"{A2A_PUSH_CONFIGS_MAX} configurations, the most a task may have", hint="delete one")
        rest = f"{live.record.id}.{config_id}.{self._kernel.entropy.text(8)}"
        pid = make_owned_pid("push", live.owner, rest)
        secrets = msgspec.json.encode([config.token, config.authentication.credentials]).decode()
        sealed = seal(self._deliveries.key, pid, secrets)
        target = PushTarget(live.record.id, config_id, config.url, scheme, sealed, version)
        self.enter(pid, target)
        await spawn_for(self._kernel, live.owner or caller.user_id, a2a_push, target, pid=pid)
        return target

    def _id_of(self, config: Any) -> str:
        """Return an id that follows from what is posted where, and tells nothing of the secrets."""
        facts = [config.url, config.token, config.authentication.scheme, config.authentication.credentials]
        return hmac.new(self._deliveries.key, msgspec.json.encode(facts), hashlib.sha256).hexdigest()[:16]

    def list_for(self, live: LiveTask) -> list[PushTarget]:
        return [target for target in self._targets.values() if target.task_id == live.record.id]

    def get(self, live: LiveTask, config_id: str) -> PushTarget:
        for target in self.list_for(live):
            if target.id == config_id:
                return target
        raise RpcError("task_not_found", "the task has no such configuration")

    async def remove(self, live: LiveTask, config_id: str) -> None:
        await self._end(
            pid for pid, row in self._targets.items() if (row.task_id, row.id) == (live.record.id, config_id)
        )

    async def remove_all(self, task_id: str) -> None:
        await self._end(pid for pid, row in self._targets.items() if row.task_id == task_id)

    async def _end(self, pids: Any) -> None:
        for pid in list(pids):
            del self._targets[pid]
            await self._kernel.kill(pid, "removed")

    # ------------------------------------------------------------------ telling

    def tell(self, live: LiveTask) -> None:
        """Put the task into the line of each of its receivers, where it has ended or a person is asked."""
        question = live.question
        if not live.record.has_ended and question is None:
            return
        status = live.record.state if question is None else question.id
        for pid, target in list(self._targets.items()):
            process = self._kernel.processes.get(pid)
            if target.task_id != live.record.id or process is None or not process.alive or self._kernel.stopping:
                continue
            if len(process.inbox or ()) < SERVER_WEBHOOK_WAITING_MAX:
                self._kernel.send_to(process, {"status": status, "task": _body(live, target.version)})

    async def post(self, pid: str, task: dict[str, Any], /, *, idempotency_key: str) -> int:
        """Post a task to a receiver; the status of the answer. EffectFailed where it does not take it."""
        target = self._targets.get(pid)
        if target is None:
            raise EffectFailed("the configuration was deleted", status=410)
        token, credentials = msgspec.json.decode(unseal(self._deliveries.key, pid, target.sealed), type=tuple[str, str])
        headers = {"x-lyra-delivery": idempotency_key}
        if token:
            headers[_TOKEN_HEADER] = token
        if target.scheme and credentials:
            headers["authorization"] = f"{target.scheme} {credentials}"
        return await post(target.url, msgspec.json.encode(task), headers, inside=self._deliveries.inside)


def _body(live: LiveTask, version: str) -> dict[str, Any]:
    """Return the task as a receiver of that version reads it."""
    if version == PROTOCOL:
        return to_json(messages().StreamResponse(task=live.view()))
    data: dict[str, Any] = (
        compat().to_compat_task(live.view()).model_dump(mode="json", by_alias=True, exclude_none=True)
    )
    return data


_ID_CHARS_MAX: Final = 256
_QUESTIONS: Final = ("interrupt.created", "interrupt.resolved", "interrupt.expired", "interrupt.cancelled")
_PROCESS_ENDED: Final = "process.terminated"
_RESTORE_S: Final = 10.0  # for a task of the store to be back after a restart


class A2aTasks:
    """See the module. A part of the kernel, so that the programs of tasks find it."""

    __slots__ = ("_expected", "_kernel", "_live", "_stop", "directory", "push")

    def __init__(self, parts: HttpParts) -> None:
        kernel = self._kernel = parts.kernel
        self.directory = parts.chats.directory
        self._live: dict[str, LiveTask] = {}  # by id
        self._expected: dict[str, asyncio.Future[None]] = {}  # tasks of the store that are not back yet
        self.push = PushConfigs(kernel, parts.deliveries)
        for pid in list(kernel.processes):
            owned = OwnedPid.read(pid)
            if owned is not None and owned.kind == "task" and kernel.processes[pid].alive:
                self._expected[owned.rest] = asyncio.get_running_loop().create_future()
        kernel.parts[PART] = self
        self._stop: Callable[[], None] = kernel.on_event(self._hear, kinds=(*_QUESTIONS, _PROCESS_ENDED))
        self.push.open()
        for program in TASK_PROGRAMS:
            kernel.register(program)

    async def close(self) -> None:
        """Called with the kernel; the tasks continue when the store is opened again."""
        self._stop()

    # ------------------------------------------------------------------ for the programs

    def enter(self, pid: str, record: A2aRecord) -> LiveTask:
        """Enter a task that begins, or is back after a restart."""
        live = self._live.get(record.id)
        if live is None:
            live = self._live[record.id] = LiveTask(self._kernel, pid, record)
        expected = self._expected.pop(record.id, None)
        if expected is not None:
            expected.set_result(None)
            self.push.tell(live)
        return live

    def agent(self, name: str) -> AgentDeclaration:
        """Return the agent of a task; ConfigError where the server has none of that name any more."""
        try:
            declaration: AgentDeclaration = self.directory.declaration(name)
        except HttpRefusal as refusal:
            raise ConfigError(refusal.message, hint="the server's setup file registers its agents") from None
        return declaration

    def listener(self, pid: str) -> Callable[[AgentEvent], None]:
        owned = OwnedPid.read(pid)
        live = None if owned is None else self._live.get(owned.rest)
        return _ignore if live is None else live.hear

    def notify(self, live: LiveTask) -> None:
        """Tell the readers and the receivers of a task that its status has changed."""
        live.on_changed()
        self.push.tell(live)

    def _hear(self, event: Event) -> None:
        """Note that a question was put or is over: the status of the task that it belongs to has changed."""
        if event.kind == _PROCESS_ENDED:
            self._process_ended(event.pid)
            return
        process = self._kernel.processes.get(event.pid)
        while process is not None:
            owned = OwnedPid.read(process.pid)
            live = self._live.get(owned.rest) if owned is not None and owned.kind == "task" else None
            if live is not None:
                self.notify(live)
                return
            process = process.parent

    def _process_ended(self, pid: str) -> None:
        """End the task of a process that ended at work: it was ended from outside or has crashed: so the task has
        ended, too."""
        owned = OwnedPid.read(pid)
        if owned is None or owned.kind != "task" or self._kernel.stopping:
            return
        expected = self._expected.pop(owned.rest, None)
        if expected is not None:
            expected.set_result(None)
        live, process = self._live.get(owned.rest), self._kernel.processes.get(pid)
        ended = None if process is None else process.exit
        if live is not None and ended is not None and not live.record.has_ended:
            live.record.end(ended, self._kernel, self._kernel.clock.now())
            self.notify(live)

    # ------------------------------------------------------------------ for clients

    async def get(self, task_id: str, agent: str, caller: Caller) -> LiveTask:
        """Return a task of the caller's with that agent; RpcError where there is none, also where it is another
        user's."""
        expected = self._expected.get(task_id)
        if expected is not None:
            await asyncio.wait((expected,), timeout=_RESTORE_S)
        live = self._live.get(task_id)
        if live is None or live.record.agent != agent or not caller.owns(live.owner):
            raise RpcError("task_not_found")
        return live

    async def list_for(self, agent: str, caller: Caller) -> list[LiveTask]:
        """Return the tasks of the caller with that agent, the one that changed last first."""
        if self._expected:
            await asyncio.wait(list(self._expected.values()), timeout=_RESTORE_S)
        own = [live for live in self._live.values() if live.record.agent == agent and caller.owns(live.owner)]
        return sorted(own, key=lambda live: (live.changed_at, live.record.id), reverse=True)

    async def begin(self, agent: str, caller: Caller, message: Any) -> LiveTask:
        """Return a new task for a message, or the one that the same message began before."""
        content_of_parts(message.parts)  # what the agent cannot read is refused before there is a task
        _check_ids(message)
        task_id = _task_id(self._kernel, caller, agent, message)
        if task_id in self._expected or task_id in self._live:
            return await self.get(task_id, agent, caller)
        same_user = [live for live in self._live.values() if live.owner == caller.user_id]
        _check_room([live for live in same_user if not live.record.has_ended], message)
        now = self._kernel.clock.now()
        message.context_id = message.context_id or draw_id(self._kernel, 32)
        history = self._history(agent, caller, message.context_id)
        message.task_id, message.role = task_id, messages().ROLE_USER  # whatever the client calls itself
        record = A2aRecord(task_id, agent, message.context_id, now, [to_json(message)], changed_at=now)
        pid = make_owned_pid("task", caller.user_id, task_id)
        if pid in self._kernel.processes:
            raise RpcError(
                "unsupported", "the task of this message is over and forgotten; send it with another messageId"
            )
        handle = spawn_for(self._kernel, caller.user_id, a2a_task, record, history, pid=pid)
        live = self.enter(pid, record)
        await handle
        await self._forget_old(same_user)
        return live

    def _history(self, agent: str, caller: Caller, context_id: str) -> list[dict[str, Any]]:
        """Return what was said in the tasks of a context before."""
        earlier = [
            live
            for live in self._live.values()
            if live.record.context_id == context_id
            and live.record.agent == agent
            and live.owner == caller.user_id
            and live.record.state == "completed"
        ]
        conversation: list[Message] = []
        for record in _newest(earlier):
            asked = content_of_parts(from_json(record.messages[0], messages().Message()).parts)
            conversation.append(Message("user", asked if isinstance(asked, str) else tuple(asked)))
            conversation.append(Message("assistant", record.answer))
        return [row.to_data() for row in conversation]

    async def answer(self, live: LiveTask, message: Any) -> None:
        """Take a message to a running task as the answer to its open question; one that came before changes nothing."""
        record = live.record
        if message.message_id and record.has_message(message.message_id):
            return
        if message.context_id and message.context_id != record.context_id:
            raise RpcError("invalid_params", "the task belongs to another context")
        if record.has_ended:
            raise RpcError("unsupported", f"the task is {record.state}; send a message without its id to go on")
        question = live.question
        if question is None:
            raise RpcError("unsupported", "the task is at work and asks nothing; wait for it, or cancel it")
        _check_ids(message)
        answer = answer_of(question, message.parts)
        message.task_id, message.context_id, message.role = record.id, record.context_id, messages().ROLE_USER
        asked = agent_message(record, question.id, question_text(question), kind=question.kind)
        self._kernel.send_to(self._kernel.processes[live.pid], {REPLY: [to_json(asked), to_json(message)]})
        await self._kernel.resolve_interrupt(question.id, answer)

    async def cancel(self, live: LiveTask) -> None:
        """Stop the agent of a task; it is stopped when this returns."""
        if live.record.has_ended:
            raise RpcError("not_cancelable", f"the task is {live.record.state}")
        self._kernel.send_to(self._kernel.processes[live.pid], {CANCEL: True})
        await live.until_ended()
        await self._kernel.durable()

    async def _forget_old(self, tasks: list[LiveTask]) -> None:
        """End the processes of a user's oldest ended tasks where there are too many, or too much in them."""
        ended = sorted((live for live in tasks if live.record.has_ended), key=lambda live: live.changed_at)
        size_bytes = sum(live.size_bytes for live in tasks)
        for index, live in enumerate(ended):
            if len(ended) - index <= A2A_TASKS_KEPT and size_bytes <= A2A_TASKS_BYTES_MAX:
                return
            size_bytes -= live.size_bytes
            del self._live[live.record.id]
            await self.push.remove_all(live.record.id)
            await self._kernel.kill(live.pid, "forgotten")


def _check_room(open_tasks: list[LiveTask], message: Any) -> None:
    """Refuse a message that would begin one task too many for its user."""
    if len(open_tasks) >= A2A_TASKS_OPEN_MAX:
        raise Overloaded(f"{A2A_TASKS_OPEN_MAX} tasks are open, the most there may be", hint="wait for one to end")
    if sum(live.size_bytes for live in open_tasks) + message.ByteSize() > A2A_TASKS_BYTES_MAX:
        raise Overloaded(f"the open tasks have {A2A_TASKS_BYTES_MAX} bytes, the most", hint="wait for one to end")


def _newest(tasks: list[LiveTask]) -> list[A2aRecord]:
    """Return the records of the newest tasks of a context that the next one is told of, the oldest first."""
    newest: list[A2aRecord] = []
    size_bytes = 0
    for live in sorted(tasks, key=lambda live: live.record.created_at, reverse=True)[:A2A_CONTEXT_TURNS_MAX]:
        size_bytes += live.size_bytes
        if size_bytes > A2A_CONTEXT_BYTES_MAX:
            break
        newest.insert(0, live.record)
    return newest


def _ignore(event: AgentEvent) -> None:
    """Ignore an event whose task has no reader."""


def _check_ids(message: Any) -> None:
    for name in ("message_id", "context_id", "task_id"):
        text = getattr(message, name)
        if len(text) > _ID_CHARS_MAX or not text.isprintable():
            raise RpcError("invalid_params", f"{name} is printable text of at most {_ID_CHARS_MAX} characters")
    if not message.message_id:
        raise RpcError("invalid_params", "the message has a messageId")


def _task_id(kernel: Kernel, caller: Caller, agent: str, message: Any) -> str:
    """Derive the id of a task: one message of one user gives one id. In a shard of a cluster, its home is the shard."""
    facts = [caller.user_id, agent, message.message_id, message.context_id, [to_json(part) for part in message.parts]]
    remote, task_id = kernel.core.remote, hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32]
    while remote is not None and remote.home_of(task_id) != remote.shard:
        task_id = hashlib.sha256(task_id.encode()).hexdigest()[:32]
    return task_id


# The programs of an A2A task: one process keeps its record, the one below it is the agent at work.

PART: Final = "a2a"  # of the kernel
REPLY: Final = "reply"
CANCEL: Final = "cancel"


@give_name(A2A_TASK)
async def a2a_task(ctx: Context, record: A2aRecord, history: list[dict[str, Any]]) -> None:
    """Run the program of a task. `history` is the conversation of its context before it."""
    tasks: A2aTasks = ctx.own_process.kernel.parts[PART]
    if ctx.restored is not None:
        tasks.enter(ctx.pid, A2aRecord(**ctx.restored))
    else:
        live = tasks.enter(ctx.pid, record)
        record = live.record
        agent = tasks.agent(record.agent)
        live.is_streamed = agent.output is None
        turn = ctx.spawn(
            a2a_turn,
            ctx.pid,
            record.agent,
            record.messages[0],
            history,
            budget=agent.budget,
            supervision=agent.supervision,
        )
        ctx.monitor(turn)
        record.state = "working"
        live.on_changed()
        while not record.has_ended:
            message = await ctx.receive()
            if isinstance(message, Down):
                record.end(await turn.wait(), ctx.own_process.kernel, ctx.now())
            elif isinstance(message, dict) and REPLY in message:
                record.messages += [row for row in message[REPLY] if not record.has_message(row.get("messageId", ""))]
            elif isinstance(message, dict) and CANCEL in message:
                ctx.stop(turn, reason=CANCELED)
        tasks.notify(live)
        await ctx.checkpoint(record)
    while True:
        await ctx.receive()


@give_name(A2A_TURN)
async def a2a_turn(
    ctx: Context, task_pid: str, agent_name: str, message: dict[str, Any], history: list[dict[str, Any]]
) -> dict[str, Any]:
    """Have the agent work on a task: gives its answer, and what it took."""
    kernel = ctx.own_process.kernel
    tasks: A2aTasks = kernel.parts[PART]
    agent = tasks.agent(agent_name)
    content = content_of_parts(from_json(message, messages().Message()).parts)
    sink = FeedSink(kernel, tasks.listener(task_pid))
    text = await once(ctx, agent, content, sink=sink, history=[Message.from_data(row) for row in history])
    session = runtime_of(kernel).sessions.get(ctx.own_process.pid)
    usage: dict[str, Any] = {}
    if session is not None:
        tokens_in, tokens_out, _, _ = session.metrics.totals
        cost_usd = session.metrics.cost_usd
        usage = {"input_tokens": tokens_in, "output_tokens": tokens_out}
        usage |= {} if cost_usd is None else {"cost_usd": cost_usd}
    if agent.output is not None:  # the value as its type reads it, whatever the model wrote around it
        text = msgspec.json.encode(agent.output.read(text), enc_hook=to_plain).decode()
    execution = session.execution if session is not None else None
    status = execution.status if execution is not None else "success"
    return {"text": text, "is_data": agent.output is not None, "usage": usage, "status": status}


TASK_PROGRAMS: Final = (a2a_task, a2a_turn)
