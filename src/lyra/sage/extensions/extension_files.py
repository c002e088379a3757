"""ExtensionFiles: the extensions of one kind in all places, read again when their files change.

Owns what commands, skills and sub-agents have in common: which files there are, that of one name the first place's
counts, that a plugin's and a project's names come before the user's, that a file which becomes invalid keeps its last
good version, and that each problem is told with file and line. A subclass reads one file. `refresh` costs a listing and
a `stat` for each file; `reload` calls it at most once a second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

from lyra.config.trust import FolderTrust, trust_for
from lyra.core.checking.check import Mistake, Report
from lyra.core.checking.document import read_front_matter
from lyra.core.checking.watched_files import WatchedFiles
from lyra.core.clock import Clock, loop_clock
from lyra.core.secrets.visible import without_invisible
from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError, ParseError
from lyra.tools.permissions.rules import Rule


class Named(Protocol):
    """An extension: it has a name, and was read from a file."""

    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class ExtensionFiles(Generic[Entry]):
    """The entries of one kind by name. A subclass has the name of the folder, a word for sentences, and `_read`."""

    KIND: ClassVar[str]
    WORD: ClassVar[str]

    def __init__(self, places: Iterable[ExtensionPlace], *, clock: Clock | None = None) -> None:
        self._clock = clock or loop_clock()
        self._places: tuple[ExtensionPlace, ...] = ()
        self._files: dict[ExtensionPlace, WatchedFiles[Entry]] = {}
        self._entries: dict[str, Entry] = {}
        self._mistakes: tuple[Mistake, ...] = ()
        self.set_places(places)

    def set_places(self, places: Iterable[ExtensionPlace]) -> bool:
        """Read these places from here on; True if an entry or a mistake has changed."""
        self._places = tuple(places)
        known = self._files
        self._files = {place: known.get(place) or self._watch(place) for place in self._places}
        return self.refresh()

    def entries(self) -> dict[str, Entry]:
        """Return the entries as of the last refresh."""
        return dict(self._entries)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return self._mistakes

    @property
    def problems(self) -> tuple[str, ...]:
        """Return what is wrong with the files, as texts fit for a terminal: `file:line: sentence`."""
        return tuple(one_line(str(mistake)) for mistake in self._mistakes)

    def refresh(self) -> bool:
        """Look at the files; True if an entry or a mistake has changed."""
        before = self._entries, self._mistakes
        entries: dict[str, Entry] = {}
        mistakes: list[Mistake] = []
        for place, files in self._files.items():
            paths, wrong = self._list_files(place)
            mistakes += wrong
            files.refresh(paths)
            for path in paths:
                mistakes += files.mistakes(path)
                entry = files.value(path)
                if entry is not None:
                    self._add(entry, path, entries, mistakes)
        self._entries, self._mistakes = entries, tuple(mistakes)
        return before != (self._entries, self._mistakes)

    def _add(self, entry: Entry, path: str, entries: dict[str, Entry], mistakes: list[Mistake]) -> None:
        """Add an entry, unless its name is taken: a model and a person would not know which of two is meant."""
        taken = next((known for name, known in entries.items() if name.lower() == entry.name.lower()), None)
        if taken is None:
            entries[entry.name] = entry
        elif all(getattr(taken, key, "") == getattr(entry, key, "") for key in ("origin", "plugin")):
            mistakes.append(Mistake(path, 1, 1, f"there is {self.WORD} {entry.name!r} already"))
        elif getattr(taken, "origin", "") == "plugin":
            message = f"the plugin {getattr(taken, 'plugin', '')} has {self.WORD} {entry.name!r}, which counts"
            mistakes.append(Mistake(path, 1, 1, message))

    def _watch(self, place: ExtensionPlace) -> WatchedFiles[Entry]:
        return WatchedFiles(
            lambda data, path: self._read(data, path, place),
            bytes_max=FILE_BYTES_MAX,
            accept=place.accept,
            follow_links=place.follows_links,
            clock=self._clock,
        )

    def _list_files(self, place: ExtensionPlace) -> tuple[list[str], list[Mistake]]:
        """Return the files of a place; a subclass may leave some out."""
        return markdown_files(place, self.KIND)

    def _read(self, data: bytes, path: str, place: ExtensionPlace) -> tuple[Entry | None, list[Mistake]]:
        """Return the entry of one file, or its mistakes."""
        raise NotImplementedError(os.path.basename(path))


PROJECT_FOLDER: Final = ".lyra"
FILES_MAX: Final = 500  # Markdown files of one kind in one place
_FOLDERS_MAX: Final = 200  # below one place: bounds the time that a listing takes
_DEPTH_MAX: Final = 4
_NAME_CHARS_MAX: Final = 200

Origin = Literal["plugin", "project", "user"]


class ExtensionPlace(NamedTuple):
    """A folder with `commands`, `skills` and `agents` in it. `accept` is asked for the path and content of each file;
    None accepts all. `files` are the only files that count, by their paths; None: all."""

    origin: Origin
    folder: str
    plugin: str = ""  # the plugin's id
    accept: Callable[[str, bytes], bool] | None = None
    files: frozenset[str] | None = None

    def takes(self, path: str, data: bytes) -> bool:
        """Return whether a file with this content counts."""
        return (self.files is None or path in self.files) and (self.accept is None or self.accept(path, data))

    @property
    def follows_links(self) -> bool:
        """Whether a link counts: a repository or a plugin could bring one to any file of the user."""
        return self.origin == "user"


def extension_places(
    folder: str,
    *,
    plugins: Iterable[ExtensionPlace] = (),
    trusted: FolderTrust | bool | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[ExtensionPlace, ...]:
    """Return the places that count for a session in `folder`, those whose names win first. `trusted` is as for
    `trust_for`."""
    project = os.path.join(folder, PROJECT_FOLDER)
    trust = trust_for(folder, trusted, env=env)

    def accept(path: str, data: bytes) -> bool:
        return trust.covers(folder, os.path.relpath(path, folder), data)

    places = [*plugins]
    if not os.path.islink(project):
        places.append(ExtensionPlace("project", project, accept=accept))
    own = user_folder(os.environ if env is None else env)
    if own is not None and os.path.realpath(own) != os.path.realpath(project):
        places.append(ExtensionPlace("user", own))
    return tuple(places)


class _Listing:
    """A walk through one folder that stops at the bounds."""

    def __init__(self, place: ExtensionPlace) -> None:
        self._place = place
        self._folders = 0
        self.files: list[str] = []
        self.mistakes: list[Mistake] = []

    def walk(self, folder: str, depth: int) -> None:
        self._folders += 1
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self.mistakes.append(Mistake(folder, 1, 1, f"it cannot be read: {error.strerror}"))
            return
        for entry in listed:
            self._entry(entry, depth)

    def _entry(self, entry: os.DirEntry[str], depth: int) -> None:
        if entry.name.startswith(".") or len(entry.name) > _NAME_CHARS_MAX:
            return
        follows = self._place.follows_links
        if entry.is_symlink() and not follows:
            if entry.name.lower().endswith(".md"):
                self.mistakes.append(Mistake(entry.path, 1, 1, "it is a link, and links do not count here"))
            return
        if entry.is_dir(follow_symlinks=follows):
            if depth < _DEPTH_MAX and self._folders < _FOLDERS_MAX:
                self.walk(entry.path, depth + 1)
        elif entry.name.lower().endswith(".md") and self._counts(entry.path):
            self.files.append(entry.path)

    def _counts(self, path: str) -> bool:
        return self._place.files is None or path in self._place.files


def markdown_files(place: ExtensionPlace, kind: str) -> tuple[list[str], list[Mistake]]:
    """Return the `.md` files of one kind (`commands`, `skills`, `agents`) in a place, and what is wrong with its
    folders."""
    listing = _Listing(place)
    folder = os.path.join(place.folder, kind)
    if os.path.islink(folder) and not place.follows_links:
        return [], [Mistake(folder, 1, 1, "it is a link, and links do not count here")]
    listing.walk(folder, 0)
    if len(listing.files) > FILES_MAX:
        message = f"only the first {FILES_MAX} of {len(listing.files)} files are read"
        listing.mistakes.append(Mistake(folder, 1, 1, message))
    return listing.files[:FILES_MAX], listing.mistakes


FILE_BYTES_MAX: Final = 256 * 1024
BODY_CHARS_MAX: Final = 100_000  # about 25 000 tokens: a longer text would crowd out the conversation
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")  # ASCII alone: no letter that looks like another
_TEXT_CHARS_MAX: Final = 1_000
_LIST_MAX: Final = 100
_COMMA: Final = re.compile(r",(?![^()]*\))")  # outside of brackets


def one_line(text: str) -> str:
    """Return a text of a file fit for a terminal: on one line, without control characters, invisible and half ones."""
    return " ".join(without_invisible(text).encode("utf-8", "ignore").decode().split())


class MarkdownFile:
    """The keys and the body of one file. The methods read one key each; what is wrong goes to `report`."""

    __slots__ = ("body", "keys", "path", "report")

    def __init__(self, path: str, keys: dict[str, Any], body: str, report: Report) -> None:
        self.path = path
        self.keys = keys
        self.body = body
        self.report = report

    @classmethod
    def parse(cls, data: bytes, path: str, known: Collection[str], what: str) -> tuple[Self | None, list[Mistake]]:
        """Return the file, or what is wrong with it as a whole. `what` is the file's kind in sentences: "a command"."""
        try:
            head = read_front_matter(data, path)
        except ParseError as error:
            return None, [Mistake.from_error(error)]
        except ConfigError as error:
            return None, [Mistake(path, 1, 1, error.message, error.hint)]
        report = Report(path, head.places)
        report.mapping(head.keys, (), what, known)
        body = without_invisible(head.body).strip()
        if not body:
            report.mistakes.append(Mistake(path, head.body_line, 1, f"{what} has a text below its front matter"))
        elif len(body) > BODY_CHARS_MAX:
            message = f"the text has at most {BODY_CHARS_MAX} characters, not {len(body)}"
            report.mistakes.append(Mistake(path, head.body_line, 1, message))
        return cls(path, head.keys, body, report), report.mistakes

    def text(self, key: str, default: str = "", *, most: int = _TEXT_CHARS_MAX) -> str:
        """Return the value of a key as one line of text; `default` where the file does not have the key."""
        if key not in self.keys:
            return default
        value = self.report.text(self.keys[key], (key,), key, most=most)
        line = one_line(value) if value is not None else default
        if value is not None and not line:
            self.report.add((key,), f"{key} has no visible character")
        return line

    def flag(self, key: str, *, default: bool = False) -> bool:
        return self.report.flag(self.keys[key], (key,), key) if key in self.keys else default

    def integer(self, key: str, *, least: int, most: int) -> int | None:
        """Return the value of a key as a whole number; None where the file does not have the key."""
        if key not in self.keys:
            return None
        value = self.keys[key]
        if type(value) is int and least <= value <= most:
            return value
        self.report.add((key,), f"{key} is a whole number between {least} and {most}, not {_render_value(value)}")
        return None

    def word(self, key: str, words: Sequence[str]) -> str:
        if key not in self.keys:
            return ""
        return self.report.word(self.keys[key], (key,), key, words) or ""

    def texts(self, key: str, fits: Callable[[str], object], what: str) -> tuple[str, ...] | None:
        """Return the value of a key as a list of texts, which may be written as one text with commas; None where the
        file does not have the key."""
        if key not in self.keys:
            return None
        value = self.keys[key]
        if isinstance(value, str):
            value = [part.strip() for part in _COMMA.split(value)]
        if not isinstance(value, list) or len(value) > _LIST_MAX:
            self.report.add((key,), f"{key} is a list of at most {_LIST_MAX} entries")
            return ()
        for index, item in enumerate(value):
            if not isinstance(item, str) or not fits(item):
                self.report.add((key, index), f"{_render_value(item)} is not {what}")
        return tuple(dict.fromkeys(item for item in value if isinstance(item, str)))

    def tools(self, key: str) -> tuple[str, ...] | None:
        """Names of tools, each perhaps with a pattern: `Read`, `Bash(git diff *)`."""
        return self.texts(key, _is_rule, "the name of a tool, such as Read or Bash(git diff *)")


def _render_value(value: Any) -> str:
    return repr(one_line(str(value))[:60])


def _is_rule(text: str) -> bool:
    if not text.isprintable():
        return False
    try:
        Rule(text, "allow")
    except ConfigError:
        return False
    return True
