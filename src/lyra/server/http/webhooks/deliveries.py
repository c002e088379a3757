"""Deliveries: each webhook is a durable process that posts the events of its user to a URL, one after the other.

An event that was put into the webhook's mailbox is posted at least once, also after a restart: each post is an effect
of the process, tried again with growing pauses while the receiver fails, and given up after some tries. At most
`SERVER_WEBHOOK_WAITING_MAX` events wait; what comes while the line is full is dropped and counted. A URL inside this
network is refused, by the same guard that the tools' requests pass. The webhook's own events are told to none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.codec import to_plain
from lyra.core.limits import SERVER_WEBHOOK_WAITING_MAX, SERVER_WEBHOOKS_MAX
from lyra.core.naming import WEBHOOK, give_name
from lyra.errors import ConfigError, EffectFailed, LyraError, Overloaded
from lyra.server.http.owned import OwnedProcesses
from lyra.server.http.webhooks.posting import (
    POST_RETRY,
    POST_TIMEOUT_S,
    SIGNATURE,
    check_url,
    post,
    secret_of,
    server_key,
    signature,
)
from lyra.server.owners import OwnedPid, owner_if_known, spawn_for

if TYPE_CHECKING:
    from lyra.core.event import Event
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.context import Context
    from lyra.server.identity import Caller


PART: Final = "webhooks"
_POST: Final = "webhook.post"
_RETRY: Final = POST_RETRY
_encode: Final = msgspec.json.Encoder(enc_hook=to_plain).encode


class WebhookState(msgspec.Struct):
    """A webhook that lives: where it posts, what, and the outcome of it."""

    url: str
    kinds: list[str]
    delivered: int = 0
    failed: int = 0
    dropped: int = 0
    last_error: str = ""


@give_name(WEBHOOK)
async def webhook(ctx: Context, url: str, kinds: list[str]) -> None:
    """Run the program of a webhook."""
    deliveries: Deliveries = ctx.own_process.kernel.parts[PART]
    counts = ctx.restored or {}
    state = WebhookState(url, kinds, counts.get("delivered", 0), counts.get("failed", 0))
    deliveries.enter(ctx.pid, state)
    while True:
        event = await ctx.receive()
        try:
            await ctx.do(
                deliveries.post, ctx.pid, event, name=_POST, idempotent=True, retry=_RETRY, timeout_s=POST_TIMEOUT_S
            )
            state.delivered += 1
        except LyraError as error:
            state.failed += 1
            state.last_error = error.message
        await ctx.checkpoint({"delivered": state.delivered, "failed": state.failed})


class Deliveries:
    """The webhooks of one kernel; a part of it, so that their programs find it."""

    __slots__ = ("_kernel", "_key", "_states", "_stop", "inside", "webhooks")

    def __init__(self, kernel: Kernel, *, key: bytes | None = None, inside: Collection[str] = ()) -> None:
        self._kernel = kernel
        self._key = key
        self.inside = frozenset(inside)  # addresses of this network that may be reached
        self.webhooks = OwnedProcesses(kernel, "webhook", "webhook")
        self._states: dict[str, WebhookState] = {}  # by pid
        self._stop: Callable[[], None] | None = None

    def open(self) -> None:
        """Have the webhooks of the store continue."""
        self._kernel.parts[PART] = self
        self._kernel.register(webhook)
        self.webhooks.restore()

    async def close(self) -> None:
        """Called with the kernel; the webhooks continue when the store is opened again."""
        if self._stop is not None:
            self._stop()
            self._stop = None

    @property
    def key(self) -> bytes:
        if self._key is None:
            self._key = server_key()
        return self._key

    # ------------------------------------------------------------------ webhooks

    async def add(self, caller: Caller, url: str, kinds: list[str]) -> tuple[str, str]:
        """Begin to post events to a URL; the id of the webhook and its secret."""
        check_url(url, self.inside)
        if not kinds:
            raise ConfigError("name the kinds of events", hint='such as ["process.terminated"]', key="kinds")
        if len(self.webhooks.list_for(caller)) >= SERVER_WEBHOOKS_MAX:
            raise Overloaded(f"{SERVER_WEBHOOKS_MAX} webhooks, the most there may be", hint="remove one")
        webhook_id = self._kernel.entropy.text(16)
        pid = self.webhooks.claim(webhook_id, caller)
        await spawn_for(self._kernel, caller.user_id, webhook, url, kinds, pid=pid)
        return webhook_id, secret_of(self.key, webhook_id)

    def state(self, pid: str) -> WebhookState | None:
        return self._states.get(pid)

    def enter(self, pid: str, state: WebhookState) -> None:
        """Enter a webhook that begins, or is back after a restart."""
        self._states[pid] = state
        self._listen()

    async def remove(self, webhook_id: str, caller: Caller) -> None:
        process = self.webhooks.get(webhook_id, caller)
        self._states.pop(process.pid, None)
        self._listen()
        await self._kernel.kill(process.pid, "removed")

    # ------------------------------------------------------------------ events

    def _listen(self) -> None:
        kinds = {kind for state in self._states.values() for kind in state.kinds}
        if self._stop is not None:
            self._stop()
        self._stop = self._kernel.on_event(self._hear, kinds=tuple(kinds)) if kinds else None

    def _hear(self, event: Event) -> None:
        own = OwnedPid.read(event.pid)
        if own is not None and own.kind == "webhook":
            return
        user = event.data.get("user_id")
        owner = user if isinstance(user, str) and user else owner_if_known(self._kernel, event.pid)
        for pid, state in list(self._states.items()):
            of_webhook = OwnedPid.read(pid)
            sees = of_webhook is not None and of_webhook.user_id in ("", owner)
            if sees and event.kind in state.kinds:
                self._put(pid, state, event)

    def _put(self, pid: str, state: WebhookState, event: Event) -> None:
        process = self._kernel.processes.get(pid)
        if process is None or not process.alive or self._kernel.stopping:
            self._states.pop(pid, None)
        elif len(process.inbox or ()) >= min(SERVER_WEBHOOK_WAITING_MAX, self._kernel.mailboxes.limit):
            state.dropped += 1
        else:
            self._kernel.send_to(process, _event_to_json(event))

    async def post(self, pid: str, event: dict[str, Any], /, *, idempotency_key: str) -> int:
        """Post one event; the status of the answer. EffectFailed where the receiver does not take it."""
        own, state = OwnedPid.read(pid), self._states.get(pid)
        if own is None or state is None:
            raise EffectFailed("the webhook was removed", status=410)
        body = _encode(event)
        now = self._kernel.clock.now()
        headers = {
            "content-type": "application/json",
            "x-lyra-event": event["kind"],
            "x-lyra-delivery": idempotency_key,
            SIGNATURE: signature(secret_of(self.key, own.rest), body, now),
        }
        return await post(state.url, body, headers, inside=self.inside)


def _event_to_json(event: Event) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(event.data, enc_hook=to_plain)
    return {"kind": event.kind, "pid": event.pid, "time": event.time, "seq": event.seq, "data": data}
