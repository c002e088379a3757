"""Finds the keys that a process knows in texts: in their usual spellings, whole or cut off at one end.

`KnownKeys.of(keys)` is made once for a set of keys. `mask` puts `***` in place of each key in a text that is shown;
`holds` says whether data that is about to be used has a whole key in it, so that the caller can refuse it. A text that
runs or is stored is never masked: `***` is a live pattern in a shell, and another content in a file.

A key is found as it is, in JSON, in a URL, in hexadecimal digits and in base64, there also in the middle of a longer
text. A part of a key counts from `_PART_LEAST` characters on: its beginning in every spelling, its end as it is. In
ordinary text the part has to look like a key; in a provider's error (`any_part`) it has not, and there a part from the
middle counts, too.

A long key is also found through what people and programs put between its characters: blanks and line ends (`base64`
wraps its lines), quotes and backslashes of a shell, colons of hexadecimal digits, single characters as `%xx`, `\\xNN`
or `\\uNNNN`, and the border of two arguments of a call. Other spellings are not found.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from lyra.core.secrets.secret import MASK

KEY_LENGTH_LEAST: Final = 6  # a shorter "key" would mask ordinary words
_PART_LEAST: Final = 8  # characters of a key that was cut off
_END_LEAST: Final = 12  # the same for the end of a key, which has no head that tells its kind
_PAST_HEAD_LEAST: Final = 4
_MIDDLE_LEAST: Final = 12
_SCATTERED_LEAST: Final = 16  # a shorter key would be found across ordinary words
_LEFT_OUT: Final = b" \t\r\n'\"\\:"
_BETWEEN: Final = dict.fromkeys(_LEFT_OUT)
_ESCAPE: Final = r"%([0-9A-Fa-f]{2})|\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})"
# How keys of well-known kinds begin. That much is public, and stands in every manual.
_HEAD: Final = (
    r"sk-(?:ant-(?:api\d\d-|admin\d\d-)?|proj-|svcacct-|admin-|or-v1-)?|AIza(?:Sy)?|ya29\.|gh[pousr]_|github_pat_|glpat-"
    r"|xox[abeprs]-|[rs]k_(?:live|test)_|hf_|gsk_|xai-|pplx-|npm_|pypi-|AKIA|ASIA"
)


class _Spelling(NamedTuple):
    """A key as it may be written, and the beginning of that which counts as a part of the key."""

    whole: str
    part: str  # in ordinary text; the whole where no part looks like a key
    any_part: str


class KnownKeys:
    """A set of keys, prepared to be found in texts."""

    __slots__ = (
        "_any_parts",
        "_by_first",
        "_bytes",
        "_characters",
        "_ends",
        "_longest",
        "_parts",
        "_scattered",
        "_scattered_bytes",
        "_usable",
        "wholes",
    )

    def __init__(self, keys: Iterable[str]) -> None:
        usable = [key for key in dict.fromkeys(keys) if len(key) >= KEY_LENGTH_LEAST]
        spellings = {spelling for key in usable for spelling in _spellings(key)}
        # The longest first, so that a key inside another does not break up the longer one.
        self.wholes = tuple(sorted({spelling.whole for spelling in spellings}, key=len, reverse=True))
        self._longest = len(self.wholes[0]) if self.wholes else 0
        self._characters = frozenset("".join(self.wholes))
        self._by_first: dict[str, list[str]] = {}
        for whole in self.wholes:
            self._by_first.setdefault(whole[0], []).append(whole)
        self._ends = {key[-_END_LEAST:]: key for key in usable if _ends_like_key(key)}
        self._parts = _Parts({(spelling.part, spelling.whole) for spelling in spellings}, self._ends)
        self._any_parts = _Parts({(spelling.any_part, spelling.whole) for spelling in spellings}, self._ends)
        self._usable = usable
        self._scattered = _spell_scattered(usable)
        self._scattered_bytes = [_raw(spelling) for spelling in self._scattered]
        self._bytes = [part.encode("utf-8", "surrogatepass") for part in self._parts.searched]

    @staticmethod
    def prepare(keys: Iterable[str]) -> KnownKeys:
        return _prepare(tuple(keys))

    def __bool__(self) -> bool:
        return bool(self.wholes)

    def mask(self, text: str, *, any_part: bool = False) -> str:
        """Return the text with `***` in place of each key and of each part of one."""
        if not self._usable:
            return text
        if self._scattered and self._holds_scattered(text):
            text = self._without_scattered(text)
        parts = self._any_parts if any_part else self._parts
        for part in parts.searched:
            if part in text:
                text = self._without_parts(text, parts)
                break
        if any_part:
            for key in self._usable:
                text = _without_middles(text, key)
        return text

    def _without_parts(self, text: str, parts: _Parts) -> str:
        text = self.mask_whole(text)  # before the parts, which two keys may have in common
        for part, whole in parts.beginnings:
            text = _without_beginnings(text, whole, len(part))
        for end, key in self._ends.items():
            text = _without_ends(text, key, len(end))
        return text

    def mask_whole(self, text: str) -> str:
        """Return the text with `***` in place of each whole key."""
        for whole in self.wholes:
            if whole in text:
                text = text.replace(whole, MASK)
        return text

    def length_held(self, text: str) -> int:
        """Return how many characters at the end of the text may be the beginning of a whole key."""
        if text[-1:] not in self._characters:  # such as the line end of an event
            return 0
        first = max(0, len(text) - self._longest + 1)
        for index in range(first, len(text)):
            wholes = self._by_first.get(text[index])
            if wholes is not None and any(whole.startswith(text[index:]) for whole in wholes):
                return len(text) - index
        return 0

    def holds(self, value: Any) -> bool:
        """Return whether a text of plain data, or a name in it, has a whole key in it; or several texts together."""
        if not self.wholes:
            return False
        if any(whole in text for text in _texts(value, names=True) for whole in self.wholes):
            return True
        return self._holds_scattered("".join(_texts(value, names=False)))

    def _holds_scattered(self, text: str) -> bool:
        """Return whether a long key is in the text once all that may stand between its characters is left out."""
        if not self._scattered:
            return False
        plain = _without_escapes(_raw(text)).translate(None, _LEFT_OUT)
        if any(spelling in plain for spelling in self._scattered_bytes):
            return True
        lower = plain.lower()
        return any(spelling in lower for spelling in self._scattered_bytes if spelling.islower())

    def _without_scattered(self, text: str) -> str:
        """Return the text with `***` in place of each of them, up to and with what stood between its characters."""
        plain, places = _unescape_with_places(text)
        lower = plain.lower()
        spans = []
        for spelling in self._scattered:
            for searched in {plain, lower}:
                start = searched.find(spelling)
                while start >= 0:
                    spans.append((places[start][0], places[start + len(spelling) - 1][1]))
                    start = searched.find(spelling, start + 1)
        pieces, end = [], 0
        for first, last in sorted(spans):
            if last > end:
                pieces += [text[end : max(first, end)], MASK]
                end = last
        return "".join([*pieces, text[end:]])

    def may_be_in(self, encoded: bytes) -> bool:
        """Return whether `mask` would change a text of the data that was encoded."""
        return any(part in encoded for part in self._bytes)


@lru_cache(maxsize=64)
def _prepare(keys: tuple[str, ...]) -> KnownKeys:
    return KnownKeys(keys)


class _Parts:
    """The parts that count: `searched` tells quickly that a text has none of them."""

    __slots__ = ("beginnings", "searched")

    def __init__(self, beginnings: set[tuple[str, str]], ends: Iterable[str]) -> None:
        self.beginnings = sorted(beginnings, key=lambda pair: len(pair[1]), reverse=True)
        self.searched = tuple({*(part for part, _ in beginnings), *ends})


# ---------------------------------------------------------------- spellings
def _spellings(key: str) -> Iterator[_Spelling]:
    part, any_part = key[: _part_length(key)], key[:_PART_LEAST]
    for spell in _SPELLERS:
        whole = spell(key)
        if len(whole) >= KEY_LENGTH_LEAST:
            yield _Spelling(whole, _beginning(whole, spell(part)), _beginning(whole, spell(any_part)))


def _beginning(whole: str, part: str) -> str:
    """Return the characters that both texts begin with: an escape at the end of a part need not stand in the whole."""
    length = next((index for index, (left, right) in enumerate(zip(whole, part, strict=False)) if left != right), None)
    return part[:length]


def _part_length(key: str) -> int:
    """Return how many first characters are so much of the key that no other word begins so: past its public head, with
    digits or both cases; the whole key where there are not."""
    head = _compile(_HEAD).match(key)
    start = head.end() if head else 0
    for end in range(max(_PART_LEAST, start + _PAST_HEAD_LEAST), len(key)):
        if _is_mixed(key[start:end]):
            return end
    return len(key)


def _ends_like_key(key: str) -> bool:
    return len(key) > _END_LEAST and _is_mixed(key[-_END_LEAST:])


def _is_mixed(text: str) -> bool:
    kinds = (any(map(str.isdigit, text)), any(map(str.islower, text)), any(map(str.isupper, text)))
    return sum(kinds) > 1


def _raw(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _base64_at(offset: int, altchars: bytes | None) -> Callable[[str], str]:
    """Base64 of a key that stands `offset` bytes behind a multiple of three: the characters that the key alone
    decides."""

    def spell(key: str) -> str:
        data = bytes(offset) + _raw(key)
        whole = len(data) // 3 * 3
        return base64.b64encode(data[:whole], altchars)[(offset * 4 + 2) // 3 :].decode()

    return spell


def _json(key: str) -> str:
    return json.dumps(key)[1:-1]


def _json_unicode(key: str) -> str:
    return json.dumps(key, ensure_ascii=False)[1:-1]


def _url(key: str) -> str:
    return quote(_raw(key), safe="")


def _url_lower(key: str) -> str:
    return _compile("%..").sub(lambda code: code[0].lower(), _url(key))


def _url_path(key: str) -> str:
    return quote(_raw(key))


def _all_percent(key: str) -> str:
    return "".join(f"%{byte:02X}" for byte in _raw(key))


def _hex(key: str) -> str:
    return _raw(key).hex()


def _hex_upper(key: str) -> str:
    return _raw(key).hex().upper()


_BASE64: Final[tuple[Callable[[str], str], ...]] = tuple(
    _base64_at(offset, altchars) for offset in range(3) for altchars in (None, b"-_")
)
_SPELLERS: Final[tuple[Callable[[str], str], ...]] = (
    *(str, _json, _json_unicode, _url, _url_lower, _url_path, _all_percent, _hex, _hex_upper),
    *_BASE64,
)


@lru_cache(maxsize=8)
def _compile(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern at its first use: start-up does not need it."""
    return re.compile(pattern, flags)


