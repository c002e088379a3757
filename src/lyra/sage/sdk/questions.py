"""Questions of a run, put to the caller's function: permissions for calls, and questions in words.

The function gets a PermissionRequest and gives True or False, one of the words allow, always, deny, never, a text (the
answer to a question in words), or a PermissionAnswer. It may be async. Any other value, and an exception, denies.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from lyra.agents.session.events import QuestionLine
from lyra.sage.agent.live import LiveSession

_log: Final = logging.getLogger("lyra.sage")
_WORDS: Final = ("allow", "always", "deny", "never")


class PermissionRequest(msgspec.Struct, frozen=True):
    """A question of the agent. `tool` is empty for one in words, and for a call of a task in the background, which
    `question` and `message` describe. `always` is the rule that `always` would add; `task` the sub-agent that asks."""

    id: str
    kind: str
    question: str
    message: str = ""
    tool: str = ""
    arguments: dict[str, Any] = {}
    diff: str = ""
    rule: str | None = None
    always: str | None = None
    task: str = ""


class PermissionAnswer(msgspec.Struct, frozen=True):
    """`arguments` replace those of the call; rules that deny hold for them, too."""

    decision: str = "deny"
    text: str = ""
    arguments: dict[str, Any] | None = None


PermissionCallback = Callable[
    [PermissionRequest], bool | str | PermissionAnswer | Awaitable[bool | str | PermissionAnswer]
]


def refuse(request: PermissionRequest) -> PermissionAnswer:
    """The answers of a run that asks nothing, in a session that could."""
    is_call = request.tool or request.kind != "clarification"
    return PermissionAnswer("deny" if is_call else "", "this run asks no one; decide by yourself")


async def answer_question(session: LiveSession, line: QuestionLine, ask: PermissionCallback) -> None:
    """Put the question of an `interrupt` line to the function, and its answer to the session."""
    known: dict[str, Any] = {name: value for name, value in line.items() if name in PermissionRequest.__struct_fields__}
    request = PermissionRequest(**known)
    try:
        given = ask(request)
        value = await given if inspect.isawaitable(given) else given
    except Exception:  # noqa: BLE001 - a callback that fails denies
        _log.exception("the permission callback failed; the answer is no")
        value = False
    answer = _answer_of(value, is_call=bool(request.tool) or request.kind == "confirmation")
    await session.answer(request.id, answer.decision, text=answer.text, arguments=answer.arguments)


def _answer_of(value: Any, *, is_call: bool) -> PermissionAnswer:
    if isinstance(value, PermissionAnswer):
        return value
    if value is True:
        return PermissionAnswer("allow")
    if isinstance(value, str):
        if value in _WORDS:
            return PermissionAnswer(value)
        return PermissionAnswer("deny", value) if is_call else PermissionAnswer("", value)
    return PermissionAnswer("deny")
