"""What a file of YAML tools asks for: each tool, and what it does when it is called."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from lyra.config.ask import Ask, shown_value
from lyra.config.ask import on_one_line as _shown
from lyra.core.checking.document import form_of, parse, text_of
from lyra.core.secrets.secret import is_reference

__all__ = ["tool_asks"]


def tool_asks(data: bytes, name: str) -> Iterator[Ask]:
    """What each tool of a file does when it is called."""
    document, _ = parse(text_of(data, name), form_of(name, what="tool"), name)
    tools = document.get("tools", [document]) if isinstance(document, Mapping) else document
    for tool in tools:
        shown = _shown(tool.get("name", ""))
        needs = tool.get("needs") or ()
        also = f"; it needs {', '.join(map(_shown, needs))}" if needs else ""
        yield Ask(f"tool {shown}", f"brings the tool {shown}, which {_act(tool.get('implementation', {}))}{also}")


def _act(implementation: Mapping[str, Any]) -> str:
    kind = implementation.get("type")
    if kind == "exec":
        command = implementation.get("command", ())
        words = command if isinstance(command, str) else shlex.join(map(str, command))
        fed = f", with {_shown(implementation['stdin'])} as its input" if implementation.get("stdin") else ""
        writes = ", and may write in the folder" if implementation.get("writes") else ""
        return f"runs {_shown(words)}{fed}{writes}"
    if kind == "http":
        sent = f"sends {_shown(implementation.get('method', 'GET'))} {_shown(implementation.get('url', ''))}"
        return "; ".join([sent, *_sent_along(implementation)])
    if kind == "file_read":
        return f"reads the file {_shown(implementation.get('path', ''))}"
    if kind == "file_write":
        written = f": {_shown(implementation['content'])}" if "content" in implementation else ""
        return f"writes the file {_shown(implementation.get('path', ''))}{written}"
    return f"is of the kind {_shown(kind)}"


def _sent_along(implementation: Mapping[str, Any]) -> Iterator[str]:
    """What a request carries besides its address; a header may hold one of the user's keys."""
    for name, value in implementation.get("headers", {}).items():
        scheme, _, reference = str(value).rpartition(" ")
        if is_reference(reference):
            kind = f"{_shown(scheme)} and " if scheme else ""
            yield f"with the header {_shown(name)}: {kind}your variable {_shown(reference.removeprefix('env:'))}"
        else:
            yield f"with the header {_shown(name)}{shown_value(str(name), str(value))}"
    for part in ("query", "body"):
        if implementation.get(part):
            yield f"with the {part} {_shown(implementation[part])}"
