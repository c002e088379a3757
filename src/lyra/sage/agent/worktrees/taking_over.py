"""Writes changes to a project's folder, all of them or none: where one fails, those before it are undone.

Files are written by `lyra.tools.builtin.workspace`, whole and below the folder. A file that a program of the user obeys
(`.git`, hooks, shell settings) and a link that leads out of the folder are refused before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from lyra.errors import Conflict, LyraError
from lyra.sage.agent.worktrees.files import FileAt
from lyra.sandbox.paths import Beneath
from lyra.sandbox.protection.obeyed import obeyed_part
from lyra.tools.builtin.workspace import Workspace

Writes = Mapping[str, tuple[FileAt | None, FileAt | None]]  # path → what is there, what is to be there


def write_changes(folder: str, writes: Writes) -> None:
    """Write files below a folder; None as what is to be there removes one."""
    workspace = Workspace(folder)
    for path, (_, file) in writes.items():
        _check(workspace, path, file)
    written: list[str] = []
    try:
        for path, (now, file) in writes.items():
            written.append(path)
            _write(workspace, path, now, file)
    except (OSError, LyraError) as error:
        for path in reversed(written):
            now, file = writes[path]
            with suppress(OSError, LyraError):
                _write(workspace, path, file if _is_there(workspace, path) else None, now)
        message = error.message if isinstance(error, LyraError) else str(error)
        raise Conflict(f"nothing was taken over: {written[-1]} could not be written: {message}") from error


def _check(workspace: Workspace, path: str, file: FileAt | None) -> None:
    whole = os.path.join(workspace.root, path)
    part = obeyed_part(os.path.normpath(whole), workspace.roots)
    if part is not None:
        raise Conflict(f"nothing was taken over: {workspace.shown(part)} is protected from being written")
    if file is not None and file.is_link:
        target = os.path.normpath(os.path.join(os.path.dirname(whole), os.fsdecode(file.data)))
        if os.path.isabs(os.fsdecode(file.data)) or not workspace.covers(target):
            raise Conflict(f"nothing was taken over: {path} is a link that leads out of the folder")
        if obeyed_part(target, workspace.roots) is not None:
            raise Conflict(f"nothing was taken over: {path} is a link to a protected file")


def _is_there(workspace: Workspace, path: str) -> bool:
    return os.path.lexists(os.path.join(workspace.root, path))


def _write(workspace: Workspace, path: str, now: FileAt | None, file: FileAt | None) -> None:
    if now is not None and (file is None or file.is_link or now.is_link):
        _remove(workspace, path)
        now = None
    if file is None:
        return
    if file.is_link:
        _link(workspace, path, os.fsdecode(file.data))
        return
    bits = 0o755 if file.mode == "100755" else 0o644
    if now is not None:  # its own bits, but for those that say whether it can be run
        kept = os.stat(os.path.join(workspace.root, path)).st_mode & 0o777
        bits = kept | 0o111 if file.mode == "100755" and not kept & 0o100 else kept
        bits = bits & ~0o111 if file.mode == "100644" else bits
    workspace.replace(path, file.data, None if now is None else bits)
    if now is None and file.mode == "100755":
        workspace.replace(path, file.data, bits)


def _remove(workspace: Workspace, path: str) -> None:
    with Beneath(workspace.root) as folder:
        parent = folder.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.unlink(os.path.basename(path), dir_fd=parent)
        finally:
            os.close(parent)


def _link(workspace: Workspace, path: str, target: str) -> None:
    above = os.path.dirname(path)
    if above and not os.path.isdir(os.path.join(workspace.root, above)):
        os.makedirs(os.path.join(workspace.root, above))
    with Beneath(workspace.root) as folder:
        parent = folder.open(above or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.symlink(target, os.path.basename(path), dir_fd=parent)
        finally:
            os.close(parent)
