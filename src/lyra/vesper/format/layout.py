"""The layout of files of nodes: `format_text` gives a text in that layout with the same meaning.

Two spaces a level, lists indented below their key, the keys of a node in a fixed order. Flow collections
(`{type: decimal, scale: 2}`) stay on one line where they fit and hold no comment; else they become blocks. Between the
sections of a node there is one empty line; inside a section, at most one where the file has any. What is no text (a
number, true, null) stays as it is written. A text is plain where every reader of YAML, of version 1.1 or 1.2, would
read the same text; else it is quoted. Texts with line breaks become blocks, folded blocks keep their lines.

The result is read again and compared with what the file said; where they differ, nothing is changed and an error is
raised. So a formatted file loads to a node with the same digest, and formatting a formatted text changes nothing.

`read_tree` reads a file as a tree of entries that keep their place in the text, with each comment tied to an entry.
"""

from __future__ import annotations

import re
import textwrap
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from lyra.errors import ParseError
from lyra.vesper.loading import TEXT_NAME, read_document


class FileComment(msgspec.Struct):
    """A comment from its `#` to the end of its line."""

    text: str
    start: int
    column: int
    own_line: bool
    blank_before: bool = False


class ScalarPart(msgspec.Struct):
    """A scalar: its value, its style (empty: plain) and its text in the file."""

    value: str
    style: str
    raw: str
    start: int
    end: int


class Collection(msgspec.Struct):
    """A mapping or a list."""

    is_mapping: bool
    is_flow: bool
    start: int
    end: int
    column: int
    entries: list[TreeEntry] = []
    footer: list[FileComment] = []
    owner: TreeEntry | None = None
    has_comment: bool = False  # in a flow collection, which is then written as a block


class TreeEntry(msgspec.Struct):
    """A pair of a mapping, or an item of a list (without a key)."""

    key: ScalarPart | None
    value: ScalarPart | Collection
    start: int
    column: int
    parent: Collection
    leading: list[FileComment] = []
    trailing: FileComment | None = None
    blank_before: bool = False

    @property
    def is_block(self) -> bool:
        """Whether the value is a collection written as a block."""
        return isinstance(self.value, Collection) and not self.value.is_flow


def read_tree(text: str) -> tuple[Collection, list[TreeEntry], list[FileComment]]:
    """Return the root mapping, all entries in order of their start, and all comments. ParseError where there is no
    mapping."""
    import yaml  # type: ignore[import-untyped,unused-ignore]

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    tokens = list(yaml.scan(text, Loader=loader))
    root = yaml.compose(text, Loader=loader)
    if not isinstance(root, yaml.MappingNode):
        raise ParseError("the file is no mapping of a node's keys", line=1, column=1)
    dashes = [token.start_mark.index for token in tokens if isinstance(token, yaml.BlockEntryToken)]
    builder = _Builder(yaml, text, dashes)
    collection = builder.collection(root, None)
    return collection, builder.entries, list(_comments(yaml, text, tokens))


class _Builder:
    def __init__(self, yaml: Any, text: str, dashes: list[int]) -> None:
        self.yaml = yaml
        self.text = text
        self.dashes = dashes
        self.entries: list[TreeEntry] = []

    def collection(self, node: Any, owner: TreeEntry | None) -> Collection:
        collection = Collection(
            is_mapping=isinstance(node, self.yaml.MappingNode),
            is_flow=bool(node.flow_style),
            start=node.start_mark.index,
            end=node.end_mark.index,
            column=node.start_mark.column,
            owner=owner,
        )
        for item in node.value:
            key, value = item if collection.is_mapping else (None, item)
            self._entry(collection, key, value)
        return collection

    def _entry(self, parent: Collection, key: Any, value: Any) -> None:
        start = key.start_mark.index if key is not None else value.start_mark.index
        if key is None and not parent.is_flow:
            start = self.dashes[max(0, bisect_left(self.dashes, start) - 1)]
        entry = TreeEntry(
            key=None if key is None else self._scalar(key),
            value=ScalarPart("", "", "", start, start),
            start=start,
            column=start - (self.text.rfind("\n", 0, start) + 1),
            parent=parent,
            blank_before=_follows_blank(self.text, start),
        )
        self.entries.append(entry)
        is_scalar = isinstance(value, self.yaml.ScalarNode)
        entry.value = self._scalar(value) if is_scalar else self.collection(value, entry)
        parent.entries.append(entry)

    def _scalar(self, node: Any) -> ScalarPart:
        start, end = node.start_mark.index, node.end_mark.index
        return ScalarPart(str(node.value), node.style or "", self.text[start:end], start, end)


