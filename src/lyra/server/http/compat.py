"""The faces that clients of OpenAI and Anthropic know: a Lyra agent in the place of a model.

`/v1/chat/completions` and `/v1/messages` ask an agent, `/v1/models` lists them. The agent's own settings hold: its
model, its tools, its budget. What a request says about sampling is taken and not used; what would change the answer's
form is refused. Each request is its own process, which ends with the answer: such clients send the whole
conversation each time. The `system` text of a request stands before its first message: it adds to the agent's own
instructions and does not replace them. Requests are read by `lyra.models.requests`, answers written by
`lyra.models.answers`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.message import Message
from lyra.errors import ConfigError
from lyra.models.answers import AnswerHead, VendorAnswerWriter, vendor_writer
from lyra.models.requests import READERS, RequestFace
from lyra.models.stream import CUT_BY_PROVIDER, Completion, Finished, Started, TextDelta, TokenUsage, UsageSeen
from lyra.server.http.directory import KnownAgent, refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestQuery, Streamed
from lyra.server.http.problems import error_body, problem_of, vendor_of
from lyra.server.http.sse import sse_event
from lyra.server.owners import make_owned_pid, spawn_for

if TYPE_CHECKING:
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.models.provider import Request


# ---------------------------------------------------------------- models
# `/v1/models`: the agents as clients list models, in the form of the vendor whose client asks.


class ModelQuery(RequestQuery):
    """How a client of Anthropic asks for a page; all models stand on the first."""

    limit: int = 20
    after_id: str = ""
    before_id: str = ""


def model_document(call: HttpCall, model_id: str, name: str, owner: str) -> dict[str, Any]:
    """Return a model as the client's vendor shows it."""
    began = call.kernel.clock.now() - call.kernel.get_system_status().uptime_seconds
    if vendor_of("/v1/models", call.headers) == "anthropic":
        created = datetime.fromtimestamp(began, UTC).isoformat().replace("+00:00", "Z")
        return {"type": "model", "id": model_id, "display_name": name, "created_at": created}
    return {"id": model_id, "object": "model", "created": int(began), "owned_by": owner}


def model_list(call: HttpCall, models: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a list of models as the client's vendor shows it."""
    if vendor_of("/v1/models", call.headers) == "anthropic":
        ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]} if models else {}
        return {"data": models, "has_more": False, "first_id": None, "last_id": None, **ends}
    return {"object": "list", "data": models}


def agent_model(call: HttpCall, agent: KnownAgent) -> dict[str, Any]:
    return model_document(call, f"agent/{agent.name}", agent.name, "lyra")


def agent_models(call: HttpCall) -> list[dict[str, Any]]:
    """Return the agents that can be talked to."""
    agents = call.parts.chats.directory.agents().values()
    return [agent_model(call, agent) for agent in agents if agent.declaration is not None]


async def list_models(call: HttpCall) -> dict[str, Any]:
    return model_list(call, agent_models(call))


async def get_model(call: HttpCall) -> dict[str, Any]:
    return agent_model(call, call.parts.chats.directory.get(call.path["model"]))


MODEL_ENDPOINTS: Final = (
    Endpoint(
        "models.list",
        "GET",
        "/v1/models",
        "The agents, as a list of models",
        list_models,
        query=ModelQuery,
        about="With the header `anthropic-version` the answer has Anthropic's form, else OpenAI's.",
    ),
    Endpoint("models.get", "GET", "/v1/models/{model}", "One agent, as a model", get_model, statuses=(404,)),
)


# ---------------------------------------------------------------- requests

_SYSTEM: Final = "<instructions>\n{system}\n</instructions>\n\n"
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_AGENT: Final = RequestFace("a Lyra agent does not take {what} from a client", "leave it out", takes_other_members=True)


class VendorBody(msgspec.Struct):
    """`model` is the name of an agent, or `agent/NAME`; a message is as the vendor's format has it. Of the other fields
    `tools`, `n` and what would change the form of the answer are refused, the rest is taken and not used."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool = False
    user_id: str = ""


class AgentQuestion:
    """What a request asks an agent: `history` is what was said before `last`, which is the user's."""

    __slots__ = ("history", "last")

    def __init__(self, request: Request) -> None:
        for message in request.messages:
            if message.role == "tool" or message.tool_calls:
                raise ConfigError("a Lyra agent takes no tool results from a client: it calls its own tools")
            for part in () if isinstance(message.content, str) else message.content:
                if part["type"] == "image" and "data" in part:
                    image_part(part["media_type"], part["data"])
                elif part["type"] != "text":
                    raise ConfigError("a part of a message is text, or an image with its data", key="messages")
        if request.messages[-1].role != "user":
            raise ConfigError("the last message is the user's", hint="send at least one message", key="messages")
        messages = list(request.messages)
        if request.system:
            first = next(index for index, message in enumerate(messages) if message.role == "user")
            words, content = _SYSTEM.format(system=request.system), messages[first].content
            more = words + content if isinstance(content, str) else ({"type": "text", "text": words}, *content)
            messages[first] = Message("user", more)
        content = messages.pop().content
        self.last: str | list[dict[str, Any]] = content if isinstance(content, str) else list(content)
        self.history = messages


