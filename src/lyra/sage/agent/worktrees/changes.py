"""WorktreeChange: one file that differs between two moments, shown as a diff; and how three versions of it are merged.

`merge_of` decides for one file what a take-over writes, from what the worktree started with (before), what it has now
(after) and what the project has now. Nothing is read or written here, but for the merge of texts, which git does.
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from lyra.core.secrets.visible import visible
from lyra.sage.agent.worktrees.files import FileAt
from lyra.sage.session.files.change import visible_lines

_DIFF_BYTES_MAX: Final = 1 << 20  # of one side; a larger file is only counted
_CONTEXT_LINES: Final = 3

Merged = Callable[[bytes, bytes, bytes], Awaitable[bytes | None]]


class WorktreeChange(NamedTuple):
    """`before` and `after` are None where the file is not there."""

    path: str
    before: FileAt | None
    after: FileAt | None

    @property
    def kind(self) -> str:
        return "created" if self.before is None else "deleted" if self.after is None else "modified"

    @property
    def name(self) -> str:
        """The path as it is shown."""
        return visible(self.path)

    def diff(self) -> str:
        """The unified diff, every character visible; a sentence for what cannot be shown as text."""
        old, new = (_text(side) for side in (self.before, self.after))
        if old is None or new is None:
            sizes = " → ".join("none" if side is None else f"{len(side.data)} bytes" for side in self[1:])
            return f"{self.name}: not shown as text, {sizes}\n"
        names = (
            "/dev/null" if self.before is None else f"a/{self.name}",
            "/dev/null" if self.after is None else f"b/{self.name}",
        )
        lines = difflib.unified_diff(old, new, *names, n=_CONTEXT_LINES)
        text = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        return f"{self._modes()}{text}"

    def _modes(self) -> str:
        if self.before is None or self.after is None or self.before.mode == self.after.mode:
            return ""
        return f"{self.name}: mode {self.before.mode} → {self.after.mode}\n"

    @property
    def counts(self) -> tuple[int, int]:
        """Lines added and removed."""
        old, new = (_text(side) or [] for side in (self.before, self.after))
        lines = list(difflib.unified_diff(old, new, n=0))[2:]
        return sum(line[:1] == "+" for line in lines), sum(line[:1] == "-" for line in lines)


def _text(file: FileAt | None) -> list[str] | None:
    """The lines of a side; None where it is no text, or too long to be compared."""
    if file is None:
        return []
    if len(file.data) > _DIFF_BYTES_MAX or b"\0" in file.data:
        return None
    try:
        text = file.data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    shown = visible_lines(f"link to {text}" if file.is_link else text)
    return [f"{line}\n" for line in shown.split("\n")[:-1]] + [line for line in shown.split("\n")[-1:] if line]


class Merge(NamedTuple):
    """What to write (`file`; None: remove it). `done`: nothing is to be done. `conflict`: why it cannot be."""

    file: FileAt | None = None
    done: bool = False
    conflict: str = ""


async def merge_of(change: WorktreeChange, now: FileAt | None, *, committed: bool, merged: Merged | None) -> Merge:
    """How a change is taken over where the project has `now`. Without `merged` no texts are merged. `committed`: what
    the project has now is in its last commit; changes that are not are left alone."""
    before, after = change.before, change.after
    if now == after:
        return Merge(done=True)
    if now == before:
        return Merge(after)
    if merged is None or not committed:
        return Merge(conflict="it has changed in the project since" + ("" if committed else ", and is not committed"))
    if before is None or after is None or now is None:
        return Merge(conflict="it was removed on one side and changed on the other, or added on both")
    if before.is_link or after.is_link or now.is_link:
        return Merge(conflict="a link was changed on both sides")
    text = await merged(now.data, before.data, after.data)
    if text is None:
        return Merge(conflict="both sides have changed the same lines")
    mode = after.mode if after.mode != before.mode else now.mode
    return Merge(FileAt(text, mode))
