"""The conversation of an agent process, row by row: what it was asked, said, called and was given.

While a turn is under way the messages are those that its rows tell; once its end is journaled they are the ones that
the end has. A turn that failed leaves the conversation as it was before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.observe.timeline.open_calls import OpenCalls
from lyra.observe.timeline.values import plain, text_of_content

_TEXT_MAX: Final = 20_000
_REVISE, _COMPACT = "lyra.revise", "lyra.compact"


class AgentConversation:
    """`messages` are mappings with a role, a text and, where there are any, tool calls or results. A tool that is not
    done, such as one that waits for a person, has a result that `is_open` and no output."""

    __slots__ = ("_is_summary_next", "_open_calls", "_running", "_turn_start", "messages")

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._turn_start = 0
        self._open_calls: list[Mapping[str, Any]] = []
        self._running = OpenCalls[dict[str, Any]]()
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

    def begun(self, row: Mapping[str, Any]) -> None:
        """An effect began; a model is asked when all tools are done."""
        if str(row.get("name", "")).startswith("model:"):
            for result in self._running.take_all(""):
                result.pop("is_open", None)
        self._running.begin("", row)

    def called(self, tool: str, value: Any, row: Mapping[str, Any]) -> None:
        """A tool gave its result, failed, or was let run as a part of the program."""
        call = next((call for call in self._open_calls if call.get("name") == tool), None)
        if call is not None:
            self._open_calls.remove(call)
        if not self.messages or self.messages[-1]["role"] != "tool":
            self.messages.append({"role": "tool", "text": "", "tool_results": []})
        result = {"id": "" if call is None else call.get("id", ""), "name": tool, **_outcome(value, row)}
        if self._running.is_admitted("", row):
            result["is_open"] = True
            self._running.put("", row, result)
        self.messages[-1]["tool_results"].append(result)

    def finished(self, value: Any, row: Mapping[str, Any]) -> None:
        """A tool that ran as a part of the program is done, where this is the row of its result."""
        result = self._running.take("", row)
        if result is not None:
            result.pop("is_open", None)
            result |= _outcome(value, row)

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


def _outcome(value: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    error = row.get("error")
    if error is None:
        return {"output": plain(value)}
    return {"output": str(error.get("message", "failed")), "is_error": True}


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
