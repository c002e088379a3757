"""The events of an agent's answer, for its caller: typed, and the same on every surface.

    text_delta · thinking_delta · tool_start · tool_progress · tool_end · usage · interrupt · notice · retry · error ·
    restart · done

`type` is the word for the event; `to_data` gives the plain mapping for JSON lines. `AnyLine` is such a mapping with
types, also of the lines that no event has (`system`, `result`): where `line["type"]` is compared with a word, type
checkers know its fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NotRequired, TypeAlias, TypedDict, cast

import msgspec


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


class Retrying(AgentEvent, frozen=True):
    """The provider of the model has no room or failed; it is asked again in `wait_s` seconds, as try `attempt` of at
    most `of`."""

    type: ClassVar[Literal["retry"]] = "retry"

    attempt: int
    of: int
    wait_s: float
    reason: str

    @property
    def sentence(self) -> str:
        return retry_sentence(self.reason, self.wait_s, self.attempt, self.of)


def retry_sentence(reason: str, wait_s: float, attempt: int, of: int) -> str:
    """Return what a person reads while it is waited: `rate limited, again in 5 s (2 of 10)`."""
    return f"{reason}, again in {max(1, round(wait_s))} s ({attempt} of {of})"


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
    | Retrying
    | AnswerFailed
    | Restart
    | AnswerDone
)


# ---------------------------------------------------------------- lines


class SystemLine(TypedDict):
    """What a run begins with; embedding programs add facts."""

    type: Literal["system"]
    session_id: str
    model: str
    cwd: str
    add_dirs: list[str]
    tools: list[str]
    permission_mode: str
    sandbox: str
    mcp_servers: list[Any]
    version: str
    doubts: NotRequired[Sequence[str]]


class TextLine(TypedDict):
    type: Literal["text_delta"]
    delta: str


class ThinkingLine(TypedDict):
    type: Literal["thinking_delta"]
    delta: str


class ToolStartLine(TypedDict):
    type: Literal["tool_start"]
    id: str
    name: str
    arguments: dict[str, Any]


class ToolProgressLine(TypedDict):
    type: Literal["tool_progress"]
    id: str
    name: str
    text: str
    fraction: float | None


class ToolEndLine(TypedDict):
    type: Literal["tool_end"]
    id: str
    name: str
    output: Any
    is_error: bool
    error_code: NotRequired[str]


class UsageLine(TypedDict):
    """Tokens and dollars of one call of the model; `cost_usd` is None where its price is not known."""

    type: Literal["usage"]
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cost_usd: float | None
    estimated: NotRequired[bool]


class QuestionLine(TypedDict):
    """A person is asked; the question of a permission has the call."""

    type: Literal["interrupt"]
    id: str
    kind: str
    question: str
    message: str
    call_id: NotRequired[str]
    tool: NotRequired[str]
    arguments: NotRequired[dict[str, Any]]
    rule: NotRequired[str | None]  # that it is asked by
    reason: NotRequired[str]
    always: NotRequired[str | None]
    rules: NotRequired[list[str]]  # that an "always" may become, the exact one first
    diff: NotRequired[str]
    task: NotRequired[str]
    agent: NotRequired[str]  # the sub-agent that asks, in words
    background: NotRequired[bool]


class NoticeLine(TypedDict):
    """Words for the user that are no part of the answer; `task` is the record of a task in the background."""

    type: Literal["notice"]
    text: str
    level: str
    source: NotRequired[str]
    task: NotRequired[dict[str, Any]]


class RetryLine(TypedDict):
    """A model is asked again in `wait_s` seconds, as try `attempt` of at most `of`."""

    type: Literal["retry"]
    attempt: int
    of: int
    wait_s: float
    reason: str


class ErrorLine(TypedDict):
    type: Literal["error"]
    code: str
    message: str
    hint: NotRequired[str]
    place: NotRequired[str]
    kind: NotRequired[str]
    retracted: NotRequired[str]


class RunUsage(TypedDict):
    """Counts of a run or a turn, its helpers' tokens included."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    tool_calls: int
    tool_errors: int


class ErrorFacts(TypedDict):
    code: str
    message: str
    hint: NotRequired[str]


class DeniedCall(TypedDict):
    tool: str
    arguments: dict[str, Any]
    reason: str


class ResultLine(TypedDict):
    """How a run ended, and what it took; `turns` are model calls."""

    type: Literal["result"]
    status: str
    text: str
    session_id: str
    cost_usd: float | None
    usage: RunUsage
    duration_ms: int
    turns: int
    turn: NotRequired[int]  # the number of the turn in its session
    output: NotRequired[Any]
    cut_off: NotRequired[str]
    error: NotRequired[ErrorFacts]  # of a run that failed
    denied: NotRequired[list[DeniedCall]]  # calls that were not allowed
    retries: NotRequired[int]  # how often a model was asked again


AnyLine: TypeAlias = (
    SystemLine
    | TextLine
    | ThinkingLine
    | ToolStartLine
    | ToolProgressLine
    | ToolEndLine
    | UsageLine
    | QuestionLine
    | NoticeLine
    | RetryLine
    | ErrorLine
    | ResultLine
)


def line_of(event: AgentEvent) -> AnyLine:
    """Return the event as a line; a test holds the fields of the two together."""
    return cast("AnyLine", event.to_data())
