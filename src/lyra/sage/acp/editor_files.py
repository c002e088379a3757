"""A tool layer for the editor's own files: what the user has typed and not saved is what the agent works on.

Runs after the call was allowed. Read adds the editor's text where it differs from the file. Before an edit the editor
is asked to save such a text, so that the edit is made on it and an undo brings it back; after an edit the editor is
handed the new text, so that its window shows it at once. Only files of the workspace are talked about, and an editor
that does not answer in time changes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

from lyra.core.tool import Tool, ToolCall
from lyra.tools.source import ToolSource
from lyra.tools.wrapped import Next, layered

_EDITS: Final = ("Edit", "MultiEdit", "Write")
_EDITOR_S: Final = 5.0
_TEXT_BYTES_MAX: Final = 2 * 1024 * 1024


class FileClient(Protocol):
    async def read_text_file(self, session_id: str, path: str, **more: Any) -> Any: ...

    async def write_text_file(self, session_id: str, path: str, content: str, **more: Any) -> Any: ...


class EditorFiles:
    """The files of one session's editor. `reads` and `writes` say what it offers."""

    def __init__(self, client: FileClient, folder: str, *, reads: bool, writes: bool) -> None:
        self.session_id = ""
        self._client = client
        self._folder = os.path.realpath(folder)
        self._reads = reads
        self._writes = writes

    def wrap(self, tools: Iterable[Tool | ToolSource]) -> list[Tool | ToolSource]:
        """The tools; those that open one file ask the editor."""
        if not self._reads:
            return list(tools)
        named = ("Read", *_EDITS)
        return [
            layered(tool, [self._layer]) if isinstance(tool, Tool) and tool.builtin and tool.name in named else tool
            for tool in tools
        ]

    async def _layer(self, call: ToolCall, inner: Next) -> Any:
        path = self._inside(call.arguments.get("file_path"))
        unsaved = await self._unsaved(path) if path is not None and self.session_id else None
        if path is None or call.name not in _EDITS:
            output = await inner(call)
            if unsaved is None or not isinstance(output, str):
                return output
            return f"{output}\n\n(The editor has changes that are not saved. Its text is:)\n{unsaved}"
        if unsaved is not None and self._writes:
            await self._answer(self._client.write_text_file(session_id=self.session_id, path=path, content=unsaved))
        output = await inner(call)
        if self._writes and self.session_id:
            text = await asyncio.to_thread(_text_of, path)
            if text is not None:
                await self._answer(self._client.write_text_file(session_id=self.session_id, path=path, content=text))
        return output

    def _inside(self, path: Any) -> str | None:
        if not isinstance(path, str) or not path or "\0" in path:
            return None
        whole = os.path.realpath(os.path.join(self._folder, path))
        return whole if whole.startswith(f"{self._folder}/") else None

    async def _unsaved(self, path: str) -> str | None:
        """The editor's text of a file where it differs from the file itself."""
        answer = await self._answer(self._client.read_text_file(session_id=self.session_id, path=path))
        text = getattr(answer, "content", None)
        if not isinstance(text, str) or len(text) > _TEXT_BYTES_MAX:
            return None
        saved = await asyncio.to_thread(_text_of, path)
        return text if saved is not None and text != saved else None

    async def _answer(self, asked: Any) -> Any:
        """The editor's answer; None where it has none in time."""
        try:
            async with asyncio.timeout(_EDITOR_S):
                return await asked
        except Exception:  # noqa: BLE001 - an editor may fail in any way; the file itself is what counts then
            return None


def _text_of(path: str) -> str | None:
    try:
        if os.path.getsize(path) > _TEXT_BYTES_MAX:
            return None
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


WrapTools = Callable[[Iterable[Tool | ToolSource]], list[Tool | ToolSource]]