def _follows_blank(text: str, index: int) -> bool:
    """Return whether the line above that of a character is empty."""
    start = text.rfind("\n", 0, index) + 1
    return start > 0 and not text[text.rfind("\n", 0, start - 1) + 1 : start].strip()


# ------------------------------------------------------------------ comments
def _comments(yaml: Any, text: str, tokens: list[Any]) -> Iterator[FileComment]:
    """Yield the comments: they are between tokens, and in the first line of a block scalar."""
    position = 0
    for token in tokens:
        if isinstance(token, yaml.StreamStartToken):
            continue
        start = len(text) if isinstance(token, yaml.StreamEndToken) else token.start_mark.index
        yield from _comments_between(text, position, start)
        position = max(position, token.end_mark.index)
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">"):
            header_end = text.find("\n", start)
            yield from _comments_between(text, start, len(text) if header_end < 0 else header_end)


def _comments_between(text: str, start: int, end: int) -> Iterator[FileComment]:
    position = text.find("#", start, end)
    while position >= 0:
        stop = text.find("\n", position)
        stop = len(text) if stop < 0 else stop
        line_start = text.rfind("\n", 0, position) + 1
        yield FileComment(
            text=text[position:stop].rstrip(),
            start=position,
            column=position - line_start,
            own_line=not text[line_start:position].strip(),
            blank_before=_follows_blank(text, position),
        )
        position = text.find("#", stop, end)


# ---------------------------------------------------------------- comments


def attach_comments(
    root: Collection, entries: Sequence[TreeEntry], comments: Sequence[FileComment], *, first_key_moves: bool
) -> list[FileComment]:
    """Attach all comments to the tree; return those about the file itself."""
    starts = [entry.start for entry in entries]
    header = _header_tree(root, comments, first_key_moves=first_key_moves)
    for comment in comments[len(header) :]:
        index = bisect_left(starts, comment.start)
        before = entries[index - 1] if index else None
        after = entries[index] if index < len(entries) else None
        _mark_flows(before, comment)
        if comment.own_line or before is None:
            _attach_line(root, before, after, comment)
        else:
            _attach_trailing(before, comment)
    return header


def _header_tree(root: Collection, comments: Sequence[FileComment], *, first_key_moves: bool) -> list[FileComment]:
    """Return the comments above the first key, up to the last empty line among them or before the key; all of them
    where there is no empty line and the key moves away."""
    if not root.entries:
        return []
    first = root.entries[0]
    above = [comment for comment in comments if comment.start < first.start and comment.own_line]
    if first.blank_before:
        return above
    for index in range(len(above) - 1, 0, -1):
        if above[index].blank_before:
            return above[:index]
    return above if first_key_moves else []


def _mark_flows(before: TreeEntry | None, comment: FileComment) -> None:
    """Mark the flow collections around a comment: they become blocks, which can keep it."""
    entry = before
    while entry is not None:
        for collection in (entry.value, entry.parent):
            if isinstance(collection, Collection) and collection.start < comment.start < collection.end:
                collection.has_comment = collection.is_flow
        entry = entry.parent.owner


def _attach_trailing(before: TreeEntry, comment: FileComment) -> None:
    """To the entry on whose line it stands: not one in a flow collection that has ended."""
    entry = before
    while entry.parent.is_flow and entry.parent.end <= comment.start and entry.parent.owner is not None:
        entry = entry.parent.owner
    if entry.trailing is None and not (entry.key is None and _opens_block(entry)):
        entry.trailing = comment
    else:
        entry.leading.append(comment)


def _opens_block(entry: TreeEntry) -> bool:
    """Return whether the value is written over several lines, below the entry's own."""
    value = entry.value
    return isinstance(value, Collection) and bool(value.entries) and (not value.is_flow or value.has_comment)


def _attach_line(root: Collection, before: TreeEntry | None, after: TreeEntry | None, comment: FileComment) -> None:
    if before is not None and not before.is_block and before.value.start > comment.start:
        before.leading.append(comment)  # between a key and its value
        return
    collection = _closing(root, before, after, comment)
    if collection is not None:
        owner = collection.owner
        if not collection.entries and owner is not None:
            owner.leading.append(comment)
        else:
            collection.footer.append(comment)
    elif after is not None:
        _outermost(after).leading.append(comment)