# ---------------------------------------------------------------- what stands between the characters
def _texts(value: Any, *, names: bool) -> Iterator[str]:
    """All texts of plain data in their order, with or without the names in it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if names:
                yield from _texts(key, names=names)
            yield from _texts(item, names=names)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item, names=names)


def _spell_scattered(keys: Iterable[str]) -> tuple[str, ...]:
    """Return the spellings of long keys without what is left out of texts; digits and letters are compared in lower
    case where they are hexadecimal."""
    long = [key for key in keys if len(key) >= _SCATTERED_LEAST]
    spellers: tuple[Callable[[str], str], ...] = (str, _hex, *_BASE64)
    spellings = {spell(key) for key in long for spell in spellers}
    plain = {spelling.translate(_BETWEEN) for spelling in spellings}
    return tuple(spelling for spelling in plain if len(spelling) >= _SCATTERED_LEAST)


def _without_escapes(data: bytes) -> bytes:
    """Return a text with `%xx`, `\\xNN` and `\\uNNNN` as the characters that they represent."""
    if b"%" not in data and b"\\x" not in data and b"\\u" not in data:
        return data
    return re.sub(_ESCAPE.encode(), lambda escape: _raw(_character(escape)), data)


def _character(escape: re.Match[str] | re.Match[bytes]) -> str:
    return chr(int(escape[1] or escape[2] or escape[3], 16))


def _unescape_with_places(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the text without escapes and what is left out, and where each of its characters stood."""
    characters, places = [], []
    for piece in _compile(f"(?:{_ESCAPE})|.", re.DOTALL).finditer(text):
        character = _character(piece) if piece.lastindex else piece[0]
        if ord(character) not in _BETWEEN:
            characters.append(character)
            places.append(piece.span())
    return "".join(characters), places


