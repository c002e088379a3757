"""`/v1/chat/completions` and `/v1/models` as clients of OpenAI know them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from lyra.errors import ConfigError
from lyra.server.http.compat.conversation import (
    AnswerUsage,
    Content,
    Spoken,
    VendorConversation,
    answer,
    answer_pieces,
    image_part,
    refuse,
)
from lyra.server.http.directory import KnownAgent, refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestQuery, Streamed
from lyra.server.http.problems import error_body, problem_of, vendor_of
from lyra.server.http.sse import sse_event

# ---------------------------------------------------------------- models
# `/v1/models`: the agents as clients list models, in the form of the vendor whose client asks.


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


class CompletionMessage(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None


class StreamOptions(msgspec.Struct):
    include_usage: bool = False


class CompletionBody(msgspec.Struct):
    """`model` is the name of an agent, or `agent/NAME`. Other fields are taken and not used."""

    model: str
    messages: list[CompletionMessage]
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    user_id: str = ""


class CompletionAnswer(msgspec.Struct):
    role: str
    content: str
    refusal: None = None


class CompletionChoice(msgspec.Struct):
    index: int
    message: CompletionAnswer
    finish_reason: str
    logprobs: None = None


class CompletionUsage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(msgspec.Struct):
    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


def _conversation(body: CompletionBody) -> VendorConversation:
    if body.tools or body.functions:
        raise refuse("tools", "the agent has its own; leave `tools` out")
    if body.n not in (None, 1):
        raise ConfigError("n is 1", key="n")
    if (body.response_format or {}).get("type", "text") != "text":
        raise refuse("response_format", "an agent's answer has the type that the agent declares")
    system = []
    spoken = []
    for message in body.messages:
        if message.role in ("system", "developer"):
            system.append(_text(message.content))
        elif message.role in ("user", "assistant"):
            spoken.append(Spoken(message.role, _content(message.content)))
        else:
            raise refuse("tool results", "the agent calls its own tools")
    return VendorConversation(spoken, "\n\n".join(system))


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content or ""


def _content(content: str | list[dict[str, Any]] | None) -> Content:
    if not isinstance(content, list):
        return content or ""
    return [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") in ("text", "input_text", "output_text", "refusal"):
        return {"type": "text", "text": str(part.get("text") or part.get("refusal") or "")}
    url = part["image_url"].get("url", "") if isinstance(part.get("image_url"), dict) else ""
    head, comma, data = str(url).partition(",")
    if part.get("type") != "image_url" or not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise ConfigError("a part of a message is text, or an image as a data: URL", key="messages")
    return image_part(head.removeprefix("data:").removesuffix(";base64"), data)


def _usage(usage: AnswerUsage) -> CompletionUsage:
    total = usage.input_tokens + usage.output_tokens
    return CompletionUsage(usage.input_tokens, usage.output_tokens, total)


def _finish_reason(usage: AnswerUsage) -> str:
    return "length" if usage.is_cut else "stop"


async def completions(call: HttpCall) -> ChatCompletion | Streamed:
    refuse_if_draining(call.parts.is_draining)
    body: CompletionBody = call.body
    conversation, usage = _conversation(body), AnswerUsage()
    answer_id, created = f"chatcmpl-{call.kernel.entropy.text(24)}", int(call.kernel.clock.now())
    if body.stream:
        pieces = answer_pieces(call, body.model, conversation, usage)
        first = await anext(pieces, "")  # what is wrong at the beginning is told by the status
        head = {"id": answer_id, "object": "chat.completion.chunk", "created": created, "model": body.model}
        wants_usage = body.stream_options is not None and body.stream_options.include_usage
        return Streamed(_chunks(call, head, first, pieces, usage, wants_usage=bool(wants_usage)))
    text = await answer(call, body.model, conversation, usage)
    choice = CompletionChoice(0, CompletionAnswer("assistant", text), _finish_reason(usage))
    return ChatCompletion(answer_id, "chat.completion", created, body.model, [choice], _usage(usage))


async def _chunks(
    call: HttpCall,
    head: dict[str, Any],
    first: str,
    pieces: AsyncGenerator[str, None],
    usage: AnswerUsage,
    *,
    wants_usage: bool,
) -> AsyncGenerator[bytes, None]:
    more = {"usage": None} if wants_usage else {}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return sse_event({**head, "choices": [choice], **more})

    async with aclosing(pieces):
        yield chunk({"role": "assistant", "content": first})
        try:
            async for piece in pieces:
                yield chunk({"content": piece})
        except Exception as error:  # noqa: BLE001 (told to the client in its form)
            yield sse_event(error_body(problem_of(error, call.kernel), "openai"))
            return
        yield chunk({}, _finish_reason(usage))
        if wants_usage:
            yield sse_event({**head, "choices": [], "usage": _usage(usage)})
        yield sse_event("[DONE]")


ENDPOINTS: Final = (
    *MODEL_ENDPOINTS,
    Endpoint(
        name="openai.chat",
        method="POST",
        path="/v1/chat/completions",
        summary="Ask an agent as a client of OpenAI asks a model",
        handler=completions,
        body=CompletionBody,
        answer=ChatCompletion,
        may_stream=True,
        ends_with_client=True,
        is_work=True,
        statuses=(402, 404, 409, 502),
    ),
)
