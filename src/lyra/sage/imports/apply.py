"""Writes what was planned, and takes it back: a file only where none of the user's stands, a block between two marks.

    changes = compare(place, planned, state)       # what would happen, without doing it
    write(place, changes, state)
    undo(place, state)

`ImportState` remembers what was written, by its hash, in the user's data folder. So a second run changes nothing, a
later one brings what is new, removes what is gone, and leaves alone what a person has edited; `undo` removes what is
still as it was written. In a project nothing is written or removed outside of the root, or through a link.

`Planned` is one thing that is to be written, `LeftOut` one that is not, and why.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from lyra.config.files import project_file, write_private
from lyra.core.checking.document import read_front_matter
from lyra.core.checking.watched_files import read_plain_file
from lyra.core.own_files import make_folder
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError, LyraError

FILE_BYTES_MAX: Final = 256 * 1024
FILES_MAX: Final = 500  # of one folder
_KEY: Final = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)\Z")
_ITEM: Final = re.compile(r"[ \t]*-[ \t]+(.*)\Z")


class Planned(NamedTuple):
    """One file below the root, or with `block` a part of one that may hold more. `kind` is a word for the user,
    `source` the file that it is made of, `agent` whose file that is."""

    target: str
    data: bytes
    kind: str
    source: str
    agent: str
    block: bool = False
    runs: bool = False  # it is marked as a program


class LeftOut(NamedTuple):
    """What of a source is not taken over, and why."""

    source: str
    what: str
    why: str


class ImportPlace(NamedTuple):
    """Where is read, and where is written: a project's folder, or the user's own folders. `prefix` is that of the
    extensions below `root`: ".lyra/", or "" for the user's own."""

    home: str  # the folder that the sources are below: the project's, or the home folder
    root: str
    prefix: str

    @property
    def is_user(self) -> bool:
        return not self.prefix

    def read(self, name: str, *, most: int = FILE_BYTES_MAX) -> bytes | None:
        """Return a source's bytes; None where it is no plain file, or too large. Only the user's own may be a link."""
        try:
            return read_plain_file(os.path.join(self.home, name), most, follow_links=self.is_user)
        except OSError:
            return None

    def list(self, folder: str, *endings: str, depth: int = 4) -> Iterator[str]:
        """Yield the plain files below a folder of the sources with one of these endings, by name."""
        top = os.path.join(self.home, folder)
        if os.path.islink(top) and not self.is_user:
            return
        count = 0
        for here, names, files in os.walk(top, followlinks=False):
            level = os.path.relpath(here, top).count(os.sep) + (here != top)
            names[:] = [] if level >= depth else sorted(name for name in names if not name.startswith("."))
            for name in sorted(files):
                if name.startswith(".") or (endings and not name.lower().endswith(endings)):
                    continue
                count += 1
                if count > FILES_MAX:
                    return
                yield os.path.relpath(os.path.join(here, name), self.home)


def read_head(data: bytes, name: str) -> tuple[dict[str, Any], str]:
    """Return the keys of a front matter and the text below. What is no YAML, as many such files are, is read line by
    line: `key: value`, and items that begin with a dash."""
    try:
        head = read_front_matter(data, name)
    except LyraError:
        return _read_lines(data.decode("utf-8-sig", "replace").replace("\r\n", "\n"))
    return head.keys, head.body


def _read_lines(text: str) -> tuple[dict[str, Any], str]:
    first, _, rest = text.partition("\n")
    head, mark, body = rest.partition("\n---")
    if first.rstrip() != "---" or not mark:
        return {}, text
    keys: dict[str, Any] = {}
    last = ""
    for line in head.split("\n"):
        key, item = _KEY.match(line), _ITEM.match(line)
        if key is not None:
            last = key[1]
            keys[last] = _scalar(key[2])
        elif item is not None and last:
            known = keys[last] if isinstance(keys[last], list) else []
            keys[last] = [*known, _scalar(item[1])]
    return keys, body.partition("\n")[2]


def _scalar(text: str) -> Any:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return {"true": True, "false": False}.get(text, text)


Act = Literal["new", "change", "same", "remove", "kept"]
_BEGIN: Final = "sage import: begin"
_END: Final = "sage import: end"
_STATE_BYTES_MAX: Final = 1 << 20


