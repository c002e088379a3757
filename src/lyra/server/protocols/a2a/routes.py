"""The paths of A2A: the cards of agents, one path for each agent that takes its requests, and those of HTTP+JSON.

A request of JSON-RPC is read, carried out by its method (`METHODS`), and its answer written, in one piece or as a
stream. Requests of earlier versions of the protocol and of HTTP+JSON become such requests.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.a2a.sdk import PROTOCOL, PROTOCOL_BEFORE, compat, compat_types, from_json, messages, to_json
from lyra.errors import ConfigError
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery, Streamed
from lyra.server.http.problems import HttpRefusal
from lyra.server.http.sse import sse_event
from lyra.server.protocols.a2a.errors import RpcError, rpc_error_of
from lyra.server.protocols.a2a.methods import METHODS, A2aCall, agent_card, card_data, default_agent
from lyra.server.protocols.a2a.tasks import A2aTasks

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration


HEARTBEAT: Final = b": ping\n\n"
_VERSION_HEADER: Final = "a2a-version"


class RpcRequest(NamedTuple):
    """`body` is the whole request."""

    id: str | int | None
    method: str
    body: dict[str, Any]

    def answer(self, result: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def error(self, error: RpcError) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "error": error.to_data()}


def decode(raw: bytes) -> dict[str, Any]:
    """Return the JSON object of a body; RpcError where it is none."""
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RpcError("parse") from None
    if not isinstance(body, dict):
        raise RpcError("invalid_request", "a request is one JSON object; there are no batches")
    return body


def _request_id(body: dict[str, Any]) -> str | int | None:
    given = body.get("id")
    return given if isinstance(given, (str, int)) and not isinstance(given, bool) else None


def _check(request: RpcRequest) -> RpcRequest:
    body = request.body
    method = body.get("method")
    if body.get("jsonrpc") != "2.0" or not isinstance(method, str) or request.id != body.get("id"):
        raise RpcError("invalid_request")
    if not isinstance(body.get("params", {}), dict):
        raise RpcError("invalid_params", "params is an object")
    return request._replace(method=method)


async def _carry_out(call: HttpCall, agent: AgentDeclaration, request: RpcRequest) -> RawAnswer | Streamed:
    earlier = EARLIER_METHODS.get(request.method)
    method = METHODS.get(request.method if earlier is None else earlier.name)
    if method is None:
        raise RpcError("no_such_method", f"there is no method {request.method[:80]!r}")
    call.act = f"a2a.{request.method if earlier is None else earlier.name}" if method.changes else ""
    if method.changes:
        call.caller.require_change()
    check_version(call, PROTOCOL if earlier is None else PROTOCOL_BEFORE)
    write: Callable[[Any], Any]
    if earlier is None:
        params = from_json(request.body.get("params", {}), getattr(messages(), method.params)())
        asked = A2aCall(call, agent, params)
        write = _to_json
    else:
        asked = A2aCall(call, agent, earlier.params(request.body), PROTOCOL_BEFORE)
        write = lambda value: earlier.result(value, request.id)  # noqa: E731 (the other branch has a function)
    result = await method.run(asked)
    if method.streams:
        return Streamed(_stream_requests(call, request, result, write))
    return RawAnswer(msgspec.json.encode(request.answer(write(result))))


def check_version(call: HttpCall, spoken: str) -> None:
    """Check the version that a client names; one that names none may use the names of either version."""
    given = call.headers.get(_VERSION_HEADER, "")
    if given and given.partition(".")[0] != spoken.partition(".")[0]:
        raise RpcError("version", f"the method belongs to version {spoken}, and the request says {given[:20]!r}")


def _to_json(value: Any) -> Any:
    return None if value is None else to_json(value)


async def _stream_requests(
    call: HttpCall, request: RpcRequest, events: AsyncGenerator[Any, None], write: Callable[[Any], Any]
) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(events):
            async for event in events:
                yield HEARTBEAT if event is None else sse_event(request.answer(write(event)))
    except Exception as error:  # noqa: BLE001 (told to the client in its form)
        yield sse_event(request.error(rpc_error_of(error, call.kernel)), event="error")


# ---------------------------------------------------------------- compat
# The methods of protocol 0.3: their names, and how their parameters and results are turned into those of 1.0.


class EarlierMethod(NamedTuple):
    """A method of 0.3: the one of 1.0, the class of its request, the names of the conversions there and back."""

    name: str
    request: str
    to_core: str
    from_core: str

    def params(self, body: dict[str, Any]) -> Any:
        """Return the parameters as the method of 1.0 takes them."""
        try:
            request = getattr(compat_types(), self.request).model_validate(body)
            return getattr(compat(), self.to_core)(request)
        except ValueError as error:  # pydantic's, and those of conversions
            detail = " ".join(str(error).split())[:300]
            raise RpcError("invalid_params", f"the parameters cannot be used: {detail}") from None

    def result(self, value: Any, request_id: Any) -> Any:
        """Return the result of the method of 1.0 as a client of 0.3 reads it."""
        return _RESULTS[self.from_core](value, request_id)


def _dump_model(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _render_sent(value: Any, _request_id: Any) -> Any:
    if value.HasField("task"):
        return _dump_model(compat().to_compat_task(value.task))
    return _dump_model(compat().to_compat_message(value.message))


def _task_requests(value: Any, _request_id: Any) -> Any:
    return _dump_model(compat().to_compat_task(value))


def _config(value: Any, _request_id: Any) -> Any:
    return _dump_model(compat().to_compat_task_push_notification_config(value))


def _configs(value: Any, _request_id: Any) -> Any:
    return [_config(row, None) for row in value.configs]


def _card(value: Any, _request_id: Any) -> Any:
    return _dump_model(compat().to_compat_agent_card(value))


def _event(value: Any, request_id: Any) -> Any:
    return _dump_model(compat().to_compat_stream_response(value, request_id))["result"]


def _nothing(_value: Any, _request_id: Any) -> Any:
    return None


_RESULTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sent": _render_sent,
    "task": _task_requests,
    "event": _event,
    "config": _config,
    "configs": _configs,
    "nothing": _nothing,
    "card": _card,
}

EARLIER_METHODS: Final[dict[str, EarlierMethod]] = {
    "message/send": EarlierMethod("SendMessage", "SendMessageRequest", "to_core_send_message_request", "sent"),
    "message/stream": EarlierMethod(
        "SendStreamingMessage", "SendStreamingMessageRequest", "to_core_send_message_request", "event"
    ),
    "tasks/get": EarlierMethod("GetTask", "GetTaskRequest", "to_core_get_task_request", "task"),
    "tasks/cancel": EarlierMethod("CancelTask", "CancelTaskRequest", "to_core_cancel_task_request", "task"),
    "tasks/resubscribe": EarlierMethod(
        "SubscribeToTask", "TaskResubscriptionRequest", "to_core_subscribe_to_task_request", "event"
    ),
    "tasks/pushNotificationConfig/set": EarlierMethod(
        "CreateTaskPushNotificationConfig",
        "SetTaskPushNotificationConfigRequest",
        "to_core_create_task_push_notification_config_request",
        "config",
    ),
    "tasks/pushNotificationConfig/get": EarlierMethod(
        "GetTaskPushNotificationConfig",
        "GetTaskPushNotificationConfigRequest",
        "to_core_get_task_push_notification_config_request",
        "config",
    ),
    "tasks/pushNotificationConfig/list": EarlierMethod(
        "ListTaskPushNotificationConfigs",
        "ListTaskPushNotificationConfigRequest",
        "to_core_list_task_push_notification_config_request",
        "configs",
    ),
    "tasks/pushNotificationConfig/delete": EarlierMethod(
        "DeleteTaskPushNotificationConfig",
        "DeleteTaskPushNotificationConfigRequest",
        "to_core_delete_task_push_notification_config_request",
        "nothing",
    ),
    "agent/getAuthenticatedExtendedCard": EarlierMethod(
        "GetExtendedAgentCard",
        "GetAuthenticatedExtendedCardRequest",
        "to_core_get_extended_agent_card_request",
        "card",
    ),
}


# ---------------------------------------------------------------- rest
# The HTTP+JSON binding of A2A 1.0: the methods of `methods` as paths below `/a2a/NAME`.

_MEDIA: Final = "application/a2a+json"
_CONFIGS: Final = "/tasks/{task}/pushNotificationConfigs"
# The verb behind the id of a task → the method.
_VERBS: Final = {
    "GET": {"": "GetTask", "subscribe": "SubscribeToTask"},
    "POST": {"cancel": "CancelTask", "subscribe": "SubscribeToTask"},
}

_HISTORY = ("historyLength", int | None, None)
TaskQuery = msgspec.defstruct("TaskQuery", [_HISTORY], bases=(RequestQuery,), kw_only=True)
TasksQuery = msgspec.defstruct(
    "TasksQuery",
    [
        _HISTORY,
        ("contextId", str | None, None),
        ("status", str | None, None),
        ("pageSize", int | None, None),
        ("pageToken", str | None, None),
        ("statusTimestampAfter", str | None, None),
        ("includeArtifacts", bool | None, None),
    ],
    bases=(RequestQuery,),
    kw_only=True,
)


async def _answer(call: HttpCall, name: str, **in_path: str) -> RawAnswer | Streamed:
    """Carry out a method; `in_path` are its parameters that the path has."""
    agent = call.parts.chats.directory.declaration(call.path["agent"])
    method = METHODS[name]
    call.act = f"a2a.{name}" if method.changes else ""
    try:
        if method.changes:
            call.caller.require_change()
        check_version(call, PROTOCOL)
        given = {**_query(call), **(decode(call.raw_body) if call.raw_body.strip() else {})}
        params = from_json(given, getattr(messages(), method.params)())
        for field, value in in_path.items():
            setattr(params, field, value)
        result = await method.run(A2aCall(call, agent, params))
    except Exception as error:  # noqa: BLE001 (told to the client in the shape that it reads)
        told = rpc_error_of(error, call.kernel)
        call.act_outcome = told.facts.get("code") or told.reason.lower()
        return _error(told)
    if method.streams:
        return Streamed(_stream(call, result))
    return RawAnswer(msgspec.json.encode({} if result is None else to_json(result)), _MEDIA)


def _error(told: RpcError) -> RawAnswer:
    return RawAnswer(msgspec.json.encode(told.to_http_data()), status=told.status)


def _query(call: HttpCall) -> dict[str, Any]:
    """Return the parameters in the query; `user_id` says for whom an operator asks, and is none of them."""
    fields = () if call.query is None else call.query.__struct_fields__
    values = {name: getattr(call.query, name) for name in fields if name != "user_id"}
    return {name: value for name, value in values.items() if value is not None}


async def _stream(call: HttpCall, events: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(events):
            async for event in events:
                yield HEARTBEAT if event is None else sse_event(to_json(event))
    except Exception as error:  # noqa: BLE001 (told to the client in its form)
        yield sse_event(rpc_error_of(error, call.kernel).to_http_data(), event="error")


def _handler(name: str, **in_path: str) -> Callable[[HttpCall], Awaitable[Any]]:
    """Return the handler of a path that represents one method; `in_path` maps its parameters to names in the path."""

    async def handle(call: HttpCall) -> RawAnswer | Streamed:
        return await _answer(call, name, **{field: call.path[place] for field, place in in_path.items()})

    return handle


async def _task(call: HttpCall) -> RawAnswer | Streamed:
    """`/tasks/ID`, and `/tasks/ID:VERB`."""
    task_id, _, verb = call.path["task"].partition(":")
    name = _VERBS[call.endpoint.method].get(verb)
    if name is None:
        return _error(RpcError("no_such_method", "a task is read, or has :cancel or :subscribe behind its id"))
    return await _answer(call, name, id=task_id)


def _endpoint(
    name: str, method: str, path: str, handler: Callable[[HttpCall], Awaitable[Any]], summary: str, **more: Any
) -> Endpoint:
    return Endpoint(
        f"a2a.{name}",
        method,
        f"/a2a/{{agent}}{path}",
        summary,
        handler,
        media=_MEDIA,
        statuses=(402, 404, 409, 503),
        **more,
    )


_OF_TASK: Final = {"task_id": "task"}
_OF_CONFIG: Final = {"task_id": "task", "id": "config"}
REST_ENDPOINTS: Final = (
    _endpoint("send", "POST", "/message:send", _handler("SendMessage"), "Send a message to an agent by A2A"),
    _endpoint(
        "stream",
        "POST",
        "/message:stream",
        _handler("SendStreamingMessage"),
        "Send a message by A2A, and read the task as it goes on",
        streams=True,
    ),
    _endpoint("list_tasks", "GET", "/tasks", _handler("ListTasks"), "The caller's A2A tasks", query=TasksQuery),
    _endpoint(
        "task",
        "GET",
        "/tasks/{task}",
        _task,
        "An A2A task; with `:subscribe` behind its id, what happens to it",
        query=TaskQuery,
        may_stream=True,
    ),
    _endpoint(
        "change_task",
        "POST",
        "/tasks/{task}",
        _task,
        "With `:cancel` behind the id: cancel the task; with `:subscribe`: read on",
        may_stream=True,
        checks_role=True,
    ),
    _endpoint(
        "push_configs",
        "GET",
        _CONFIGS,
        _handler("ListTaskPushNotificationConfigs", **_OF_TASK),
        "The push configurations of an A2A task",
    ),
    _endpoint(
        "set_push_config",
        "POST",
        _CONFIGS,
        _handler("CreateTaskPushNotificationConfig", **_OF_TASK),
        "Add a push configuration to an A2A task, or replace one",
    ),
    _endpoint(
        "push_config",
        "GET",
        f"{_CONFIGS}/{{config}}",
        _handler("GetTaskPushNotificationConfig", **_OF_CONFIG),
        "A push configuration of an A2A task",
    ),
    _endpoint(
        "delete_push_config",
        "DELETE",
        f"{_CONFIGS}/{{config}}",
        _handler("DeleteTaskPushNotificationConfig", **_OF_CONFIG),
        "Delete a push configuration of an A2A task",
    ),
    _endpoint(
        "extended_card",
        "GET",
        "/extendedAgentCard",
        _handler("GetExtendedAgentCard"),
        "The A2A card of an agent with its tools, for callers with a token",
    ),
)


_CARD: Final = ".well-known/agent-card.json"


async def default_card(call: HttpCall) -> dict[str, Any]:
    directory = call.parts.chats.directory
    return card_data(agent_card(directory.declaration(default_agent(directory)), call.base_url))


async def card(call: HttpCall) -> dict[str, Any]:
    try:
        agent = call.parts.chats.directory.declaration(call.path["agent"])
    except (HttpRefusal, ConfigError):  # a stranger is not told which names there are
        raise HttpRefusal(404, "there is no agent of that name") from None
    return card_data(agent_card(agent, call.base_url))


async def request(call: HttpCall) -> RawAnswer | Streamed:
    agent = call.parts.chats.directory.declaration(call.path["agent"])
    request = RpcRequest(None, "", {})
    call.act = ""  # a request that cannot be read is no act
    try:
        body = decode(call.raw_body)
        request = RpcRequest(_request_id(body), "", body)
        request = _check(request)
        return await _carry_out(call, agent, request)
    except Exception as error:  # noqa: BLE001 (told to the client in the shape that it reads)
        told = rpc_error_of(error, call.kernel)
        call.act_outcome = told.facts.get("code") or told.reason.lower()
        return RawAnswer(msgspec.json.encode(request.error(told)))


A2A_ENDPOINTS: Final = (
    Endpoint(
        "a2a.default_card",
        "GET",
        f"/{_CARD}",
        "The A2A card of the server's agent",
        default_card,
        is_open=True,
        statuses=(404,),
        about="Of several agents, the first by name.",
    ),
    Endpoint(
        "a2a.card", "GET", f"/a2a/{{agent}}/{_CARD}", "The A2A card of an agent", card, is_open=True, statuses=(404,)
    ),
    Endpoint(
        "a2a.request",
        "POST",
        "/a2a/{agent}",
        "A request of A2A: a JSON-RPC 2.0 call of version 1.0 or 0.3 of the protocol",
        request,
        may_stream=True,
        checks_role=True,
        statuses=(404,),
        opens=A2aTasks,
        about="Methods that stream answer with server-sent events. Errors have the shape of JSON-RPC. A viewer may look"
        " tasks up, list and follow them.",
    ),
    *REST_ENDPOINTS,
)
