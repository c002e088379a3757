"""Folders of files for the tests of snapshots: read a tree, and change it at random."""

from __future__ import annotations

import os
import random
import shutil
import stat
from pathlib import Path
from typing import Any

NAMES = ("a", "b.txt", "c d", "é", "line\nend", "bad\udcff", "sub", "deep")
SKIPPED = (".git", "node_modules")
Tree = dict[str, tuple[Any, ...]]


def tree(folder: Path | str) -> Tree:
    """Every path below a folder with kind, mode and content; without what snapshots leave alone."""
    paths: Tree = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in folders + files:
            path = os.path.join(place, name)
            status = os.lstat(path)
            key = os.path.relpath(path, folder)
            if stat.S_ISLNK(status.st_mode):
                paths[key] = ("link", os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                paths[key] = ("folder", stat.S_IMODE(status.st_mode))
            else:
                data = Path(path).read_bytes()
                paths[key] = ("file", stat.S_IMODE(status.st_mode), data)
    return paths


def random_path(rng: random.Random, folder: Path) -> Path:
    return folder.joinpath(*[rng.choice(NAMES) for _ in range(rng.choice((1, 1, 2, 2, 3)))])


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def make_room(path: Path, folder: Path) -> None:
    """Make the folders above a path; files and links in their place are removed."""
    above = [parent for parent in path.parents if parent != folder and folder in parent.parents]
    for parent in reversed(above):
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            parent.unlink()
        parent.mkdir(exist_ok=True)


def change_at_random(rng: random.Random, folder: Path) -> None:
    """One change of a kind that commands make: write, append, delete, move, link, folder, mode."""
    path = random_path(rng, folder)
    act = rng.choice(("write", "write", "write", "append", "delete", "move", "link", "folder", "mode", "touch"))
    if act == "write":
        make_room(path, folder)
        clear(path)
        path.write_bytes(rng.choice((b"", b"x" * 200_000, rng.randbytes(rng.randrange(50)), b"text\n")))
        path.chmod(rng.choice((0o644, 0o600, 0o755, 0o444)))
    elif act == "append" and path.is_file() and not path.is_symlink() and os.access(path, os.W_OK):
        with open(path, "ab") as file:
            file.write(rng.randbytes(5))
    elif act == "delete":
        clear(path)
    elif act == "move" and os.path.lexists(path):
        target = random_path(rng, folder)
        if target != path and path not in target.parents and target not in path.parents:
            make_room(target, folder)
            clear(target)
            if os.path.lexists(path):
                os.rename(path, target)
    elif act == "link":
        make_room(path, folder)
        clear(path)
        path.symlink_to(rng.choice(("a", "/etc", "..", "missing", "bad\udcff")))
    elif act == "folder":
        make_room(path / "x", folder)
    elif act == "mode" and os.path.lexists(path) and not path.is_symlink():
        path.chmod(rng.choice((0o700, 0o755)) if path.is_dir() else rng.choice((0o600, 0o644, 0o777)))
    elif act == "touch" and path.is_file() and not path.is_symlink():
        os.utime(path)
