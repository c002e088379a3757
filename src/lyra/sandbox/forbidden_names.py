"""What must not come to be: names that the user's programs would act on, made by a command where there were none.

`Placeholders` keeps the folders among them from being made in a workspace's root: an empty one stands there while a
command runs, which sees it read-only. `set_aside` is for all others, and comes after: what appeared is renamed where
it lies (`lyra.toml` to `lyra.toml.held-x7k2`), so that nothing reads it and nothing is lost. Both reach what they
touch by descriptor.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from lyra.core.ids import Entropy
from lyra.errors import LyraError
from lyra.sandbox.paths import Beneath

__all__ = ["placeholders", "set_aside"]

_FOLDERS: Final = (".git", ".lyra", ".vscode")  # empty, each means nothing to the programs that look for it
_NAME_BYTES_MAX: Final = 200
_names: Final = Entropy()
_held: Final[Counter[str]] = Counter()  # how many commands that run now stand on each


def placeholders(workspace: str) -> Callable[[], None]:
    """Make those that are missing; what is given back takes them away when the last command that needs them ends."""
    mine: list[str] = []
    for path in (f"{workspace}/{name}" for name in _FOLDERS):
        if not _held[path]:
            try:
                os.mkdir(path, 0o755)
            except OSError:
                continue  # it is there and not ours, or this folder cannot be written anyway
        _held[path] += 1
        mine.append(path)

    def release() -> None:
        for path in mine:
            _held[path] -= 1
            if not _held[path]:
                del _held[path]
                with contextlib.suppress(OSError):  # somebody uses it now
                    os.rmdir(path)

    return release


def set_aside(root: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Rename each so that it is no protected name any more; the new paths of those that could be."""
    done: list[str] = []
    with Beneath(root) as folder:
        for path in paths:
            above, _, name = path.rpartition("/")
            held = f"{os.fsdecode(os.fsencode(name)[:_NAME_BYTES_MAX])}.held-{_names.text(6)}"
            try:
                parent = folder.open(above or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)
            except (OSError, LyraError):
                continue  # gone, or moved: the next look finds it where it is
            try:
                os.rename(name, held, src_dir_fd=parent, dst_dir_fd=parent)
                done.append(f"{above}/{held}" if above else held)
            except OSError:
                continue
            finally:
                os.close(parent)
    return tuple(done)
