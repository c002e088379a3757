"""SlashResult: what a slash command gives back, as plain data.

A block is a mapping with a `type`:

    text     text                         Markdown
    lines    lines, title                 texts as they are
    table    columns, rows, title         cells are texts
    bars     rows, of, title              rows of (name, value, words); `of` is the value of a full bar
    diff     diff, title                  a unified diff

A face shows the blocks, then does what else the result asks for: send `prompt` to the session, with `send_with` as
further arguments of its method `send`; open another session (`open_session`); or leave (`exit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

Block = dict[str, Any]
_FENCES: Final = {"diff": "diff"}  # the language of a block of code by the type of the block; text for the others


class SlashResult(msgspec.Struct, kw_only=True):
    """`open_session` is the id of a session; with `fork` a copy of it is to be opened, of the conversation before the
    turn `before_turn` where that is named. `refused` says why nothing was done, in a sentence that the blocks have,
    too."""

    blocks: list[Block] = []
    prompt: str | None = None
    send_with: dict[str, Any] = {}
    open_session: str = ""
    fork: bool = False
    before_turn: int | None = None
    exit: bool = False
    refused: str = ""

    @classmethod
    def of(cls, *blocks: Block | str, **more: Any) -> SlashResult:
        """A result with these blocks; a text is a block of one line."""
        return cls(blocks=[lines([block]) if isinstance(block, str) else block for block in blocks], **more)


def text(markdown: str) -> Block:
    return {"type": "text", "text": markdown}


def lines(texts: Iterable[str], *, title: str = "") -> Block:
    return _titled({"type": "lines", "lines": list(texts)}, title)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> Block:
    return _titled(
        {"type": "table", "columns": list(columns), "rows": [[_cell(cell) for cell in row] for row in rows]}, title
    )


def bars(rows: Iterable[tuple[str, float, str]], *, of: float | None = None, title: str = "") -> Block:
    return _titled({"type": "bars", "rows": [list(row) for row in rows], "of": of}, title)


def diff(unified: str, *, title: str = "") -> Block:
    return _titled({"type": "diff", "diff": unified}, title)


def as_markdown(blocks: Iterable[Block]) -> str:
    """The blocks as Markdown, for a face without a layout of its own."""
    texts = []
    for block in blocks:
        title = f"**{block['title']}**\n\n" if block.get("title") else ""
        kind, content = block["type"], _content(block)
        texts.append(
            f"{title}{content}" if kind == "text" else f"{title}```{_FENCES.get(kind, 'text')}\n{content}\n```"
        )
    return "\n\n".join(texts)


def plain_text(blocks: Iterable[Block]) -> str:
    """The blocks as they are read on paper: titles and lines."""
    texts = (f"{block['title']}\n{_content(block)}" if block.get("title") else _content(block) for block in blocks)
    return "\n\n".join(filter(None, texts))


def _content(block: Block) -> str:
    """The lines of a block without its title, columns under each other."""
    kind = block["type"]
    if kind in ("text", "diff"):
        return str(block[kind])
    if kind == "table":
        rows = [block["columns"], *block["rows"]]
    elif kind == "bars":
        rows = [[name, words] for name, _, words in block["rows"]]
    else:
        rows = [[line] for line in block["lines"]]
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))] if rows else []
    lined = (
        "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
    return "\n".join(lined)


def _titled(block: Block, title: str) -> Block:
    return {**block, "title": title} if title else block


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
