"""Texts that would run a script, or become an element, in a page that takes them for HTML.

Every payload that works sets `window.__hit` or makes an element of the class `injected`. `payloads(500)` puts the known
forms of such attacks behind endings of every context that a page has: elements, attributes, comments (the marks of
regions among them), scripts, JSON, URLs. Each has a number, so that no two are equal.
"""

from __future__ import annotations

from typing import Final

__all__ = ["payloads"]

_RUN: Final = "window.__hit=1"

# What ends the place where the text stands.
_ENDINGS: Final = (
    "",
    '">',
    "'>",
    "-->",
    "--!>",
    "<!--end questions-->",
    "<!--region talk-->",
    "</script>",
    "</style>",
    "</title>",
    "</textarea>",
    "</details></summary>",
    "</code></pre>",
    "]]>",
    "\\",
    '\\"',
    "\n\ndata: ",
    "\u2028",
    "\u202e",
    "{{7*7}}${7*7}",
)
_ATTACKS: Final = (
    f"<script>{_RUN}</script>",
    f"<img src=x class=injected onerror={_RUN}>",
    f"<svg class=injected onload={_RUN}>",
    f"<svg><script>{_RUN}</script></svg>",
    f"<body onload={_RUN}>",
    f"<iframe class=injected srcdoc='<script>parent.{_RUN}</script>'></iframe>",
    f"<a class=injected href=javascript:{_RUN}>x</a>",
    f"<details open class=injected ontoggle={_RUN}>",
    f"<input autofocus class=injected onfocus={_RUN}>",
    f"<math><mi class=injected xlink:href='data:x,<script>{_RUN}</script>'>",
    f"<style class=injected>@import'javascript:{_RUN}';</style>",
    "<link class=injected rel=stylesheet href='data:text/css,*{}'>",
    "<b class=injected>bold</b>",
    "<form class=injected action=//evil.example><button>x</button></form>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    f"<object class=injected data='javascript:{_RUN}'></object>",
    f"<template><script>{_RUN}</script></template>",
    f"x onmouseover={_RUN} x=",
    f'" autofocus onfocus={_RUN} x="',
    f"';{_RUN};'",
    f'";{_RUN};"',
    f"`${{{_RUN}}}`",
    f"javascript:{_RUN}",
    "&lt;b class=injected&gt;&#x3c;b class=injected>",
    "%3Cb class=injected%3E",
    "\\u003cb class=injected\\u003e",
    "<b class=injected",
    "<<b class=injected>>",
    "\x00<b class=injected>",
    "<img src='//evil.example/x.png' class=injected>",
)


def payloads(count: int) -> list[str]:
    """So many different texts, up to 600. 30 have each attack and each ending, 600 each attack with each ending."""
    texts = []
    for number in range(count):
        turn = number + number // 60  # after 60 texts, each attack meets other endings
        texts.append(f"{number}{_ENDINGS[turn % len(_ENDINGS)]}{_ATTACKS[number % len(_ATTACKS)]}")
    return texts
