"""Ties each comment of a file to an entry, so that it stays there when entries are moved or indented anew.

A comment behind something stays behind it. A comment on a line of its own belongs to the entry below it, unless it is
indented like the block above, whose end it then is. Comments at the top of the file that an empty line separates from
the first key are about the file and stay at its top; so do those right above the first key, such as a licence, where
another key takes its place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from lyra.vesper.format.tree import Collection, FileComment, TreeEntry


def attach_comments(
    root: Collection, entries: Sequence[TreeEntry], comments: Sequence[FileComment], *, first_key_moves: bool
) -> list[FileComment]:
    """Put all comments into the tree; gives those about the file itself."""
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
    """The comments above the first key, up to the last empty line among them or before the key; all of them where there
    is no empty line and the key moves away."""
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
    """A flow collection cannot keep a comment."""
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
    """Whether the value is written over several lines, below the entry's own."""
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
    """The collection at whose end the comment stands; None: it is above the next entry."""
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
    """The collections around an entry, from the inside, with its own value where that has no entries."""
    if entry is not None and isinstance(entry.value, Collection):
        yield entry.value
    while entry is not None:
        yield entry.parent
        entry = entry.parent.owner


def _outermost(entry: TreeEntry) -> TreeEntry:
    """A comment cannot stand between the dash of an item and its first key: it goes above the dash."""
    while True:
        owner = entry.parent.owner
        if owner is None or owner.key is not None or entry is not entry.parent.entries[0]:
            return entry
        entry = owner
