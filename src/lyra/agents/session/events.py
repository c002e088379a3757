"""The events of an agent's answer, for its caller: typed, and the same on every surface.

    text_delta · thinking_delta · tool_start · tool_progress · tool_end · usage · interrupt · notice · error · restart ·
    done

`type` is the word for the event; `to_data` gives the plain mapping for JSON lines.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

__all__ = [
    "AgentEvent",
    "AnswerDone",
    "AnswerFailed",
    "AnyEvent",
    "HookNotice",
    "Interrupted",
    "Restart",
    "Text",
    "Thinking",
    "ToolEnded",
    "ToolProgress",
    "ToolStarted",
    "UsageTold",
]


class AgentEvent(msgspec.Struct, frozen=True):
    type: ClassVar[str] = ""

    def to_data(self) -> dict[str, Any]:
        return {"type": self.type, **msgspec.structs.asdict(self)}


class Text(AgentEvent, frozen=True):
    type: ClassVar[Literal["text_delta"]] = "text_delta"

    delta: str

    @property
    def text(self) -> str:
        return self.delta


class Thinking(AgentEvent, frozen=True):
    type: ClassVar[Literal["thinking_delta"]] = "thinking_delta"

    delta: str


class ToolStarted(AgentEvent, frozen=True):
    type: ClassVar[Literal["tool_start"]] = "tool_start"

    id: str
    name: str
    arguments: dict[str, Any] = {}


class ToolProgress(AgentEvent, frozen=True):
    """A tool's progress report, in its own words; `fraction` is between 0 and 1 where the tool knows it."""

    type: ClassVar[Literal["tool_progress"]] = "tool_progress"

    id: str
    name: str
    text: str
    fraction: float | None = None


class ToolEnded(AgentEvent, frozen=True):
    type: ClassVar[Literal["tool_end"]] = "tool_end"

    id: str
    name: str
    output: Any = None
    is_error: bool = False
    error_code: str = ""

    def to_data(self) -> dict[str, Any]:
        data = AgentEvent.to_data(self)
        if not self.error_code:
            del data["error_code"]
        return data


class UsageTold(AgentEvent, frozen=True):
    type: ClassVar[Literal["usage"]] = "usage"

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cost_usd: float | None = None
    estimated: bool = False  # the provider did not count them

    def to_data(self) -> dict[str, Any]:
        data = AgentEvent.to_data(self)
        if not self.estimated:
            del data["estimated"]
        return data


class Interrupted(AgentEvent, frozen=True):
    """A person is asked; the answer goes to `kernel.resolve_interrupt(id, …)`."""

    type: ClassVar[Literal["interrupt"]] = "interrupt"

    id: str
    kind: str
    question: str
    message: str = ""  # why it is asked, and what an answer would do
    about: dict[str, Any] = {}  # of a permission: call_id, tool, arguments, rule, and what `always` would allow

    def to_data(self) -> dict[str, Any]:
        data = AgentEvent.to_data(self)
        about = data.pop("about")
        return {**data, **about}


class HookNotice(AgentEvent, frozen=True):
    """Words for the user from a hook: `info` is its message, `warning` that it failed, `status` what it does now."""

    type: ClassVar[Literal["notice"]] = "notice"

    text: str
    level: Literal["info", "warning", "status"] = "info"


class AnswerFailed(AgentEvent, frozen=True):
    type: ClassVar[Literal["error"]] = "error"

    code: str
    message: str


class Restart(AgentEvent, frozen=True):
    """Start over: the reader drops the `text` shown so far and the thinking; the whole answer comes next.

    The answer broke off and the next try (or model) says something else, or it did not fit the wanted type."""

    type: ClassVar[Literal["restart"]] = "restart"

    text: str = ""


class AnswerDone(AgentEvent, frozen=True):
    type: ClassVar[Literal["done"]] = "done"

    status: str = "success"
    text: str = ""


# Any of them: to type checkers `event.type == "interrupt"` says which.
AnyEvent: TypeAlias = (
    Text
    | Thinking
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | UsageTold
    | Interrupted
    | HookNotice
    | AnswerFailed
    | Restart
    | AnswerDone
)
