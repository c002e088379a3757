"""A file as a tree of entries that keep their place in the text, with each comment tied to an entry.

A `TreeEntry` is a pair of a mapping or an item of a list; its value is a `ScalarPart` or a `Collection`. Marks are
offsets into the text. The tree is read from the tokens and nodes of the YAML library; `read_tree` expects a text that
`lyra.vesper.loading` accepts, so tags, aliases and deep nesting do not occur.

A comment behind something stays behind it. A comment on a line of its own belongs to the entry below it, unless it is
indented like the block above, whose end it then is. Comments at the top of the file that an empty line separates from
the first key are about the file and stay at its top; so do those right above the first key, such as a licence, where
another key takes its place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from lyra.errors import ParseError


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
    header = _header(root, comments, first_key_moves=first_key_moves)
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


def _header(root: Collection, comments: Sequence[FileComment], *, first_key_moves: bool) -> list[FileComment]:
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
