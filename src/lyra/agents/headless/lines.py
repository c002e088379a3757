"""The lines of a run: plain mappings that faces print or show, from events, from errors and from what was spent.

`system` comes once, then `text_delta`, `thinking_delta`, `tool_start`, `tool_end`, `usage`, `interrupt`, `notice` and
`error` as they come, and `result` at the end. `status_of` names failures. The types of
lines are in `lyra.agents.session.events`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

from lyra.agents.session.events import (
    AgentEvent,
    AnswerDone,
    AnswerFailed,
    AnyLine,
    ErrorLine,
    Restart,
    ResultLine,
    ToolProgress,
    line_of,
)
from lyra.agents.session.session import Metrics
from lyra.core.secrets.redact import redact, redact_data
from lyra.core.secrets.secret import Secret
from lyra.errors import AgentFailed, LimitExceeded, LyraError
from lyra.models.stream import CUT_BY_PROVIDER

_SILENT: Final = (AnswerDone, AnswerFailed, ToolProgress)  # the lines `result` and `error` say more than the first two

Tell = Callable[[AnyLine], Any]  # an awaitable result is awaited


class HeadlessOutcome(NamedTuple):
    """The `result` line, and the error that it stands for."""

    result: ResultLine
    error: LyraError | None = None

    @property
    def has_answer(self) -> bool:
        """Whether the text of the result is the model's answer, which may have been cut off."""
        return self.error is None or is_cut_answer(self.error)


def cut_answer(max_tokens: int | None) -> LimitExceeded:
    """The error beside an answer that its provider cut off at its longest."""
    longest = "" if max_tokens is None else f" of {max_tokens} tokens"
    return LimitExceeded(
        f"the answer was cut off at its longest{longest}",
        hint="ask it to go on, or for less at once",
        status=CUT_BY_PROVIDER,
        limit=max_tokens,
    )


def is_cut_answer(error: LyraError) -> bool:
    return type(error) is LimitExceeded and error.fields.get("status") == CUT_BY_PROVIDER


def status_of(error: LyraError) -> str:
    """The word for a failure: its code, or the status of an agent that gave no answer."""
    status = error.fields.get("status") if type(error) in (AgentFailed, LimitExceeded) else None
    return str(status or error.code)


def awaiting(tell: Tell) -> Callable[[AnyLine], Awaitable[None]]:
    """The function as one that is always awaited."""

    async def say(line: AnyLine) -> None:
        result = tell(line)
        if inspect.isawaitable(result):
            await result

    return say


def event_line(event: AgentEvent, *, progress: bool) -> AnyLine | None:
    if isinstance(event, _SILENT) and not (progress and isinstance(event, ToolProgress)):
        return None
    if isinstance(event, Restart):  # the text so far is withdrawn: a reader that joins the pieces has to know
        message = "the answer broke off and begins again"
        return {"type": "error", "code": "restart", "message": message, "retracted": event.text}
    return line_of(event)


def redacted_error(error: LyraError, secrets: Iterable[str | Secret]) -> LyraError:
    """The same error, with keys masked in its words and fields: a provider may repeat the key that it refuses."""
    known = tuple(secrets)
    error.message = redact(error.message, known)
    error.args = (error.message,)
    error.hint = redact(error.hint, known) if error.hint else error.hint
    error.place = redact(error.place, known) if error.place else error.place
    error.fields = redact_data(error.fields, known)
    return error


def error_line(error: LyraError, secrets: Iterable[str | Secret] = ()) -> ErrorLine:
    """The data of an `error` line, with the secrets and everything in the form of a key masked."""
    known = tuple(secrets)
    line: ErrorLine = {"type": "error", "code": status_of(error), "message": redact(error.message, known)}
    if error.hint:
        line["hint"] = redact(error.hint, known)
    if error.place:
        line["place"] = redact(error.place, known)
    if error.fields.get("kind"):
        line["kind"] = redact(str(error.fields["kind"]), known)
    return line


def result_line(
    status: str, text: str = "", *, session_id: str = "", metrics: Metrics | None = None, duration_s: float = 0.0
) -> ResultLine:
    """The data of a `result` line. `turns` are model calls; `usage` and `cost_usd` include helpers."""
    spent = metrics or Metrics()
    tokens_in, tokens_out, _, _ = spent.totals
    return {
        "type": "result",
        "status": status,
        "text": text,
        "session_id": session_id,
        "cost_usd": spent.cost_usd,
        "usage": {
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "cache_read_tokens": spent.cache_read_tokens,
            "cache_write_tokens": spent.cache_write_tokens,
            "tool_calls": spent.tool_calls,
            "tool_errors": spent.tool_errors,
        },
        "duration_ms": round(duration_s * 1000),
        "turns": spent.calls,
    }
