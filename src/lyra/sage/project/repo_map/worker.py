"""The map itself, made in its own process: a job as JSON on its input, the ranked rows as JSON on its output.

Parsing holds the interpreter for milliseconds a file, and the files may be hostile: here it costs the event loop
nothing, and ends with the process. The process bounds itself: memory, and time after which no further file is read;
what was read until then is kept, and the next map continues from there. `repo_map` starts it.

The map is made of the files that `.gitignore` leaves, without hidden files and without keys. The definitions that
matter are those that other files mention most, and those that a question or a change is about.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import stat
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from heapq import nlargest
from typing import Any, Final, NamedTuple, Self

import msgspec

from lyra._version import __version__
from lyra.errors import LyraError
from lyra.sage.project.repo_map.outline import (
    FILE_BYTES_MAX,
    LANGUAGES,
    FileOutline,
    MapSymbol,
    is_installed,
    language_of,
    outline_of,
)
from lyra.sandbox.paths import Beneath
from lyra.sandbox.protection.protected_names import NAMES
from lyra.tools.builtin.search_worker import glob_regex, open_folder

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


_RECENT_NS: Final = 24 * 3600 * 10**9  # of the newest file
_RECENT_SHARE_MAX: Final = 0.1  # of the files; after a checkout all of them are new, which says nothing
_RECENT: Final = 3.0
_ASKED_NAME: Final = 50.0
_ASKED_FILE: Final = 20.0
_ASKED_WORD: Final = 3.0
_PRIVATE: Final = 0.2  # a name that begins with an underscore
_MEMBER: Final = 0.3  # of a class: its name may be that of another's member
_COMPOUND: Final = 3.0  # a name of several words can hardly mean something else
_SHORT: Final = 0.3
_FURTHER: Final = 0.85  # each further definition of the same file, unless the question is about it
_UNKNOWN_MODULE: Final = 0.1  # a Python file mentions the name, but not the module
_HOMES_MAX: Final = 6  # files that define a name; of more, none is meant in particular
_FOLDER: Final = 0.1  # a name that a folder has, too: most mentions mean the package
_TESTS: Final = 0.3
_WORD: Final = re.compile(r"[A-Za-z_$][\w$]{2,}")
_PATH: Final = re.compile(r"[\w./+-]*[\w+-]\.\w{1,8}|[\w.+-]+(?:/[\w.+-]+)+")
_TEST_PART: Final = re.compile(r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)(?:test_|conftest)|[._]test\.|[._]spec\.")
_COMPOUND_NAME: Final = re.compile(r"(?=.{7})(?:[a-z]+[A-Z]|[A-Z][a-z]+[A-Z]|[A-Za-z]+_[A-Za-z])\w*")
_DUNDER: Final = re.compile(r"__\w+__")


def is_test(path: str) -> bool:
    """Return whether a file looks like a test by its name."""
    return _TEST_PART.search(path) is not None


class RankedFile(NamedTuple):
    """A file, the symbols of it that were chosen, in the order of the source, and the score of the best of them."""

    path: str
    score: float
    symbols: list[MapSymbol]


class _Query:
    """What a question is about: names of code, words, and files."""

    def __init__(self, text: str) -> None:
        words = set(_WORD.findall(text))
        self.names = {word for word in words if not word.islower() or "_" in word}
        self.words = {word.lower() for word in words if len(word) > 3}
        self.files = {path.strip("./") for path in _PATH.findall(text)}
        self.is_about_tests = "test" in text.lower()

    def weigh_file(self, path: str) -> float:
        if any(path == name or path.endswith(f"/{name}") or path.startswith(f"{name}/") for name in self.files):
            return _ASKED_FILE
        return _ASKED_WORD if self.words and not self.words.isdisjoint(re.split(r"[/._-]", path.lower())) else 1.0

    def weigh_name(self, name: str) -> float:
        if name in self.names:
            return _ASKED_NAME
        return _ASKED_WORD if name.lower() in self.words else 1.0


def rank(
    outlines: Mapping[str, CachedOutline], *, query: str = "", within: str = "", most: int = 500
) -> list[RankedFile]:
    """Return the best `most` symbols of the files whose path begins with `within`, by file, the best file first."""
    asked = _Query(query)
    rows = _score(outlines, _Counts(outlines), asked, _recent(outlines), within)
    best = nlargest(most, rows, key=lambda row: (row[0], row[1], -row[2]))
    chosen: dict[str, dict[int, float]] = {}
    for score, path, index in best:
        chosen.setdefault(path, {})[index] = score
    return [_file(path, outlines[path].symbols, scores) for path, scores in chosen.items()]


class _Counts:
    """How many other files mention a name that a file defines.

    A Python file that names neither the module nor its package hardly means a definition there. A name that many files
    define, and the name of a member, is shared among them.
    """

    def __init__(self, outlines: Mapping[str, CachedOutline]) -> None:
        homes: dict[str, list[str]] = {}
        members: Counter[str] = Counter()
        for path, outline in outlines.items():
            for name in set(outline.names.split(" ")) if outline.names else ():
                if name.startswith(MEMBER_MARK):
                    members[name[1:]] += 1
                else:
                    homes.setdefault(name, []).append(path)
        shared = {name: len(paths) for name, paths in homes.items() if len(paths) > _HOMES_MAX} | dict(members)
        self._top = {name: paths for name, paths in homes.items() if len(paths) <= _HOMES_MAX}
        self._of: dict[str, dict[str, float]] = {path: {} for path in outlines}
        mentioned = self._count(outlines, shared.keys())
        # A file that defines a name mentions it, too.
        self._shared = {name: max(0, mentioned[name] - count) / count for name, count in shared.items()}

    def _count(self, outlines: Mapping[str, CachedOutline], shared: Set[str]) -> Counter[str]:
        modules = {path: _module(path) for path in outlines}
        mentioned: Counter[str] = Counter()
        names = self._top.keys()
        for path, outline in outlines.items():
            mentions = set(outline.mentions.split(" ")) if outline.mentions else set()
            mentioned.update(shared & mentions)
            for name in names & mentions:
                homes = self._top[name]
                for home in homes:
                    if home != path:  # the loop runs for every mention of a repository
                        module, package = modules[home]
                        is_meant = not module or module in mentions or package in mentions
                        counted = self._of[home]
                        counted[name] = counted.get(name, 0.0) + (1.0 if is_meant else _UNKNOWN_MODULE) / len(homes)
        return mentioned

    def count(self, path: str, name: str, *, is_member: bool) -> float:
        if is_member or name not in self._top:
            return self._shared[name]
        return self._of[path].get(name, 0.0)


def _module(path: str) -> tuple[str, str]:
    """Return the names by which other Python files know a file: of the module and of its package; none for other
    files."""
    if not path.endswith(".py"):
        return "", ""
    folder, name = os.path.split(path[:-3])
    return name, os.path.basename(folder)


def _recent(outlines: Mapping[str, CachedOutline]) -> frozenset[str]:
    """Return the files that changed within a day of the newest, unless most of them did."""
    newest = max((outline.modified_ns for outline in outlines.values()), default=0)
    paths = [path for path, outline in outlines.items() if outline.modified_ns > newest - _RECENT_NS]
    return frozenset(paths) if len(paths) <= max(1, _RECENT_SHARE_MAX * len(outlines)) else frozenset()


def _score(
    outlines: Mapping[str, CachedOutline],
    counts: _Counts,
    asked: _Query,
    recent: frozenset[str],
    within: str,
) -> Iterator[tuple[float, str, int]]:
    """(score, path, index of the symbol) of every definition."""
    folders = {part for path in outlines for part in path.split("/")[:-1]}
    shapes: dict[str, float] = {}
    for path, outline in outlines.items():
        if not outline.names or (within and not path.startswith(within)):
            continue
        factor = asked.weigh_file(path) * (_RECENT if path in recent else 1.0)
        is_asked = factor > 1.0
        if not asked.is_about_tests and is_test(path):
            factor *= _TESTS
        owner = 0.0
        scores = []
        for index, marked in enumerate(outline.names.split(" ")):
            name = marked.removeprefix(MEMBER_MARK)
            if name not in shapes:
                shapes[name] = _shape(name, folders) * asked.weigh_name(name)
            is_member = name != marked
            weight = counts.count(path, name, is_member=is_member)
            if is_member:
                weight = min(weight, owner) * _MEMBER
            else:
                owner = weight
            scores.append(((weight + 0.1 + is_asked) * factor * shapes[name], -index))
        scores.sort(reverse=True)
        for position, (score, index) in enumerate(scores):
            yield score if is_asked else score * _FURTHER**position, path, -index


def _shape(name: str, folders: Collection[str]) -> float:
    """Return how much a mention of a name says, by its look."""
    if name.startswith("_"):
        return 0.0 if _DUNDER.fullmatch(name) else _PRIVATE
    if name in folders:
        return _FOLDER
    if _COMPOUND_NAME.match(name) is not None:
        return _COMPOUND
    return _SHORT if len(name) < 5 and name.islower() else 1.0


def _file(path: str, symbols: list[MapSymbol], scores: dict[int, float]) -> RankedFile:
    """Return the chosen symbols of a file, a member with the class that it belongs to."""
    wanted = set(scores)
    for index in scores:
        if symbols[index].depth:
            owners = (number for number in range(index - 1, -1, -1) if symbols[number].depth == 0)
            wanted.update(_first(owners))
    return RankedFile(path, max(scores.values()), [symbols[index] for index in sorted(wanted)])


def _first(numbers: Iterable[int]) -> list[int]:
    for number in numbers:
        return [number]
    return []


# ---------------------------------------------------------------- cache

MEMBER_MARK: Final = "\x01"  # before the name of a member of a class

_FORMAT: Final = 2
_BYTES_MAX: Final = 512 << 20


class CachedOutline(msgspec.Struct, array_like=True):
    """The outline of one file; names and mentions are joined by blanks."""

    modified_ns: int
    size_bytes: int
    names: str = ""
    mentions: str = ""
    encoded: bytes = b""

    @classmethod
    def from_outline(cls, modified_ns: int, size_bytes: int, outline: FileOutline) -> CachedOutline:
        symbols = outline.symbols
        return cls(
            modified_ns,
            size_bytes,
            " ".join(f"{MEMBER_MARK}{symbol.name}" if symbol.depth else symbol.name for symbol in symbols),
            " ".join(sorted(outline.mentions)),
            msgspec.msgpack.encode(symbols) if symbols else b"",
        )

    @property
    def symbols(self) -> list[MapSymbol]:
        return msgspec.msgpack.decode(self.encoded, type=list[MapSymbol]) if self.encoded else []


class _CacheFile(msgspec.Struct, array_like=True):
    made_by: str
    outlines: dict[str, CachedOutline]


class OutlineCache:
    """The outlines of one folder; without a path they are not kept."""

    def __init__(self, path: str = "", *, parsers: bool = True) -> None:
        self._path = path
        self._made_by = _render_version() if parsers else f"names {_FORMAT} {__version__}"
        self.outlines: dict[str, CachedOutline] = self._load() if path else {}

    def _load(self) -> dict[str, CachedOutline]:
        try:
            if os.stat(self._path).st_size > _BYTES_MAX:
                return {}
            with open(self._path, "rb") as file:
                kept = msgspec.msgpack.decode(file.read(), type=_CacheFile)
        except (OSError, msgspec.MsgspecError, ValueError):
            return {}
        return kept.outlines if kept.made_by == self._made_by else {}

    def save(self) -> None:
        """Write the file; a map does not fail where that is not possible."""
        if not self._path:
            return
        temporary = f"{self._path}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(msgspec.msgpack.encode(_CacheFile(self._made_by, self.outlines)))
            os.replace(temporary, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _render_version() -> str:
    grammars = ",".join(name for name in LANGUAGES if is_installed(name))
    return f"{_FORMAT} {__version__} {grammars}"


_MEMORY_BYTES_MAX: Final = 2 << 30
_NICE: Final = 5
_ENDINGS_SHOWN: Final = 8
_FOLDERS_SHOWN: Final = 24
_PLAIN_FILES: Final = 100  # files without symbols that are named


def make_map(job: dict[str, Any], *, is_over: Any = lambda: False) -> dict[str, Any]:
    """Return the rows of one map. `is_over()` says that no further file should be read."""
    root = job["root"].rstrip("/")
    within = job.get("within", "")
    listing = list_files(root, ripgrep=job.get("ripgrep", ""), passed_over=job.get("passed_over", ()))
    cache = OutlineCache(job.get("cache", ""), parsers=job.get("parsers", True))
    read, complete = _refresh(cache, root, listing, is_over, parsers=job.get("parsers", True))
    most = int(job.get("most", 500))
    ranked = rank(cache.outlines, query=job.get("query", ""), within=within, most=most)
    inside = [file.path for file in listing.files if file.path.startswith(within)]
    shown = {file.path for file in ranked}
    return {
        "files": [[file.path, [list(symbol) for symbol in file.symbols]] for file in ranked],
        "plain": _list_files_without_symbols(inside, shown, cache.outlines),
        "count": len(inside),
        "endings": Counter(os.path.splitext(path)[1][1:] or "other" for path in inside).most_common(_ENDINGS_SHOWN),
        "folders": _folders(inside, within),
        "read": read,
        "complete": complete and not listing.more,
    }


def _refresh(cache: OutlineCache, root: str, listing: FileListing, is_over: Any, *, parsers: bool) -> tuple[int, bool]:
    """Read the files that are new or changed, and forget those that are gone: how many were read, and whether all."""
    before, outlines = cache.outlines, {}
    changed: list[ListedFile] = []
    for file in listing.files:
        known = before.get(file.path)
        if known is not None and (known.modified_ns, known.size_bytes) == (file.modified_ns, file.size_bytes):
            outlines[file.path] = known
        elif language_of(file.path) and file.size_bytes <= FILE_BYTES_MAX:
            changed.append(file)
    read = 0
    changed.sort(key=lambda file: (is_test(file.path), file.path))  # if time runs out, tests are missing
    with Beneath(root) as folder:
        for file in changed:
            if is_over():
                break
            data = _content(folder, file.path)
            outlines[file.path] = CachedOutline.from_outline(
                file.modified_ns, file.size_bytes, outline_of(file.path, data, parsers=parsers)
            )
            read += 1
    cache.outlines = outlines
    if read or len(outlines) != len(before):
        cache.save()
    return read, read == len(changed)


def _content(folder: Beneath, path: str) -> bytes:
    """Return a file's bytes; none for what is no plain file, or is reached through a link."""
    try:
        descriptor = folder.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY, links=False)
    except (OSError, LyraError):
        return b""
    try:
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(FILE_BYTES_MAX + 1)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _list_files_without_symbols(paths: list[str], shown: set[str], outlines: dict[str, CachedOutline]) -> list[str]:
    """Files without symbols, those near the top first."""
    named = {path for path, outline in outlines.items() if outline.names}
    rest = [path for path in paths if path not in shown and path not in named]
    return sorted(rest, key=lambda path: (path.count("/"), path))[:_PLAIN_FILES]


def _folders(paths: list[str], within: str) -> list[tuple[str, int]]:
    """Folders of two levels with the number of files below each, the largest first."""
    counts: Counter[str] = Counter()
    for path in paths:
        parts = path[len(within) :].split("/")[:-1][:2]
        if parts:
            counts[within + "/".join(parts)] += 1
    return counts.most_common(_FOLDERS_SHOWN)


def main() -> None:
    """Read a job, bound the process, write the answer."""
    os.nice(_NICE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    job = json.load(sys.stdin)
    over: list[int] = []
    signal.signal(signal.SIGALRM, lambda number, _frame: over.append(number))
    signal.setitimer(signal.ITIMER_REAL, float(job.get("seconds", 10.0)))
    answer = make_map(job, is_over=lambda: bool(over))
    signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.write(json.dumps(answer))
