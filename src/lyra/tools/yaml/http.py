"""YAML tools of the kind `http`: one request to a host that the file names.

Values go into the path, the query, headers and the body, each encoded for its place (`template`). Keys come
from the environment, only into headers, as `env:NAME` or `Bearer env:NAME`; they are looked up at the call, go to the
hosts of the file alone, and are redacted in the answer. `lyra.tools.http_guard` sends the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import product
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from lyra.core.checking.check import Report
from lyra.core.checking.document import Path
from lyra.core.rights.capability import Capability, Grant
from lyra.core.secrets.redact import redact
from lyra.core.secrets.secret import Secret
from lyra.errors import CapabilityDenied, ConfigError, ToolError
from lyra.tools.http_guard import HttpAnswer, fetch, host_and_port
from lyra.tools.yaml.template import (
    DeclaredTool,
    Params,
    Template,
    ToolEnvironment,
    as_text,
    bind,
    narrow_grant,
    select_needs,
    template,
)

KEYS: Final = ("type", "method", "url", "headers", "query", "body", "timeout")
USES: Final = ("net.http", "secrets.read")
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_SECRET: Final = re.compile(r"(?:([A-Za-z][A-Za-z0-9-]*) )?env:(\w+)\Z")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}\Z")
_ANSWER_BYTES_MAX: Final = 2 << 20
_SHOWN_CHARS_MAX: Final = 100_000
_ERROR_CHARS: Final = 500
_BODY_DEPTH_MAX: Final = 32
_TEXT: Final = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|yaml|x-ndjson|javascript)|application/x-www-form.*"
)


class _Key:
    """A header whose value is a secret, with the word before it."""

    __slots__ = ("_scheme", "name", "secret")

    def __init__(self, scheme: str, name: str, env: Mapping[str, str] | None) -> None:
        self._scheme = scheme
        self.name = name
        self.secret = Secret.parse(f"env:{name}", env=env)

    def value(self) -> tuple[str, str]:
        """Return the header's value, and the secret in it."""
        try:
            secret = self.secret.reveal()
        except ConfigError as error:
            raise ToolError(error.message, hint=error.hint, reason="other") from None
        return (f"{self._scheme} {secret}" if self._scheme else secret), secret


