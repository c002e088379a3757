"""Copies the folder of a plugin: plain files alone, within bounds, without links and hidden names.

The copy is private to its user. A file keeps the right to be run.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lyra.core.checking.watched_files import read_plain_file
from lyra.errors import ConfigError
from lyra.sage.extensions.front_matter import one_line
from lyra.sage.extensions.plugins.manifest import MANIFEST

_FILES_MAX: Final = 1_000
_BYTES_MAX: Final = 20 << 20
_DEPTH_MAX: Final = 8


def copy_plugin(source: str, target: Path) -> None:
    """Copy a plugin's plain files; ConfigError for links, devices, and more than a plugin may have."""
    if not os.path.isfile(os.path.join(source, MANIFEST)):
        raise ConfigError(f"there is no {MANIFEST} in {one_line(source)}", key="plugin")
    copied = size = 0
    for folder, inside in _folders(source):
        os.mkdir(target / inside, stat.S_IRWXU)
        with os.scandir(folder) as entries:
            files = [entry for entry in entries if not entry.name.startswith(".")]
        for entry in files:
            if entry.is_symlink():
                raise ConfigError(f"{one_line(entry.path)} is a link; a plugin has none", key="plugin")
            if entry.is_dir(follow_symlinks=False):
                continue
            copied += 1
            size += _copy_file(entry.path, target / inside / entry.name, _BYTES_MAX - size)
            if copied > _FILES_MAX:
                raise ConfigError(f"a plugin has at most {_FILES_MAX} files", key="plugin")


def _folders(source: str) -> Iterator[tuple[str, str]]:
    """The folders of a plugin and their paths in it, outermost first; hidden ones are left out."""
    waiting = [(source, "")]
    count = 0
    while waiting:
        folder, inside = waiting.pop(0)
        count += 1
        if count > _FILES_MAX or inside.count(os.sep) >= _DEPTH_MAX:
            raise ConfigError("a plugin has fewer folders than this", key="plugin")
        yield folder, inside
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            )
        waiting += [(os.path.join(folder, name), os.path.join(inside, name)) for name in names]


def _copy_file(source: str, target: Path, bytes_left: int) -> int:
    try:
        data = read_plain_file(source, max(0, bytes_left), follow_links=False)
    except OSError as error:
        raise ConfigError(f"{one_line(source)} cannot be copied: {error.strerror}", key="plugin") from None
    runs = os.stat(source, follow_symlinks=False).st_mode & stat.S_IXUSR
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o700 if runs else 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    return len(data)
