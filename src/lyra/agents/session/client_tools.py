"""Tools that the caller of a message runs itself, such as the tools of a web page that talks to an agent.

A message carries their declarations, so that the journal has them and a restart finds them again. A call is a question
of kind `checkpoint` to the caller: the process waits for its answer, also over a restart, and `client_call_id` tells
which call a question is about. Nothing here runs such a tool or knows a protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core.tool import Tool
from lyra.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from lyra.kernel.interrupts.interrupt import Interrupt


_QUESTION: Final = "The client runs its tool "
_KIND: Final = "checkpoint"  # such a question never expires by itself
_HIDDEN: Final = "ctx"


def client_tool_rows(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The declarations (`name`, `description`, `schema`) as a message carries them; ConfigError where one is wrong."""
    rows: dict[str, dict[str, Any]] = {}
    for declared in tools:
        tool = _tool(declared)
        if tool.name in rows:
            raise ConfigError(f"the client declares the tool {tool.name!r} twice", key="tools")
        if _HIDDEN in tool.schema.get("properties", ()):
            raise ConfigError(f"the tool {tool.name!r} has an argument {_HIDDEN!r}, which is taken", key="tools")
        rows[tool.name] = {"name": tool.name, "description": tool.description, "schema": tool.schema}
    return list(rows.values())


def client_tools(message: Any) -> tuple[Tool, ...]:
    """The tools that a message carries."""
    rows = message.get("tools") if isinstance(message, dict) and "lyra.ask" in message else None
    return tuple(_tool(row) for row in rows or ())


def _tool(row: Mapping[str, Any]) -> Tool:
    # Harmless: it runs with the rights of its caller, not with those of this machine. Its output is text from outside.
    return Tool(
        row["name"],
        description=str(row.get("description", "")),
        schema=row.get("schema") or {},
        run=_ClientRun(row["name"]),
        harmless=True,
        untrusted=True,
    )


class _ClientRun:
    """Asks the client for the output of one call."""

    __slots__ = ("_name",)

    takes: ClassVar[frozenset[str]] = frozenset({_HIDDEN})

    def __init__(self, name: str) -> None:
        self._name = name

    async def __call__(self, /, *, ctx: Any, **_arguments: Any) -> Any:
        answer = await ctx.ask(f"{_QUESTION}{self._name}", _KIND, message=ctx.call_id)
        data = answer.data if isinstance(answer.data, dict) else {"output": answer.text}
        if data.get("error"):
            raise ToolError(f"the client could not run {self._name}: {data['error']}", tool=self._name)
        return data.get("output", "")


def client_answer(output: Any, error: str = "") -> dict[str, Any]:
    """The answer to such a question, for `kernel.resolve_interrupt`."""
    return {"data": {"output": output, "error": error}}


def client_call_id(interrupt: Interrupt) -> str:
    """The id of the tool call that an interrupt asks its client to run; "" for any other question."""
    is_client_call = interrupt.kind == _KIND and interrupt.question.startswith(_QUESTION)
    return interrupt.message if is_client_call else ""
