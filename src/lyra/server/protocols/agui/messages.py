"""The conversation of a thread as messages of AG-UI, for MESSAGES_SNAPSHOT, and the ids of its messages.

A message has the id that the front end gave it, where the run's input has it; else one made from the thread and its
place in the transcript, so that the same message has the same id in every run, also after a restart. The state that a
page shares with the agent is below.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.limits import NAME_LENGTH_MAX
from lyra.core.message import Message
from lyra.errors import ConfigError
from lyra.server.protocols.agui.input import CONTEXT_BEGIN, CONTEXT_END, AguiRequest, agui_types

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


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


STATE_KEYS_MAX: Final = 1_000
STATE_CHARS_MAX: Final = 1_000_000


def state_group(pid: str) -> str:
    """Return the name of the group of a thread."""
    return f"state.{pid}"


class SharedState:
    """The state of one thread as one run tells it."""

    __slots__ = ("_kernel", "_name", "_pid", "_told")

    def __init__(self, kernel: Kernel, pid: str) -> None:
        self._kernel = kernel
        self._pid = pid
        self._name = state_group(pid)
        self._told: dict[str, Any] = {}

    def check(self, state: dict[str, Any]) -> None:
        """Refuse a state that could not be written, before anything else of its run is done."""
        board = self._board()
        changed = {key: value for key, value in state.items() if key not in board or board[key] != value}
        for key in changed:
            if not 0 < len(key) <= NAME_LENGTH_MAX or not key.isprintable():
                raise ConfigError(f"a key of the state is 1 to {NAME_LENGTH_MAX} printable characters", key="state")
        whole = {**board, **changed}
        if changed and (len(whole) > STATE_KEYS_MAX or len(as_json(whole)) > STATE_CHARS_MAX):
            raise ConfigError(
                f"the state of a thread has at most {STATE_KEYS_MAX} keys and {STATE_CHARS_MAX} characters of JSON",
                key="state",
            )

    async def take(self, state: dict[str, Any]) -> str:
        """Write what the front end has changed; gives the changes as a text for the model, "" for none. The run begins
        with the state as it is then."""
        board = self._board()
        changed = {key: value for key, value in state.items() if key not in board or board[key] != value}
        self._told = {**board, **changed}
        if not changed:
            return ""
        groups = self._kernel.groups
        await groups.create(self._name, exist_ok=True)
        groups.join(self._name, self._pid)
        for key, value in changed.items():
            await groups.bb_set(self._name, key, value)
        return f"state set by the user's front end: {as_json(changed)}"

    def snapshot(self) -> list[Any]:
        """STATE_SNAPSHOT of the state at the beginning, where there is one."""
        return [agui_types().StateSnapshotEvent(snapshot=dict(self._told))] if self._told else []

    def changes(self) -> list[Any]:
        """STATE_DELTA with what has changed since the front end was told."""
        board, told = self._board(), self._told
        patch: list[dict[str, Any]] = [
            {"op": "replace" if key in told else "add", "path": _pointer(key), "value": value}
            for key, value in board.items()
            if key not in told or told[key] != value
        ]
        patch += [{"op": "remove", "path": _pointer(key)} for key in told if key not in board]
        if not patch:
            return []
        self._told = board
        if not told:
            return [agui_types().StateSnapshotEvent(snapshot=dict(board))]
        return [agui_types().StateDeltaEvent(delta=patch)]

    def _board(self) -> dict[str, Any]:
        if self._name not in self._kernel.groups.state.groups:
            return {}
        return self._kernel.groups.bb_snapshot(self._name)


def _pointer(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")
