"""Deliveries: each webhook is a durable process that posts the events of its user to a URL, one after the other.

An event that was put into the webhook's mailbox is posted at least once, also after a restart: each post is an effect
of the process, tried again with growing pauses while the receiver fails, and given up after some tries. At most
`SERVER_WEBHOOK_WAITING_MAX` events wait; what comes while the line is full is dropped and counted. A URL inside this
network is refused, by the same guard that the tools' requests pass. The webhook's own events are told to none.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.config.files import alone, write_private
from lyra.core.codec import to_plain
from lyra.core.ids import random_key
from lyra.core.limits import SERVER_WEBHOOK_WAITING_MAX, SERVER_WEBHOOKS_MAX
from lyra.core.naming import WEBHOOK, give_name
from lyra.core.policies.retry import Backoff, Retry
from lyra.core.rights.capability import Grant
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError, Corrupt, EffectFailed, LyraError, Overloaded, ToolError
from lyra.server.owners import OwnedPid, OwnedProcesses, draw_id, owner_if_known, spawn_for

if TYPE_CHECKING:
    from lyra.core.event import Event
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.context import Context
    from lyra.server.identity import Caller


POST_RETRY: Final = Retry(max_attempts=6, backoff=Backoff(initial_s=1.0, factor=4.0, max_s=300.0, jitter=0.2))
POST_TIMEOUT_S: Final = 20.0
_ANSWER_BYTES_MAX: Final = 64 * 1024


def check_url(url: str, inside: Collection[str]) -> None:
    """Raise CapabilityDenied for a URL inside this network, unless `inside` names its `host:port`."""
    from lyra.sandbox.addresses import target_of
    from lyra.tools.http_guard import host_and_port

    if host_and_port(url) not in inside:
        target_of(url)


async def post(url: str, body: bytes, headers: Mapping[str, str], *, inside: Collection[str]) -> int:
    """Post a JSON body; the status of the answer. EffectFailed where the receiver does not take it."""
    from lyra.tools.http_guard import fetch

    try:
        answer = await fetch(
            url,
            grant=Grant.all(),
            method="POST",
            headers={"content-type": "application/json", **headers},
            body=body,
            redirects=0,
            bytes_max=_ANSWER_BYTES_MAX,
            timeout_s=POST_TIMEOUT_S,
            inside=inside,
        )
    except ToolError as error:
        raise EffectFailed(error.message) from None  # tried again
    if answer.status >= 300:  # the status says whether it is tried again; a redirect is not followed
        raise EffectFailed(f"the receiver answered {answer.status}", status=max(answer.status, 400))
    return answer.status


# ---------------------------------------------------------------- signing
# How a webhook is signed: HMAC-SHA256 over the time and the body, with the secret of the webhook.

SIGNATURE: Final = "x-lyra-signature"
_GITHUB: Final = "x-hub-signature-256"
_KEY_FILE: Final = "webhook-key"
_AGE_MAX_S: Final = 300.0  # an older signature may be a recorded one


def server_key(env: Mapping[str, str] = os.environ) -> bytes:
    """Return the key of this user's server."""
    path = data_folder(env) / _KEY_FILE
    with alone(path):
        if not path.exists():
            write_private(path, random_key())
        return path.read_bytes()


def secret_of(key: bytes, webhook_id: str) -> str:
    """Return the secret of a webhook."""
    return hmac.new(key, f"webhook:{webhook_id}".encode(), hashlib.sha256).hexdigest()


def signature(secret: str, body: bytes, now: float) -> str:
    """Return the value of the header for a body that is sent now."""
    time = int(now)
    return f"t={time},v1={_mac(secret, b'%d.' % time + body)}"


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Return whether a request was signed with the secret: in Lyra's form, not long ago, or in GitHub's form."""
    given = headers.get(_GITHUB)
    if given is not None:
        return hmac.compare_digest(given.encode(), f"sha256={_mac(secret, body)}".encode())
    fields = dict(part.partition("=")[::2] for part in headers.get(SIGNATURE, "").split(","))
    time, mac = fields.get("t", ""), fields.get("v1", "")
    if not (time.isascii() and time.isdigit() and len(time) < 16) or abs(now - int(time)) > _AGE_MAX_S:
        return False
    return hmac.compare_digest(mac.encode(), _mac(secret, f"{time}.".encode() + body).encode())


def _mac(secret: str, data: bytes) -> str:
    return hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()


# ---------------------------------------------------------------- sealing
# Secrets of receivers (a token, a password), sealed with the key of the server before they go into a journal.

_PURPOSE: Final = b"lyra sealed secrets"
_NONCE_BYTES: Final = 12


def seal(key: bytes, name: str, text: str) -> str:
    """Return the text, encrypted and bound to the name."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = random_key()[:_NONCE_BYTES]
    sealed = AESGCM(_derive(key)).encrypt(nonce, text.encode(), name.encode())
    return base64.b64encode(nonce + sealed).decode()


def unseal(key: bytes, name: str, sealed: str) -> str:
    """Return the text that was sealed; Corrupt where the key is another one, or the text was changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        data = base64.b64decode(sealed, validate=True)
        return AESGCM(_derive(key)).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode()).decode()
    except (InvalidTag, ValueError):
        raise Corrupt(f"a sealed secret of {name} cannot be opened", hint="is the server's key another one?") from None


def _derive(key: bytes) -> bytes:
    return hmac.new(key, _PURPOSE, hashlib.sha256).digest()


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

    async def add(self, caller: Caller, url: str, kinds: list[str], webhook_id: str = "") -> tuple[str, str]:
        """Begin to post events to a URL; the id of the webhook and its secret. `webhook_id` is that of the same one on
        the other shards of a cluster: each posts its own events."""
        check_url(url, self.inside)
        if not kinds:
            raise ConfigError("name the kinds of events", hint='such as ["process.terminated"]', key="kinds")
        if len(self.webhooks.list_for(caller)) >= SERVER_WEBHOOKS_MAX:
            raise Overloaded(f"{SERVER_WEBHOOKS_MAX} webhooks, the most there may be", hint="remove one")
        webhook_id = webhook_id or draw_id(self._kernel, 16)
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
