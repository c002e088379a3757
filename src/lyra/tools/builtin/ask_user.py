"""AskUser: a question to the person an agent works for. The answer is theirs, and no model gives it.

The question is written by a model: the prompt says so, each line of it is marked, and invisible characters are shown
by their codes. An option is one line; Lyra adds its number.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.core.secrets.visible import visible
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.tools.function import tool

_QUESTION_CHARS_MAX: Final = 4_000
_OPTIONS_MAX: Final = 10
_OPTION_CHARS_MAX: Final = 200


def ask_tools(*, attended: bool = True) -> list[Tool]:
    """The tool AskUser. Without a person who can answer (`attended=False`) a call fails at once instead of waiting."""

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
        answer = await ctx.ask(_quoted(question), "clarification", message=listed)
        return _answer_text(answer, options)

    return [tool(ask, name="AskUser", needs=["human.ask:clarification"], harmless=True, trusted=True)]


def _quoted(question: str) -> str:
    """The question, marked as the agent's words, so that no line of it looks like a message of Lyra."""
    lines = [f"> {visible(line)}" for line in question.strip().split("\n")]
    return "\n".join(["The agent asks:", *lines])


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


def _answer_text(answer: Any, options: list[str]) -> str:
    """The person's answer; the number of an option stands for the option."""
    text = str(answer.text or answer.decision).strip()
    if text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= len(options):
        return options[int(text) - 1]
    if text:
        return text
    if answer.approved is not None:
        return "yes" if answer.approved else "no"
    return str(answer.data) if answer.data is not None else "(no answer)"