# ---------------------------------------------------------------- masking
def _without_middles(text: str, key: str) -> str:
    """Return the text without each run of `_MIDDLE_LEAST` characters of a key or more."""
    start = 0
    while start + _MIDDLE_LEAST <= len(key):
        length = _MIDDLE_LEAST
        if key[start : start + length] in text:
            while start + length < len(key) and key[start : start + length + 1] in text:
                length += 1
            text = text.replace(key[start : start + length], MASK)
        start += 1
    return text


def _without_beginnings(text: str, key: str, least: int) -> str:
    """Return the text without each beginning of the key of `least` characters or more."""
    pieces, end = [], 0
    while (start := text.find(key[:least], end)) >= 0:
        length = least
        while length < len(key) and text[start + length : start + length + 1] == key[length]:
            length += 1
        pieces += [text[end:start], MASK]
        end = start + length
    return "".join([*pieces, text[end:]])


def _without_ends(text: str, key: str, least: int) -> str:
    """Mask each end of the key."""
    pieces, end = [], 0
    while (last_part := text.find(key[-least:], end)) >= 0:
        length = least
        while (
            length < len(key)
            and last_part + least - length > end
            and text[last_part + least - length - 1] == key[-length - 1]
        ):
            length += 1
        pieces += [text[end : last_part + least - length], MASK]
        end = last_part + least
    return "".join([*pieces, text[end:]])
