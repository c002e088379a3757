"""What happens in a session, in the words of the protocol: lines and messages become updates for the editor.

A tool call has a kind, a title, the places that it is about and, for an edit, its diff. Texts from models, tools and
files lose characters that no screen shows. `TurnUpdates` sends them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from acp import helpers, schema

from lyra.agents.session.events import AnyLine, ToolEndLine, ToolStartLine, retry_sentence
from lyra.core.message import Message
from lyra.core.secrets.visible import without_invisible
from lyra.core.tool import ToolResult
from lyra.tools.edit_preview import preview_edit

_KINDS: Final[dict[str, schema.ToolKind]] = {
    "Read": "read",
    "Glob": "search",
    "Grep": "search",
    "RepoMap": "search",
    "Write": "edit",
    "Edit": "edit",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "Bash": "execute",
    "Git": "execute",
    "BashOutput": "execute",
    "KillShell": "execute",
    "WebFetch": "fetch",
    "WebSearch": "fetch",
    "TodoWrite": "think",
    "Task": "think",
    "Skill": "think",
}
_SUBJECTS: Final = ("file_path", "notebook_path", "command", "pattern", "url", "description", "path", "query", "name")
_PATHS: Final = ("file_path", "notebook_path", "path")
_TITLE_CHARS_MAX: Final = 200
# An editor may itself be a program in a terminal, which obeys control characters of 7 and of 8 bits.
_CONTROLS: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "␡",
    **{code: f"⟨U+{code:04X}⟩" for code in range(0x80, 0xA0)},
}
_OUTPUT_CHARS_MAX: Final = 20_000  # of a result that the editor is shown


def render_text(text: str) -> str:
    """Return a text for a screen: of control characters only line ends and tabs stay, the others are shown as signs."""
    return without_invisible(text, keep_controls=True).replace("\r\n", "\n").translate(_CONTROLS)


def kind_of(tool: str) -> schema.ToolKind:
    return _KINDS.get(tool, "other")


def call_title(tool: str, arguments: Mapping[str, Any]) -> str:
    subject = next((arguments[name] for name in _SUBJECTS if isinstance(arguments.get(name), str)), "")
    title = f"{render_text(tool)} {' '.join(render_text(subject).split())}".strip()
    return title if len(title) <= _TITLE_CHARS_MAX else f"{title[: _TITLE_CHARS_MAX - 1]}…"


def _locations(arguments: Mapping[str, Any], folder: str) -> list[schema.ToolCallLocation]:
    paths = [arguments[name] for name in _PATHS if isinstance(arguments.get(name), str) and arguments[name]]
    return [schema.ToolCallLocation(path=os.path.join(folder, path)) for path in paths]


def diff_of(tool: str, arguments: Mapping[str, Any], folder: str) -> list[Any]:
    """Return the edit that a call will make, as content for the editor; none where it is not known."""
    texts = preview_edit(tool, arguments, folder)
    if texts is None:
        return []
    path = os.path.join(folder, str(arguments.get("file_path") or arguments.get("notebook_path")))
    return [helpers.tool_diff_content(path, texts[1], texts[0] or None)]


def render_start(line: ToolStartLine, folder: str) -> schema.ToolCallStart:
    """Return the update that says that a tool call has begun."""
    tool, arguments = line["name"], line["arguments"]
    return helpers.start_tool_call(
        line["id"],
        call_title(tool, arguments),
        kind=kind_of(tool),
        status="in_progress",
        content=diff_of(tool, arguments, folder) or None,
        locations=_locations(arguments, folder) or None,
        raw_input=arguments,
    )


def render_end(line: ToolEndLine, *, keep_diff: bool) -> schema.ToolCallProgress:
    """Return the update that says that a tool call has ended; with `keep_diff` its content stays the diff that was
    shown."""
    content = None if keep_diff and not line["is_error"] else _output(line["output"])
    return helpers.update_tool_call(line["id"], status="failed" if line["is_error"] else "completed", content=content)


def _line_of(result: ToolResult) -> ToolEndLine:
    return {
        "type": "tool_end",
        "id": result.id,
        "name": result.name,
        "output": result.output,
        "is_error": result.is_error,
    }


def _output(output: Any) -> list[Any]:
    parts = output if isinstance(output, list) else [{"type": "text", "text": str(output)}]
    blocks: list[Any] = []
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "image" and isinstance(part.get("data"), str):
            blocks.append(helpers.image_block(part["data"], str(part.get("media_type", "image/png"))))
        else:
            text = render_text(str(part.get("text", "")) if isinstance(part, dict) else str(part))
            more = len(text) - _OUTPUT_CHARS_MAX
            blocks.append(helpers.text_block(text if more <= 0 else f"{text[:_OUTPUT_CHARS_MAX]}\n… {more} more"))
    return [helpers.tool_content(block) for block in blocks]


def plan_of(arguments: Mapping[str, Any]) -> schema.AgentPlanUpdate | None:
    """Return the plan that a call of TodoWrite writes down."""
    todos = arguments.get("todos")
    if not isinstance(todos, list):
        return None
    entries = [
        helpers.plan_entry(render_text(str(todo.get("content", ""))), status=todo.get("status", "pending"))
        for todo in todos
        if isinstance(todo, dict) and todo.get("status", "pending") in ("pending", "in_progress", "completed")
    ]
    return helpers.update_plan(entries)


def message_updates(messages: Iterable[Message], folder: str) -> list[Any]:
    """Return a conversation from the beginning, as it is shown when a session is loaded."""
    updates: list[Any] = []
    for message in messages:
        if message.role == "user":
            updates.append(helpers.update_user_message_text(render_text(message.text)))
        elif message.role == "assistant":
            if message.text:
                updates.append(helpers.update_agent_message_text(render_text(message.text)))
            updates += [
                render_start(
                    {"type": "tool_start", "id": call.id, "name": call.name, "arguments": call.arguments}, folder
                )
                for call in message.tool_calls
            ]
        elif message.role == "tool":
            updates += [render_end(_line_of(result), keep_diff=False) for result in message.tool_results]
    return updates


# TurnUpdates: the lines of a turn, told to an editor as they come: text, thoughts, tool calls, the plan.


class TurnUpdates:
    """`tell` sends an update about the session to the editor; paths are shown as they are in `folder`."""

    def __init__(self, tell: Callable[[Any], Awaitable[None]], folder: str) -> None:
        self._tell = tell
        self._folder = folder
        self._diffs: set[str] = set()  # calls whose content is a diff

    async def tell_line(self, line: AnyLine) -> None:
        """Tell one line; one of another kind is passed over."""
        if line["type"] == "text_delta":
            await self._tell(helpers.update_agent_message_text(render_text(line["delta"])))
        elif line["type"] == "thinking_delta":
            await self._tell(helpers.update_agent_thought_text(render_text(line["delta"])))
        elif line["type"] == "retry":
            sentence = retry_sentence(line["reason"], line["wait_s"], line["attempt"], line["of"])
            await self._tell(helpers.update_agent_thought_text(f"({sentence})\n"))
        elif line["type"] == "tool_start":
            update = render_start(line, self._folder)
            if update.content:
                self._diffs.add(line["id"])
            await self._tell(update)
            plan = plan_of(line["arguments"]) if line["name"] == "TodoWrite" else None
            if plan is not None:
                await self._tell(plan)
        elif line["type"] == "tool_progress":
            block = helpers.tool_content(helpers.text_block(render_text(line["text"])))
            if line["id"] not in self._diffs:
                await self._tell(helpers.update_tool_call(line["id"], status="in_progress", content=[block]))
        elif line["type"] == "tool_end":
            await self._tell(render_end(line, keep_diff=line["id"] in self._diffs))
