"""Webhooks: have events told to a URL, and take what others send to a process or an agent."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from lyra.core.checking.check import one_of
from lyra.core.event import KINDS
from lyra.errors import ConfigError
from lyra.server.http.api.processes import Accepted
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody
from lyra.server.http.webhooks.incoming import HookTarget


class WebhookBody(RequestBody):
    """`kinds` are words of the table of events."""

    url: Annotated[str, msgspec.Meta(max_length=2000)]
    kinds: list[str]


class WebhookView(msgspec.Struct, kw_only=True):
    """`failed` deliveries were given up after all tries; `dropped` ones found no room in the line."""

    webhook_id: str
    url: str
    kinds: list[str]
    delivered: int
    failed: int
    dropped: int
    last_error: str


SHARED_ID: Final = "lyra-webhook-id"  # of a webhook that all shards of a cluster have: the front of the hosts sends it


class WebhookList(msgspec.Struct):
    webhooks: list[WebhookView]


class WebhookAdded(msgspec.Struct):
    """The secret is shown once."""

    webhook_id: str
    secret: str


class HookBody(RequestBody):
    """Either a process or an agent."""

    pid: str = ""
    agent: str = ""


class HookView(msgspec.Struct, kw_only=True):
    hook_id: str
    path: str
    pid: str
    agent: str


class HookList(msgspec.Struct):
    hooks: list[HookView]


class HookAdded(msgspec.Struct):
    """Where to post, and the secret to sign with, which is shown once."""

    hook_id: str
    path: str
    secret: str


class HookAccepted(msgspec.Struct):
    accepted: bool = True
    session_id: str = ""


def _view(call: HttpCall, webhook_id: str, pid: str) -> WebhookView | None:
    state = call.parts.deliveries.state(pid)
    return None if state is None else WebhookView(webhook_id=webhook_id, **msgspec.structs.asdict(state))


async def add_webhook(call: HttpCall) -> WebhookAdded:
    kinds = [one_of(kind, KINDS, "an event's kind") for kind in call.body.kinds]
    shared_id = "" if call.kernel.core.remote is None else call.headers.get(SHARED_ID, "")
    return WebhookAdded(*await call.parts.deliveries.add(call.caller, call.body.url, kinds, shared_id))


async def list_webhooks(call: HttpCall) -> WebhookList:
    rows = [_view(call, name, process.pid) for name, process in call.parts.deliveries.webhooks.list_for(call.caller)]
    return WebhookList([row for row in rows if row is not None])


async def remove_webhook(call: HttpCall) -> Accepted:
    await call.parts.deliveries.remove(call.path["webhook_id"], call.caller)
    return Accepted()


async def add_hook(call: HttpCall) -> HookAdded:
    body: HookBody = call.body
    if bool(body.pid) == bool(body.agent):
        raise ConfigError("a hook names a process or an agent", hint="give pid or agent")
    if body.agent:
        call.parts.chats.directory.declaration(body.agent)
    else:
        call.require_process(body.pid)
    hook_id, secret = await call.parts.hooks.add(call.caller, HookTarget(body.pid, body.agent))
    return HookAdded(hook_id, f"/hooks/{hook_id}", secret)


async def list_hooks(call: HttpCall) -> HookList:
    rows = []
    for name, process in call.parts.hooks.hooks.list_for(call.caller):
        target = call.parts.hooks.target(process.pid)
        if process.alive:
            rows.append(HookView(hook_id=name, path=f"/hooks/{name}", pid=target.pid, agent=target.agent))
    return HookList(rows)


async def remove_hook(call: HttpCall) -> Accepted:
    await call.parts.hooks.remove(call.path["hook_id"], call.caller)
    return Accepted()


async def take(call: HttpCall) -> HookAccepted:
    session_id = await call.parts.hooks.take(call.path["hook_id"], call.headers, call.raw_body)
    return HookAccepted(session_id=session_id)


ENDPOINTS: Final = (
    Endpoint(
        "webhooks.add",
        "POST",
        "/api/webhooks",
        "Have events of the caller's processes posted to a URL",
        add_webhook,
        body=WebhookBody,
        answer=WebhookAdded,
        status=201,
        statuses=(503,),
    ),
    Endpoint("webhooks.list", "GET", "/api/webhooks", "The webhooks of the caller", list_webhooks, answer=WebhookList),
    Endpoint(
        "webhooks.remove",
        "DELETE",
        "/api/webhooks/{webhook_id}",
        "Remove a webhook",
        remove_webhook,
        answer=Accepted,
        statuses=(404,),
    ),
    Endpoint(
        "hooks.add",
        "POST",
        "/api/hooks",
        "Take what another server sends to a process or an agent",
        add_hook,
        body=HookBody,
        answer=HookAdded,
        status=201,
        statuses=(404,),
    ),
    Endpoint("hooks.list", "GET", "/api/hooks", "The incoming hooks of the caller", list_hooks, answer=HookList),
    Endpoint(
        "hooks.remove",
        "DELETE",
        "/api/hooks/{hook_id}",
        "Remove an incoming hook",
        remove_hook,
        answer=Accepted,
        statuses=(404,),
    ),
    Endpoint(
        "hooks.take",
        "POST",
        "/hooks/{hook_id}",
        "Say something to a process or an agent, signed with the secret of a hook instead of a token",
        take,
        answer=HookAccepted,
        status=202,
        is_open=True,
        statuses=(401, 404, 409, 503),
        about="`x-lyra-signature: t=SECONDS,v1=HMAC` over `SECONDS.BODY`, or `x-hub-signature-256` over the body.",
    ),
)
