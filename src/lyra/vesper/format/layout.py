"""Writes a tree of entries: two spaces a level, lists indented below their key, the keys of a node in a fixed order.

Flow collections (`{type: decimal, scale: 2}`) stay on one line where they fit and hold no comment; else they become
blocks. Between the sections of a node there is one empty line; inside a section, at most one where the file has any.
"""

from __future__ import annotations

from typing import Final

from lyra.vesper.format.scalars import WIDTH, block_text, flow_text, key_text
from lyra.vesper.format.tree import Collection, FileComment, ScalarPart, TreeEntry

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


def write_tree(root: Collection, header: list[FileComment]) -> str:
    """The text of a file."""
    writer = _Writer()
    writer.comments(header, 0)
    for index, entry in enumerate(sorted(root.entries, key=_rank)):
        is_section = entry.key is not None and entry.key.value not in HEADS
        writer.entry(entry, 0, blank=bool(header) if index == 0 else is_section)
    if root.footer:
        writer.comments(root.footer, 0, blank=True)
    return "\n".join(writer.lines) + "\n"


def moves_first_key(root: Collection) -> bool:
    """Whether another key than the first one is written first."""
    return bool(root.entries) and min(root.entries, key=_rank) is not root.entries[0]


def _rank(entry: TreeEntry) -> int:
    name = "" if entry.key is None else entry.key.value
    return KEY_ORDER.index(name) if name in KEY_ORDER else len(KEY_ORDER)


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []

    # ------------------------------------------------------------ comments
    def comments(self, comments: list[FileComment], indent: int, *, blank: bool = False) -> None:
        """Comments on lines of their own; `blank`: with an empty line before the first."""
        for index, comment in enumerate(comments):
            if self.lines and (blank if index == 0 else comment.blank_before and comment.own_line):
                self.lines.append("")
            self.lines.append(" " * indent + comment.text)

    def entry(self, entry: TreeEntry, indent: int, *, blank: bool, lead: str | None = None) -> None:
        """An entry; `lead` is what stands before its first line in place of blanks: the dashes of items."""
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

    # ------------------------------------------------------------ pairs and items
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
    """Whether there is an empty line above an entry and its comments."""
    first = entry.leading[0] if entry.leading else None
    return entry.blank_before if first is None or not first.own_line else first.blank_before


def _comments_above(entry: TreeEntry, indent: int) -> list[FileComment]:
    """The comments above an entry. The line of a dash belongs to the first key or item of the block behind it, so that
    what would stand behind the dash or above that key goes above the dash, too."""
    value = entry.value
    if entry.key is not None or not isinstance(value, Collection) or _flow_line(value, indent + _STEP) is not None:
        return entry.leading
    behind = [] if entry.trailing is None else [entry.trailing]
    return [*entry.leading, *behind, *_comments_above(value.entries[0], indent + _STEP)]


# ------------------------------------------------------------------ flow collections
def _flow_line(collection: Collection, used: int) -> str | None:
    """The collection on one line; None where it is a block."""
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
