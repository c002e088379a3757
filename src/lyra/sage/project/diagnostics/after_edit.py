"""Diagnostics with the result of an edit: `add_diagnostics(tools, …)` wraps the tools that edit files.

    tools = diagnosed(tools, Diagnostics(config.diagnostics, workspace))

The programs that the settings name look at a file before and after an edit; what is new comes first. What they said of
a content is remembered, so that of several edits in a row only the first waits for them twice. The result of the tool
is journaled with the diagnostics in it. Programs speak with words of the project's files, so the output of such a tool
is untrusted. An edit never fails because of a program that does.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core.tool import Tool, ToolCall
from lyra.errors import LyraError
from lyra.sage.project.diagnostics.code_problem import CheckCommand, CheckReport, FileChecks, describe, run_check
from lyra.sage.project.diagnostics.language_server import LanguageServers
from lyra.tools.builtin.files import TextFile
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.wrapped import Next, add_layers

if TYPE_CHECKING:
    from lyra.sandbox import Sandbox


# The tools that edit one file, and the argument that names it.
EDIT_TOOLS: Final = {
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "Write": "file_path",
    "NotebookEdit": "notebook_path",
}
_FILE_BYTES_MAX: Final = 2 << 20  # larger files are not looked at
_REMEMBERED_MAX: Final = 200


class _Edited(NamedTuple):
    """A file by its root and its path there, and the programs for it."""

    root: str
    path: str
    commands: tuple[CheckCommand, ...]

    @property
    def whole(self) -> str:
        return os.path.join(self.root, self.path)


class Diagnostics:
    """The programs of one workspace, and what they said last. `settings` are those of `Config.diagnostics`."""

    def __init__(
        self, settings: Mapping[str, Mapping[str, Any]], workspace: Workspace, *, sandbox: Sandbox | None = None
    ) -> None:
        from lyra.sandbox import Sandbox

        self._checks = FileChecks(settings)
        self._workspace = workspace
        self._sandbox = sandbox or Sandbox()
        self._servers = LanguageServers(self._sandbox)
        self._known: OrderedDict[tuple[str, bytes], tuple[CheckReport, ...]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._checks)

    async def close(self) -> None:
        """End the language servers; they also end with the process that started them."""
        await self._servers.close()

    async def around(self, call: ToolCall, inner: Next) -> Any:
        """Return the layer around an edit."""
        edited = self._find_edit(call)
        if edited is None:
            return await inner(call)
        before = await self._before(edited)
        output = await inner(call)
        after = await self._reports(edited)
        if not isinstance(output, str) or not after:
            return output
        return f"{output}\n\n{describe(before, after)}"

    def _find_edit(self, call: ToolCall) -> _Edited | None:
        path = call.arguments.get(EDIT_TOOLS[call.name])
        if not isinstance(path, str) or not path or "\0" in path:
            return None
        real = os.path.realpath(self._workspace.absolute(path))
        root = next((root for root in self._workspace.roots if real.startswith(f"{root.rstrip('/')}/")), None)
        if root is None:
            return None
        inside = os.path.relpath(real, root)
        commands = self._checks.for_file(inside)
        return _Edited(root, inside, tuple(commands)) if commands else None

    # ------------------------------------------------------------ what the programs say
    async def _before(self, edited: _Edited) -> tuple[CheckReport, ...] | None:
        """Return what the programs say before an edit, none for a new file; None where one of them says nothing."""
        reports = await self._reports(edited)
        return None if any(report.failure for report in reports) else reports

    async def _reports(self, edited: _Edited) -> tuple[CheckReport, ...]:
        """Return what all programs say of a file as it is now; nothing of one that is not there or cannot be read."""
        try:
            data = await asyncio.to_thread(self._read, edited.whole)
        except (OSError, LyraError):
            return ()
        key = (edited.whole, blake2b(data, digest_size=16).digest())
        known = self._known.get(key)
        if known is None:
            known = tuple(await asyncio.gather(*(self._run(command, edited, data) for command in edited.commands)))
            self._remember(key, known)
        return known

    def _remember(self, key: tuple[str, bytes], reports: tuple[CheckReport, ...]) -> None:
        if any(report.failure for report in reports):
            return  # the program may work next time
        self._known[key] = reports
        while len(self._known) > _REMEMBERED_MAX:
            self._known.popitem(last=False)

    async def _run(self, command: CheckCommand, edited: _Edited, data: bytes) -> CheckReport:
        if not command.is_server:
            return await run_check(command, edited.path, root=edited.root, sandbox=self._sandbox)
        try:
            text = TextFile.decode(data, edited.path).text
        except LyraError as error:
            return CheckReport(command.program, failure=error.message)
        return await self._servers.check(command, edited.path, text, root=edited.root)

    def _read(self, path: str) -> bytes:
        return self._workspace.read(path, most=_FILE_BYTES_MAX).data


def add_diagnostics(tools: Iterable[Any], diagnostics: Diagnostics) -> list[Any]:
    """Return the tools; those of Lyra's own that edit a file add diagnostics to their results. Without settings, and
    for all other tools and sources of tools, nothing changes."""
    if not diagnostics:
        return list(tools)

    def wrap(tool: Any) -> Any:
        if not isinstance(tool, Tool) or not tool.builtin or tool.name not in EDIT_TOOLS:
            return tool
        layer = add_layers(tool, [diagnostics.around])
        return msgspec.structs.replace(layer, trusted=False, untrusted=True)

    return [wrap(tool) for tool in tools]
