"""A remote agent as a tool of an agent.

The tool is called `a2a__NAME`, and permission rules name it so. It is guarded (a call needs a rule or an answer of a
person), its output and its description are text from outside and taint the session, and a call needs the right to reach
the host. It takes `ctx`, so that each step of a call is an effect of the process: a call that was finished is not made
again after a restart. A remote agent that asks for something is answered by another call with the id of its task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.a2a.calls import RemoteCalls
from lyra.agents.declaration.output import Image
from lyra.core.secrets.visible import without_invisible
from lyra.core.tool import Tool
from lyra.errors import EffectFailed, ToolError
from lyra.tools.function import tool

if TYPE_CHECKING:
    from lyra.a2a.answer import RemoteAnswer


PREFIX: Final = "a2a__"
DESCRIPTION_CHARS_MAX: Final = 4_000
_NAME_CHARS_MAX: Final = 56  # behind the prefix, within the limit of the strictest provider


def plain_name(name: str) -> str:
    """The name of an agent in the characters that every model provider accepts."""
    clean = "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in name)
    return clean[:_NAME_CHARS_MAX] or "agent"


def plain_description(text: str) -> str:
    """The description of a card as far as a model is told it, without characters that no screen shows."""
    return without_invisible(text[:DESCRIPTION_CHARS_MAX]).strip()


def remote_tool(name: str, description: str, place: str, calls: RemoteCalls) -> Tool:
    """The Tool by which an agent asks a remote one."""

    async def ask(ctx: Any, message: str, task: str = "") -> Any:
        """Args:
        message: what the agent is to do or to know, complete in itself; it cannot see this conversation
        task: the id of a task that asked for something, to answer it; left out for anything new
        """
        try:
            answer = await calls.ask(ctx, message, task_id=task)
        except EffectFailed as error:
            raise ToolError(error.message, tool=called, reason="exec_failed") from None
        return _output(answer, name)

    called = f"{PREFIX}{plain_name(name)}"  # no agent can have the name of another tool
    made_of_function = tool(
        ask,
        name=called,
        description=f"[remote agent {name} at {place}] {plain_description(description)}".strip(),
        needs=(f"net.http:{place}",),
        untrusted=True,
        guarded=True,
    )
    return msgspec.structs.replace(made_of_function, foreign=True)


def _output(answer: RemoteAnswer, name: str) -> Any:
    if answer.state == "completed":
        return _content(answer.output)
    if answer.state == "asks":
        question = answer.words or "it asks for something and does not say what"
        return f"The agent {name} asks: {question}\n(To answer, call this tool again with task={answer.task_id!r}.)"
    raise ToolError(f"the task of {name} {answer.state}: {answer.words or 'it does not say why'}", reason="exec_failed")


def _content(output: Any) -> Any:
    if isinstance(output, str):
        return output
    return [part["text"] if part["type"] == "text" else Image(part["media_type"], part["data"]) for part in output]
