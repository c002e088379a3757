"""The conversation of a thread as messages of AG-UI, for MESSAGES_SNAPSHOT, and the ids of its messages.

A message has the id that the front end gave it, where the run's input has it; else one made from the thread and its
place in the transcript, so that the same message has the same id in every run, also after a restart.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.message import Message
from lyra.server.protocols.agui.input import CONTEXT_BEGIN, CONTEXT_END, agui_types

if TYPE_CHECKING:
    from lyra.server.protocols.agui.input import AguiRequest


_CONTEXT: Final = re.compile(rf"\A{re.escape(CONTEXT_BEGIN)}.*?{re.escape(CONTEXT_END)}", re.DOTALL)


class MessageIds:
    """The ids of the messages of one thread."""

    __slots__ = ("_prefix",)

    def __init__(self, pid: str) -> None:
        self._prefix = hashlib.sha256(pid.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def assistant(self, place: int) -> str:
        """Of the assistant's message number `place`, from 0."""
        return f"msg-{self._prefix}-a{place}"

    def user(self, place: int) -> str:
        return f"msg-{self._prefix}-u{place}"

    def tool(self, call_id: str) -> str:
        return f"msg-{self._prefix}-t-{call_id}"

    def reasoning(self, place: int, part: int) -> str:
        return f"msg-{self._prefix}-r{place}-{part}"


def assistant_count(messages: Sequence[Message]) -> int:
    return sum(message.role == "assistant" for message in messages)


def snapshot_messages(messages: Sequence[Message], ids: MessageIds, request: AguiRequest) -> list[Any]:
    """Return the whole conversation in the protocol's types."""
    types = agui_types()
    given_users = request.users
    user_count = sum(message.role == "user" for message in messages)
    offset = user_count - len(given_users)  # the last of both are the same message
    given_tools = request.tool_messages()
    rows: list[Any] = []
    users = assistants = 0
    for message in messages:
        if message.role == "user":
            place = users - offset
            is_given = 0 <= place < len(given_users)
            rows.append(given_users[place] if is_given else _user(types, ids.user(users), message))
            users += 1
        elif message.role == "assistant":
            rows.append(_assistant(types, ids.assistant(assistants), message))
            assistants += 1
        elif message.role == "tool":
            for result in message.tool_results:
                given = given_tools.get(result.id)
                rows.append(given if given is not None else _tool(types, ids.tool(result.id), result))
    return rows


def without_context(text: str) -> str:
    """Return a message of the user without what the front end has put before it."""
    return _CONTEXT.sub("", text, count=1)


def _user(types: Any, message_id: str, message: Message) -> Any:
    return types.UserMessage(id=message_id, content=without_context(message.text))


def _assistant(types: Any, message_id: str, message: Message) -> Any:
    calls = [
        types.ToolCall(id=call.id, function=types.FunctionCall(name=call.name, arguments=as_json(call.arguments)))
        for call in message.tool_calls
    ]
    return types.AssistantMessage(id=message_id, content=message.text or None, tool_calls=calls or None)


def _tool(types: Any, message_id: str, result: Any) -> Any:
    text = as_text(result.output)
    return types.ToolMessage(
        id=message_id, tool_call_id=result.id, content=text, error=text[:500] if result.is_error else None
    )


def as_text(output: Any) -> str:
    return output if isinstance(output, str) else as_json(output)


def as_json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
