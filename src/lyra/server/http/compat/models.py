"""`/v1/models`: the agents as clients list models, in the form of the vendor whose client asks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from lyra.server.http.directory import KnownAgent
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestQuery
from lyra.server.http.problems import vendor_of


class ModelQuery(RequestQuery):
    """How a client of Anthropic asks for a page; all models stand on the first."""

    limit: int = 20
    after_id: str = ""
    before_id: str = ""


def model_document(call: HttpCall, model_id: str, name: str, owner: str) -> dict[str, Any]:
    """A model as the client's vendor shows it."""
    began = call.kernel.clock.now() - call.kernel.get_system_status().uptime_seconds
    if vendor_of("/v1/models", call.headers) == "anthropic":
        created = datetime.fromtimestamp(began, UTC).isoformat().replace("+00:00", "Z")
        return {"type": "model", "id": model_id, "display_name": name, "created_at": created}
    return {"id": model_id, "object": "model", "created": int(began), "owned_by": owner}


def model_list(call: HttpCall, models: list[dict[str, Any]]) -> dict[str, Any]:
    """A list of models as the client's vendor shows it."""
    if vendor_of("/v1/models", call.headers) == "anthropic":
        ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]} if models else {}
        return {"data": models, "has_more": False, "first_id": None, "last_id": None, **ends}
    return {"object": "list", "data": models}


def agent_model(call: HttpCall, agent: KnownAgent) -> dict[str, Any]:
    return model_document(call, f"agent/{agent.name}", agent.name, "lyra")


def agent_models(call: HttpCall) -> list[dict[str, Any]]:
    """The agents that can be talked to."""
    agents = call.parts.chats.directory.agents().values()
    return [agent_model(call, agent) for agent in agents if agent.declaration is not None]


async def list_models(call: HttpCall) -> dict[str, Any]:
    return model_list(call, agent_models(call))


async def get_model(call: HttpCall) -> dict[str, Any]:
    return agent_model(call, call.parts.chats.directory.get(call.path["model"]))


MODEL_ENDPOINTS: Final = (
    Endpoint(
        name="models.list",
        method="GET",
        path="/v1/models",
        summary="The agents, as a list of models",
        handler=list_models,
        query=ModelQuery,
        about="With the header `anthropic-version` the answer has Anthropic's form, else OpenAI's.",
    ),
    Endpoint(
        name="models.get",
        method="GET",
        path="/v1/models/{model}",
        summary="One agent, as a model",
        handler=get_model,
        statuses=(404,),
    ),
)
