"""Calls of an outside API: one request to a provider that the caller of the node named.

A provider is a name in the node's file and a base address that the person who runs the node gives for it, so a file
alone reaches no host. The request passes `lyra.tools.http_guard`: rights, addresses, redirects and sizes are checked
there, `http_url` builds the address. Every changing request carries an idempotency key. An answer is a success where
its status is 2xx. Numbers of answers are read as decimals, exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from lyra.core.rights.capability import Grant
from lyra.errors import CapabilityDenied, DeadlineExceeded, ToolError
from lyra.tools.http_guard import ANSWER_BYTES_MAX, HttpAnswer, fetch
from lyra.vesper.effects.http_url import request_url
from lyra.vesper.effects.request import EffectError

TIMEOUT_S: Final = 30.0
_BODYLESS: Final = frozenset({"GET", "HEAD", "DELETE"})
_encode: Final = msgspec.json.Encoder(decimal_format="number").encode


class HttpFailure(EffectError):
    """An answer that says no, or none at all. `status` is 0 where there was no answer."""

    def __init__(self, kind: str, message: str, *, status: int = 0, fields: dict[str, Any] | None = None) -> None:
        super().__init__(kind, message, {"status": status, **(fields or {})})
        self.status = status


async def call_api(
    payload: Mapping[str, Any], providers: Mapping[str, str], *, key: str, timeout_s: float | None = None
) -> Any:
    """The body of the answer, as plain values. The right to the provider was asked for before; here the request may
    reach the provider's own address and no other."""
    base = _base(payload, providers)
    method = str(payload.get("method") or "POST").upper()
    parameters = payload.get("parameters") or {}
    url = request_url(base, payload.get("endpoint") or "", parameters if method in _BODYLESS else {})
    headers = {"accept": "application/json", **{str(name): str(value) for name, value in _headers(payload)}}
    body = None
    if method not in _BODYLESS:
        body = _encode(parameters)
        headers.setdefault("content-type", "application/json")
        if not any(name.lower() == "idempotency-key" for name in headers):
            headers["idempotency-key"] = key
    try:
        answer = await fetch(
            url,
            grant=Grant.of([f"net.http:{_host_and_port(base)}"]),
            method=method,
            headers=headers,
            body=body,
            timeout_s=TIMEOUT_S if timeout_s is None else timeout_s,
            inside=[_host_and_port(base)],
        )
    except CapabilityDenied as error:
        raise EffectError("capability_denied", error.message) from error
    except (DeadlineExceeded, TimeoutError) as error:
        raise HttpFailure("timeout", f"{_host_and_port(base)} did not answer in time") from error
    except ToolError as error:
        kind = "timeout" if error.fields.get("reason") == "timeout" else "unreachable"
        raise HttpFailure(kind, error.message) from error
    return _read(answer)


def _base(payload: Mapping[str, Any], providers: Mapping[str, str]) -> str:
    name = str(payload.get("provider") or "")
    base = providers.get(name)
    if base is None:
        raise EffectError("unknown_provider", f"no address is known for the provider {name!r}")
    return base.rstrip("/")


def _headers(payload: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    headers = payload.get("headers") or {}
    return [(name, value) for name, value in headers.items() if value is not None]


def _host_and_port(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _read(answer: HttpAnswer) -> Any:
    body = _body(answer)
    if _is_success(answer):
        return body
    told = body.get("error") if isinstance(body, dict) else None
    code = told.get("code") if isinstance(told, dict) else None
    message = told.get("message") if isinstance(told, dict) else None
    kind = code if isinstance(code, str) and code else f"http_{answer.status}"
    text = message if isinstance(message, str) else f"the server answered with {answer.status}"
    raise HttpFailure(kind, text[:500], status=answer.status)


def _is_success(answer: HttpAnswer) -> bool:
    """A redirect that was not followed is none: the server did not do what it was asked."""
    return 200 <= answer.status < 300


def _body(answer: HttpAnswer) -> Any:
    if not answer.body:
        return None
    if answer.truncated and _is_success(answer):
        message = f"the answer has more than {ANSWER_BYTES_MAX} bytes"
        raise HttpFailure("resource_limit", message, status=answer.status)
    try:
        return json.loads(answer.body, parse_float=Decimal, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        if not _is_success(answer):
            return None
        raise HttpFailure("bad_response", "the answer is no JSON", status=answer.status) from error


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number")
