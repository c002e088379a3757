"""A request of a vendor's client as a conversation with an agent: history, the last message, one answer.

Each request is a process of its own, which ends with the answer: such clients send the whole conversation each time.
The `system` text of a request stands before its first message: it adds to the agent's own instructions and does not
replace them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.message import Message
from lyra.errors import ConfigError
from lyra.models.stream import CUT_BY_PROVIDER
from lyra.server.owners import owned_pid, spawn_for

if TYPE_CHECKING:
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.server.http.endpoint import HttpCall


_SYSTEM: Final = "<instructions>\n{system}\n</instructions>\n\n"
_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

Content = str | list[dict[str, Any]]


class Spoken(NamedTuple):
    """One message of a request, in Lyra's form: `role` is user or assistant."""

    role: str
    content: Content


class AnswerUsage:
    """What one answer took, and whether its provider cut it off; filled in when it has come."""

    __slots__ = ("input_tokens", "is_cut", "output_tokens")

    def __init__(self) -> None:
        self.is_cut = False
        self.input_tokens = 0
        self.output_tokens = 0

    def read(self, process: AgentProcess[Any]) -> None:
        self.input_tokens, self.output_tokens = process.metrics.totals[:2]
        self.is_cut = process.execution is not None and process.execution.status == CUT_BY_PROVIDER


class VendorConversation:
    """The messages of a request. `history` is what was said before `last`, which is the user's."""

    __slots__ = ("history", "last")

    def __init__(self, spoken: Iterable[Spoken], system: str = "") -> None:
        messages = list(spoken)
        if not messages or messages[-1].role != "user":
            raise ConfigError("the last message is the user's", hint="send at least one message", key="messages")
        if system:
            first = next(place for place, message in enumerate(messages) if message.role == "user")
            messages[first] = Spoken("user", _with_system(messages[first].content, system))
        self.last = messages.pop().content
        self.history = [Message(row.role, _stored(row.content)) for row in messages]


def _with_system(content: Content, system: str) -> Content:
    words = _SYSTEM.format(system=system)
    return words + content if isinstance(content, str) else [{"type": "text", "text": words}, *content]


def _stored(content: Content) -> str | tuple[dict[str, Any], ...]:
    return content if isinstance(content, str) else tuple(content)


def image_part(media_type: str, data: str) -> dict[str, Any]:
    """An image of a request; ConfigError where it is none."""
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError("the data of an image is not base64", key="image") from None
    if media_type not in _IMAGES:
        raise ConfigError(f"images are {', '.join(sorted(_IMAGES))}", key="image")
    return {"type": "image", "media_type": media_type, "data": data}


def refuse(what: str, hint: str) -> ConfigError:
    return ConfigError(f"a Lyra agent takes no {what} from a client", hint=hint)


@asynccontextmanager
async def _process(call: HttpCall, model: str, conversation: VendorConversation) -> Any:
    """A process for one answer, which knows what was said before."""
    kernel = call.kernel
    agent = call.parts.chats.directory.declaration(model)
    user_id = call.caller.user_id
    pid = owned_pid("call", user_id, kernel.entropy.text(16))
    process = await spawn_for(kernel, user_id, agent, pid=pid, parent=call.parent)
    try:
        if conversation.history:
            await process.revise(0, conversation.history)
        yield process
    finally:
        await process.stop()


async def answer(call: HttpCall, model: str, conversation: VendorConversation, usage: AnswerUsage) -> str:
    """The whole answer."""
    async with _process(call, model, conversation) as process:
        text = await process.send(conversation.last)
        usage.read(process)
        if isinstance(text, str):
            return str(text)
        return str(process.messages[-1].text)  # the value of an agent with an output type, as its model wrote it


async def answer_pieces(
    call: HttpCall, model: str, conversation: VendorConversation, usage: AnswerUsage
) -> AsyncGenerator[str, None]:
    """The answer piece by piece. Closing it gives the answer up."""
    async with _process(call, model, conversation) as process:
        pieces = aiter(process.stream(conversation.last))
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece
        usage.read(process)
