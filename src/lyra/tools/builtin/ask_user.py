"""AskUser: a question to the person an agent works for. The answer is theirs, and no model gives it.

The question is written by a model: the prompt says so, each line of it is marked, and invisible characters are shown
by their codes. An option is one line; Lyra adds its number.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from lyra.core.secrets.visible import visible
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.tools.function import tool

_QUESTION_CHARS_MAX: Final = 4_000
_OPTIONS_MAX: Final = 10
_OPTION_CHARS_MAX: Final = 200


def ask_tools(*, attended: bool = True) -> list[Tool]:
    """Return the tool AskUser. Without a person who can answer (`attended=False`) a call fails at once instead of
    waiting."""

    async def ask(ctx: Any, question: str, options: list[str] = []) -> str:  # noqa: B006 - it is read, not changed
        """Ask the user something that only they can decide, and wait for the answer.

        Args:
            question: the question, complete in itself
            options: answers to choose from, where there are a few; another answer may come all the same
        """
        _check(question, options)
        if not attended:
            raise ToolError(
                "no person is there to answer", hint="decide by yourself, and say what you decided", reason="not_found"
            )
        listed = "\n".join(f"{number}. {_line(option)}" for number, option in enumerate(options, start=1))
        # The question, marked as the agent's words, so that no line of it looks like a message of Lyra.
        lines = [f"> {visible(line)}" for line in question.strip().split("\n")]
        answer = await ctx.ask("\n".join(["The agent asks:", *lines]), "clarification", message=listed)
        # The person's answer; the number of an option represents the option.
        text = str(answer.text or answer.decision).strip()
        if text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= len(options):
            return options[int(text) - 1]
        if text:
            return text
        if answer.approved is not None:
            return "yes" if answer.approved else "no"
        return str(answer.data) if answer.data is not None else "(no answer)"

    return [tool(ask, name="AskUser", needs=["human.ask:clarification"], harmless=True, trusted=True)]


def _line(option: str) -> str:
    return visible(option.strip()).replace("\n", " ")


def _check(question: str, options: list[str]) -> None:
    if not question.strip() or len(question) > _QUESTION_CHARS_MAX:
        raise ToolError(f"a question has between 1 and {_QUESTION_CHARS_MAX} characters", reason="invalid_arguments")
    if len(options) > _OPTIONS_MAX or any(not 0 < len(option.strip()) <= _OPTION_CHARS_MAX for option in options):
        raise ToolError(
            f"there are at most {_OPTIONS_MAX} options of 1 to {_OPTION_CHARS_MAX} characters",
            reason="invalid_arguments",
        )


# TodoWrite: the list of what an agent means to do, kept where the model and its user can see it.

_ITEMS_MAX: Final = 100
_CHARS_MAX: Final = 1_000
_MARKS: Final = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class Todo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do."""

    content: str
    status: Literal["pending", "in_progress", "completed"] = "pending"


def todo_tools() -> list[Tool]:
    return [tool(_write, name="TodoWrite", idempotent=True, trusted=True)]


def _write(todos: list[Todo]) -> str:
    """Write down the whole list of what is to be done; it takes the place of the one before.

    Args:
        todos: each with content and a status of pending, in_progress or completed; at most one is in progress
    """
    if len(todos) > _ITEMS_MAX:
        raise ToolError(f"a list has at most {_ITEMS_MAX} items, not {len(todos)}", reason="invalid_arguments")
    for number, todo in enumerate(todos, start=1):
        if not todo.content.strip() or len(todo.content) > _CHARS_MAX:
            raise ToolError(f"item {number} has between 1 and {_CHARS_MAX} characters", reason="invalid_arguments")
    if sum(todo.status == "in_progress" for todo in todos) > 1:
        raise ToolError("at most one item is in progress", hint="finish one first", reason="invalid_arguments")
    if not todos:
        return "nothing to do"
    done = sum(todo.status == "completed" for todo in todos)
    lines = [f"{_MARKS[todo.status]} {' '.join(todo.content.split())}" for todo in todos]
    return "\n".join([*lines, f"{done} of {len(todos)} done"])