class ImportedFile(NamedTuple):
    """What becomes of one target; `why` says why a file is kept as it is."""

    act: Act
    planned: Planned
    why: str = ""


class OwnFile(msgspec.Struct, frozen=True):
    sha256: str  # "" for a block
    agent: str


class ImportState:
    """What was written below one root, and by which agent's import."""

    def __init__(self, place: ImportPlace) -> None:
        name = blake2b(os.fsencode(place.root), digest_size=8).hexdigest()
        self._path = data_folder() / "imports" / f"{name}.json"
        self.files: dict[str, OwnFile] = self._read()

    def _read(self) -> dict[str, OwnFile]:
        try:
            data = self._path.read_bytes()[:_STATE_BYTES_MAX]
            return msgspec.json.decode(data, type=dict[str, OwnFile])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"what was imported cannot be read: {error}", place=str(self._path)) from None

    def save(self) -> None:
        if self.files:
            make_folder(self._path.parent, private=True)
            write_private(self._path, msgspec.json.encode(self.files))
        else:
            self._path.unlink(missing_ok=True)


# ---------------------------------------------------------------- looking
def compare(
    place: ImportPlace, planned: Iterable[Planned], agents: Collection[str], state: ImportState
) -> list[ImportedFile]:
    """Return what an import of these agents' files would do."""
    changes: list[ImportedFile] = []
    blocks: dict[str, list[Planned]] = {}
    for item in planned:
        if item.block:
            blocks.setdefault(item.target, []).append(item)
        else:
            changes.append(_compare_file(place, item, state))
    for target, parts in blocks.items():
        changes += _compare_block(place, target, parts)
    targets = {change.planned.target for change in changes}
    for target, written in state.files.items():
        if target not in targets and written.agent in agents:
            gone = Planned(target, b"", "", "", written.agent, block=not written.sha256)
            changes.append(_compare_gone(place, gone, written))
    return changes


def _compare_file(place: ImportPlace, item: Planned, state: ImportState) -> ImportedFile:
    now = _read(place, item.target)
    if now is None:
        return ImportedFile("new", item)
    if now == item.data:
        return ImportedFile("same", item)
    written = state.files.get(item.target)
    if written is not None and written.sha256 == _digest(now):
        return ImportedFile("change", item)
    why = "you have edited it since" if written is not None else "there is such a file"
    return ImportedFile("kept", item, why)


def _compare_block(place: ImportPlace, target: str, parts: list[Planned]) -> list[ImportedFile]:
    """Return the change of the one block of a file; the parts that its settings do not take are kept out of it."""
    now = (_read(place, target) or b"").decode("utf-8", "replace")
    if target == "lyra.toml" and not now and not place.is_user:
        above = project_file(place.root, None)
        if above is not None:
            why = f"{above} counts here: a second file would hide it"
            return [ImportedFile("kept", part, why) for part in parts]
    fitting: list[Planned] = []
    changes: list[ImportedFile] = []
    for part in parts:
        why = _misfit(target, _with_block(now, target, [*fitting, part]))
        if why:
            changes.append(ImportedFile("kept", part, why))
        else:
            fitting.append(part)
    whole = _with_block(now, target, fitting)
    act: Act = "same" if whole == now else "change" if now else "new"
    return [*changes, *(ImportedFile(act, part) for part in fitting)]


def _misfit(target: str, text: str) -> str:
    if not target.endswith(".toml"):
        return ""
    try:
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return f"{target} has it already, or cannot be read with it: {error}"
    return ""


def _compare_gone(place: ImportPlace, gone: Planned, written: OwnFile) -> ImportedFile:
    now = _read(place, gone.target)
    if gone.block:
        text = (now or b"").decode("utf-8", "replace")
        return ImportedFile("remove" if _BEGIN in text else "same", gone)
    if now is None:
        return ImportedFile("remove", gone)
    return (
        ImportedFile("remove", gone)
        if _digest(now) == written.sha256
        else ImportedFile("kept", gone, "you have edited it since")
    )


