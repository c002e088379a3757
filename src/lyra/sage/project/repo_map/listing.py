"""The files of a folder that a map is made of: what `.gitignore` leaves, without hidden files and without keys.

ripgrep lists them where it is installed, else a walk that reads `.gitignore` files itself. Both run in the worker's
process. Links are not followed. Names that are protected because they hold keys are left out before anything is opened,
and so are names that are not UTF-8. A machine without ripgrep has the rules of `.gitignore` files followed by
IgnoreRules.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple, Self

from lyra.sandbox.protection.protected_names import NAMES
from lyra.tools.builtin.search_worker import glob_regex

FILES_MAX: Final = 50_000
_IGNORE_BYTES_MAX: Final = 100_000
_FOLDERS_UP_MAX: Final = 64


class ListedFile(NamedTuple):
    """A file by its path below the root, with what changes when its content does."""

    path: str
    modified_ns: int
    size_bytes: int


class FileListing(NamedTuple):
    files: list[ListedFile]
    more: bool  # there are more than FILES_MAX


def list_files(
    root: str, *, ripgrep: str = "", passed_over: Collection[str] = (), most: int = FILES_MAX
) -> FileListing:
    """Return the files below a folder, at most `most` of them, by path, without the folders whose names are
    `passed_over`. `ripgrep` is the path of that program."""
    paths = _by_ripgrep(ripgrep, root, passed_over) if ripgrep else _by_walk(root, frozenset(passed_over))
    files: list[ListedFile] = []
    more = False
    for path in paths:
        if is_secret(path) or not _is_text(path):
            continue
        if len(files) >= most:
            more = True
            break
        try:
            state = os.lstat(f"{root}/{path}")
        except OSError:
            continue
        if stat.S_ISREG(state.st_mode):
            files.append(ListedFile(path, state.st_mtime_ns, state.st_size))
    files.sort()
    return FileListing(files, more)


def is_secret(path: str) -> bool:
    """Return whether a part of the path is a name that keys have."""
    folder = ""
    for name in path.split("/"):
        if NAMES.kind(name, NAMES.beside(folder)) == "hidden":
            return True
        folder = name
    return False


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\n" not in path


def _by_ripgrep(program: str, root: str, passed_over: Collection[str]) -> Iterator[str]:
    command = [program, "--files", "--no-config", "--no-messages", "--no-require-git"]
    for name in passed_over:
        command += ["--glob", f"!**/{name}/"]
    reading, writing = os.pipe()
    silent = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    shown = (os.POSIX_SPAWN_DUP2, writing, 1)
    pid = os.posix_spawn(program, [*command, "--", root], os.environ, file_actions=[silent, shown])
    os.close(writing)
    start = len(os.fsencode(root.rstrip("/"))) + 1
    try:
        with open(reading, "rb") as output:
            for line in output:
                yield os.fsdecode(line.rstrip(b"\n")[start:])
    finally:
        os.waitpid(pid, 0)  # where the reader stopped early, the closed pipe has ended it


def _by_walk(root: str, passed_over: Collection[str]) -> Iterator[str]:
    from lyra.tools.builtin.search_worker import open_folder  # imports the event loop, which ripgrep's list needs not

    prefix, rules = _rules_above(root)
    waiting = [("", rules)]
    while waiting:
        folder, rules = waiting.pop()
        try:
            descriptor = open_folder(f"{root}/{folder}".rstrip("/"))
        except OSError:
            continue
        try:
            with os.scandir(descriptor) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
            rules = rules.add(_ignore_file(descriptor), prefix + folder)
            for entry in listed:
                path = f"{folder}{entry.name}"
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in passed_over and not rules.ignores(prefix + path, is_folder=True):
                        waiting.append((f"{path}/", rules))
                elif entry.is_file(follow_symlinks=False) and not rules.ignores(prefix + path, is_folder=False):
                    yield path
        except OSError:
            continue
        finally:
            os.close(descriptor)


def _rules_above(root: str) -> tuple[str, IgnoreRules]:
    """Return the path of the root in its repository with a slash, and the rules of the folders above it there."""
    from lyra.tools.builtin.search_worker import open_folder

    folders = [root]
    while not os.path.lexists(f"{folders[-1]}/.git"):
        above = os.path.dirname(folders[-1])
        if above == folders[-1] or len(folders) > _FOLDERS_UP_MAX:
            return "", IgnoreRules()
        folders.append(above)
    top = folders[-1].rstrip("/")
    rules = IgnoreRules()
    for folder in folders[:0:-1]:
        try:
            descriptor = open_folder(folder)
        except OSError:
            continue
        rules = rules.add(_ignore_file(descriptor), f"{folder[len(top) + 1 :]}/".lstrip("/"))
        os.close(descriptor)
    return f"{root[len(top) + 1 :]}/".lstrip("/"), rules


def _ignore_file(folder: int) -> str:
    try:
        descriptor = os.open(".gitignore", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _IGNORE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


_RULES_MAX: Final = 2_000
_LINE_CHARS_MAX: Final = 300
_STARS_MAX: Final = 8  # each further one multiplies the time for a path that nearly matches


class _IgnoreRule(NamedTuple):
    matches: re.Pattern[str]
    base: str  # the folder of its file, and its slash
    folders_only: bool
    takes_back: bool


class IgnoreRules:
    """The rules that hold in one folder."""

    __slots__ = ("_rules",)

    def __init__(self, rules: tuple[_IgnoreRule, ...] = ()) -> None:
        self._rules = rules

    def add(self, text: str, base: str) -> Self:
        """These rules and those of the `.gitignore` in the folder `base` ("" is the root)."""
        rules = [rule for line in text.split("\n") if (rule := _rule(line, base)) is not None]
        return type(self)((*self._rules, *rules)[:_RULES_MAX])

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        for rule in reversed(self._rules):
            if rule.folders_only and not is_folder:
                continue
            if path.startswith(rule.base) and rule.matches.fullmatch(path, len(rule.base)):
                return not rule.takes_back
        return False


def _rule(line: str, base: str) -> _IgnoreRule | None:
    text = line.rstrip("\r").rstrip(" ") if not line.endswith("\\ ") else line
    if not text or text.startswith("#") or len(text) > _LINE_CHARS_MAX or text.count("*") > _STARS_MAX:
        return None
    takes_back = text.startswith("!")
    text = text.removeprefix("!") if takes_back else text
    folders_only = text.endswith("/")
    pattern = text.rstrip("/").replace("{", "\\{").replace("}", "\\}")
    if not pattern:
        return None
    try:
        regex = glob_regex(pattern)  # a leading slash keeps a plain name at the base
        return _IgnoreRule(re.compile(regex, re.DOTALL), base, folders_only, takes_back)
    except (re.error, IndexError):
        return None
