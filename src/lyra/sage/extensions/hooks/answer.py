"""HookAnswer: what one hook says, printed by a program or returned by a function, checked against its moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from lyra.core.checking.check import did_you_mean
from lyra.core.hook_events import HOOK_EVENTS

ANSWER_KEYS: Final[dict[str, str]] = {
    "decision": "`deny`, `ask` (a person is asked) or `allow` (answers a question, and overrides no deny)",
    "reason": "why, for the model and the user",
    "arguments": "the arguments that the call has from now on; rules decide on these",
    "context": "text that is added for the model",
    "message": "text that is shown to the user",
    "continue": "`false` ends the turn after this",
}
_DECISIONS: Final = ("deny", "ask", "allow")
_TEXTS: Final = ("reason", "context", "message")


class HookFailed(Exception):
    """A hook that gave no answer that can be used; the message says why."""


class HookAnswer(NamedTuple):
    decision: Literal["", "allow", "ask", "deny"] = ""
    reason: str = ""
    arguments: dict[str, Any] | None = None
    context: str = ""
    message: str = ""
    ends_turn: bool = False


def read_answer(event: str, value: Any) -> HookAnswer:
    """Return the answer that a text or a mapping says; None is an answer without anything in it."""
    if value is None:
        return HookAnswer()
    if isinstance(value, str):
        text = value.strip()
        if event == "StatusLine" or not text.startswith("{"):
            return HookAnswer(context=text if "context" in HOOK_EVENTS[event].answers else "")
        value = _decode(text)
    if not isinstance(value, Mapping):
        raise HookFailed(f"its answer is text or an object, not {type(value).__name__}")
    return _check_answer(event, value)


def _decode(text: str) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HookFailed(f"its answer is not JSON: {error}") from None


def _check_answer(event: str, answer: Mapping[Any, Any]) -> HookAnswer:
    for key in answer:
        if key not in ANSWER_KEYS:
            near = did_you_mean(str(key), ANSWER_KEYS)
            raise HookFailed(f"its answer has the unknown key {str(key)[:80]!r}" + (f", not {near!r}" if near else ""))
    for key in _TEXTS:
        if not isinstance(answer.get(key, ""), str):
            raise HookFailed(f"{key} of its answer is not text")
    decision, goes_on, arguments = answer.get("decision", ""), answer.get("continue", True), answer.get("arguments")
    if decision not in ("", *_DECISIONS):
        raise HookFailed(f"the decision of its answer is none of {', '.join(_DECISIONS)}")
    if not isinstance(goes_on, bool):
        raise HookFailed("continue of its answer is not true or false")
    if arguments is not None and not isinstance(arguments, dict):
        raise HookFailed("the arguments of its answer are not an object")
    given = {"context": bool(answer.get("context")), "arguments": arguments is not None, "end": not goes_on}
    wanted = [word for word, is_given in {decision: bool(decision), **given}.items() if is_given]
    useless = next((word for word in wanted if word not in HOOK_EVENTS[event].answers), None)
    if useless is not None:
        word = "continue" if useless == "end" else useless
        raise HookFailed(f"its answer says {word!r}, which means nothing for {event}")
    texts = {key: answer.get(key, "") for key in _TEXTS}
    return HookAnswer(decision=decision, arguments=arguments, ends_turn=not goes_on, **texts)
