"""What passes to a provider and back besides the body: the address and the headers."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.models.client import LLMClient
from lyra.models.wire.remote import RemoteProvider
from lyra.server.gateway.request import FORMATS
from lyra.server.gateway.targets import answer_headers, speaks, upstream_headers, upstream_url

PROVIDERS: dict[str, dict[str, Any]] = {
    "openai": {"api_key": "sk-own-key-0123456789", "headers": {"openai-organization": "org-own"}},
    "anthropic": {"api_key": "sk-ant-own-0123456789"},
    "azure": {"api_key": "azure-own-key-0123456789", "base_url": "https://x.example", "api_version": "2026-01-01"},
    "other": {"base_url": "http://127.0.0.1:9/v1"},
}


def provider(name: str) -> RemoteProvider:
    own = LLMClient(PROVIDERS, env={}).provider(name)
    assert isinstance(own, RemoteProvider)
    return own


@pytest.mark.parametrize(
    ("name", "wire", "url"),
    [
        ("openai", "chat", "https://api.openai.com/v1/chat/completions"),
        ("openai", "responses", "https://api.openai.com/v1/responses"),
        ("openai", "embeddings", "https://api.openai.com/v1/embeddings"),
        ("anthropic", "messages", "https://api.anthropic.com/v1/messages"),
        ("anthropic", "count_tokens", "https://api.anthropic.com/v1/messages/count_tokens"),
        ("azure", "chat", "https://x.example/openai/deployments/m%2F1/chat/completions?api-version=2026-01-01"),
        ("azure", "embeddings", "https://x.example/openai/deployments/m%2F1/embeddings?api-version=2026-01-01"),
        ("azure", "responses", "https://x.example/openai/responses?api-version=2026-01-01"),
        ("other", "chat", "http://127.0.0.1:9/v1/chat/completions"),
    ],
)
def test_each_format_has_its_address(name: str, wire: str, url: str) -> None:
    """The base URL of the provider's settings, and the path of the format."""
    assert speaks(provider(name), FORMATS[wire])
    assert upstream_url(provider(name), FORMATS[wire], "m/1") == url


def test_a_query_is_added_to_an_address_that_has_one() -> None:
    """Anthropic's `beta=true`, with and without another query."""
    assert upstream_url(provider("anthropic"), FORMATS["messages"], "m", "beta=true").endswith("/messages?beta=true")
    assert upstream_url(provider("azure"), FORMATS["chat"], "m", "beta=true").endswith("2026-01-01&beta=true")


def test_a_client_chooses_neither_the_account_nor_the_connection() -> None:
    """Of the client's headers only those of the vendor's API pass; keys, accounts, cookies and hosts do not."""
    given = {
        "authorization": "Bearer sk-lyra-client",
        "x-api-key": "sk-lyra-client",
        "api-key": "sk-lyra-client",
        "openai-organization": "org-of-another",
        "openai-project": "proj-of-another",
        "cookie": "a=b",
        "host": "evil.example",
        "connection": "close",
        "transfer-encoding": "chunked",
        "x-forwarded-for": "1.2.3.4",
        "openai-beta": "assistants=v2",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "b",
    }
    sent = upstream_headers(provider("openai"), "m", given, "key-1")
    assert sent == {
        "content-type": "application/json",
        "accept": "*/*",
        "openai-beta": "assistants=v2",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "b",
        "authorization": "Bearer sk-own-key-0123456789",
        "openai-organization": "org-own",
    }
    sent = upstream_headers(provider("anthropic"), "m", given, "key-1")
    assert (sent["x-api-key"], sent["anthropic-version"]) == ("sk-ant-own-0123456789", "2023-06-01")
    assert "sk-lyra-client" not in str(sent)
    assert upstream_headers(provider("azure"), "m", given, "key-1")["api-key"] == "azure-own-key-0123456789"


def test_headers_of_an_answer_that_are_about_the_account_stay() -> None:
    """The client gets the id of the request and the wish for a pause, and nothing of the server's account."""
    headers = {
        "content-type": "text/plain",
        "content-length": "3",
        "content-encoding": "gzip",
        "set-cookie": "a=b",
        "openai-organization": "org-own",
        "x-ratelimit-remaining-requests": "7",
        "x-request-id": "r",
        "retry-after": "3",
    }
    assert answer_headers(headers) == {"x-request-id": "r", "retry-after": "3"}


def test_an_idempotency_key_is_that_of_one_key_alone() -> None:
    """All keys share the provider's account: a client never gets the answer to another's request by naming its key."""
    given = {"idempotency-key": "job-1"}
    first, again, other = [
        upstream_headers(provider("openai"), "m", given, key_id)["idempotency-key"] for key_id in ("a", "a", "b")
    ]
    assert first == again != other
    assert "idempotency-key" not in upstream_headers(provider("openai"), "m", {}, "a")
