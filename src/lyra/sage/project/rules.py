"""ProjectRules: the rules that a model is given for a folder, as far as the user trusts them.

    rules = ProjectRules(folder)
    rules.text()                 # the user's own, then those from the git root down to the folder
    rules.rules_for("lib/a.py")  # those of subfolders on the way to a file
    rules.notices                # what was left out, and why

A repository's rules come from its authors, and a hostile one would steer the model with them. So a file of rules counts
once its content is trusted (`lyra.config.trust`); until then it is left out, and a notice says so. The user's own
`$XDG_CONFIG_HOME/lyra/SAGE.md` needs no trust. Files are read again when one of them has changed: `text` looks at their
times, which costs a few system calls. Sizes are bounded, and a text that was cut says so. `rule_asks` names the files
to `lyra trust`.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from lyra.config.asks import Ask, AskingFile
from lyra.config.files import is_own
from lyra.config.trust import FileAnswer, FolderTrust, digest_of, trust_for
from lyra.core.ids import Entropy
from lyra.core.secrets.visible import visible, without_invisible
from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError, LyraError
from lyra.sandbox.paths import Beneath, true_path
from lyra.tools.builtin.search_worker import PASSED_OVER
from lyra.tools.permissions.decision import may_hold_secrets

# ---------------------------------------------------------------- rule files

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
    def from_stat(cls, state: os.stat_result) -> FileStamp:
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
    """Return the folder and those above it up to the one with a `.git`, outermost first; without one the folder
    alone."""
    start = os.path.realpath(folder)
    folders = [start]
    while not os.path.lexists(os.path.join(folders[-1], ".git")):
        above = os.path.dirname(folders[-1])
        if above == folders[-1] or len(folders) > _FOLDERS_UP_MAX:
            return [start]
        folders.append(above)
    return folders[::-1]


def rule_files(root: str, *, names: tuple[str, ...] = NAMES, rules_folder: str = RULES_FOLDER) -> list[RuleFile]:
    """Return the files with rules of one folder, each before those that it imports."""
    try:
        with Beneath(os.path.realpath(root)) as folder:
            reading = _Reading(folder)
            for name in (*names, *_list_rules(folder, rules_folder)):
                reading.add(name)
            return reading.files
    except LyraError:  # the folder cannot be opened
        return []


def _list_rules(folder: Beneath, name: str) -> Iterator[str]:
    """Yield the Markdown files of the folder of rules, by name."""
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
        """Return the file; None where there is none, or where it was read already."""

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
        return RuleFile(self._folder.root, real, data, "", imported_by, FileStamp.from_stat(state))


def imports_in(text: str) -> list[str]:
    """Return the paths that a text imports, in order; code blocks and `code` import nothing, and neither does
    `@name`."""
    fence = ""
    paths = []
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark is not None and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence:
            paths += [match[1].rstrip(".") for match in _IMPORT.finditer(_CODE.sub("", line))]
    return list(dict.fromkeys(path for path in paths if "/" in path or path.endswith((".md", ".txt"))))


# ---------------------------------------------------------------- rule asks


def rule_asks(folder: str) -> Iterator[AskingFile]:
    """Yield the files with rules that count in a folder: its own, and those above it up to the git root."""
    for place in folders_above(folder):
        for file in rule_files(place):
            if not file.problem and is_own(file.path, folder):
                yield AskingFile(file.root, file.name, _read_rules)


def _read_rules(data: bytes, _name: str) -> Iterator[Ask]:
    text = data.decode()
    lines = sum(1 for line in text.splitlines() if line.strip())
    if lines:
        yield Ask("rules", f"gives the model {lines} line{'' if lines == 1 else 's'} of rules to follow")


FILE_CHARS_MAX: Final = 32_000  # of one file
TOTAL_CHARS_MAX: Final = 96_000  # of all files together
_NESTED_FOLDERS_MAX: Final = 1_000  # subfolders whose rules are remembered
_OWN_NAMES: Final = ("SAGE.md",)
_Stamps = dict[str, FileStamp | None]


class RuleSource(NamedTuple):
    """One file of rules: its path as it is shown, how many characters count, and why none do (`problem`)."""

    shown: str
    path: str
    chars: int = 0
    problem: str = ""
    trusted: bool = True


class ProjectRules:
    """The rules of one folder. `trust` is that of the caller, as for `trust_for`. `mark` begins the rules of a
    subfolder in a tool's result; a file must not know it, so a new one is made where its own session has none."""

    def __init__(
        self,
        folder: str,
        *,
        trust: FolderTrust | bool | None = None,
        env: Mapping[str, str] | None = None,
        mark: str = "",
    ) -> None:
        self.folder = os.path.realpath(folder)
        self.mark = mark or Entropy().text(8)
        self._env = os.environ if env is None else env
        self._trust = trust_for(self.folder, trust, env=env)
        self._stamps: _Stamps = {}
        self._text: str | None = None
        self._sources: list[RuleSource] = []
        self._nested: dict[str, _Nested] = {}
        self._told: dict[tuple[str, str], str] = {}  # reader and subfolder → the text that was told last

    def text(self) -> str:
        """Return the rules of the folder as text for a system prompt; "" where there are none."""
        if self._text is None or self._stamps != _stamps(self._stamps):
            self._text = self._read()
        return self._text

    @property
    def sources(self) -> tuple[RuleSource, ...]:
        """The files that were read, those of subfolders included."""
        nested = [source for folder in self._nested.values() for source in folder.sources]
        return (*self._sources, *nested)

    @property
    def notices(self) -> tuple[str, ...]:
        """A sentence for each file that is left out or cut, for the user."""
        return tuple(f"{source.shown}: {source.problem}" for source in self.sources if source.problem)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of the files that the user has not trusted."""
        return tuple(source.shown for source in self.sources if not source.trusted)

    def add_line(self, text: str) -> str:
        """Add a line to the AGENTS.md of the project, for the person who typed it; return the file's path. Trust in
        what stood there goes over to the new content; where nothing stood, the new content is trusted."""
        root = folders_above(self.folder)[0]
        name, path = NAMES[0], os.path.join(root, NAMES[0])
        line = f"- {' '.join(without_invisible(text).split())}\n".encode()
        try:
            with Beneath(root) as inside:
                descriptor = inside.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644)
                with open(descriptor, "r+b", buffering=0) as file:
                    name = os.path.relpath(true_path(descriptor), root)
                    before = file.read(FILE_BYTES_MAX + 1) or b""
                    if before and not before.endswith(b"\n"):
                        line = b"\n" + line
                    if len(before) + len(line) > FILE_BYTES_MAX:
                        raise ConfigError(f"it would be larger than {FILE_BYTES_MAX} bytes", place=path)
                    file.write(line)
        except OSError as error:
            raise ConfigError(f"{name} cannot be written: {error.strerror}", place=path) from None
        self.keep_trust(root, name, before, before + line)
        return path

    def keep_trust(self, root: str, name: str, before: bytes, after: bytes) -> None:
        """Trust a file of rules with the content that a person has given or approved, unless the one before was not
        trusted."""
        known = self._trust.answer(root, name)
        is_trusted = known is not None and known.trusted and known.sha256 == digest_of(before)
        if root in folders_above(self.folder) and (is_trusted or not before.strip()):
            asks = tuple(ask.sentence for ask in _read_rules(after, name))
            with contextlib.suppress(OSError):  # it counts in this session all the same
                self._trust.keep(root, {name: FileAnswer(digest_of(after), trusted=True, asks=asks)})

    def _read(self) -> str:
        folders = folders_above(self.folder)
        own = user_folder(self._env)
        watched = [path for folder in folders for path in _list_watched(folder)]
        if own is not None:
            watched += [os.path.join(own, name) for name in _OWN_NAMES]
        self._stamps = _stamps(watched)
        files = [] if own is None else [(file, True) for file in rule_files(own, names=_OWN_NAMES, rules_folder="")]
        files += [(file, self._is_trusted(file)) for folder in folders for file in rule_files(folder)]
        self._stamps.update((file.path, file.stamp) for file, _ in files if file.stamp is not None)
        parts, self._sources = _join_texts(files, self._render_path, TOTAL_CHARS_MAX)
        return "\n\n".join(parts)

    def _is_trusted(self, file: RuleFile) -> bool:
        if file.problem:
            return False
        if self._trust.covers(file.root, file.name, file.data):
            return True
        # Trust of the whole folder for one run covers its subfolders, and the folders above that count for it.
        return self._trust.is_whole(self.folder) and is_own(file.path, self.folder)

    def _render_path(self, file: RuleFile) -> str:
        inside = f"{self.folder}/"
        path = file.path
        return visible(path[len(inside) :] if path.startswith(inside) else path).replace("\n", " ")

    def rules_for(self, path: str) -> str:
        """Return the rules of the subfolders on the way to a file, outermost first; "" where there are none."""
        return "\n\n".join(nested.text for nested in self._on_the_way(path) if nested.text)

    def news_for(self, path: str, reader: str = "") -> str:
        """Return the same without those that this reader (a pid) was told already; `tell_again` forgets that."""
        news = []
        for nested in self._on_the_way(path):
            if nested.text and self._told.get((reader, nested.folder)) != nested.text:
                self._told[reader, nested.folder] = nested.text
                news.append(nested.text)
        return "\n\n".join(news)

    def tell_again(self) -> None:
        """Tell the rules of subfolders again when a file there is read next: a compaction has removed the results that
        had them."""
        self._told.clear()

    def _on_the_way(self, path: str) -> Iterator[_Nested]:
        real = os.path.realpath(os.path.join(self.folder, path))
        if not real.startswith(f"{self.folder}/"):
            return
        folder = self.folder
        for name in real[len(self.folder) + 1 :].split("/")[:-1]:
            folder = f"{folder}/{name}"
            if name in PASSED_OVER:
                return  # rules of a dependency are not about this project
            nested = self._nested.get(folder)
            if nested is None or nested.stamps != _stamps(nested.stamps):
                if len(self._nested) >= _NESTED_FOLDERS_MAX:
                    self._nested.clear()
                nested = self._nested[folder] = self._read_nested(folder)
            yield nested

    def _read_nested(self, folder: str) -> _Nested:
        stamps = _stamps(_list_watched(folder))
        if not any(stamps.values()):
            return _Nested(folder, stamps)
        files = [(file, self._is_trusted(file)) for file in rule_files(folder)]
        stamps.update((file.path, file.stamp) for file, _ in files if file.stamp is not None)
        parts, sources = _join_texts(files, self._render_path, FILE_CHARS_MAX)
        return _Nested(folder, stamps, "\n\n".join(parts), tuple(sources))


class _Nested(NamedTuple):
    """What is known of one subfolder."""

    folder: str
    stamps: _Stamps
    text: str = ""
    sources: tuple[RuleSource, ...] = ()


def _join_texts(
    files: Iterable[tuple[RuleFile, bool]], shown: Callable[[RuleFile], str], most: int
) -> tuple[list[str], list[RuleSource]]:
    """Return the texts of the trusted files with a heading each, and what became of every file. `most` bounds all of
    them."""
    parts: list[str] = []
    sources: list[RuleSource] = []
    for file, trusted in files:
        name = shown(file)
        if file.problem:
            sources.append(RuleSource(name, file.path, problem=f"{file.problem}; it is left out"))
            continue
        if not trusted:
            problem = f"not trusted, so its rules are left out; `lyra trust add {visible(file.root)}` trusts it"
            sources.append(RuleSource(name, file.path, problem=problem, trusted=False))
            continue
        problem = ""
        text = without_invisible(file.text).strip()
        room = min(FILE_CHARS_MAX, most)
        if len(text) > room:
            problem = f"only the first {room} of its {len(text)} characters are given"
            text = f"{text[:room]}\n… ({problem})"
        most -= min(room, len(text))
        sources.append(RuleSource(name, file.path, min(room, len(text)), problem))
        if text:
            imported = f" (imported by {visible(file.imported_by)})" if file.imported_by else ""
            parts.append(f"## {name}{imported}\n{text}")
    return parts, sources


def _list_watched(folder: str) -> list[str]:
    """Return the paths whose change means that the rules of a folder are read again."""
    return [os.path.join(folder, name) for name in (*NAMES, RULES_FOLDER)]


def _stamps(paths: Iterable[str]) -> _Stamps:
    stamps: _Stamps = {}
    for path in paths:
        try:
            stamps[path] = FileStamp.from_stat(os.stat(path))
        except OSError:
            stamps[path] = None
    return stamps
