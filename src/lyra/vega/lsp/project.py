"""The files an editor works on: those that are open, as they are on the screen, and those they import, from the disk.

A file is known by its absolute path; a text that was never saved by its URI. What is open wins over what is on the
disk, so that a change in one window is seen in the others before it is saved. `analysis` gives what is known of a file,
made once for each text.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from lyra.core.imported_node import NODE_FILES, ImportedNode, NodeFile
from lyra.vega.checker.checker import Load
from lyra.vega.lsp.analysis import Analysis, Imports
from lyra.vega.lsp.index import MemberReference, SourceSymbol, SymbolIndex
from lyra.vega.syntax import ast

# ---------------- A text that an editor changes, and the positions an editor speaks of
# A place is an offset in characters; an editor says line and column from 0, in units of the encoding agreed on. Lines
# end with `\n`, `\r\n` or `\r` and nothing else, as the protocol has it. Positions outside the text are moved to its
# edge.

UTF8: Final = "utf-8"
UTF16: Final = "utf-16"
UTF32: Final = "utf-32"

_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class Position(NamedTuple):
    line: int
    character: int


class TextChange(NamedTuple):
    """New text from `start` up to before `end`; without them it is the whole text."""

    text: str
    start: Position | None = None
    end: Position | None = None


class LineOffsets:
    """Offsets and positions of one text."""

    __slots__ = ("_is_plain", "_starts", "encoding", "text")

    def __init__(self, text: str, encoding: str = UTF16) -> None:
        self.text = text
        self.encoding = encoding
        self._is_plain = encoding == UTF32 or text.isascii()  # a unit is a character
        self._starts = [0, *(line_end.end() for line_end in _LINE_END.finditer(text))]

    def __len__(self) -> int:
        return len(self._starts)

    def start(self, line: int) -> int:
        """The offset where a line begins; behind the last one, the text's end."""
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def line(self, number: int) -> str:
        """A line without its end."""
        return self.text[self.start(number) : self.start(number + 1)].rstrip("\r\n")

    def offset(self, position: Position | tuple[int, int]) -> int:
        line, character = position
        if line < 0:
            return 0
        if line >= len(self._starts):
            return len(self.text)
        text, start = self.line(line), self._starts[line]
        if self._is_plain:
            return start + max(0, min(character, len(text)))
        return start + _characters(text, character, self.encoding)

    def units(self, offset: int, end: int) -> int:
        """Return the length of a piece of one line."""
        return end - offset if self._is_plain else _units(self.text[offset:end], self.encoding)

    def position(self, offset: int) -> Position:
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset) - 1
        return Position(line, self.units(self._starts[line], offset))


def _units(text: str, encoding: str) -> int:
    """Return the length of a text in units of an encoding."""
    if encoding == UTF32:
        return len(text)
    if encoding == UTF8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(char > "\uffff" for char in text)


def _characters(text: str, units: int, encoding: str) -> int:
    """Count the characters in the first `units` units; a position inside a character is its beginning."""
    used = 0
    for index, char in enumerate(text):
        used += _units(char, encoding)
        if used > units:
            return index
    return len(text)


class Document:
    """One file as the editor has it."""

    __slots__ = ("_lines", "encoding", "path", "text", "uri", "version")

    def __init__(self, uri: str, path: str, text: str, *, version: int | None = None, encoding: str = UTF16) -> None:
        self.uri = uri
        self.path = path
        self.text = text
        self.version = version
        self.encoding = encoding
        self._lines: LineOffsets | None = None

    @property
    def lines(self) -> LineOffsets:
        if self._lines is None:
            self._lines = LineOffsets(self.text, self.encoding)
        return self._lines

    def apply(self, change: TextChange) -> None:
        if change.start is None or change.end is None:
            self.text = change.text
        else:
            start = self.lines.offset(change.start)
            end = max(start, self.lines.offset(change.end))
            self.text = self.text[:start] + change.text + self.text[end:]
        self._lines = None


