"""A request of JSON-RPC: read, carried out by its method, and its answer written, in one piece or as a stream.

An error after the request was read has the status 200 and the shape of JSON-RPC, as the protocol wants it. What the
guard refuses (no token, too large, too often) keeps the status of HTTP. `rest` has the other binding.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.a2a.sdk import PROTOCOL, PROTOCOL_BEFORE, compat, compat_types, from_json, messages, to_json
from lyra.server.http.endpoint import HttpCall, RawAnswer, Streamed
from lyra.server.http.sse import sse_event
from lyra.server.protocols.a2a.errors import RpcError, rpc_error_of
from lyra.server.protocols.a2a.methods import METHODS, A2aCall

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


async def answer_request(call: HttpCall, agent: AgentDeclaration) -> RawAnswer | Streamed:
    """Carry out one request for an agent."""
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
        return Streamed(_stream(call, request, result, write))
    return RawAnswer(msgspec.json.encode(request.answer(write(result))))


def check_version(call: HttpCall, spoken: str) -> None:
    """Check the version that a client names; one that names none may use the names of either version."""
    given = call.headers.get(_VERSION_HEADER, "")
    if given and given.partition(".")[0] != spoken.partition(".")[0]:
        raise RpcError("version", f"the method belongs to version {spoken}, and the request says {given[:20]!r}")


def _to_json(value: Any) -> Any:
    return None if value is None else to_json(value)


async def _stream(
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


def _task(value: Any, _request_id: Any) -> Any:
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
    "task": _task,
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
