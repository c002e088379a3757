"""YAML tools of the kinds `file_read` and `file_write`: one file of the workspace, named by the file and its values.

The path is opened below the workspace by descriptor (`lyra.sandbox.paths`): no `..`, no symlink and no race leads out.
A value has no `..` in it and, where the file gives the beginning of the path, is not absolute. Files that hold keys are
not read, and neither those nor files that run programs later are written, unless the YAML file names them in full.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from lyra.core.checking.check import Report
from lyra.core.checking.document import Path
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import admitted
from lyra.errors import ToolError
from lyra.sandbox.protection.obeyed import asked_part, obeyed_part
from lyra.sandbox.protection.protected_names import COMMAND_NAMES, HIDDEN, NameTable
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.yaml.params import Params
from lyra.tools.yaml.template import Template, ToolEnvironment, declared, narrowed, template

T = TypeVar("T")

KEYS_OF_READ: Final = ("type", "path", "timeout")
KEYS_OF_WRITE: Final = ("type", "path", "content", "timeout")
_READ_BYTES_MAX: Final = 10 << 20
_SHOWN_CHARS_MAX: Final = 100_000
_WRITE_CHARS_MAX: Final = 1_000_000
_SECRETS: Final = NameTable((), HIDDEN)


class _FileTool:
    """The path of a tool, and the checks before it is opened."""

    def __init__(self, environment: ToolEnvironment, path: Template, own: list[Capability], verb: str) -> None:
        self._workspace = environment.workspace
        self._path = path
        root = environment.workspace.root.rstrip("/")
        self._own = Grant(own or [f"{verb}:{root}/**"])
        self._verb = verb

    @property
    def rights(self) -> tuple[Capability, ...]:
        return ()

    def needs_of(self, values: Mapping[str, Any]) -> list[Capability]:
        return self._workspace.need(self._verb, self._named(values))

    def _named(self, values: Mapping[str, Any]) -> str:
        path = self._path.fill(values)
        if not path or "\0" in path:
            raise ToolError("the path is empty", reason="invalid_arguments")
        if self._path.names:
            for name in self._path.names:
                value = str(values[name])
                if ".." in value.split("/") or (value.startswith(("/", "~")) and self._path.lone is None):
                    raise ToolError(f"{name} is not a path below the tool's own", reason="invalid_arguments")
        return path

    def _allowed(self, values: Mapping[str, Any]) -> tuple[str, str]:
        """The path and its real path, if the tool may use it; only the real path may be opened."""
        path = self._named(values)
        real = os.path.realpath(self._workspace.absolute(path))
        narrowed(self._own).check(Capability(self._verb, real))
        part = self._protected_part(path, real) if self._path.names else None
        if part is not None:
            raise ToolError(
                f"{part} is protected", hint="only a file that names it in full opens it", reason="permission_denied"
            )
        return path, real

    def _protected_part(self, path: str, real: str) -> str | None:
        """The part of a path because of which the tool may not use it."""
        raise NotImplementedError


def _name_in(table: NameTable, workspace: Workspace, path: str) -> str | None:
    return table.part(workspace.shown(path), os.path.basename(workspace.root))


def _pinned(real: str, act: Callable[[], T]) -> T:
    """Run `act` in the context of its thread so that the workspace opens this file and no other."""
    admitted.set(real)
    return act()


class FileRead(_FileTool):
    untrusted = True
    idempotent = True

    def _protected_part(self, path: str, real: str) -> str | None:
        return _name_in(_SECRETS, self._workspace, real) or _name_in(_SECRETS, self._workspace, path)

    async def run(self, values: Mapping[str, Any]) -> str:
        path, real = self._allowed(values)
        opened = await asyncio.to_thread(_pinned, real, lambda: self._workspace.read(path, most=_READ_BYTES_MAX))
        if b"\0" in opened.data:
            raise ToolError(f"{path} is not a text", reason="binary")
        text = opened.data.decode("utf-8", "replace")
        return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}\n… the rest is left out …"


class FileWrite(_FileTool):
    untrusted = False
    idempotent = False

    def __init__(
        self, environment: ToolEnvironment, path: Template, own: list[Capability], verb: str, content: Template
    ) -> None:
        super().__init__(environment, path, own, verb)
        self._content = content

    def _protected_part(self, path: str, real: str) -> str | None:
        roots = self._workspace.roots
        return obeyed_part(real, roots) or asked_part(real, roots) or _name_in(COMMAND_NAMES, self._workspace, path)

    async def run(self, values: Mapping[str, Any]) -> str:
        path, real = self._allowed(values)
        content = self._content.fill(values) or ""
        if len(content) > _WRITE_CHARS_MAX:
            raise ToolError(f"the content has more than {_WRITE_CHARS_MAX} characters", reason="invalid_arguments")
        return await asyncio.to_thread(_pinned, real, lambda: self._write(path, content.encode()))

    def _write(self, path: str, data: bytes) -> str:
        workspace, in_full = self._workspace, not self._path.names
        with workspace.lock:
            if not workspace.exists(path):
                real, done = workspace.replace(path, data, named_in_full=in_full), "made"
            else:
                old = workspace.read(path)
                real, done = workspace.replace(old.path, data, old.mode, named_in_full=in_full), "written"
        return f"{workspace.shown(real)} was {done}, {len(data)} bytes"


# ---------------------------------------------------------------- reading them from a file
def read_file_read(
    given: dict[str, Any],
    path: Path,
    params: Params,
    report: Report,
    environment: ToolEnvironment,
    *,
    timeout_s: float,
    needs: list[Capability],
) -> FileRead | None:
    del timeout_s  # the time-out of the whole tool covers it
    place = _path(given, path, params, report)
    return None if place is None else FileRead(environment, place, declared(needs, "fs.read"), "fs.read")


def read_file_write(
    given: dict[str, Any],
    path: Path,
    params: Params,
    report: Report,
    environment: ToolEnvironment,
    *,
    timeout_s: float,
    needs: list[Capability],
) -> FileWrite | None:
    del timeout_s
    place = _path(given, path, params, report)
    given_content = given.get("content", "{{content}}")
    content = template(given_content, (*path, "content"), params, report, "content")
    if place is None or content is None:
        return None
    return FileWrite(environment, place, declared(needs, "fs.write"), "fs.write", content)


def _path(given: dict[str, Any], path: Path, params: Params, report: Report) -> Template | None:
    parsed = template(given.get("path", "{{path}}"), (*path, "path"), params, report, "path")
    if parsed is None:
        return None
    unfit = [
        name
        for name in dict.fromkeys(parsed.names)
        if params[name].type not in ("string", "integer") or params[name].may_be_missing
    ]
    for name in unfit:
        report.add((*path, "path"), f"{name} is a part of the path: make it a string, and required")
    climbs = ".." in parsed.text.split("/")
    if climbs:
        report.add((*path, "path"), "a path has no '..' in it", "paths begin at the workspace")
    return None if unfit or climbs else parsed