def _closing(
    root: Collection, before: TreeEntry | None, after: TreeEntry | None, comment: FileComment
) -> Collection | None:
    """Return the collection at whose end the comment stands; None: it is above the next entry."""
    for collection in _around(before):
        if after is not None and collection is after.parent:
            return None
        if collection.is_flow:
            if comment.start < collection.end:
                return collection
        elif comment.column >= collection.column > (after.column if after is not None else -1):
            return collection
    return root if after is None else None


def _around(entry: TreeEntry | None) -> Iterator[Collection]:
    """Yield the collections around an entry, from the inside, with its own value where that has no entries."""
    if entry is not None and isinstance(entry.value, Collection):
        yield entry.value
    while entry is not None:
        yield entry.parent
        entry = entry.parent.owner


def _outermost(entry: TreeEntry) -> TreeEntry:
    """Return a comment cannot stand between the dash of an item and its first key: it goes above the dash."""
    while True:
        owner = entry.parent.owner
        if owner is None or owner.key is not None or entry is not entry.parent.entries[0]:
            return entry
        entry = owner


HEADS: Final = ("node_id", "type", "intent")  # without empty lines between them
KEY_ORDER: Final = (
    *HEADS,
    "idempotent",
    "metadata",
    "types",
    "inputs",
    "outputs",
    "state_machines",
    "contracts",
    "flow",
    "error_handling",
    "performance",
    "security",
    "observability",
    "testing",
    "documentation",
)
_STEP: Final = 2


def moves_first_key(root: Collection) -> bool:
    """Return whether another key than the first one is written first."""
    return bool(root.entries) and min(root.entries, key=_rank) is not root.entries[0]


def _rank(entry: TreeEntry) -> int:
    name = "" if entry.key is None else entry.key.value
    return KEY_ORDER.index(name) if name in KEY_ORDER else len(KEY_ORDER)


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def comments(self, comments: list[FileComment], indent: int, *, blank: bool = False) -> None:
        """Write each comment on its own line; `blank`: with an empty line before the first."""
        for index, comment in enumerate(comments):
            if self.lines and (blank if index == 0 else comment.blank_before and comment.own_line):
                self.lines.append("")
            self.lines.append(" " * indent + comment.text)

    def entry(self, entry: TreeEntry, indent: int, *, blank: bool, lead: str | None = None) -> None:
        """Write an entry; `lead` is what stands before its first line in place of blanks: the dashes of items."""
        prefix = " " * indent if lead is None else lead
        leading = _comments_above(entry, indent) if lead is None else []
        self.comments(leading, indent, blank=blank)
        if leading:
            blank = entry.blank_before and leading[-1].start < entry.start
        if blank and self.lines:
            self.lines.append("")
        if entry.key is None:
            self._item(entry, indent, prefix)
        else:
            self._pair(entry, entry.key, indent, prefix)

    def _pair(self, entry: TreeEntry, key: ScalarPart, indent: int, prefix: str) -> None:
        head = f"{prefix}{key_text(key, in_flow=False)}:"
        value = entry.value
        if isinstance(value, Collection):
            line = _flow_line(value, len(head) + 1)
            if line is None:
                self._line(head, entry)
                self._block(value, indent + _STEP)
            else:
                self._line(f"{head} {line}", entry)
        else:
            rest, rows = block_text(value, indent + _STEP, len(head) + 1)
            self._line(f"{head} {rest}" if rest else head, entry)
            self.lines += rows

    def _item(self, entry: TreeEntry, indent: int, prefix: str) -> None:
        value = entry.value
        head = f"{prefix}- "
        if isinstance(value, Collection):
            line = _flow_line(value, len(head))
            if line is None:
                self._block(value, indent + _STEP, lead=head)
            else:
                self._line(head + line, entry)
        else:
            rest, rows = block_text(value, indent + _STEP, len(head))
            self._line((head + rest).rstrip(" ") if not rest else head + rest, entry)
            self.lines += rows

    def _line(self, line: str, entry: TreeEntry) -> None:
        self.lines.append(line if entry.trailing is None else f"{line}  {entry.trailing.text}")

    def _block(self, collection: Collection, indent: int, lead: str | None = None) -> None:
        for index, entry in enumerate(collection.entries):
            blank = index > 0 and not collection.is_flow and _has_blank(entry)
            self.entry(entry, indent, blank=blank, lead=lead if index == 0 else None)
        footer = collection.footer
        self.comments(footer, indent, blank=bool(footer) and footer[0].blank_before)


