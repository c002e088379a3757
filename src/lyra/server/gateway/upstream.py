"""The provider's side of a call: its address and its headers for a wire format, and the headers that may pass.

A provider that speaks the request's wire format gets its bytes. The provider's own key comes from the server's
configuration; nothing that a client sends is put in its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from lyra.models.provider import LLMProvider, Request
from lyra.models.providers.anthropic import Anthropic
from lyra.models.providers.openai import Azure, OpenAI
from lyra.models.wire.remote import RemoteProvider
from lyra.server.gateway.formats import WireFormat

# Headers of a client that its vendor's API reads; the rest is about the connection, or about another account.
_FORWARDED: Final = ("anthropic-version", "anthropic-beta", "openai-beta")
_IDEMPOTENCY: Final = "idempotency-key"
_RETURNED: Final = frozenset(
    {
        *("request-id", "x-request-id", "openai-processing-ms", "openai-version", "openai-model"),
        *("retry-after", "retry-after-ms", "x-should-retry"),
    }
)


def speaks(provider: LLMProvider, wire: WireFormat) -> bool:
    """Whether a provider takes requests of this format as they are."""
    if isinstance(provider, OpenAI):
        return wire.vendor == "openai"
    return isinstance(provider, Anthropic) and wire.vendor == "anthropic"


def upstream_url(provider: RemoteProvider, wire: WireFormat, model: str, query: str = "") -> str:
    """Where a provider takes requests of a format."""
    if isinstance(provider, Azure):
        url = provider.url_of(wire.path, model)
    else:
        url = f"{provider.settings.base_url}/{wire.path}"
    return url if not query else f"{url}{'&' if '?' in url else '?'}{query}"


def upstream_headers(provider: RemoteProvider, model: str, given: Mapping[str, str], key_id: str) -> dict[str, str]:
    """The headers of a request: those of the client that may pass, and the provider's own."""
    passed = {name: given[name] for name in _FORWARDED if name in given and _is_sendable(given[name])}
    if given.get(_IDEMPOTENCY):  # of this key alone: all keys share the provider's account
        passed[_IDEMPOTENCY] = hashlib.sha256(f"{key_id}\0{given[_IDEMPOTENCY]}".encode()).hexdigest()
    own = {**provider.headers(Request(model, ())), **provider.settings.sent_headers()}
    accept = given.get("accept", "*/*")
    if "anthropic-version" in passed:
        own.pop("anthropic-version", None)
    return {"content-type": "application/json", "accept": accept if _is_sendable(accept) else "*/*", **passed, **own}


def _is_sendable(value: str) -> bool:
    """Whether a header's value may be sent on: what the formats define is printable ASCII; others are left out."""
    return value.isascii() and value.isprintable()


def answer_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a provider's answer that go to the client."""
    return {name: value for name, value in headers.items() if name in _RETURNED}
