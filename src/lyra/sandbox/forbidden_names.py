"""Files and folders that a command must not create, because the user's programs would act on them (`.git`,
`lyra.toml`).

`placeholders` prevents the folders among them in a workspace's root: an empty folder of that name exists while a
command runs, which sees it read-only. `set_aside` handles all others after the command: it renames what appeared
(`lyra.toml` to `lyra.toml.held-x7k2`), so that no program reads it and nothing is lost. Both work by descriptor.
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

_FOLDERS: Final = (".git", ".lyra", ".vscode")  # programs ignore each of these when it is empty
_NAME_BYTES_MAX: Final = 200
_names: Final = Entropy()
_held: Final[Counter[str]] = Counter()  # path → how many running commands need it


def placeholders(workspace: str) -> Callable[[], None]:
    """Make the missing folders. The returned function removes them after the last command that needs them."""
    mine: list[str] = []
    for path in (f"{workspace}/{name}" for name in _FOLDERS):
        if not _held[path]:
            try:
                os.mkdir(path, 0o755)
            except OSError:
                continue  # it exists already, or the workspace cannot be written anyway
        _held[path] += 1
        mine.append(path)

    def release() -> None:
        for path in mine:
            _held[path] -= 1
            if not _held[path]:
                del _held[path]
                with contextlib.suppress(OSError):  # it is in use and no longer empty
                    os.rmdir(path)

    return release


def set_aside(root: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Rename each path so that it has no protected name any more; gives the new paths of those that were renamed."""
    done: list[str] = []
    with Beneath(root) as folder:
        for path in paths:
            above, _, name = path.rpartition("/")
            held = f"{os.fsdecode(os.fsencode(name)[:_NAME_BYTES_MAX])}.held-{_names.text(6)}"
            try:
                parent = folder.open(above or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)
            except (OSError, LyraError):
                continue  # gone or moved: the next search finds it at its new place
            try:
                os.rename(name, held, src_dir_fd=parent, dst_dir_fd=parent)
                done.append(f"{above}/{held}" if above else held)
            except OSError:
                continue
            finally:
                os.close(parent)
    return tuple(done)
