"""YAML tools of the kind `http`: one request to a host that the file names.

Values go into the path, the query, headers and the body, each encoded for its place (`url`, `template`). Keys come
from the environment, only into headers, as `env:NAME` or `Bearer env:NAME`; they are looked up at the call, go to the
hosts of the file alone, and are redacted in the answer. `lyra.tools.http_guard` sends the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.core.checking.report import Report
from lyra.core.rights.capability import Capability, Grant
from lyra.core.secrets.redact import redact
from lyra.core.secrets.secret import Secret
from lyra.errors import ConfigError, ToolError
from lyra.tools.http_guard import HttpAnswer, fetch, host_and_port
from lyra.tools.yaml.environment import ToolEnvironment, declared, narrowed, template
from lyra.tools.yaml.params import Params
from lyra.tools.yaml.template import Template, bind
from lyra.tools.yaml.url import UrlTemplate, read_url

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
        """The header's value, and the secret in it."""
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
        headers, secrets = self._sent(values)
        bound = None if self._body is None else bind(self._body, values)
        body = None if bound is None else _encoded(bound)
        if body is not None and "content-type" not in {name.lower() for name in headers}:
            plain = isinstance(self._body, Template)
            headers["content-type"] = "text/plain; charset=utf-8" if plain else "application/json"
        answer = await fetch(
            self._url.fill(values),
            grant=narrowed(self._own),
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

    def _sent(self, values: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
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


def _encoded(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


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
def read_http(
    given: dict[str, Any],
    path: Path,
    params: Params,
    report: Report,
    environment: ToolEnvironment,
    *,
    timeout_s: float,
    needs: list[Capability],
) -> HttpKind | None:
    before = len(report.mistakes)
    method = report.word(str(given.get("method", "GET")).upper(), (*path, "method"), "method", _METHODS)
    url = read_url(given.get("url"), given.get("query"), path, params, report)
    headers = _headers(given.get("headers"), (*path, "headers"), params, report, environment)
    body = _body(given.get("body"), (*path, "body"), params, report)
    if body is not None and method in ("GET", "HEAD"):
        report.add((*path, "body"), f"{method} has no body", "say method: POST")
    hosts = declared(needs, "net.http")
    for host in url.hosts if hosts and url is not None else ():
        if not Grant(hosts).allows(Capability("net.http", host)):
            report.add((*path, "url"), f"the tool's needs do not cover net.http:{host}")
    _check_keys(headers, declared(needs, "secrets.read"), path, report)
    if len(report.mistakes) > before or url is None or method is None:
        return None
    return HttpKind(environment, method, url, headers, body, timeout_s, hosts)


def _check_keys(headers: Mapping[str, Template | _Key], names: list[Capability], path: Path, report: Report) -> None:
    for header, value in headers.items() if names else ():
        if isinstance(value, _Key) and not Grant(names).allows(Capability("secrets.read", value.name)):
            report.add((*path, "headers", header), f"the tool's needs do not cover secrets.read:{value.name}")


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
    """A mapping or list with Templates in it, one Template that is only a placeholder, or None."""
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
