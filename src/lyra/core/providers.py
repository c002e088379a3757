"""Providers of models as a table: the usual environment variables and addresses of each, and loopback addresses.

`USUAL` is the table of variables and addresses, by the provider's name; any other name is a server that speaks OpenAI's
format and has a base URL. Used by the configuration, which has to know which key belongs to which provider, and by
`lyra.models`, which makes the calls. Reads no variable itself.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

APIS: Final = ("chat", "responses")  # OpenAI has two; compatible servers have the first and sometimes the second
SETTINGS: Final = (
    "api_key",
    "base_url",
    "api",
    "api_version",
    "project",
    "region",
    "timeouts",
    "headers",
    "insecure_http",
)
TIMEOUTS: Final = ("connect_s", "first_s", "idle_s", "total_s")

# Strict, so that no two URL parsers can disagree about the host.
_PLAIN_URL: Final = re.compile(
    r"(?:https?://)?(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?(?:/[A-Za-z0-9/._~-]*)?"
)


class Usual(NamedTuple):
    """A provider's usual environment variables and address. `port`: its address may be written as host or host:port."""

    key: tuple[str, ...] = ()
    url: tuple[str, ...] = ()
    base_url: str = ""
    api_version: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    port: int = 0


USUAL: Final[dict[str, Usual]] = {
    "anthropic": Usual(
        key=("ANTHROPIC_API_KEY",),
        url=("ANTHROPIC_BASE_URL",),
        base_url="https://api.anthropic.com",
        needs=("api_key",),
    ),
    "openai": Usual(
        key=("OPENAI_API_KEY",), url=("OPENAI_BASE_URL",), base_url="https://api.openai.com/v1", needs=("api_key",)
    ),
    "azure": Usual(
        key=("AZURE_OPENAI_API_KEY",),
        url=("AZURE_OPENAI_ENDPOINT",),
        api_version=("OPENAI_API_VERSION",),
        needs=("api_key", "base_url"),
    ),
    "gemini": Usual(
        key=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url=("GOOGLE_GEMINI_BASE_URL",),
        base_url="https://generativelanguage.googleapis.com",
        needs=("api_key",),
    ),
    "vertex": Usual(
        project=("GOOGLE_CLOUD_PROJECT",),
        region=("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"),
        needs=("project",),
    ),
    "bedrock": Usual(
        key=("AWS_BEARER_TOKEN_BEDROCK",),
        url=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
        region=("AWS_REGION", "AWS_DEFAULT_REGION"),
    ),
    "ollama": Usual(url=("OLLAMA_HOST",), base_url="http://127.0.0.1:11434", port=11434),
    "sim": Usual(),
}
COMPATIBLE: Final = Usual(needs=("base_url",))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, without asking a name server. A name below localhost (`a.localhost`) is not: many
    resolvers ask a name server for it."""
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_loopback_url(url: str) -> bool:
    """Whether a URL surely names this machine; False for one with a user, a query or unusual characters."""
    match = _PLAIN_URL.fullmatch(url)
    return match is not None and is_loopback(match[1].strip("[]"))
