"""A URL with placeholders for values: split when its file is read, assembled for each call.

A value may stand in a segment of the path or be a value of the query, always percent-encoded, so that it ends neither.
Scheme, host and port are fixed by the file; only a parameter with an `enum` may stand in a host or a port, because
then every host that there can be is known (`hosts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, Final
from urllib.parse import quote, urlsplit

from lyra.core.checking.document import Path
from lyra.core.checking.report import Report
from lyra.errors import CapabilityDenied, ToolError
from lyra.tools.http_guard import host_and_port
from lyra.tools.yaml.environment import template
from lyra.tools.yaml.params import Params
from lyra.tools.yaml.template import Template, as_text

_OPEN: Final = 0xE000  # private use area: each placeholder is one such character while the URL is split
_SAFE: Final = "%:@!$&'()*+,;=~-._"
_HOSTS_MAX: Final = 200
_URL_CHARS_MAX: Final = 4_000


class UrlTemplate:
    __slots__ = ("_origin", "_query", "_segments", "hosts")

    def __init__(
        self, origin: Template, segments: list[Template], query: list[tuple[str, Template]], hosts: tuple[str, ...]
    ) -> None:
        self._origin = origin
        self._segments = segments
        self._query = query
        self.hosts = hosts

    def origin(self, values: Mapping[str, Any]) -> str:
        return self._origin.fill(values) or ""

    def fill(self, values: Mapping[str, Any]) -> str:
        """The whole URL."""
        path = "/".join(_segment(segment, values) for segment in self._segments)
        pairs = [pair for name, value in self._query for pair in _pairs(name, value, values)]
        url = f"{self.origin(values)}/{path}{'?' + '&'.join(pairs) if pairs else ''}"
        if len(url) > _URL_CHARS_MAX:
            raise ToolError(f"the URL would have more than {_URL_CHARS_MAX} characters", reason="invalid_arguments")
        return url


def _segment(segment: Template, values: Mapping[str, Any]) -> str:
    filled = segment.fill(values, lambda value: quote(value, safe=""))
    if segment.names and (filled is None or filled in ("", ".", "..")):
        shown = ", ".join(segment.names)
        raise ToolError(f"{shown} cannot be a part of a path: it is empty, '.' or '..'", reason="invalid_arguments")
    return filled or ""


def _pairs(name: str, value: Template, values: Mapping[str, Any]) -> list[str]:
    """One `name=value`, one for each item of a list, none where the value is missing."""
    given = values.get(value.lone) if value.lone is not None else None
    if isinstance(given, list):
        return [f"{name}={quote(as_text(item), safe='')}" for item in given]
    text = value.fill(values, lambda text_value: quote(text_value, safe=""))
    return [] if text is None else [f"{name}={text}"]


# ---------------------------------------------------------------- reading it from a file
def read_url(value: Any, query: Any, path: Path, params: Params, report: Report) -> UrlTemplate | None:
    """`value` is the URL, `query` the mapping beside it (or None)."""
    before = len(report.mistakes)
    whole = template(value, (*path, "url"), params, report, "url")
    pairs = _query(query, (*path, "query"), params, report)
    if whole is None:
        return None
    if any(_OPEN <= ord(char) < 0xF900 or char <= " " for char in whole.literal):
        report.add((*path, "url"), "the URL has a space or an odd character in it", "write it percent-encoded")
        return None
    marks = {chr(_OPEN + index): name for index, name in enumerate(whole.names)}
    marked = "".join(piece if index % 2 == 0 else chr(_OPEN + index // 2) for index, piece in enumerate(whole.pieces))
    try:
        parts = urlsplit(marked)
    except ValueError:
        report.add((*path, "url"), "the URL cannot be read")
        return None
    if parts.scheme not in ("http", "https") or not parts.netloc:
        report.add((*path, "url"), "the URL begins with http:// or https:// and a host, written out")
    elif parts.fragment or "#" in marked:
        report.add((*path, "url"), "a fragment ('#…') is never sent: leave it out")
    else:
        origin = _origin(f"{parts.scheme}://{parts.netloc}", marks, path, params, report)
        written = [pair for pair in parts.query.split("&") if pair]
        pairs = [*(_written_pair(pair, marks, path, report) for pair in written), *pairs]
        segments = [_restored(segment, marks) for segment in parts.path.removeprefix("/").split("/")]
        _check(segments, pairs, path, params, report)
        if origin is not None and len(report.mistakes) == before:
            return UrlTemplate(origin[0], [_quoted(segment) for segment in segments], pairs, origin[1])
    return None


def _restored(marked: str, marks: Mapping[str, str]) -> Template:
    return Template("".join(f"{{{{{marks[char]}}}}}" if char in marks else char for char in marked))


def _quoted(segment: Template) -> Template:
    """The segment with its fixed text percent-encoded where needed."""
    text = "".join(
        f"{{{{{piece}}}}}" if index % 2 else quote(piece, safe=_SAFE) for index, piece in enumerate(segment.pieces)
    )
    return Template(text)


def _origin(
    marked: str, marks: Mapping[str, str], path: Path, params: Params, report: Report
) -> tuple[Template, tuple[str, ...]] | None:
    origin = _restored(marked, marks)
    names = tuple(dict.fromkeys(origin.names))
    free = [name for name in names if params[name].values is None or params[name].may_be_missing]
    for name in free:
        report.add(
            (*path, "url"),
            f"{name} stands in the host of the URL, and could be any host",
            "write the host out, or give the parameter an enum and make it required",
        )
    if free:
        return None
    choices = [params[name].values or () for name in names]
    hosts: dict[str, None] = {}
    for chosen in product(*choices):
        filled = origin.fill(dict(zip(names, chosen, strict=True))) or ""
        try:
            hosts[host_and_port(f"{filled}/")] = None
            if urlsplit(filled).path or "?" in filled or "#" in filled or len(hosts) > _HOSTS_MAX:
                raise ValueError
        except (CapabilityDenied, ValueError):
            report.add((*path, "url"), f"{filled!r} is not the beginning of a URL that can be fetched")
            return None
    return origin, tuple(hosts)


def _written_pair(pair: str, marks: Mapping[str, str], path: Path, report: Report) -> tuple[str, Template]:
    name, _, value = pair.partition("=")
    if any(char in marks for char in name):
        report.add((*path, "url"), "a value may stand after the '=' of a query, not before it")
    return quote(name, safe=_SAFE), _quoted(_restored(value, marks))


def _query(value: Any, path: Path, params: Params, report: Report) -> list[tuple[str, Template]]:
    if value is None:
        return []
    given = report.mapping(value, path, "query") or {}
    pairs: list[tuple[str, Template]] = []
    for name, text in given.items():
        plain = {True: "true", False: "false"}.get(text, text) if isinstance(text, bool) else text
        parsed = template(plain, (*path, name), params, report, f"the query's {name}")
        if parsed is not None:
            pairs.append((quote(str(name), safe=""), _value(parsed)))
    return pairs


def _value(value: Template) -> Template:
    """A value of the query mapping: all of it is data, so its fixed text is percent-encoded as a whole."""
    text = "".join(
        f"{{{{{piece}}}}}" if index % 2 else quote(piece, safe="") for index, piece in enumerate(value.pieces)
    )
    return Template(text)


def _check(
    segments: list[Template], pairs: list[tuple[str, Template]], path: Path, params: Params, report: Report
) -> None:
    for segment in segments:
        for name in segment.names:
            if params[name].type in ("array", "object"):
                report.add((*path, "url"), f"{name} is a list or a mapping, and cannot be a part of a path")
            elif params[name].may_be_missing:
                report.add((*path, "url"), f"{name} is a part of the path and may be missing: make it required")
    for shown, value in pairs:
        for name in value.names:
            kind = params[name].type
            if kind == "object" or (kind == "array" and value.lone is None):
                report.add((*path, "query"), f"{name} is a mapping or a list, and cannot be in the query's {shown}")
