"""Push notifications: a task's states are posted to servers that the client named.

Each configuration is a durable process of its user. It is told the task when a person is asked and when it ends, and
posts it at least once, also after a restart, with the retries of webhooks. A URL inside this network is refused. The
token and the credentials of a receiver are secrets: the journal has them sealed, and no answer shows them.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.a2a.sdk import PROTOCOL, compat, messages, to_json
from lyra.core.limits import A2A_PUSH_CONFIGS_MAX, SERVER_WEBHOOK_WAITING_MAX
from lyra.core.naming import A2A_PUSH, give_name
from lyra.errors import EffectFailed, LyraError, Overloaded
from lyra.server.http.webhooks.deliveries import POST_RETRY, POST_TIMEOUT_S, check_url, post, seal, unseal
from lyra.server.owners import make_owned_pid, spawn_for
from lyra.server.protocols.a2a.errors import RpcError

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.context import Context
    from lyra.server.http.webhooks.deliveries import Deliveries
    from lyra.server.identity import Caller
    from lyra.server.protocols.a2a.live_task import LiveTask


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