def _has_blank(entry: TreeEntry) -> bool:
    """Return whether there is an empty line above an entry and its comments."""
    first = entry.leading[0] if entry.leading else None
    return entry.blank_before if first is None or not first.own_line else first.blank_before


def _comments_above(entry: TreeEntry, indent: int) -> list[FileComment]:
    """Return the comments above an entry. The line of a dash belongs to the first key or item of the block behind it,
    so that what would stand behind the dash or above that key goes above the dash, too."""
    value = entry.value
    if entry.key is not None or not isinstance(value, Collection) or _flow_line(value, indent + _STEP) is not None:
        return entry.leading
    behind = [] if entry.trailing is None else [entry.trailing]
    return [*entry.leading, *behind, *_comments_above(value.entries[0], indent + _STEP)]


# ------------------------------------------------------------------ flow collections
def _flow_line(collection: Collection, used: int) -> str | None:
    """Return the collection on one line; None where it is a block."""
    if not collection.entries:
        return "{}" if collection.is_mapping else "[]"
    if not collection.is_flow or _holds_comments(collection):
        return None
    line = _flow(collection)
    return line if used + len(line) <= WIDTH else None


def _holds_comments(collection: Collection) -> bool:
    if collection.has_comment or collection.footer:
        return True
    return any(
        entry.leading or entry.trailing or (isinstance(entry.value, Collection) and _holds_comments(entry.value))
        for entry in collection.entries
    )


def _flow(collection: Collection) -> str:
    parts = []
    for entry in collection.entries:
        value = _flow(entry.value) if isinstance(entry.value, Collection) else flow_text(entry.value)
        parts.append(value if entry.key is None else f"{key_text(entry.key, in_flow=True)}: {value}")
    text = ", ".join(parts)
    return f"{{{text}}}" if collection.is_mapping else f"[{text}]"


# ---------------------------------------------------------------- scalars

