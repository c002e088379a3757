"""A page of HTML as text to read: headings, paragraphs, lists, tables, links with their addresses; no scripts.

One pass from left to right that takes the same time for every byte, whatever the page holds: it looks for the next
`<` and the `>` after it, knows a table of elements, and skips everything else. Text that a browser would hide by style
is included, and nothing in a page is run.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Final
from urllib.parse import urljoin

_START: Final = re.compile(r"<(?:/?[a-zA-Z]|[!?])")
_NAME: Final = re.compile(r"/?([a-zA-Z][a-zA-Z0-9:-]{0,40})")
_LINK: Final = re.compile(r"\bhref\s*=\s*(?:\"([^\"]{0,2000})\"|'([^']{0,2000})'|([^\s>]{0,2000}))", re.IGNORECASE)
_ALT: Final = re.compile(r"\balt\s*=\s*(?:\"([^\"]{0,500})\"|'([^']{0,500})')", re.IGNORECASE)
_SKIPPED: Final = frozenset({"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas"})
_BLOCKS: Final = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "caption", "dd", "details", "dialog", "div", "dl", "dt"),
        *("fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "legend", "main", "nav", "ol"),
        *("option", "p", "pre", "section", "select", "summary", "table", "tbody", "thead", "title", "tr", "ul"),
    }
)
_ROWS: Final = frozenset({"tr", "option", "dt", "dd"})
_HEADINGS: Final = {f"h{level}": "#" * level for level in range(1, 7)}
_LINKS_OPEN_MAX: Final = 20
_SHOWN_SCHEMES: Final = ("http://", "https://")


def page_text(html: str, *, url: str = "") -> str:
    """The text; addresses of links are made whole with `url`."""
    page = _Page(url)
    position = 0
    while (tag := _START.search(html, position)) is not None:
        page.text(html[position : tag.start()])
        position = _tag(page, html, tag.start())
    page.text(html[position:])
    return page.result()


def _tag(page: _Page, html: str, start: int) -> int:
    """Read the tag or comment at `start`; returns the position after it."""
    if html.startswith("<!--", start):
        return _after(html, "-->", start + 4)
    if html.startswith(("<!", "<?"), start):
        return _after(html, ">", start)
    tag_name = _NAME.match(html, start + 1)
    assert tag_name is not None
    name, close = tag_name[1].lower(), html[start + 1] == "/"
    end = _after(html, ">", start)
    if name in _SKIPPED and not close:
        return _end_of(html, name, end)
    page.tag(name, html[tag_name.end() : end], close=close)
    return end


def _after(html: str, mark: str, start: int) -> int:
    index = html.find(mark, start)
    return len(html) if index < 0 else index + len(mark)


def _end_of(html: str, name: str, start: int) -> int:
    """The position after the closing tag of a skipped element; the end of the page where there is none."""
    closing = re.compile(rf"</{name}[^>]{{0,200}}>", re.IGNORECASE).search(html, start)
    return len(html) if closing is None else closing.end()


class _Page:
    """The text that has been read so far."""

    __slots__ = ("_links", "_out", "_pre", "_url", "_words")

    def __init__(self, url: str) -> None:
        self._url = url
        self._out: list[str] = []
        self._links: list[tuple[str, int]] = []  # open links: (address, pieces of text before it)
        self._pre = 0
        self._words = 0

    def text(self, raw: str) -> None:
        if not raw:
            return
        text = _plain(raw)
        if not self._pre:
            text = re.sub(r"[ \t\r\n\f]+", " ", text)
            if not self._out or self._out[-1].endswith((" ", "\n")):
                text = text.lstrip(" ")
        if text:
            self._words += not text.isspace()
            self._out.append(text)

    def tag(self, name: str, attributes: str, *, close: bool) -> None:
        if name == "br":
            self._out.append("\n")
        elif name == "a":
            self._link(attributes, close=close)
        elif name in _HEADINGS:
            self._out.append("\n\n" if close else f"\n\n{_HEADINGS[name]} ")
        elif name == "li":
            self._out.append("\n" if close else "\n- ")
        elif name in ("td", "th"):
            self._out.append(" | " if close else "")
        elif name == "img":
            alt = _ALT.search(attributes)
            self.text(f"[{alt[1] or alt[2]}]" if alt and (alt[1] or alt[2]) else "")
        elif name in _BLOCKS:
            self._pre = max(0, self._pre + (-1 if close else 1)) if name == "pre" else self._pre
            if name not in _ROWS:
                self._out.append("\n\n")
            elif not close:
                self._out.append("\n")

    def _address(self, attributes: str) -> str:
        link = _LINK.search(attributes)
        if link is None:
            return ""
        try:
            address = urljoin(self._url, _plain(link[1] or link[2] or link[3] or "").strip())
        except ValueError:
            return ""
        return address if address.startswith(_SHOWN_SCHEMES) else ""

    def _link(self, attributes: str, *, close: bool) -> None:
        if not close and len(self._links) < _LINKS_OPEN_MAX:
            self._links.append((self._address(attributes), self._words))
        elif close and self._links:
            address, before = self._links.pop()
            if address and self._words > before:
                self._out.append(f" ({address})")

    def result(self) -> str:
        lines = [line.rstrip() for line in "".join(self._out).replace("\0", "").split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _plain(raw: str) -> str:
    try:
        return unescape(raw) if "&" in raw else raw
    except ValueError:  # a character reference with thousands of digits
        return raw