class HttpKind:
    untrusted = True

    def __init__(
        self,
        environment: ToolEnvironment,
        method: str,
        url: UrlTemplate,
        headers: Mapping[str, Template | _Key],
        body: Any,
        timeout_s: float,
        hosts: list[Capability],
    ) -> None:
        self._environment = environment
        self._method = method
        self._url = url
        self._headers = dict(headers)
        self._body = body
        self._timeout_s = timeout_s
        self._own = Grant(hosts or [f"net.http:{host}" for host in url.hosts])

    @property
    def idempotent(self) -> bool:
        return self._method in ("GET", "HEAD")

    @property
    def rights(self) -> tuple[Capability, ...]:
        return (*self._own.layers[0], *self._keys())

    def needs_of(self, values: Mapping[str, Any]) -> list[Capability]:
        return [Capability("net.http", host_and_port(f"{self._url.origin(values)}/")), *self._keys()]

    def _keys(self) -> list[Capability]:
        return [Capability("secrets.read", value.name) for value in self._headers.values() if isinstance(value, _Key)]

    async def run(self, values: Mapping[str, Any]) -> str:
        headers, secrets = self._build_headers(values)
        bound = None if self._body is None else bind(self._body, values)
        body = None if bound is None else bound.encode() if isinstance(bound, str) else msgspec.json.encode(bound)
        if body is not None and "content-type" not in {name.lower() for name in headers}:
            plain = isinstance(self._body, Template)
            headers["content-type"] = "text/plain; charset=utf-8" if plain else "application/json"
        answer = await fetch(
            self._url.fill(values),
            grant=narrow_grant(self._own),
            method=self._method,
            headers=headers,
            body=body,
            bytes_max=_ANSWER_BYTES_MAX,
            timeout_s=self._timeout_s,
            inside=self._environment.inside,
            lookup=self._environment.lookup,
            dial=self._environment.dial,
        )
        text = redact(_text(answer), secrets, forms=False)
        if answer.status >= 400 or (300 <= answer.status < 400 and answer.status != 304):
            raise ToolError(f"status {answer.status}: {text[:_ERROR_CHARS]}", reason=_reason(answer.status))
        return text

    def _build_headers(self, values: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
        headers: dict[str, str] = {}
        secrets: list[str] = []
        for name, value in self._headers.items():
            if isinstance(value, _Key):
                headers[name], secret = value.value()
                secrets.append(secret)
                continue
            text = value.fill(values)
            if text is not None:
                if any(char < " " or char == "\x7f" for char in text):
                    raise ToolError(f"the header {name} cannot hold a line break", reason="invalid_arguments")
                headers[name] = text
        return headers, secrets


def _reason(status: int) -> str:
    return {401: "permission_denied", 403: "permission_denied", 404: "not_found", 408: "timeout"}.get(
        status, "io_error"
    )


def _text(answer: HttpAnswer) -> str:
    kind = answer.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
    if not _TEXT.fullmatch(kind) or b"\0" in answer.body:
        return f"{len(answer.body)} bytes of {kind[:80]}"
    text = answer.body.decode("utf-8", "replace")
    if answer.truncated or len(text) > _SHOWN_CHARS_MAX:
        text = f"{text[:_SHOWN_CHARS_MAX]}\n… the rest is left out …"
    return text


# ---------------------------------------------------------------- reading it from a file
def read_http(declared: DeclaredTool) -> HttpKind | None:
    given, path, params, report, environment, timeout_s, needs = declared
    before = len(report.mistakes)
    method = report.word(str(given.get("method", "GET")).upper(), (*path, "method"), "method", _METHODS)
    url = read_url(given.get("url"), given.get("query"), path, params, report)
    headers = _headers(given.get("headers"), (*path, "headers"), params, report, environment)
    body = _body(given.get("body"), (*path, "body"), params, report)
    if body is not None and method in ("GET", "HEAD"):
        report.add((*path, "body"), f"{method} has no body", "say method: POST")
    hosts = select_needs(needs, "net.http")
    for host in url.hosts if hosts and url is not None else ():
        if not Grant(hosts).allows(Capability("net.http", host)):
            report.add((*path, "url"), f"the tool's needs do not cover net.http:{host}")
    names = select_needs(needs, "secrets.read")
    for header, value in headers.items() if names else ():
        if isinstance(value, _Key) and not Grant(names).allows(Capability("secrets.read", value.name)):
            report.add((*path, "headers", header), f"the tool's needs do not cover secrets.read:{value.name}")
    if len(report.mistakes) > before or url is None or method is None:
        return None
    return HttpKind(environment, method, url, headers, body, timeout_s, hosts)


def _headers(
    value: Any, path: Path, params: Params, report: Report, environment: ToolEnvironment
) -> dict[str, Template | _Key]:
    headers: dict[str, Template | _Key] = {}
    for name, text in (report.mapping(value, path, "headers") or {} if value is not None else {}).items():
        here = (*path, name)
        if not _HEADER.match(name):
            report.add(here, f"{name!r} is not the name of a header")
            continue
        secret = _SECRET.match(text) if isinstance(text, str) else None
        if secret:
            if not environment.may_use(secret[2]):
                report.add(
                    here, f"the variable {secret[2]} is not for tools", "name a variable of its own for this tool"
                )
            else:
                headers[name] = _Key(secret[1] or "", secret[2], environment.env)
            continue
        parsed = template(text, here, params, report, f"the header {name}")
        if parsed is not None and "env:" in parsed.literal:
            report.add(here, "a secret is the whole value of a header", "env:NAME, or Bearer env:NAME")
        elif parsed is not None:
            headers[name] = parsed
    return headers


def _body(value: Any, path: Path, params: Params, report: Report) -> Any:
    """Return a mapping or list with Templates in it, one Template that is only a placeholder, or None."""
    if value is None:
        return None
    if isinstance(value, str):
        parsed = template(value, path, params, report, "body")
        if parsed is None or parsed.lone is not None or not parsed.names:
            return parsed
        try:
            value = json.loads(value)  # JSON written as a text: its strings are the placeholders
        except ValueError:
            value = None
        if not isinstance(value, (dict, list)):
            report.add(
                path, "a value would be put into the middle of the body's text", "write the body as a mapping of keys"
            )
            return None
    return _shape(value, path, params, report, 0)


def _shape(value: Any, path: Path, params: Params, report: Report, depth: int) -> Any:
    if depth > _BODY_DEPTH_MAX:
        report.add(path, "the body is nested too deeply")
        return None
    if isinstance(value, dict):
        for key in value:
            if "{{" in str(key):
                report.add((*path, key), "a value cannot be the name of a key")
        return {key: _shape(item, (*path, key), params, report, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_shape(item, (*path, index), params, report, depth + 1) for index, item in enumerate(value)]
    if isinstance(value, str) and "{{" in value:
        return template(value, path, params, report, "a text of the body")
    return value


# ---------------------------------------------------------------- url
# A URL with placeholders for values: split when its file is read, assembled for each call.

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
        """Return the whole URL."""
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
        pairs = [*(_parse_pair(pair, marks, path, report) for pair in written), *pairs]
        segments = [_restore(segment, marks) for segment in parts.path.removeprefix("/").split("/")]
        _check(segments, pairs, path, params, report)
        if origin is not None and len(report.mistakes) == before:
            return UrlTemplate(origin[0], [_quote(segment) for segment in segments], pairs, origin[1])
    return None


def _restore(marked: str, marks: Mapping[str, str]) -> Template:
    return Template("".join(f"{{{{{marks[char]}}}}}" if char in marks else char for char in marked))


def _quote(segment: Template) -> Template:
    """Return the segment with its fixed text percent-encoded where needed."""
    text = "".join(
        f"{{{{{piece}}}}}" if index % 2 else quote(piece, safe=_SAFE) for index, piece in enumerate(segment.pieces)
    )
    return Template(text)


def _origin(
    marked: str, marks: Mapping[str, str], path: Path, params: Params, report: Report
) -> tuple[Template, tuple[str, ...]] | None:
    origin = _restore(marked, marks)
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


def _parse_pair(pair: str, marks: Mapping[str, str], path: Path, report: Report) -> tuple[str, Template]:
    name, _, value = pair.partition("=")
    if any(char in marks for char in name):
        report.add((*path, "url"), "a value may stand after the '=' of a query, not before it")
    return quote(name, safe=_SAFE), _quote(_restore(value, marks))


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
    """Return a value of the query mapping: all of it is data, so its fixed text is percent-encoded as a whole."""
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
