"""How a tool call reads: its verb, its object, and the figures of its result.

`describe` knows the arguments of the built-in tools; any other tool is shown with its name and arguments. `figures_of`
says in a few words what came back. The tables are all that this module knows of tools: it calls none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from lyra.sage.terminal.text.styled_lines import exact, scrub, scrub_lines

_OBJECT_CHARS_MAX: Final = 400
_VERBS: Final = {
    "MultiEdit": "Edit",
    "NotebookEdit": "Edit",
    "WebFetch": "Fetch",
    "WebSearch": "Search",
    "TodoWrite": "Todo",
    "AskUser": "Ask",
    "BashOutput": "Output",
    "KillShell": "Kill",
    "ToolSearch": "Tools",
    "Remember": "Note",
}
# The argument that a call is about; it is what a user edits before the call is allowed.
_MAIN: Final = {
    "Read": "file_path",
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
    "Glob": "pattern",
    "Grep": "pattern",
    "Bash": "command",
    "Git": "command",
    "BashOutput": "bash_id",
    "KillShell": "bash_id",
    "WebFetch": "url",
    "WebSearch": "query",
    "Task": "prompt",
    "AskUser": "question",
    "Skill": "name",
    "ToolSearch": "query",
    "Remember": "text",
}
_MCP: Final = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)")
_NOTE: Final = re.compile(r"\n?\[exit code (\d+)(?P<rest>[^\n]*)\]\s*\Z")
_TESTS: Final = re.compile(r"\b\d+ (?:passed|failed|errors?|tests? run)(?:, \d+ (?:passed|failed|errors?|skipped))*")
_GREP_ROW: Final = re.compile(r"^(?P<path>[^\n:]+?):\d+:", re.MULTILINE)


class CallWords(NamedTuple):
    verb: str
    about: str


def main_argument(tool: str) -> str:
    """Return the name of the argument that a call is about; empty where it is not known."""
    return _MAIN.get(tool, "")


def describe(tool: str, arguments: Mapping[str, Any], folder: str = "") -> CallWords:
    """Return the verb and the object of a call, on one line, every character visible."""
    about = _DESCRIBED.get(tool, _any_call)(arguments) if tool in _DESCRIBED else _any_call(arguments)
    if tool == "Task":
        name = arguments.get("agent") or arguments.get("subagent_type") or arguments.get("name") or "Task"
        return CallWords(exact(f"{str(name)[:1].upper()}{str(name)[1:40]}"), about)
    server = _MCP.fullmatch(tool)
    if server is not None:
        return CallWords(exact(server["server"])[:20], f"{exact(server['tool'])} {about}".strip())
    if folder and about.startswith(f"{folder}/"):
        about = about[len(folder) + 1 :]
    return CallWords(_VERBS.get(tool, exact(tool)[:40]), about)


def _one_line(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    lines = text.strip().split("\n")
    more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
    return exact(lines[0][:_OBJECT_CHARS_MAX]) + more


def _show_argument(name: str) -> Callable[[Mapping[str, Any]], str]:
    def about(arguments: Mapping[str, Any]) -> str:
        return _one_line(arguments.get(name, ""))

    return about


def _grep(arguments: Mapping[str, Any]) -> str:
    place = arguments.get("path") or arguments.get("glob")
    return _one_line(arguments.get("pattern", "")) + (f" in {_one_line(place)}" if place else "")


def _task(arguments: Mapping[str, Any]) -> str:
    return _one_line(arguments.get("description") or arguments.get("prompt") or arguments.get("task") or "")


def _todo(arguments: Mapping[str, Any]) -> str:
    todos = arguments.get("todos")
    current = [todo for todo in todos if isinstance(todo, dict)] if isinstance(todos, list) else []
    for todo in current:
        if todo.get("status") == "in_progress":
            return _one_line(todo.get("content", ""))
    return f"{len(current)} items"


def _any_call(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{exact(str(name))}={_one_line(value)[:80]}" for name, value in list(arguments.items())[:6])


_DESCRIBED: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    **{tool: _show_argument(name) for tool, name in _MAIN.items()},
    "Glob": _grep,
    "Grep": _grep,
    "Task": _task,
    "TodoWrite": _todo,
}


# ---------------------------------------------------------------- results
def output_text(output: Any) -> str:
    """Return the output of a tool as text; an image is named."""
    if output is None:
        return ""
    if isinstance(output, str):
        return output
    if isinstance(output, list) and output and all(isinstance(part, dict) and "type" in part for part in output):
        parts = [str(part.get("text", "")) if part["type"] == "text" else f"[{part['type']}]" for part in output]
        return "\n".join(parts)
    return json.dumps(output, ensure_ascii=False, indent=2, default=str)


def figures_of(tool: str, arguments: Mapping[str, Any], output: str, *, is_error: bool) -> str:
    """Return what came back, in a few words."""
    if is_error:
        return _error_words(tool, output)
    words = _FIGURES.get(tool)
    return words(arguments, output) if words is not None else ""


def _error_words(tool: str, output: str) -> str:
    if tool in ("Bash", "Git"):
        note = _NOTE.search(output)
        tests = _tests(output)
        if note is not None:
            return f"{tests}, exit {note[1]}" if tests else f"exit {note[1]}"
    return "failed"


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}".replace(",", " ")


def _lines_read(_arguments: Mapping[str, Any], output: str) -> str:
    if output.endswith("[image]"):
        return "picture"
    numbered = sum(1 for line in output.split("\n") if "\t" in line[:8] and line[:6].strip().isdecimal())
    return _count(numbered or len(scrub_lines(output)), "line")


def _describe_search(arguments: Mapping[str, Any], output: str) -> str:
    rows = [line for line in output.split("\n") if line.strip()]
    if not rows or output.startswith(("nothing matches", "no file has")):
        return "no match"
    more = rows[-1].startswith("… ")
    rows = rows[:-1] if more else rows
    if arguments.get("output_mode") == "content":
        paths = set(_GREP_ROW.findall("\n".join(rows)))
        matches = sum(1 for row in rows if _GREP_ROW.match(row)) or len(rows)
        words = _count(matches, "match") + (f", {_count(len(paths), 'file')}" if paths else "")
    else:
        words = _count(len(rows), "file")
    return f"{words}+" if more else words


def _ran(_arguments: Mapping[str, Any], output: str) -> str:
    text = _NOTE.sub("", output)
    if output.startswith("started in the background"):
        return "in the background"
    count = len(scrub_lines(text))
    return _tests(text) or (_count(count, "line") if count else "no output")


def _tests(output: str) -> str:
    """Return the summary line of a test run, if the output ends with one."""
    for line in reversed(output.strip().split("\n")[-4:]):
        summary = _TESTS.search(scrub(line))
        if summary is not None:
            return summary[0]
    return ""


def _describe_write(arguments: Mapping[str, Any], output: str) -> str:
    content = arguments.get("content")
    count = len(content.splitlines()) if isinstance(content, str) else 0
    return f"new, {_count(count, 'line')}" if ": new" in output else _count(count, "line")


def _todos_done(_arguments: Mapping[str, Any], output: str) -> str:
    last = scrub_lines(output)[-1:]
    return last[0] if last and "done" in last[0] else ""


_FIGURES: Final[dict[str, Callable[[Mapping[str, Any], str], str]]] = {
    "Read": _lines_read,
    "Glob": _describe_search,
    "Grep": _describe_search,
    "Bash": _ran,
    "Git": _ran,
    "BashOutput": _ran,
    "Write": _describe_write,
    "WebFetch": _lines_read,
    "WebSearch": _lines_read,
    "TodoWrite": _todos_done,
}


def strip_note(output: str) -> str:
    """Return the output of a command without the program's note on how it ended, and without blank lines at the end."""
    return _NOTE.sub("", output).rstrip()


def seconds_text(seconds: float) -> str:
    """Return a duration for a person: seconds, then minutes and seconds."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