# ---------------------------------------------------------------- writing
def write(place: ImportPlace, changes: Iterable[ImportedFile], state: ImportState) -> None:
    """Do what `compare` said, and remember it."""
    changes = list(changes)
    blocks: dict[str, list[Planned]] = {}
    try:
        for act, item, _ in changes:
            if act == "kept":
                continue
            if act == "remove":
                _remove(place, item)
                state.files.pop(item.target, None)
            elif item.block:
                blocks.setdefault(item.target, []).append(item)
            else:
                if act != "same":
                    _write(place, item.target, item.data, runs=item.runs)
                state.files[item.target] = OwnFile(_digest(item.data), item.agent)
        for target, parts in blocks.items():
            now = (_read(place, target) or b"").decode("utf-8", "replace")
            text = _with_block(now, target, parts)
            if text != now:
                _write(place, target, text.encode(), runs=False)
            state.files[target] = OwnFile("", parts[0].agent)
    except OSError as error:
        raise ConfigError(f"it cannot be written: {error.strerror}", place=str(error.filename or place.root)) from None
    finally:
        state.save()


def undo(place: ImportPlace, state: ImportState) -> list[ImportedFile]:
    """Remove what was written and is still as it was; return what became of each."""
    changes = []
    for target, written in list(state.files.items()):
        gone = Planned(target, b"", "", "", written.agent, block=not written.sha256)
        changes.append(_compare_gone(place, gone, written))
    write(place, changes, state)
    state.files.clear()
    state.save()
    return changes


def _with_block(text: str, target: str, parts: list[Planned]) -> str:
    """Return a text with these parts as its block, at the end, or without one where there are none."""
    before, mark, rest = text.partition(_line(target, _BEGIN))
    _, end, after = rest.partition(_line(target, _END))
    own = (before + after if mark and end else text).rstrip("\n")
    own = f"{own}\n" if own else ""
    if not parts:
        return own
    inside = [f"{_comment(target, f'from {part.source}')}{part.data.decode('utf-8', 'replace')}" for part in parts]
    gap = "\n" if own else ""
    return f"{own}{gap}{_line(target, _BEGIN)}{chr(10).join(inside)}{_line(target, _END)}"


def _line(target: str, words: str) -> str:
    return f"# {words}\n" if target.endswith(".toml") else f"<!-- {words} -->\n"


def _comment(target: str, words: str) -> str:
    return _line(target, words) if target.endswith(".toml") else ""


def _read(place: ImportPlace, target: str) -> bytes | None:
    """Return what stands at a target now; None where nothing does."""
    path = _path(place, target)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | _links(place)), "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", place=path) from None


def _write(place: ImportPlace, target: str, data: bytes, *, runs: bool) -> None:
    path = _path(place, target)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _links(place)
    with open(os.open(path, flags, 0o777 if runs else 0o666), "wb") as file:
        file.write(data)


def _remove(place: ImportPlace, item: Planned) -> None:
    path = _path(place, item.target)
    if item.block:
        text = (_read(place, item.target) or b"").decode("utf-8", "replace")
        rest = _with_block(text, item.target, [])
        if rest.strip():
            _write(place, item.target, rest.encode(), runs=False)
            return
    Path(path).unlink(missing_ok=True)
    folder = os.path.dirname(path)
    while folder.startswith(f"{place.root}/") and not os.path.islink(folder) and not os.listdir(folder):
        os.rmdir(folder)
        folder = os.path.dirname(folder)


def _links(place: ImportPlace) -> int:
    """Return the flag by which a link is not followed: users have links among their own files, a project may bring
    one to any of them."""
    return os.O_CLOEXEC if place.is_user else os.O_CLOEXEC | os.O_NOFOLLOW


def _path(place: ImportPlace, target: str) -> str:
    """Return the path of a target; ConfigError where a link on the way to it leads somewhere else."""
    path = os.path.normpath(os.path.join(place.root, target))
    folder = os.path.dirname(path)
    inside = os.path.relpath(folder, place.root)
    expected = os.path.normpath(os.path.join(os.path.realpath(place.root), inside))
    if not place.is_user and os.path.realpath(folder) != expected:
        raise ConfigError(f"{target} lies behind a link", hint="remove the link", place=path)
    return path


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
