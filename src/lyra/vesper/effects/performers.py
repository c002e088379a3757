"""How each kind of effect is performed: the table of kinds, and what they work with.

`NodeWorld` holds what nodes may reach: a database, addresses of providers, the kernel's bus, functions for operations
of the embedding program (`custom.NAMESPACE.OPERATION`), agents, other nodes. A performer is an async function of the
request's payload and a key that is the same when the act is repeated after a crash. Its errors are `EffectError`s.

A provider of HTTP is a name in the node's file and a base address that the person who runs the node gives for it, so a
file alone reaches no host. `lyra.tools.http_guard` checks rights, addresses, redirects and sizes. An endpoint with
placeholders is a list in which texts of the file and values take turns; a value is quoted on its own, so that it stays
inside its segment or its field, and dot segments are refused. Every changing request carries an idempotency key.
Numbers of answers are read as decimals, exactly.

A transition of a state machine is checked against the entity's state and written in one go, on the kernel's loop; one
that is repeated after a crash has the key of the first and changes nothing. `without_denied` takes the rights that a
node denies itself from those of its process, for what only an execution shows: an address behind a provider's name,
and acts of the nodes that it calls.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from lyra.agents.declaration.output import FENCED_JSON
from lyra.agents.session.replies import Reply
from lyra.core.codec import to_plain
from lyra.core.rights.capability import ANY_NAME, Capability, Grant
from lyra.errors import CapabilityDenied, ConfigError, DeadlineExceeded, LyraError, ToolError
from lyra.tools.http_guard import ANSWER_BYTES_MAX, HttpAnswer, fetch
from lyra.vesper.check.effects import parse_denial
from lyra.vesper.effects.database import Database
from lyra.vesper.effects.request import EffectError, EffectRequest
from lyra.vesper.values.outcome import NOT_CONFIGURED

if TYPE_CHECKING:
    from lyra.kernel import Kernel
    from lyra.kernel.base.core import Core


# Kinds that may be repeated after a crash: reading, and changes that are made once for their key.
IDEMPOTENT: Final = frozenset(
    {
        "db.query",
        "db.write",
        "db.update",
        "db.delete",
        "db.transaction",
        "state.transition",
        "node.call",
        "event.publish",
        "event.subscribe",
    }
)
_READS: Final = frozenset({"GET", "HEAD", "PUT", "DELETE"})
NO_DATABASE: Final = (
    "no database was named: say --database sqlite:///FILE or postgresql://…, or give Runtime(database=…)"
)
Custom = Callable[..., Any]
PUBLISHED_KEY: Final[ContextVar[str]] = ContextVar("vesper_published_key", default="")


class NodeWorld:
    """What the nodes of one runtime may reach."""

    def __init__(
        self,
        *,
        database: Database | None = None,
        providers: Mapping[str, str] | None = None,
        custom: Mapping[str, Custom] | None = None,
        agents: Mapping[str, Any] | None = None,
    ) -> None:
        self.database = database
        self.providers = dict(providers or {})
        self.custom = dict(custom or {})
        self.agents = dict(agents or {})
        self.kernel: Kernel  # set when the runtime has started
        self.machines: Machines
        self.ask_agent: Callable[[Any, str, str, Grant], Awaitable[Any]]
        self.call_node: Callable[[str, Mapping[str, Any], str, Grant, frozenset[str]], Awaitable[Any]]

    def may_repeat(self, request: EffectRequest) -> bool:
        """Return whether an act that a crash interrupted is simply made again."""
        if request.kind == "http.call":
            method = str(request.payload.get("method") or "POST").upper()
            return method in _READS or _has_key(request.payload)
        return request.kind in IDEMPOTENT


def _has_key(payload: Mapping[str, Any]) -> bool:
    """Return whether the server is given a key by which it knows a repeated request."""
    names = [*(payload.get("headers") or {}), *(payload.get("parameters") or {})]
    return any(str(name).lower().replace("-", "_") == "idempotency_key" for name in names)


async def perform(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
    """Perform one request."""
    kind = request.kind
    performer = _CUSTOM if kind.startswith("custom.") else _PERFORMERS.get(kind)
    if performer is None:
        raise EffectError("effect_failed", f"no performer for {kind}")
    try:
        return await performer(world, request, grant, key)
    except EffectError:
        raise
    except LyraError as error:
        raise EffectError(error.code, error.message) from error


async def _query(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001 (one signature)
    payload = request.payload
    return await asyncio.to_thread(_database(world).query, payload["query"], payload.get("values") or {})


async def _change(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001
    return await asyncio.to_thread(_database(world).change, request.kind, request.payload, key)


async def _http(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
    host = urlsplit(world.providers.get(str(request.payload.get("provider") or ""), "")).hostname
    if host and grant.deny:
        Grant(allow=[ANY_NAME], deny=grant.deny).check(Capability.parse(f"net.http:{host}"))
    return await call_api(request.payload, world.providers, key=key, timeout_s=request.timeout_s)


async def _publish(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001
    """Publish an event; while its handlers run, the key of the act tells whether it was published before."""
    payload = request.payload
    token = PUBLISHED_KEY.set(key)
    try:
        await world.kernel.bus.publish(str(payload["event_type"]), payload.get("data"))
    finally:
        PUBLISHED_KEY.reset(token)


async def _subscribe(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
    """Return a subscription belongs to the node, not to one execution: the runtime makes it when the node is loaded."""


async def _transition(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001
    return world.machines.move(request.payload, key)


async def _call_node(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
    payload = request.payload
    return await world.call_node(str(payload["node_id"]), payload.get("parameters") or {}, key, grant, frozenset())


async def _agent(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
    payload = request.payload
    name = str(payload.get("agent") or "")
    agent = world.agents.get(name)
    if agent is None:
        raise EffectError(
            NOT_CONFIGURED, f"no agent {name!r} was handed in: say --model NAME, or give Runtime(agents=…)"
        )
    reply = await world.ask_agent(agent, str(payload.get("prompt") or ""), f"vesper-agent-{key}", agent_grant(grant))
    if isinstance(reply, Reply) and reply.status != "success":
        raise EffectError(reply.status, f"the answer of agent {name!r} was cut off at its longest")
    if not isinstance(reply, str):
        return msgspec.to_builtins(reply, enc_hook=to_plain)
    if payload.get("format") != "json":
        return str(reply)
    fenced = FENCED_JSON.fullmatch(reply.strip())  # as many models write JSON
    try:
        return json.loads(fenced[1] if fenced else reply, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise EffectError("bad_response", f"the answer of agent {name!r} is no JSON") from error


async def _custom(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001
    name = request.kind.removeprefix("custom.")
    function = world.custom.get(name)
    if function is None:
        raise EffectError(NOT_CONFIGURED, f"no function is registered for custom.{name}: give Runtime(custom=…)")
    try:
        result = function(**request.payload)
        return await result if inspect.isawaitable(result) else result
    except (EffectError, LyraError):
        raise
    except Exception as error:
        raise EffectError("effect_failed", f"custom.{name}: {type(error).__name__}: {error}"[:500]) from error


def _database(world: NodeWorld) -> Database:
    if world.database is None:
        raise EffectError(NOT_CONFIGURED, NO_DATABASE)
    return world.database


_Performer = Callable[[NodeWorld, EffectRequest, Grant, str], Awaitable[Any]]
_CUSTOM: Final[_Performer] = _custom
_PERFORMERS: Final[dict[str, _Performer]] = {
    "db.query": _query,
    "db.write": _change,
    "db.update": _change,
    "db.delete": _change,
    "http.call": _http,
    "event.publish": _publish,
    "event.subscribe": _subscribe,
    "state.transition": _transition,
    "node.call": _call_node,
    "agent.call": _agent,
}


# ---------------------------------------------------------------- http

TIMEOUT_S: Final = 30.0
_BODYLESS: Final = frozenset({"GET", "HEAD", "DELETE"})
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


class HttpFailure(EffectError):
    """An answer that says no, or none at all. `status` is 0 where there was no answer."""

    def __init__(self, kind: str, message: str, *, status: int = 0, fields: dict[str, Any] | None = None) -> None:
        super().__init__(kind, message, {"status": status, **(fields or {})})
        self.status = status


async def call_api(
    payload: Mapping[str, Any], providers: Mapping[str, str], *, key: str, timeout_s: float | None = None
) -> Any:
    """Return the body of the answer, as plain values. The right to the provider was asked for before; here the request
    may reach the provider's own address and no other."""
    base = _base(payload, providers)
    method = str(payload.get("method") or "POST").upper()
    parameters = payload.get("parameters") or {}
    url = request_url(base, payload.get("endpoint") or "", parameters if method in _BODYLESS else {})
    headers = {"accept": "application/json", **{str(name): str(value) for name, value in _headers(payload)}}
    body = None
    if method not in _BODYLESS:
        body = _encode(parameters)
        headers.setdefault("content-type", "application/json")
        if not any(name.lower() == "idempotency-key" for name in headers):
            headers["idempotency-key"] = key
    try:
        answer = await fetch(
            url,
            grant=Grant.of([f"net.http:{_host_and_port(base)}"]),
            method=method,
            headers=headers,
            body=body,
            timeout_s=TIMEOUT_S if timeout_s is None else timeout_s,
            inside=[_host_and_port(base)],
        )
    except CapabilityDenied as error:
        raise EffectError("capability_denied", error.message) from error
    except (DeadlineExceeded, TimeoutError) as error:
        raise HttpFailure("timeout", f"{_host_and_port(base)} did not answer in time") from error
    except ToolError as error:
        kind = "timeout" if error.fields.get("reason") == "timeout" else "unreachable"
        raise HttpFailure(kind, error.message) from error
    body = _body(answer)
    if _is_success(answer):
        return body
    reported = body.get("error") if isinstance(body, dict) else None
    code = reported.get("code") if isinstance(reported, dict) else None
    message = reported.get("message") if isinstance(reported, dict) else None
    kind = code if isinstance(code, str) and code else f"http_{answer.status}"
    text = message if isinstance(message, str) else f"the server answered with {answer.status}"
    raise HttpFailure(kind, text[:500], status=answer.status)


