"""A file as a tree of entries that keep their place in the text, so that comments can be tied to them.

An `TreeEntry` is a pair of a mapping or an item of a list; its value is a `ScalarPart` or a `Collection`. Marks are
offsets into the text. The tree is read from the tokens and nodes of the YAML library; `read_tree` expects a text that
`lyra.vesper.loading.document` accepts, so tags, aliases and deep nesting do not occur.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
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
    """The root mapping, all entries in order of their start, and all comments. ParseError where there is no mapping."""
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
    """Whether the line above that of a character is empty."""
    start = text.rfind("\n", 0, index) + 1
    return start > 0 and not text[text.rfind("\n", 0, start - 1) + 1 : start].strip()


# ------------------------------------------------------------------ comments
def _comments(yaml: Any, text: str, tokens: list[Any]) -> Iterator[FileComment]:
    """Comments stand between tokens, and in the first line of a block scalar."""
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
