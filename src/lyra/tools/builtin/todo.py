"""TodoWrite: the list of what an agent means to do, kept where the model and its user can see it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.tools.function import tool

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
