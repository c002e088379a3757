"""The methods of protocol 0.3: their names, and how their parameters and results are turned into those of 1.0.

The conversions themselves are the SDK's. Only what crosses the wire differs: each method of 0.3 is carried out by the
method of 1.0 that it became.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lyra.a2a.sdk import compat, compat_types
from lyra.server.protocols.a2a.errors import RpcError


class EarlierMethod(NamedTuple):
    """A method of 0.3: the one of 1.0, the class of its request, the names of the conversions there and back."""

    name: str
    request: str
    to_core: str
    from_core: str

    def params(self, body: dict[str, Any]) -> Any:
        """The parameters as the method of 1.0 takes them."""
        try:
            request = getattr(compat_types(), self.request).model_validate(body)
            return getattr(compat(), self.to_core)(request)
        except ValueError as error:  # pydantic's, and those of conversions
            detail = " ".join(str(error).split())[:300]
            raise RpcError("invalid_params", f"the parameters cannot be used: {detail}") from None

    def result(self, value: Any, request_id: Any) -> Any:
        """The result of the method of 1.0 as a client of 0.3 reads it."""
        return _RESULTS[self.from_core](value, request_id)


def _plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _sent(value: Any, _request_id: Any) -> Any:
    if value.HasField("task"):
        return _plain(compat().to_compat_task(value.task))
    return _plain(compat().to_compat_message(value.message))


def _task(value: Any, _request_id: Any) -> Any:
    return _plain(compat().to_compat_task(value))


def _config(value: Any, _request_id: Any) -> Any:
    return _plain(compat().to_compat_task_push_notification_config(value))


def _configs(value: Any, _request_id: Any) -> Any:
    return [_config(row, None) for row in value.configs]


def _card(value: Any, _request_id: Any) -> Any:
    return _plain(compat().to_compat_agent_card(value))


def _event(value: Any, request_id: Any) -> Any:
    return _plain(compat().to_compat_stream_response(value, request_id))["result"]


def _nothing(_value: Any, _request_id: Any) -> Any:
    return None


_RESULTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sent": _sent,
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
