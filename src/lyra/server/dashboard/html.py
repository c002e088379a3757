"""HTML that is built, not written: `tag("p", text, class_="note")` gives `Html`, and every other text is escaped.

Only `Html` stands as it is. Attributes are keywords: a trailing underscore is dropped and others become hyphens
(`class_`, `data_pid`); None and False leave an attribute out, True gives it without a value. Addresses are relative or
http(s); attributes with script or style are refused, which the content security policy of the pages refuses as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, Final, NamedTuple, TypeAlias


class Html(str):
    """Text that is HTML."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int | float | Iterable[Child] | None"

_VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "wbr"})
_ADDRESSES: Final = frozenset({"action", "formaction", "href", "poster", "src", "xlink:href"})
_REFUSED: Final = re.compile(r"(?:on\w*|style|srcdoc|srcset)\Z", re.IGNORECASE)
_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9:-]*\Z")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_IGNORED_BY_BROWSERS: Final = re.compile(r"[\x00-\x20]+")


def tag(name: str, /, *children: Child, **attributes: Any) -> Html:
    """Return an element."""
    start = f"<{name}{''.join(map(_attribute, attributes.items()))}>"
    if name in _VOID:
        assert not children, name
        return Html(start)
    return Html(f"{start}{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Children one after the other, without an element around them."""
    return Html("".join(map(_text, children)))


def _text(child: Child) -> str:
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return escape(child)
    if child is None:
        return ""
    if isinstance(child, (int, float)):
        return escape(str(child))
    return "".join(map(_text, child))


def _attribute(item: tuple[str, Any]) -> str:
    name, value = item[0].rstrip("_").replace("_", "-"), item[1]
    if value is None or value is False:
        return ""
    if not _NAME.match(name) or _REFUSED.match(name):
        raise ValueError(f"no attribute for a page: {name}")
    if value is True:
        return f" {name}"
    text = str(value)
    if name in _ADDRESSES:
        text = _check_address(text)
    return f' {name}="{escape(text)}"'


def _check_address(address: str) -> str:
    """Return the address; "#" for one of a scheme that may run a script."""
    plain = _IGNORED_BY_BROWSERS.sub("", address)
    scheme = _SCHEME.match(plain)
    if scheme is None or scheme[0].lower() in ("http:", "https:"):
        return address
    return "#"


# Tables of the pages: a caption for screen readers, figures at the right, and a box that scrolls sideways.


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
    """Return a table. `caption` is read out and not shown; every cell knows its column's label, for narrow screens."""
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


# Facts in a row: a short word above each value, for the head of a page about one thing.


def facts_row(facts: Iterable[tuple[str, Child]]) -> Html:
    """Return a list of words and values side by side; it wraps on narrow screens."""
    return tag("dl", [tag("div", tag("dt", word), tag("dd", value)) for word, value in facts], class_="facts-row")