def _base(payload: Mapping[str, Any], providers: Mapping[str, str]) -> str:
    name = str(payload.get("provider") or "")
    base = providers.get(name)
    if base is None:
        message = (
            f"no address is known for the provider {name!r}: say --provider {name}=URL, or give Runtime(providers=…)"
        )
        raise EffectError(NOT_CONFIGURED, message)
    return base.rstrip("/")


def _headers(payload: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    headers = payload.get("headers") or {}
    return [(name, value) for name, value in headers.items() if value is not None]


def _host_and_port(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _is_success(answer: HttpAnswer) -> bool:
    """Return whether the status is a success. A redirect that was not followed is a failure: the server did not do the
    work."""
    return 200 <= answer.status < 300


def _body(answer: HttpAnswer) -> Any:
    if not answer.body:
        return None
    if answer.truncated and _is_success(answer):
        message = f"the answer has more than {ANSWER_BYTES_MAX} bytes"
        raise HttpFailure("resource_limit", message, status=answer.status)
    try:
        return json.loads(answer.body, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        if not _is_success(answer):
            return None
        raise HttpFailure("bad_response", "the answer is no JSON", status=answer.status) from error


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number")


# ---------------------------------------------------------------- http url

_WRITTEN: Final = "/-._~!$&'()*+,;=:@%"  # characters of the file that stay as they are


def request_url(base: str, endpoint: str | Sequence[Any], query: Mapping[str, Any]) -> str:
    """Return the address; EffectError where the endpoint has a dot segment."""
    path, mark, fields = _quote_endpoint(endpoint)
    path = path.lstrip("/")
    for segment in path.split("/"):
        if unquote(segment) in (".", ".."):
            raise EffectError("bad_endpoint", f"the endpoint has the segment {segment!r}, which leads elsewhere")
    pairs = [(name, _text(value)) for name, value in query.items() if value is not None]
    more = "&".join(part for part in (fields, urlencode(pairs)) if part)
    url = f"{base}/{path}" if path else base
    return f"{url}?{more}" if mark or more else url


def _quote_endpoint(endpoint: str | Sequence[Any]) -> tuple[str, str, str]:
    """Return path, question mark and query as they are sent, with quoted values."""
    sides, mark = ["", ""], ""
    for index, part in enumerate([endpoint] if isinstance(endpoint, str) else endpoint):
        if index % 2:
            sides[bool(mark)] += quote(_text(part), safe="")
            continue
        text = str(part)
        if not mark:
            text, mark, fields = text.partition("?")
            sides[0] += quote(text, safe=_WRITTEN)
            text = fields
        sides[1] += quote(text, safe=_WRITTEN + "?")
    return sides[0], mark, sides[1]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


# ---------------------------------------------------------------- machines


class MachineState:
    """The durable state: the state of each entity, and the key of the transition that led to it."""

    NAME: ClassVar[str] = "vesper-machines"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.transition"})

    __slots__ = ("entities",)

    def __init__(self) -> None:
        self.entities: dict[str, tuple[str, str]] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        self.entities[data["entity"]] = (data["to"], data["key"])

    def dump(self) -> Any:
        return self.entities

    def load(self, data: Any) -> None:
        self.entities = {str(entity): (str(place[0]), str(place[1])) for entity, place in data.items()}


class Machines:
    """Reads and moves entities."""

    def __init__(self, core: Core[Any], state: MachineState) -> None:
        self._core = core
        self._state = state

    def move(self, payload: dict[str, Any], key: str) -> str:
        """Move an entity, if it stands where the request says; gives its new state."""
        name = f"{payload['machine']}/{payload['entity']}"
        source, target = str(payload["from"]), str(payload["to"])
        here, last = self._state.entities.get(name, (str(payload.get("initial", source)), ""))
        if last == key:
            return here
        if here != source:
            raise EffectError(
                "invalid_transition", f"{name} is {here}, not {source}", {"state": here, "from": source, "to": target}
            )
        row = {"entity": name, "from": source, "to": target, "key": key}
        self._core.fact(self._state, "", "vesper.transition", row)
        return target


# ---------------------------------------------------------------- denied


def without_denied(grant: Grant, denied: Iterable[str]) -> Grant:
    """Return the rights without those that a node denies itself."""
    rules = [rule for rule in map(parse_denial, denied) if rule is not None]
    return grant.narrow(Grant(allow=[ANY_NAME], deny=rules)) if rules else grant


def describe_missing_rights(grant: Grant, rights: Iterable[str]) -> str:
    """Return the rights that a grant does not cover in a sentence, by the names that a node gives them; "" for none."""
    missing = [text for text in rights if not _is_granted(grant, text)]
    if not missing:
        return ""
    options = " ".join(f"--grant {text}" for text in missing)
    if len(missing) == 1:
        return f"the right {missing[0]}, which was not granted: say {options}, or give Runtime(grant=…)"
    return f"the rights {', '.join(missing)}, which were not granted: say {options}, or give Runtime(grant=…)"


def _is_granted(grant: Grant, text: str) -> bool:
    try:
        grant.check(Capability.parse(text))
    except (CapabilityDenied, ConfigError):
        return False
    return True


def agent_grant(grant: Grant) -> Grant:
    """Return the rights of an agent that a node may ask: those of the node, and the use of its model and its tools.
    What the tools need besides, the node needs, too."""
    if grant.is_all:
        return grant
    layers = [[*layer, "model.use", "tool.use"] for layer in grant.layers]
    return Grant.from_data({"layers": layers or [[ANY_NAME]], "deny": list(grant.deny)})
