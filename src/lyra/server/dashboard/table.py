"""Tables of the pages: a caption for screen readers, figures at the right, and a box that scrolls sideways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lyra.server.dashboard.html import Child, Html, tag


class TableColumn(NamedTuple):
    """A column; a figure stands at the right with digits of one width."""

    label: str
    is_figure: bool = False


class TableRow(NamedTuple):
    """A row with a key, by which the page finds it again when it changes."""

    key: str
    cells: Sequence[Child]


def table(
    caption: str, columns: Sequence[TableColumn | str], rows: Iterable[TableRow], *, name: str | None = None
) -> Html:
    """A table. `caption` is read out and not shown; every cell knows its column's label, for narrow screens."""
    heads = [column if isinstance(column, TableColumn) else TableColumn(column) for column in columns]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="unseen"),
            tag("thead", tag("tr", [tag("th", head.label, scope="col", class_=_class(head)) for head in heads])),
            tag("tbody", [_row(row, heads) for row in rows]),
            id=name,
            class_="listing",
        ),
        class_="scroll",
        role="region",
        tabindex="0",
        aria_label=caption,
    )


def _row(row: TableRow, heads: Sequence[TableColumn]) -> Html:
    cells = [
        tag("td", cell, class_=_class(head), data_label=head.label) for head, cell in zip(heads, row.cells, strict=True)
    ]
    return tag("tr", cells, data_key=row.key)


def _class(column: TableColumn) -> str | None:
    return "figure-cell" if column.is_figure else None
