"""RepoMap: the files and symbols of a workspace as a text of bounded size, the most used ones first.

    repo_map = RepoMap(workspace, cache_folder=folder)
    text = await repo_map.text(query="the login page", tokens=2_000)

A worker process makes the map (`worker`): nothing here parses a file or blocks the event loop. Outlines are kept in the
cache folder, so that a map after a change reads the changed files alone. What the workspace hides is left out of the
text. A map that is not complete, because time ran out or there are too many files, says so.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

from lyra.core.rights.capability import Capability
from lyra.core.secrets.visible import visible
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.models.tokens import WORDY, text_tokens
from lyra.tools.builtin.search import ask_worker
from lyra.tools.builtin.search_worker import PASSED_OVER, find_ripgrep
from lyra.tools.builtin.workspace import Workspace, check_admitted
from lyra.tools.function import tool

MAP_TOKENS: Final = 2_000
MAP_TOKENS_MAX: Final = 20_000
MAP_S_MAX: Final = 10.0  # for reading files; the next map continues where this one stopped
_GRACE_S: Final = 10.0  # to rank what was read, on a busy machine
_QUERY_CHARS_MAX: Final = 10_000
_SYMBOLS_MAX: Final = 2_000
_ANSWER_BYTES_MAX: Final = 16 << 20
_MISFITS_MAX: Final = 20  # files in a row that are too long for what is left of the budget
_HEAD_SHARE: Final = 0.2  # of the budget, for folders and files without symbols
_ENVIRONMENT: Final = ("PATH", "HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "LC_CTYPE")
_LYRAS_FOLDER: Final = os.path.abspath(os.path.join(__file__, *[os.pardir] * 5))
_START: Final = "import sys; sys.path += sys.argv[1:]; from lyra.sage.project.repo_map.worker import main; main()"


class RepoMap:
    """The map of the folders of one workspace. Without a cache folder outlines are kept as long as this object."""

    def __init__(
        self, workspace: Workspace, *, cache_folder: str = "", seconds_max: float = MAP_S_MAX, ripgrep: bool = True
    ) -> None:
        self._workspace = workspace
        self._cache = cache_folder
        self._seconds_max = seconds_max
        self._ripgrep = ripgrep
        self._lock = asyncio.Lock()  # one worker at a time: a second would read the same files
        self.files_read = 0  # by the last map; the others were known

    async def text(self, *, path: str = "", query: str = "", tokens: int = MAP_TOKENS) -> str:
        """Return the map of the workspace, or of a folder or file in it, with what the query names first."""
        if not 1 <= tokens <= MAP_TOKENS_MAX:
            raise ToolError(f"tokens is between 1 and {MAP_TOKENS_MAX}", reason="invalid_arguments")
        root, within = self._place(path)
        job = {
            "root": root,
            "within": within,
            "query": query[:_QUERY_CHARS_MAX],
            "most": min(_SYMBOLS_MAX, tokens // 8 + 50),
            "cache": os.path.join(self._cache_folder(), f"{blake2b(os.fsencode(root), digest_size=8).hexdigest()}.map"),
            "seconds": self._seconds_max,
            "ripgrep": (find_ripgrep() or "") if self._ripgrep else "",
            "passed_over": PASSED_OVER,
        }
        async with self._lock:
            answer = await self._ask(job) or await self._ask({**job, "parsers": False, "cache": ""})
        if answer is None:
            raise ToolError("the map could not be made: its worker ended before it was done", reason="exec_failed")
        self.files_read = answer["read"]
        return await asyncio.to_thread(self._render, answer, root, tokens)

    def _cache_folder(self) -> str:
        """Return the folder of the caller, or else one that is removed with this object."""
        if not self._cache:
            self._cache = tempfile.mkdtemp(prefix="lyra-map-")
            weakref.finalize(self, shutil.rmtree, self._cache, ignore_errors=True)
        return self._cache

    def _place(self, path: str) -> tuple[str, str]:
        """Return the root of the workspace that a path lies in, and the beginning of the paths below it that are
        meant."""
        workspace = self._workspace
        real = os.path.realpath(workspace.absolute(path)) if path else workspace.root
        check_admitted(real, path or ".")
        root = next((root for root in workspace.roots if f"{real}/".startswith(f"{root.rstrip('/')}/")), None)
        if root is None:
            raise ToolError(f"{path[:200]} is outside the workspace", reason="permission_denied")
        if real == root:
            return root, ""
        inside = os.path.relpath(real, root)
        if os.path.isdir(real):
            return root, f"{inside}/"
        if not os.path.isfile(real):
            raise ToolError(f"there is no {path[:200]}", reason="not_found")
        return root, inside

    async def _ask(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer of a worker; None where it ended without one."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _START, *_package_folders()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            limit=_ANSWER_BYTES_MAX,
        )
        return await ask_worker(
            process, job, what="the map", seconds_max=self._seconds_max + _GRACE_S, hint="name a folder"
        )

    def _render(self, answer: dict[str, Any], root: str, tokens: int) -> str:
        def render_path(path: str) -> str:
            return visible(self._workspace.display_path(os.path.join(root, path)))

        files = [(render_path(path), symbols) for path, symbols in answer["files"] if not self._hides(root, path)]
        plain = [render_path(path) for path in answer["plain"] if not self._hides(root, path)]
        answer["folders"] = [row for row in answer["folders"] if not self._hides(root, os.path.join(row[0], "file"))]
        if not answer["count"]:
            return "there are no files here that a map is made of"
        notes = (
            [] if answer["complete"] else ["Not all files are in it yet: they are many. Ask again, or name a folder."]
        )
        room = int(tokens / WORDY)
        head = list(_fitting(_head(answer, render_path, plain), int(room * _HEAD_SHARE)))
        room -= _size([*head, *notes])
        lines = [*head, *(line for block in _blocks(files, room) for line in block), *notes]
        while len(lines) > 1 and text_tokens("\n".join(lines)) > tokens:
            lines.pop()
        return "\n".join(lines)

    def _hides(self, root: str, path: str) -> bool:
        return self._workspace.hides(os.path.join(root, path))


def _package_folders() -> list[str]:
    """Return the folders that Lyra and what its worker imports lie in; nothing else of this program's path counts
    there."""
    import importlib.util

    import msgspec

    files: list[str | None] = [msgspec.__file__]
    for name in ("tree_sitter", "tree_sitter_javascript"):
        spec = importlib.util.find_spec(name)
        files.append(spec.origin if spec is not None else None)
    outside = [os.path.dirname(os.path.dirname(os.path.abspath(file))) for file in files if file]
    return list(dict.fromkeys([_LYRAS_FOLDER, *outside]))


def _head(answer: dict[str, Any], shown: Any, plain: list[str]) -> Iterator[str]:
    """Lines about the whole: how many files of which kinds, in which folders, and those without symbols."""
    kinds = ", ".join(f"{count} {visible(ending)}" for ending, count in answer["endings"])
    yield f"{answer['count']} files ({kinds}). The definitions that other files use most come first."
    if answer["folders"]:
        yield "Folders: " + ", ".join(f"{shown(path)}/ ({count})" for path, count in answer["folders"])
    if plain:
        yield "Also: " + ", ".join(plain)


def _fitting(lines: Iterable[str], room: int) -> Iterator[str]:
    """Yield the lines, a list that is too long cut at a comma."""
    for line in lines:
        if len(line) + 1 > room:
            cut = line[: max(0, room - 2)].rpartition(", ")[0]
            if cut:
                yield f"{cut}, ..."
            return
        room -= len(line) + 1
        yield line


def _blocks(files: Iterable[tuple[str, list[Any]]], room: int) -> Iterator[list[str]]:
    """Yield a block of lines for each file that fits into what is left of the room."""
    misfits = 0
    for path, symbols in files:
        block = [path, *(f"{'  ' * (depth + 1)}{visible(signature)}" for _, signature, _, depth in symbols)]
        size = _size(block)
        if size > room:
            misfits += 1
            if misfits >= _MISFITS_MAX:
                return
            continue
        misfits = 0
        room -= size
        yield block


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


def repo_map_tool(workspace: Workspace, repo_map: RepoMap) -> Tool:
    """Return the tool for one workspace and its map."""

    def needs_of(arguments: dict[str, Any]) -> list[Capability]:
        return workspace.need("fs.read", arguments.get("path") or None)

    async def show(path: str = ".", query: str = "", tokens: int = MAP_TOKENS) -> str:
        """Show the files of a folder with their classes and functions, as they are now, the most used ones first.

        Args:
            path: a folder, or one file to see what it defines
            query: what it is about, in words, names or paths: what fits comes first
            tokens: how long the answer may be, at most 20000
        """
        return await repo_map.text(path=path, query=query, tokens=tokens)

    return tool(
        show,
        name="RepoMap",
        needs_of=needs_of,
        idempotent=True,
        untrusted=True,
        harmless=True,
        folders=workspace.roots,
    ).mark_builtin()
