"""GitActs: what calls of the tool Git have moved in a session, so that an undo takes it back and a redo gives it again.

Around each call the branches, tags, stash and what is checked out are noted, and the index is kept. `move` puts them
back to before a turn or forward again, where no other hand has moved them since; files of the working tree are the
matter of `snapshots`. The commits themselves stay in the repository until git removes them, so that nothing is lost.
What a push has sent elsewhere is not taken back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.core.tool import ToolCall
from lyra.tools.git.repository import GitRefs, GitRepository, read_head
from lyra.tools.wrapped import Middleware, Next

_FOLDER: Final = "git"
_FILE: Final = "acts.jsonl"
_INDEX_BYTES_MAX: Final = 64 << 20


class GitAct(msgspec.Struct, frozen=True):
    """One call that moved something, in the repository of `root`."""

    number: int
    turn: int
    root: str
    before: GitRefs
    after: GitRefs
    undone: bool = False


class GitActs:
    """The acts of a session, in a folder of its own; `turn` gives the number of the turn under way."""

    def __init__(self, place: Path, turn: Callable[[], int]) -> None:
        self._folder = place / _FOLDER
        self._turn = turn
        self._acts: dict[int, GitAct] = {}
        with contextlib.suppress(OSError):
            for line in (self._folder / _FILE).read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError):  # the last line of a killed process
                    act = msgspec.json.decode(line, type=GitAct)
                    self._acts[act.number] = act

    def keep(self, tool_root: str) -> Middleware:
        """Return the layer for the tool Git of an agent that works in this folder."""

        async def mw(call: ToolCall, inner: Next) -> Any:
            head = read_head(inner.tool.folders[0] if inner.tool.folders else tool_root)
            if head is None:
                return await inner(call)
            repository = GitRepository(head)
            before, index = await repository.refs(), _read_index(repository.index)
            try:
                return await inner(call)
            finally:
                after = await repository.refs()
                if after != before or index != _read_index(repository.index):
                    self._add(head.root, before, after, index)

        return mw

    def _add(self, root: str, before: GitRefs, after: GitRefs, index: bytes | None) -> None:
        number = len(self._acts) + 1
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if index is not None:
            self._index_file(number).write_bytes(index)
        self._write(GitAct(number, self._turn(), root, before, after))

    def _write(self, act: GitAct) -> None:
        self._acts[act.number] = act
        with (self._folder / _FILE).open("ab") as file:
            file.write(msgspec.json.encode(act) + b"\n")

    def _index_file(self, number: int, *, after: bool = False) -> Path:
        return self._folder / f"{number}.{'after' if after else 'index'}"

    async def move(self, undone: Collection[int], redone: Collection[int] = ()) -> list[str]:
        """Take back what turns have moved, the last first, and do again what others had; sentences about what was done
        and what was not."""
        told: list[str] = []
        acts = sorted(self._acts.values(), key=lambda act: act.number)
        back = [act for act in reversed(acts) if act.turn in undone and not act.undone]
        for act in (*back, *(act for act in acts if act.turn in redone and act.undone)):
            before, after = (act.after, act.before) if act.undone else (act.before, act.after)
            head = read_head(act.root)
            if head is None:
                return [*told, "git: there is no repository any more"]
            repository = GitRepository(head)
            now = _read_index(repository.index)
            index = _read_index(self._index_file(act.number, after=act.undone))
            problem = await repository.restore_refs(before, after, index)
            if problem:
                return [*told, f"git: {problem}"]
            if now is not None:
                self._index_file(act.number, after=not act.undone).write_bytes(now)
            self._write(msgspec.structs.replace(act, undone=not act.undone))
            told += _describe(self._acts[act.number])
        return told


def _describe(act: GitAct) -> list[str]:
    """Return sentences about branches and tags that an undo has moved, or a redo."""
    names = {*act.before.refs, *act.after.refs}
    moved = sorted(name for name in names if act.before.refs.get(name) != act.after.refs.get(name))
    told = "is again as before; its commit was {}" if act.undone else "is at {} again"
    return [
        f"git: {name.removeprefix('refs/heads/')} {told.format(act.after.refs[name][:10])}"
        for name in moved
        if name in act.after.refs and not name.startswith("refs/remotes/")
    ]


def _read_index(path: str | Path) -> bytes | None:
    try:
        data = Path(path).read_bytes()
    except OSError:
        return None
    return data if len(data) <= _INDEX_BYTES_MAX else None