def image_part(media_type: str, data: str) -> dict[str, Any]:
    """Return an image of a request; ConfigError where it is none."""
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError("the data of an image is not base64", key="image") from None
    if media_type not in _IMAGES:
        raise ConfigError(f"images are {', '.join(sorted(_IMAGES))}", key="image")
    return {"type": "image", "media_type": media_type, "data": data}


# ---------------------------------------------------------------- answers


def _handler(wire: str, vendor: str) -> Callable[[HttpCall], Awaitable[dict[str, Any] | Streamed]]:
    async def handle(call: HttpCall) -> dict[str, Any] | Streamed:
        refuse_if_draining(call.parts.is_draining)
        data = msgspec.json.decode(call.raw_body)
        asked = READERS[wire](data, _AGENT)
        if asked.request.tools or data.get("functions"):
            raise ConfigError("a Lyra agent takes no tools from a client: it has its own", hint="leave `tools` out")
        if asked.request.output_schema is not None:
            raise ConfigError("an agent's answer has the type that the agent declares", hint="leave the schema out")
        question = AgentQuestion(asked.request)
        head = AnswerHead(asked.request.model, call.kernel.entropy.text(24), int(call.kernel.clock.now()))
        writer = vendor_writer(wire, head, with_usage=asked.with_usage)
        if not asked.stream:
            return writer.render_document(await _answer(call, asked.request.model, question))
        pieces = _answer_pieces(call, asked.request.model, question, writer)
        first = await anext(pieces)  # what is wrong at the beginning is told by the status
        return Streamed(_events(call, vendor, first, pieces))

    return handle


@asynccontextmanager
async def _process(call: HttpCall, model: str, question: AgentQuestion) -> Any:
    """Provide a process for one answer, which knows what was said before."""
    kernel = call.kernel
    agent = call.parts.chats.directory.declaration(model)
    user_id = call.caller.user_id
    pid = make_owned_pid("call", user_id, kernel.entropy.text(16))
    process = await spawn_for(kernel, user_id, agent, pid=pid, parent=call.parent)
    try:
        if question.history:
            await process.revise(0, question.history)
        yield process
    finally:
        await process.stop()


async def _answer(call: HttpCall, model: str, question: AgentQuestion) -> Completion:
    """Return the whole answer."""
    async with _process(call, model, question) as process:
        text = await process.send(question.last)
        if not isinstance(text, str):
            text = process.messages[-1].text  # the value of an agent with an output type, as its model wrote it
        return Completion(Message("assistant", str(text)), _usage(process), _stop_reason(process))


async def _answer_pieces(
    call: HttpCall, model: str, question: AgentQuestion, writer: VendorAnswerWriter
) -> AsyncGenerator[bytes, None]:
    """Yield the events of the answer; the first of them with its first text. Closing it gives the answer up."""
    async with _process(call, model, question) as process:
        pieces = aiter(process.stream(question.last))
        async with aclosing(pieces):
            first = await anext(pieces, "")
            yield writer.event(Started()) + (writer.event(TextDelta(first)) if first else b"")
            async for piece in pieces:
                yield writer.event(TextDelta(piece))
        yield writer.event(UsageSeen(_usage(process))) + writer.event(Finished(_stop_reason(process)))


def _usage(process: AgentProcess[Any]) -> TokenUsage:
    return TokenUsage(*process.metrics.totals[:2])


def _stop_reason(process: AgentProcess[Any]) -> str:
    is_cut = process.execution is not None and process.execution.status == CUT_BY_PROVIDER
    return CUT_BY_PROVIDER if is_cut else "end"


async def _events(
    call: HttpCall, vendor: str, first: bytes, pieces: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        yield first
        try:
            async for piece in pieces:
                yield piece
        except Exception as error:  # noqa: BLE001 (told to the client in its form)
            event = "error" if vendor == "anthropic" else ""
            yield sse_event(error_body(problem_of(error, call.kernel), vendor), event=event)


ASKING: Final = tuple(
    Endpoint(
        name,
        "POST",
        path,
        f"Ask an agent as a client of {vendor} asks a model",
        _handler(wire, vendor.lower()),
        body=VendorBody,
        may_stream=True,
        ends_with_client=True,
        is_work=True,
        statuses=(402, 404, 409, 502),
        about="Requests and answers have the vendor's own form. Tools, results of tools, several answers, a form of "
        "the answer and images without their data are refused.",
    )
    for name, path, wire, vendor in (
        ("openai.chat", "/v1/chat/completions", "chat", "OpenAI"),
        ("anthropic.messages", "/v1/messages", "messages", "Anthropic"),
    )
)
ENDPOINTS: Final = (*MODEL_ENDPOINTS, *ASKING)
