"""What a client of A2A can ask, in the terms of protocol 1.0: one function a method, and `METHODS`, the table of them.

A method takes an A2aCall, whose parameters are a message of the protocol, and gives a message; one that streams gives
an async generator of StreamResponses, with None as a sign of life.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from lyra.a2a.content import IMAGE_TYPES
from lyra.a2a.sdk import IDEMPOTENT_MESSAGES, PROTOCOL, PROTOCOL_BEFORE, compat, messages, to_json
from lyra.server.http.directory import AgentDirectory, refuse_if_draining
from lyra.server.http.guard import check_work_limits
from lyra.server.http.problems import HttpRefusal
from lyra.server.protocols.a2a.errors import RpcError
from lyra.server.protocols.a2a.tasks import A2aTasks, PushTarget

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.server.http.endpoint import HttpCall
    from lyra.server.protocols.a2a.live_task import LiveTask


_LIMITED_AS: Final = "a2a.request"  # the endpoint whose limits hold for messages of either binding
_PAGE_DEFAULT: Final = 50
_PAGE_MAX: Final = 100
Events = AsyncGenerator[Any, None]


class A2aCall(NamedTuple):
    """One request of a client: the parameters of its method, and the version that it speaks."""

    http: HttpCall
    agent: AgentDeclaration
    params: Any
    version: str = PROTOCOL

    @property
    def tasks(self) -> A2aTasks:
        return self.http.parts.get_shared(A2aTasks)

    async def task(self, task_id: str) -> LiveTask:
        self.http.act_target = task_id
        return await self.tasks.get(task_id, self.agent.name, self.http.caller)


class A2aMethod(NamedTuple):
    """`params` names the class of the parameters; `streams`: the answer is server-sent events; `changes`: it is an act
    of its caller, which the audit log has."""

    params: str
    run: Callable[[A2aCall], Awaitable[Any]]
    streams: bool = False
    changes: bool = False


async def _accept(call: A2aCall) -> LiveTask:
    """Return the task that a message belongs to, once the server has the message."""
    http, message = call.http, call.params.message
    refuse_if_draining(http.parts.is_draining)
    asked = check_work_limits(http.kernel, http.caller.user_id, _LIMITED_AS)
    if asked is not None:
        await asked
    if not message.parts:
        raise RpcError("invalid_params", "the message has parts")
    config = call.params.configuration
    has_push = config.HasField("task_push_notification_config")
    if has_push:
        call.tasks.push.check(config.task_push_notification_config)  # before the agent begins to work
    if message.task_id:
        live = await call.task(message.task_id)
        await call.tasks.answer(live, message)
    else:
        live = await call.tasks.begin(call.agent.name, http.caller, message)
        http.act_target = live.record.id
    if has_push:
        await call.tasks.push.set(live, http.caller, config.task_push_notification_config, call.version)
        call.tasks.push.tell(live)
    return live


async def send(call: A2aCall) -> Any:
    live = await _accept(call)
    config = call.params.configuration
    if not config.return_immediately:
        await live.until_settled()
    return messages().SendMessageResponse(task=live.view(_length(config)))


async def send_streaming(call: A2aCall) -> Events:
    is_new = not call.params.message.task_id
    live = await _accept(call)
    return live.read(past_questions=False, from_start=is_new, history_length=_length(call.params.configuration))


async def subscribe(call: A2aCall) -> Events:
    live = await call.task(call.params.id)
    if live.record.has_ended:
        raise RpcError("unsupported", f"the task is {live.record.state}: nothing more happens to it")
    return live.read(past_questions=True)


async def get(call: A2aCall) -> Any:
    return (await call.task(call.params.id)).view(_length(call.params))


async def cancel(call: A2aCall) -> Any:
    live = await call.task(call.params.id)
    await call.tasks.cancel(live)
    return live.view()


async def list_tasks(call: A2aCall) -> Any:
    params, module = call.params, messages()
    size = params.page_size if params.HasField("page_size") else _PAGE_DEFAULT
    if not 1 <= size <= _PAGE_MAX:
        raise RpcError("invalid_params", f"pageSize is 1 to {_PAGE_MAX}")
    rows = [live for live in await call.tasks.list_for(call.agent.name, call.http.caller) if _is_wanted(live, params)]
    ids = [live.record.id for live in rows]
    if params.page_token and params.page_token not in ids:
        raise RpcError("invalid_params", "pageToken is not one of this list")
    begin = ids.index(params.page_token) + 1 if params.page_token else 0
    page = rows[begin : begin + size]
    more = begin + size < len(rows)
    length = _length(params)
    return module.ListTasksResponse(
        tasks=[live.view(0 if length is None else length, with_artifacts=params.include_artifacts) for live in page],
        next_page_token=page[-1].record.id if more else "",
        page_size=len(page),
        total_size=len(rows),
    )


def _is_wanted(live: LiveTask, params: Any) -> bool:
    if params.context_id and live.record.context_id != params.context_id:
        return False
    if params.status and live.status().state != params.status:
        return False
    after = params.status_timestamp_after.ToMilliseconds() if params.HasField("status_timestamp_after") else 0
    return int(1000 * live.changed_at) >= after


def _length(params: Any) -> int | None:
    if not params.HasField("history_length"):
        return None
    if params.history_length < 0:
        raise RpcError("invalid_params", "historyLength is not negative")
    return int(params.history_length)


# ---------------------------------------------------------------- push notifications


async def set_push(call: A2aCall) -> Any:
    live = await call.task(call.params.task_id)
    target = await call.tasks.push.set(live, call.http.caller, call.params, call.version)
    call.tasks.push.tell(live)
    return _config(target)


async def get_push(call: A2aCall) -> Any:
    live = await call.task(call.params.task_id)
    return _config(call.tasks.push.get(live, call.params.id))


async def list_push(call: A2aCall) -> Any:
    live = await call.task(call.params.task_id)
    configs = [_config(target) for target in call.tasks.push.list_for(live)]
    return messages().ListTaskPushNotificationConfigsResponse(configs=configs)


async def delete_push(call: A2aCall) -> Any:
    live = await call.task(call.params.task_id)
    await call.tasks.push.remove(live, call.params.id)


def _config(target: PushTarget) -> Any:
    """Return a configuration without its secrets."""
    config = messages().TaskPushNotificationConfig(id=target.id, task_id=target.task_id, url=target.url)
    if target.scheme:
        config.authentication.scheme = target.scheme
    return config


async def render_extended_card(call: A2aCall) -> Any:
    return agent_card(call.agent, call.http.base_url, is_extended=True)


METHODS: Final[dict[str, A2aMethod]] = {
    "SendMessage": A2aMethod("SendMessageRequest", send, changes=True),
    "SendStreamingMessage": A2aMethod("SendMessageRequest", send_streaming, streams=True, changes=True),
    "GetTask": A2aMethod("GetTaskRequest", get),
    "ListTasks": A2aMethod("ListTasksRequest", list_tasks),
    "CancelTask": A2aMethod("CancelTaskRequest", cancel, changes=True),
    "SubscribeToTask": A2aMethod("SubscribeToTaskRequest", subscribe, streams=True),
    "CreateTaskPushNotificationConfig": A2aMethod("TaskPushNotificationConfig", set_push, changes=True),
    "GetTaskPushNotificationConfig": A2aMethod("GetTaskPushNotificationConfigRequest", get_push),
    "ListTaskPushNotificationConfigs": A2aMethod("ListTaskPushNotificationConfigsRequest", list_push),
    "DeleteTaskPushNotificationConfig": A2aMethod("DeleteTaskPushNotificationConfigRequest", delete_push, changes=True),
    "GetExtendedAgentCard": A2aMethod("GetExtendedAgentCardRequest", render_extended_card),
}


# ---------------------------------------------------------------- card
# The agent card: what a stranger is told of an agent before it has a token, and what a user is told besides.

_VERSION: Final = "1"
# How an agent is reached, the first where the client has no preference.
_INTERFACES: Final = (("JSONRPC", PROTOCOL), ("HTTP+JSON", PROTOCOL), ("JSONRPC", PROTOCOL_BEFORE))
_SCHEME: Final = "bearer"
_IDEMPOTENT: Final = "A message that comes twice under one id is one task."
_INPUT: Final = ("text/plain", "application/json", *IMAGE_TYPES)


def default_agent(directory: AgentDirectory) -> str:
    """Return the agent whose card stands at the root: the only one, or the first by name."""
    for name, agent in directory.agents().items():
        if agent.declaration is not None:
            return name
    raise HttpRefusal(404, "the server has no agent")


def agent_card(agent: AgentDeclaration, base_url: str, *, is_extended: bool = False) -> Any:
    """Return the card of an agent that is reached below that address."""
    module = messages()
    about = agent.description or f"The agent {agent.name}."
    output = ("text/plain",) if agent.output is None else ("application/json",)
    url = f"{base_url}/a2a/{quote(agent.name, safe='')}"
    card = module.AgentCard(
        name=agent.name,
        description=about,
        version=_VERSION,
        supported_interfaces=[
            module.AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
            for binding, version in _INTERFACES
        ],
        capabilities=module.AgentCapabilities(
            streaming=True,
            push_notifications=True,
            extended_agent_card=True,
            extensions=[module.AgentExtension(uri=IDEMPOTENT_MESSAGES, description=_IDEMPOTENT)],
        ),
        default_input_modes=_INPUT,
        default_output_modes=output,
        skills=[module.AgentSkill(id=agent.name, name=agent.name, description=about, tags=["agent"])],
    )
    card.security_schemes[_SCHEME].http_auth_security_scheme.scheme = "Bearer"
    card.security_requirements.add().schemes[_SCHEME].SetInParent()
    if is_extended:
        card.skills.extend(
            module.AgentSkill(id=f"tool.{tool.name}", name=tool.name, description=tool.description, tags=["tool"])
            for tool in agent.toolbox
        )
    return card


def card_data(card: Any) -> dict[str, Any]:
    """Return a card as JSON that clients of both versions of the protocol read."""
    before = compat().to_compat_agent_card(card).model_dump(mode="json", by_alias=True, exclude_none=True)
    data: dict[str, Any] = _merge(to_json(card), before)
    return data


def _merge(new: Any, before: Any) -> Any:
    """Return the new form with the keys that only the earlier one has."""
    if isinstance(new, dict) and isinstance(before, dict):
        return {**before, **{key: _merge(value, before.get(key)) for key, value in new.items()}}
    return new
