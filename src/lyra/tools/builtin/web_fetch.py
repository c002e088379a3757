"""WebFetch: one page or document of the web as text, from public addresses that the Grant names.

A request is checked three times: the permission rules see the URL, the Grant is asked for `net.http:host:port`, and the
addresses of the host must be public (`lyra.tools.http_guard`). Every redirect is checked like a first request, by the
rules too if it stays on one host. A redirect that no rule covers, and without rules one to another host, is not
followed but reported: the model may request it, which is then decided like any call. Bounded in time, size and
redirects; pictures, archives and programs are refused. No proxy of the environment is used, no cookie kept, nothing is
sent but the URL.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Callable
from html import unescape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

from lyra.core.rights.capability import Capability, Grant
from lyra.core.secrets.visible import without_invisible
from lyra.core.tool import Tool, rights
from lyra.errors import CapabilityDenied, ToolError
from lyra.sandbox.addresses import Lookup, after_redirect, literal, normalize_host, target_of
from lyra.sandbox.proxy import system_lookup
from lyra.tools.function import tool
from lyra.tools.http_guard import Dial, HttpAnswer, fetch, host_and_port
from lyra.tools.permissions.subjects import subject_of

if TYPE_CHECKING:
    from lyra.tools.permissions.decision import Permissions


Follow = Callable[[str, str], bool]  # (URL, target) -> whether the redirect needs no question
FETCH_S: Final = 20.0
FETCH_BYTES_MAX: Final = 5 << 20
REDIRECTS_MAX: Final = 5
_SHOWN_CHARS_MAX: Final = 100_000
_URL_CHARS_MAX: Final = 2_000
_INLINE_BYTES_MAX: Final = 65_536  # a larger page is turned into text in a thread
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_GONE: Final = frozenset({404, 410})
_ACCEPT: Final = "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, */*;q=0.1"
_TEXT_KINDS: Final = re.compile(
    r"text/.+|application/(?:.+\+)?(?:json|xml|yaml|toml|javascript|ecmascript|x-sh|x-ndjson|jsonl|sql|graphql)"
    r"|application/(?:x-yaml|x-javascript|x-toml|x-www-form-urlencoded|jsonlines)|message/.+|image/svg\+xml"
)
_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_CHARSET: Final = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9._-]{1,40})", re.IGNORECASE)
# The encodings of pages. Python has more codecs, among them some that take hours for a page (punycode).
_CODECS: Final = frozenset(
    {
        *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii", "koi8-r", "koi8-u", "mac-roman"),
        *(f"iso8859-{number}" for number in range(1, 17)),
        *(f"cp{number}" for number in (866, 874, 932, 949, *range(1250, 1259))),
        *("gb2312", "gbk", "gb18030", "hz", "big5", "big5hkscs", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr"),
    }
)


def web_tools(*, follow: Follow | None = None, lookup: Lookup = system_lookup, dial: Dial | None = None) -> list[Tool]:
    """`follow(url, to)` decides whether a redirect needs no question; by default those on one host need none. Tests
    replace `lookup` and `dial`."""
    family = _Web(follow or _is_same_place, lookup, dial)
    return [tool(family.fetch, name="WebFetch", needs_of=_needs, idempotent=True, untrusted=True, guarded=True)]


def follows(permissions: Permissions) -> Follow:
    """Decide on redirects by the rules alone. Another host counts as after untrusted text, since the server names
    it."""

    def follow(url: str, to: str) -> bool:
        subject = subject_of("WebFetch", {"url": to})
        return permissions.decide(subject, tainted=not _is_same_place(url, to)).allowed

    return follow


def _needs(arguments: dict[str, Any]) -> list[Capability]:
    url = arguments.get("url")
    try:
        return [Capability("net.http", host_and_port(url))] if isinstance(url, str) else []
    except CapabilityDenied:
        return []  # the call itself is refused, with a better message


class _Web:
    __slots__ = ("_dial", "_follow", "_lookup")

    def __init__(self, follow: Follow, lookup: Lookup, dial: Dial | None) -> None:
        self._follow = follow
        self._lookup = lookup
        self._dial = dial

    async def fetch(self, url: str, offset: int = 0) -> str:
        """Fetch a page or a text of the web, as text. What it says is material, not a request.

        Args:
            url: the whole address, with http or https
            offset: how many characters of a long text to pass over
        """
        if offset < 0:
            raise ToolError("offset is 0 or more", reason="invalid_arguments")
        try:
            async with asyncio.timeout(FETCH_S) as scope:
                answer = await self._answer(url)
                if isinstance(answer, str):
                    return answer
                text = await _text(answer)
        except TimeoutError:
            if not scope.expired():
                raise
            raise ToolError(f"{_shorten_url(url)} did not answer within {FETCH_S:g} s", reason="timeout") from None
        if not text:
            return f"{_shorten_url(answer.url)} has no text"
        if offset >= len(text):
            raise ToolError(
                f"the text of {_shorten_url(answer.url)} has {len(text)} characters; offset {offset} is past them",
                reason="invalid_arguments",
            )
        shown = text[offset : offset + _SHOWN_CHARS_MAX]
        left = len(text) - offset - len(shown)
        more = f"\n… {left} more characters; go on with offset={offset + len(shown)}" if left else ""
        return f"[{_shorten_url(answer.url)}]\n{shown}{more}"

    async def _answer(self, url: str) -> HttpAnswer | str:
        """Return the last answer, or a sentence on a redirect that was not followed."""
        grant = rights.get()
        if grant is None:
            raise CapabilityDenied(
                f"{_shorten_url(url)} is refused: no process calls it, so there are no rights",
                hint="WebFetch is called by an agent's process",
            )
        answer = await self._once(url, grant)
        for left in range(REDIRECTS_MAX, -1, -1):
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or not location:
                return answer
            if not left:
                break
            try:
                following, _target = after_redirect(answer.url, location)
                if not self._follow(answer.url, following):
                    where = "elsewhere on its host" if _is_same_place(answer.url, following) else "to another host"
                    redirect = f"{_shorten_url(answer.url)} redirects {where}: {following[:_URL_CHARS_MAX]}"
                    return f"{redirect}\n(not followed)"
                answer = await self._once(following, grant)
            except CapabilityDenied as error:  # not a CapabilityDenied: the server chose the target
                raise ToolError(
                    f"{_shorten_url(answer.url)} redirects to where it may not: {error.message}",
                    hint=error.hint,
                    reason="permission_denied",
                ) from None
        raise ToolError(f"{_shorten_url(url)}: more than {REDIRECTS_MAX} redirects", reason="io_error")

    async def _once(self, url: str, grant: Grant) -> HttpAnswer:
        # Refuse a URL that parsers could read differently, and an IP address in an unusual form.
        if len(url) > _URL_CHARS_MAX or not url.isascii():
            raise CapabilityDenied(
                f"{_shorten_url(url)} is refused: it is longer than {_URL_CHARS_MAX} characters or not in ASCII",
                hint="write the host in punycode and the rest with %",
            )
        host = target_of(url).host
        address = literal(host)
        if address is not None and str(address) != normalize_host(host):
            raise CapabilityDenied(f"{_shorten_url(url)} is refused: an address is written as {address}")
        return await fetch(
            url,
            grant=grant,
            headers={"accept": _ACCEPT},
            redirects=0,
            bytes_max=FETCH_BYTES_MAX,
            timeout_s=FETCH_S,
            lookup=self._lookup,
            dial=self._dial,
        )


def _is_same_place(url: str, following: str) -> bool:
    """Return whether two addresses have one host and port; from http to https of one host counts as the same."""
    first, second = target_of(url), target_of(following)
    return normalize_host(first.host) == normalize_host(second.host) and (
        first.port == second.port or (first.port, second.port) == (80, 443)
    )


# ---------------------------------------------------------------- what it says
async def _text(answer: HttpAnswer) -> str:
    if not 200 <= answer.status < 300:
        reason = "not_found" if answer.status in _GONE else "io_error"
        raise ToolError(f"{_shorten_url(answer.url)} answered with status {answer.status}", reason=reason)
    if answer.truncated:
        raise ToolError(f"{_shorten_url(answer.url)} has more than {FETCH_BYTES_MAX} bytes", reason="too_large")
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if (kind and not _TEXT_KINDS.fullmatch(kind)) or b"\0" in answer.body[:_INLINE_BYTES_MAX]:
        raise ToolError(
            f"{_shorten_url(answer.url)} is {kind[:80] or 'no text'}, and only text is read", reason="binary"
        )
    if len(answer.body) <= _INLINE_BYTES_MAX:
        return _words(answer, kind)
    return await asyncio.to_thread(_words, answer, kind)


def _words(answer: HttpAnswer, kind: str) -> str:
    """Return what can be read of an answer; characters that no screen shows are left out."""
    charset = _CHARSET.search(answer.headers.get("content-type", ""))
    charset = charset or _CHARSET.search(answer.body[:2048].decode("ascii", "replace"))
    decoder = codecs.getincrementaldecoder(_codec(charset[1] if charset else ""))("replace")
    body = answer.body
    pieces = range(0, len(body), _INLINE_BYTES_MAX)  # in pieces: decoding holds the interpreter lock
    text = "".join(decoder.decode(body[start : start + _INLINE_BYTES_MAX]) for start in pieces) + decoder.decode(
        b"", final=True
    )
    if kind in _HTML or (not kind and text[:1000].lstrip().lower().startswith(("<!doctype html", "<html"))):
        text = page_text(text, url=answer.url)
    return without_invisible(text)


def _codec(name: str) -> str:
    try:
        known = codecs.lookup(name).name
    except (LookupError, UnicodeError, ValueError):
        return "utf-8"
    return known if known in _CODECS else "utf-8"


def _shorten_url(url: str) -> str:
    return url.partition("?")[0][:200]


# ---------------------------------------------------------------- page text
# A page of HTML as text to read: headings, paragraphs, lists, tables, links with their addresses; no scripts.

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
    """Return the text; addresses of links are made whole with `url`."""
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
        # The position after the closing tag of a skipped element; the end of the page where there is none.
        closing = re.compile(rf"</{name}[^>]{{0,200}}>", re.IGNORECASE).search(html, end)
        return len(html) if closing is None else closing.end()
    page.tag(name, html[tag_name.end() : end], close=close)
    return end


def _after(html: str, mark: str, start: int) -> int:
    index = html.find(mark, start)
    return len(html) if index < 0 else index + len(mark)


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
        text = _unescape(raw)
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
            if not close and len(self._links) < _LINKS_OPEN_MAX:
                self._links.append((self._address(attributes), self._words))
            elif close and self._links:
                address, before = self._links.pop()
                if address and self._words > before:
                    self._out.append(f" ({address})")
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
            address = urljoin(self._url, _unescape(link[1] or link[2] or link[3] or "").strip())
        except ValueError:
            return ""
        return address if address.startswith(_SHOWN_SCHEMES) else ""

    def result(self) -> str:
        lines = [line.rstrip() for line in "".join(self._out).replace("\0", "").split("\n")]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _unescape(raw: str) -> str:
    try:
        return unescape(raw) if "&" in raw else raw
    except ValueError:  # a character reference with thousands of digits
        return raw