_FILE_BYTES_MAX: Final = 4 << 20  # a larger import is taken on trust
_FILES_MAX: Final = 2_000  # in the folders of a workspace; more are not looked through for uses of a name
_FOLDERS_MAX: Final = 20_000  # that are looked into for them
_KEPT_MAX: Final = 2_500  # files from the disk that are remembered
_SKIPPED: Final = frozenset({"node_modules", "__pycache__", "build", "dist"})


class Place(NamedTuple):
    """A piece of a file."""

    path: str
    at: int
    end: int


class _Known(NamedTuple):
    stamp: tuple[int, int]
    text: str


class Project:
    """`read_node` gives what the file of an imported node declares, by its path and text."""

    def __init__(
        self,
        folders: list[str] | None = None,
        *,
        encoding: str = UTF16,
        read_node: Callable[[str, str], NodeFile] | None = None,
    ) -> None:
        self.read_node = read_node
        self.folders = folders or []
        self.encoding = encoding
        self.open: dict[str, Document] = {}
        self._disk: dict[str, _Known] = {}
        self._imports = Imports(self._texts)
        self._analyses: dict[str, Analysis] = {}
        self._whole: dict[str, Analysis] = {}  # the last one of each open file that had a tree
        self._good: dict[str, Analysis] = {}  # the last one without a mistake in it: the next is made from it

    # ---------------------------------------------------------------- open files

    def put(self, document: Document) -> None:
        self.open[document.path] = document
        self.changed()

    def remove(self, path: str) -> None:
        self.open.pop(path, None)
        self._whole.pop(path, None)
        self._good.pop(path, None)
        self._analyses.pop(path, None)
        self.changed()

    def changed(self) -> None:
        """Some text is another one: the kinds found in files that import others may no longer hold."""
        for known in self._analyses.values():
            if known.imports() or known.node_imports():
                known.forget_kinds()

    # ---------------------------------------------------------------- texts

    def text(self, path: str) -> str | None:
        document = self.open.get(path)
        return document.text if document is not None else self._read(path)

    def lines(self, path: str) -> LineOffsets:
        document = self.open.get(path)
        return document.lines if document is not None else LineOffsets(self.text(path) or "", self.encoding)

    def uri(self, path: str) -> str:
        """As the editor writes it, if the file is open."""
        document = self.open.get(path)
        return document.uri if document is not None else uri_of(path)

    def _read(self, path: str) -> str | None:
        try:
            if not os.path.isfile(path):
                return None
            facts = os.stat(path)
            stamp = (facts.st_mtime_ns, facts.st_size)
            known = self._disk.get(path)
            if known is not None and known.stamp == stamp:
                return known.text
            if facts.st_size > _FILE_BYTES_MAX:
                return None
            with open(path, encoding="utf-8-sig", newline="") as file:
                text = file.read(_FILE_BYTES_MAX)
        except (OSError, ValueError):  # also a name with a NUL in it, and what is no UTF-8
            return None
        if len(self._disk) >= _KEPT_MAX:
            self._disk.clear()
            self._analyses = {known: analysis for known, analysis in self._analyses.items() if known in self.open}
        self._disk[path] = _Known(stamp, text)
        return text

    def load(self, target: str, importing: str) -> tuple[str, str] | None:
        """The name and text of an import, as the checker asks for it."""
        path = self.target(target, importing)
        text = self.text(path)
        return None if text is None else self._as_import(path, text)

    def _as_import(self, path: str, text: str) -> tuple[str, str]:
        """A file as the checker takes it: a node with what it declares, where the host reads nodes."""
        return self.read_node(path, text) if self.read_node is not None and path.endswith(NODE_FILES) else (path, text)

    def node(self, target: str, importing: str) -> ImportedNode | None:
        """Return what an imported node declares; None where it cannot be read."""
        loaded = self.load(target, importing)
        return loaded.node if isinstance(loaded, NodeFile) else None

    def kept(self, path: str) -> tuple[dict[str, str | None], Load]:
        """The texts of a file and of all it imports as they are now, and a `load` that reads those alone: a thread may
        use it while the open files change."""
        texts = {file: self.text(file) for file in self.reach(path)}

        def load(target: str, importing: str) -> tuple[str, str] | None:
            file = self.target(target, importing)
            text = texts.get(file)
            return None if text is None else self._as_import(file, text)

        return texts, load

    def target(self, target: str, importing: str) -> str:
        """The path an import means; of a text that has none, beside the workspace's files."""
        folder = os.path.dirname(importing) if os.path.isabs(importing) else (self.folders or [os.getcwd()])[0]
        return os.path.normpath(os.path.join(folder, target))

    # ---------------------------------------------------------------- what is known

    def analysis(self, path: str) -> Analysis | None:
        text = self.text(path)
        if text is None:
            return None
        known = self._analyses.get(path)
        if known is None or known.text is not text:
            before = self._good.get(path)
            known = self._analyses[path] = Analysis(text, path, self.load, imports=self._imports, before=before)
            if path in self.open and known.module.statements:
                self._whole[path] = known
                if not known.parsed.problems:
                    self._good[path] = known
        return known

    def index(self, path: str) -> SymbolIndex | None:
        known = self.analysis(path)
        return None if known is None else known.index

    def last_with_tree(self, path: str) -> Analysis | None:
        """Return the analysis of a file; while it has no tree, the last one that had."""
        known = self.analysis(path)
        if known is not None and not known.module.statements:
            return self._whole.get(path, known)
        return known

    def imported(self, symbol: SourceSymbol, path: str) -> str | None:
        """The file that an import of the file at `path` names."""
        node = symbol.node
        if not isinstance(node, ast.Import) or node.kind != "vega":
            return None
        return self.target(node.target, path)

    def meaning(self, member: MemberReference, path: str) -> tuple[str, SourceSymbol] | None:
        """The file and the symbol that `module::name` represents; of a named argument, the parameter."""
        target = self.imported(member.module, path) if member.module is not None else None
        index = self.index(target) if target is not None else None
        symbol = index.exported(member.name) if index is not None else None
        if target is None or index is None or symbol is None:
            return None
        if member.parameter:
            parameters = getattr(symbol.node, "parameters", ())
            symbols = [index.symbol_of(parameter) for parameter in parameters if parameter.name == member.parameter]
            return (target, symbols[0]) if symbols and symbols[0] is not None else None
        return target, symbol

    def files(self) -> Iterator[str]:
        """Every file that may use a name: the open ones, then what the workspace's folders hold."""
        yield from list(self.open)
        count = looked = 0
        for top in self.folders:
            for folder, folders, names in os.walk(top):
                looked += 1
                if looked > _FOLDERS_MAX:
                    return
                folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith(".")]
                for name in names:
                    path = os.path.join(folder, name)
                    if name.endswith(".vega") and path not in self.open:
                        count += 1
                        if count > _FILES_MAX:
                            return
                        yield path

    def reach(self, path: str) -> set[str]:
        """A file and all that it imports, directly or not."""
        files: set[str] = set()
        todo = [path]
        while todo and len(files) < _FILES_MAX:
            file = todo.pop()
            if file in files:
                continue
            files.add(file)
            known = self.analysis(file)
            if known is not None:
                todo += [self.target(node.target, file) for node in known.imports()]
                files.update(self.target(node.target, file) for node in known.node_imports())
        return files

    def _texts(self, path: str) -> dict[str, str]:
        """The texts of a file and of all it imports; one that is missing is empty."""
        return {file: self.text(file) or "" for file in self.reach(path)}


def path_of(uri: str) -> str:
    """The path of a file's URI; any other URI is its own name."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return uri
    return os.path.normpath(unquote(parts.path)) if parts.scheme == "file" and parts.path else uri


def uri_of(path: str) -> str:
    return f"file://{quote(path)}" if os.path.isabs(path) else path
