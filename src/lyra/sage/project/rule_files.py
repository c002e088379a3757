"""The files with rules for a model: `AGENTS.md`, `SAGE.md`, `.lyra/rules/*.md`, and the files that they import.

`rule_files` reads those of one folder. A word `@docs/style.md` in such a file, outside of code, imports another file:
its path starts at the importing file, and the file has to lie in the folder that the rules belong to, links resolved.
Each file is read once. A file that cannot be given to a model (too large, not text, named like a key) is a `RuleFile`
with a problem instead of a text. Whether a file is trusted is decided in `rules`; nothing here asks for that.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

from lyra.errors import LyraError
from lyra.sandbox.paths import Beneath, true_path
from lyra.tools.permissions.decision import may_hold_secrets

NAMES: Final = ("AGENTS.md", "SAGE.md")
RULES_FOLDER: Final = os.path.join(".lyra", "rules")
FILE_BYTES_MAX: Final = 1 << 20  # a larger file is something else by mistake
IMPORTS_DEPTH_MAX: Final = 3
_FILES_MAX: Final = 50  # of one folder, imports included
_FOLDERS_UP_MAX: Final = 64
_FENCE: Final = re.compile(r"^[ \t]*(`{3,}|~{3,})")
_CODE: Final = re.compile(r"`[^`\n]*`")
_IMPORT: Final = re.compile(r"(?:^|(?<=[\s(]))@((?:\.{1,2}/|/)?[\w.][\w./+-]*)")


class FileStamp(NamedTuple):
    """What changes with the content of a file."""

    modified_ns: int
    size_bytes: int
    inode: int

    @classmethod
    def of(cls, state: os.stat_result) -> FileStamp:
        return cls(state.st_mtime_ns, state.st_size, state.st_ino)


class RuleFile(NamedTuple):
    """One file: the folder that it belongs to, its path in it, and its bytes. With a `problem` there are none."""

    root: str
    name: str
    data: bytes = b""
    problem: str = ""
    imported_by: str = ""
    stamp: FileStamp | None = None  # of the file as it was read

    @property
    def path(self) -> str:
        return os.path.join(self.root, self.name)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8-sig", "replace").replace("\r\n", "\n")


def folders_above(folder: str) -> list[str]:
    """The folder and those above it up to the one with a `.git`, outermost first; without one the folder alone."""
    start = os.path.realpath(folder)
    folders = [start]
    while not os.path.lexists(os.path.join(folders[-1], ".git")):
        above = os.path.dirname(folders[-1])
        if above == folders[-1] or len(folders) > _FOLDERS_UP_MAX:
            return [start]
        folders.append(above)
    return folders[::-1]


def rule_files(root: str, *, names: tuple[str, ...] = NAMES, rules_folder: str = RULES_FOLDER) -> list[RuleFile]:
    """The files with rules of one folder, each before those that it imports."""
    try:
        with Beneath(os.path.realpath(root)) as folder:
            reading = _Reading(folder)
            for name in (*names, *_listed(folder, rules_folder)):
                reading.add(name)
            return reading.files
    except LyraError:  # the folder cannot be opened
        return []


def _listed(folder: Beneath, name: str) -> Iterator[str]:
    """The Markdown files of the folder of rules, by name."""
    if not name:
        return
    try:
        descriptor = folder.open(name, os.O_RDONLY | os.O_DIRECTORY)
    except (OSError, LyraError):
        return
    try:
        entries = sorted(os.listdir(descriptor))
    finally:
        os.close(descriptor)
    for entry in entries:
        if entry.endswith(".md") and not entry.startswith("."):
            yield os.path.join(name, entry)


class _Reading:
    """The files of one folder as they are read; each file counts once, by whatever names it is reached."""

    def __init__(self, folder: Beneath) -> None:
        self._folder = folder
        self._seen: set[tuple[int, int]] = set()
        self.files: list[RuleFile] = []

    def add(self, name: str, *, depth: int = 0, imported_by: str = "") -> None:
        file = self._read(name, imported_by)
        if file is None:
            return
        if len(self.files) == _FILES_MAX:
            file = file._replace(data=b"", problem=f"there are more than {_FILES_MAX} files of rules")
        if len(self.files) <= _FILES_MAX:
            self.files.append(file)
        if file.problem or len(self.files) > _FILES_MAX:
            return
        wanted = imports_in(file.text)
        if wanted and depth >= IMPORTS_DEPTH_MAX:
            problem = f"it is imported by imports that are {IMPORTS_DEPTH_MAX} deep already"
            self.files += [RuleFile(self._folder.root, path, b"", problem, file.name) for path in wanted]
            return
        for path in wanted:
            target = os.path.normpath(os.path.join(os.path.dirname(file.name), path))
            self.add(target, depth=depth + 1, imported_by=file.name)

    def _read(self, name: str, imported_by: str) -> RuleFile | None:
        """The file; None where there is none, or where it was read already."""

        def problem(sentence: str, named: str = name) -> RuleFile:
            return RuleFile(self._folder.root, named, b"", sentence, imported_by)

        try:
            descriptor = self._folder.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except LyraError:
            return problem("it leads out of the folder")
        except OSError as error:
            missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
            return None if missing else problem(f"it cannot be read: {error.strerror}")
        try:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                return None if imported_by else problem("it is not a file")
            if (state.st_dev, state.st_ino) in self._seen:
                return None
            self._seen.add((state.st_dev, state.st_ino))
            # A link inside the folder gives a file another name; the file itself is what is read and trusted.
            real = os.path.relpath(true_path(descriptor), self._folder.root)
            if may_hold_secrets(os.path.join(self._folder.root, real)):
                return problem("it has the name of a file with secrets", real)
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(FILE_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
        if len(data) > FILE_BYTES_MAX:
            return problem(f"it is larger than {FILE_BYTES_MAX} bytes", real)
        if b"\0" in data:
            return problem("it is not text", real)
        return RuleFile(self._folder.root, real, data, "", imported_by, FileStamp.of(state))


def imports_in(text: str) -> list[str]:
    """The paths that a text imports, in order; code blocks and `code` import nothing, and neither does `@name`."""
    fence = ""
    paths = []
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark is not None and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence:
            paths += [match[1].rstrip(".") for match in _IMPORT.finditer(_CODE.sub("", line))]
    return list(dict.fromkeys(path for path in paths if "/" in path or path.endswith((".md", ".txt"))))