WIDTH: Final = 120  # columns of a line; a longer flow collection is written as a block
_FOLD: Final = 100  # columns of a folded text
_KEY_MAX: Final = 1_000  # characters; YAML reads no longer ones without a question mark
_WORDS: Final = frozenset(
    {"~", "null", "true", "false", "yes", "no", "on", "off", ".nan", ".inf", "-.inf", "+.inf", "=", "<<"}
)
_OURS: Final = frozenset({"", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE"})
_NUMBER: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_LIKE_A_NUMBER: Final = re.compile(
    r"[-+]?(?:0[xob][0-9a-fA-F_]+|\.?[0-9][0-9_]*(?:[.:][0-9_:.]*)?(?:[eE][-+]?[0-9]+)?)\Z"
)
_VERSION: Final = re.compile(r"[0-9]+(?:\.[0-9]+){2,}\Z")
_INDICATORS: Final = frozenset("-?:,[]{}#&*!|>'\"%@`.=<")
_SAFE_START: Final = re.compile(r"<=? |\.[A-Za-z]|-[A-Za-z]|==? ")
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


def is_text(part: ScalarPart) -> bool:
    """Return whether the file's reader takes it as a text, not as a number, a truth value or nothing."""
    return bool(part.style) or (part.value not in _OURS and _NUMBER.match(part.value) is None)


def flow_text(part: ScalarPart) -> str:
    """Return the scalar inside a flow collection, on one line."""
    if not is_text(part):
        return part.value or "null"
    return part.value if _is_plain(part.value) and _is_plain_in_flow(part.value) else _quote(part.value)


def key_text(part: ScalarPart, *, in_flow: bool) -> str:
    """Return a key; one that is plain in the file stays so."""
    value = part.value
    allowed = _is_plain(value) or (not part.style and _is_plain_form(value) and len(value) < _KEY_MAX)
    return value if allowed and (not in_flow or _is_plain_in_flow(value)) else _quote(value)


def block_text(part: ScalarPart, indent: int, used: int) -> tuple[str, list[str]]:
    """Return the scalar behind a key or a dash: the rest of that line, and the lines below. `used` is the columns
    before."""
    if not is_text(part):
        return part.value, []
    value = part.value
    if part.style == ">":
        rows = _read_folded_rows(part)
        if rows is not None:
            return _header(">", value), [" " * indent + row if row else "" for row in rows]
    if "\n" in value and _fits_literal(value):
        rows = value.removesuffix("\n").split("\n")
        return _header("|", value), [" " * indent + row if row else "" for row in rows]
    line = value if _is_plain(value) else _quote(value)
    if "\n" in part.raw and used + len(line) > WIDTH and _can_fold(value):
        rows = textwrap.wrap(value, _FOLD - indent, break_long_words=False, break_on_hyphens=False)
        return ">-", [" " * indent + row for row in rows]
    return line, []


# ------------------------------------------------------------------ plain and quoted
def _is_plain(value: str) -> bool:
    """Return whether the text needs no quotes in a block."""
    is_number = _LIKE_A_NUMBER.match(value) is not None and _VERSION.match(value) is None
    return value.lower() not in _WORDS and not is_number and _is_plain_form(value)


def _is_plain_form(value: str) -> bool:
    if not value or value != value.strip() or not _is_printable(value):
        return False
    if value[0] in _INDICATORS and _SAFE_START.match(value) is None:
        return False
    return ": " not in value and " #" not in value and not value.endswith(":")


def _is_plain_in_flow(value: str) -> bool:
    return not any(mark in value for mark in ",[]{}:?")


def _is_printable(value: str) -> bool:
    return all(char.isprintable() for char in value)


def _quote(value: str) -> str:
    if _is_printable(value):
        if '"' not in value and "\\" not in value:
            return f'"{value}"'
        if "'" not in value:
            return f"'{value}'"
    return '"' + "".join(_escape(char) for char in value) + '"'


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# ------------------------------------------------------------------ blocks
def _header(mark: str, value: str) -> str:
    return mark if value.endswith("\n") else f"{mark}-"


def _fits_literal(value: str) -> bool:
    """Return whether a literal block gives exactly this text, whatever follows it."""
    rows = value.removesuffix("\n").split("\n")
    if not rows[0] or rows[0][0] in " \t" or not rows[-1]:
        return False
    return all(_is_printable(row.replace("\t", " ")) and (not row or bool(row.strip())) for row in rows)


def _read_folded_rows(part: ScalarPart) -> list[str] | None:
    """Return the lines of a folded block without their indentation; None where the block is more than plain
    paragraphs."""
    header, _, body = part.raw.partition("\n")
    if any(char.isdigit() for char in header.partition("#")[0]) or part.value.endswith("\n\n"):
        return None
    rows = [row if row.strip(" ") else "" for row in body.split("\n")]
    while rows and not rows[-1]:
        rows.pop()
    if not rows or not rows[0]:
        return None
    indent = len(rows[0]) - len(rows[0].lstrip(" "))
    rows = [row[indent:] for row in rows]
    is_clean = all(not row or (row[0] not in " \t" and _is_printable(row)) for row in rows)
    return rows if is_clean else None


def _can_fold(value: str) -> bool:
    words = value.split(" ")
    return "\n" not in value and all(words) and _is_printable(value)


# ---------------------------------------------------------------- formatter


def format_text(text: str, file: str = TEXT_NAME) -> str:
    """Return the text in the layout; ParseError where it is no YAML, or no mapping."""
    document = read_document(text, file)
    if not isinstance(document.data, dict):
        raise ParseError("the file is no mapping of a node's keys", file=file, line=1, column=1)
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    root, entries, comments = read_tree(lines)
    header = attach_comments(root, entries, comments, first_key_moves=moves_first_key(root))
    writer = _Writer()
    writer.comments(header, 0)
    for index, entry in enumerate(sorted(root.entries, key=_rank)):
        is_section = entry.key is not None and entry.key.value not in HEADS
        writer.entry(entry, 0, blank=bool(header) if index == 0 else is_section)
    if root.footer:
        writer.comments(root.footer, 0, blank=True)
    result = "\n".join(writer.lines) + "\n"
    data = document.data
    try:
        is_same = is_same_data(data, read_document(result, file).data)
    except ParseError:
        is_same = False
    if not is_same:
        raise ParseError("the file uses YAML that cannot be laid out without changing it", file=file, line=1, column=1)
    return result


def is_same_data(first: Any, second: Any) -> bool:
    """Return whether two documents say the same: equal values of equal kinds, numbers with equal digits. The order of
    the keys at the top has no meaning."""
    if not isinstance(first, dict) or not isinstance(second, dict):
        return _is_same(first, second)
    return first.keys() == second.keys() and all(_is_same(first[key], second[key]) for key in first)


def _is_same(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return list(first) == list(second) and all(_is_same(first[key], second[key]) for key in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_is_same, first, second))
    return str(first) == str(second) if isinstance(first, Decimal) else bool(first == second)
