"""HTML that is built, not written: `tag("p", text, class_="note")` gives `Html`, and every other text is escaped.

Only `Html` stands as it is. Attributes are keywords: a trailing underscore is dropped and others become hyphens
(`class_`, `data_pid`); None and False leave an attribute out, True gives it without a value. Addresses are relative or
http(s); attributes with script or style are refused, which the content security policy of the pages refuses as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Any, Final, TypeAlias


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
    """An element."""
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
        text = _checked_address(text)
    return f' {name}="{escape(text)}"'


def _checked_address(address: str) -> str:
    """The address; "#" for one of a scheme that may run a script."""
    plain = _IGNORED_BY_BROWSERS.sub("", address)
    scheme = _SCHEME.match(plain)
    if scheme is None or scheme[0].lower() in ("http:", "https:"):
        return address
    return "#"
