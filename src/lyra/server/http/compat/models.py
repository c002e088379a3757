"""`/v1/models`: the agents as clients list models, in the form of the vendor whose client asks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from lyra.server.http.directory import KnownAgent
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestQuery
from lyra.server.http.problems import vendor_of

__all__ = ["MODEL_ENDPOINTS"]


class ModelQuery(RequestQuery):
    """How a client of Anthropic asks for a page; all models stand on the first."""

    limit: int = 20
    after_id: str = ""
    before_id: str = ""


def _model(call: HttpCall, agent: KnownAgent) -> dict[str, Any]:
    began = call.kernel.clock.now() - call.kernel.get_system_status().uptime_seconds
    model_id = f"agent/{agent.name}"
    if vendor_of("/v1/models", call.headers) == "anthropic":
        created = datetime.fromtimestamp(began, UTC).isoformat().replace("+00:00", "Z")
        return {"type": "model", "id": model_id, "display_name": agent.name, "created_at": created}
    return {"id": model_id, "object": "model", "created": int(began), "owned_by": "lyra"}


async def list_models(call: HttpCall) -> dict[str, Any]:
    agents = call.parts.chats.directory.agents().values()
    models = [_model(call, agent) for agent in agents if agent.declaration is not None]
    if vendor_of("/v1/models", call.headers) == "anthropic":
        ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]} if models else {}
        return {"data": models, "has_more": False, "first_id": None, "last_id": None, **ends}
    return {"object": "list", "data": models}


async def get_model(call: HttpCall) -> dict[str, Any]:
    return _model(call, call.parts.chats.directory.get(call.path["model"]))


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
