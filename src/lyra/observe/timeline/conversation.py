"""The conversation of an agent process, row by row: what it was asked, said, called and was given.

While a turn is under way the messages are those that its rows tell; once its end is journaled they are the ones that
the end has. A turn that failed leaves the conversation as it was before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.observe.timeline.values import plain, text_of_content

__all__ = ["AgentConversation"]

_TEXT_MAX: Final = 20_000
_REVISE, _COMPACT = "lyra.revise", "lyra.compact"


class AgentConversation:
    """`messages` are mappings with a role, a text and, where there are any, tool calls or results."""

    __slots__ = ("_is_summary_next", "_open_calls", "_turn_start", "messages")

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._turn_start = 0
        self._open_calls: list[Mapping[str, Any]] = []
        self._is_summary_next = False

    def asked(self, message: Any) -> None:
        """A message was taken from the mailbox, or given as the task of a process."""
        content = message.get("content") if isinstance(message, Mapping) and "lyra.ask" in message else message
        if isinstance(content, Mapping) and _REVISE in content:
            order = content[_REVISE]
            del self.messages[int(order.get("keep", 0)) :]
            self.messages += [_shown(added) for added in order.get("add") or ()]
            return
        if content is None or (isinstance(content, Mapping) and _COMPACT in content):
            return
        self._turn_start = len(self.messages)
        self.messages.append({"role": "user", "text": _cut(text_of_content(content))})

    def window_moved(self) -> None:
        """The next answer of a model is a summary, and no part of the conversation."""
        self._is_summary_next = True

    def answered(self, completion: Any) -> None:
        """A model answered."""
        if self._is_summary_next:
            self._is_summary_next = False
            return
        message = completion.get("message") if isinstance(completion, Mapping) else None
        if isinstance(message, Mapping):
            self.messages.append(_shown(message))
            self._open_calls = [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]

    def called(self, tool: str, value: Any, error: Mapping[str, Any] | None) -> None:
        """A tool gave its result, or failed."""
        call = next((call for call in self._open_calls if call.get("name") == tool), None)
        if call is not None:
            self._open_calls.remove(call)
        if not self.messages or self.messages[-1]["role"] != "tool":
            self.messages.append({"role": "tool", "text": "", "tool_results": []})
        output = plain(value) if error is None else str(error.get("message", "failed"))
        result = {"id": "" if call is None else call.get("id", ""), "name": tool, "output": output}
        self.messages[-1]["tool_results"].append(result if error is None else {**result, "is_error": True})

    def turn_ended(self, outcome: Any) -> None:
        """The end of a turn is journaled: its messages are these."""
        messages = outcome.get("messages") if isinstance(outcome, Mapping) else None
        if isinstance(messages, list):
            self.messages[self._turn_start :] = [_shown(message) for message in messages]
        self._turn_start = len(self.messages)

    def restored(self, state: Any) -> bool:
        """A saved state has the whole conversation; False where it is the state of something else."""
        messages = state.get("messages") if isinstance(state, Mapping) else None
        if not isinstance(messages, list):
            return False
        self.messages = [_shown(message) for message in messages]
        self._turn_start = len(self.messages)
        return True


def _shown(message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        return {"role": "user", "text": _cut(str(message))}
    shown: dict[str, Any] = {
        "role": str(message.get("role", "")),
        "text": _cut(text_of_content(message.get("content"))),
    }
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
    results = [result for result in message.get("tool_results") or () if isinstance(result, Mapping)]
    if calls:
        shown["tool_calls"] = [
            {"id": call.get("id", ""), "name": call.get("name", ""), "arguments": plain(call.get("arguments"))}
            for call in calls
        ]
    if results:
        shown["tool_results"] = [
            {key: plain(result[key]) for key in ("id", "name", "output", "is_error") if key in result}
            for result in results
        ]
    return shown


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}… ({len(text)} characters)"
