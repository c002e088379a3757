"""The one table of model providers: client class, usual environment variables and address of each; loopback addresses.

`USUAL` has a row for each provider, by its name; any other name is a server that speaks OpenAI's format and has a base
URL. Every other table of providers (names of models, prices, telemetry, the first screen, the mock server) is made
from it. Used by the configuration, which has to know which key belongs to which provider, and by
`lyra.models`, which makes the calls. Reads no variable itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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


class KnownModel(NamedTuple):
    """A model that genai-prices does not list: its context window in tokens, and dollars for a million tokens."""

    name: str
    window: int
    input_usd_per_mtok: str
    output_usd_per_mtok: str


class Usual(NamedTuple):
    """A provider's client class (`module:class`, imported at the first call), usual environment variables and address.

    `port`: its address may be written as host or host:port. `is_local`: it runs on this machine, free and without a
    key. `prices`, `telemetry`: its name in genai-prices and in OpenTelemetry's conventions, where it is another.
    `ids`: how ids begin that are known without the provider's name. `models`: those that genai-prices does not list.
    `example`: a model for the first screen, which leaves out providers without, and for a user who has a key and
    names none. `mock`: the path on the mock server that represents its base URL; None where that server does not speak
    its format."""

    client: str
    key: tuple[str, ...] = ()
    url: tuple[str, ...] = ()
    base_url: str = ""
    api_version: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    port: int = 0
    is_local: bool = False
    prices: str = ""
    telemetry: str = ""
    ids: tuple[str, ...] = ()
    models: tuple[KnownModel, ...] = ()
    example: str = ""
    mock: str | None = None


# Bedrock's ids begin with the maker of the model, or with a region: `us.anthropic.…`.
_BEDROCK_IDS: Final = (
    *(
        "ai21.",
        "amazon.",
        "anthropic.",
        "cohere.",
        "deepseek.",
        "google.",
        "meta.",
        "minimax.",
        "mistral.",
        "moonshot.",
    ),
    *("nvidia.", "openai.", "qwen.", "writer.", "zai."),
    *("us.", "us-gov.", "eu.", "apac.", "jp.", "au.", "ca.", "global."),
)

USUAL: Final[dict[str, Usual]] = {
    "anthropic": Usual(
        "lyra.models.providers.anthropic:Anthropic",
        key=("ANTHROPIC_API_KEY",),
        url=("ANTHROPIC_BASE_URL",),
        base_url="https://api.anthropic.com",
        needs=("api_key",),
        ids=("claude-",),
        example="claude-sonnet-5-5",
        mock="",
    ),
    "openai": Usual(
        "lyra.models.providers.openai:OpenAI",
        key=("OPENAI_API_KEY",),
        url=("OPENAI_BASE_URL",),
        base_url="https://api.openai.com/v1",
        needs=("api_key",),
        ids=("gpt-", "chatgpt-", "o1", "o3", "o4", "codex-", "text-embedding-"),
        example="gpt-6.1-sol",
        mock="/v1",
    ),
    "azure": Usual(
        "lyra.models.providers.openai:Azure",
        key=("AZURE_OPENAI_API_KEY",),
        url=("AZURE_OPENAI_ENDPOINT",),
        api_version=("OPENAI_API_VERSION",),
        needs=("api_key", "base_url"),
        telemetry="azure.ai.openai",
    ),
    "gemini": Usual(
        "lyra.models.providers.gemini:Gemini",
        key=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url=("GOOGLE_GEMINI_BASE_URL",),
        base_url="https://generativelanguage.googleapis.com",
        needs=("api_key",),
        prices="google",
        telemetry="gcp.gemini",
        ids=("gemini-", "gemma-"),
        example="gemini-3.8-flash",
    ),
    "vertex": Usual(
        "lyra.models.providers.vertex:Vertex",
        project=("GOOGLE_CLOUD_PROJECT",),
        region=("GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_REGION"),
        needs=("project",),
        prices="google",
        telemetry="gcp.vertex_ai",
    ),
    "bedrock": Usual(
        "lyra.models.providers.bedrock:Bedrock",
        key=("AWS_BEARER_TOKEN_BEDROCK",),
        url=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
        region=("AWS_REGION", "AWS_DEFAULT_REGION"),
        prices="aws",
        telemetry="aws.bedrock",
        ids=_BEDROCK_IDS,
    ),
    "ollama": Usual(
        "lyra.models.providers.ollama:Ollama",
        url=("OLLAMA_HOST",),
        base_url="http://127.0.0.1:11434",
        port=11434,
        is_local=True,
        example="MODEL",
        mock="",
    ),
    "sim": Usual("lyra.models.sim:SimProvider", is_local=True),
}
COMPATIBLE: Final = Usual(USUAL["openai"].client, needs=("base_url",))


# ---------------------------------------------------------------- what models can do
# (pattern in the name of a model without its provider, the longest answer in tokens, whether it can think). The first
# row that fits counts. Early models refuse a request whose input and longest answer pass their window together, so
# those with a small window get less than they could write.
_ABILITIES: Final = tuple(
    (re.compile(pattern), tokens, thinks)
    for pattern, tokens, thinks in (
        (r"claude-(v1|2|instant)|claude-3-(haiku|opus|sonnet)", 4_096, False),
        (r"claude-3-5", 8_192, False),
        (r"claude-(3-7|opus-4(-[01])?(-2025|@|$)|sonnet-4(-0)?(-2025|@|$))", 32_000, True),
        (r"claude-[a-z]+-4-5", 64_000, True),
        (r"claude-", 128_000, True),
        (r"^(gpt-3\.5|gpt-4($|-0|-32k|-turbo|-vision))", 4_096, False),
        (r"^(gpt-4o|chatgpt-|gpt-5[.0-9]*-chat)", 16_384, False),
        (r"^gpt-4\.1", 32_768, False),
        (r"^(o1-mini|o1-preview)", 32_768, True),
        (r"^(o[134]|codex)", 100_000, True),
        (r"^gpt-[5-9]", 128_000, True),
        (r"^gemini-(1|2\.0|pro)", 8_192, False),
        (r"^gemini-", 65_535, True),
        (r"^gemma", 8_192, False),
    )
)


# Thinking tokens for an effort in a word.
EFFORT_TOKENS: Final = {"none": 0, "minimal": 0, "low": 2_048, "medium": 8_192, "high": 24_576, "xhigh": 32_768}


def _find_ability(model: str) -> tuple[int | None, bool | None]:
    bare = model.rpartition("/")[2]
    return next(((tokens, thinks) for pattern, tokens, thinks in _ABILITIES if pattern.search(bare)), (None, None))


def default_model(env: Mapping[str, str]) -> tuple[str, str]:
    """(model, variable) of the first provider in the table whose key is in the environment and that has an
    example; both are empty where there is none."""
    for name, usual in USUAL.items():
        variable = next((key for key in usual.key if env.get(key, "").strip()), "")
        if variable and usual.example:
            return f"{name}/{usual.example}", variable
    return "", ""


def answer_tokens_max(model: str) -> int | None:
    """Return the longest answer of a model in tokens; None where it is not known."""
    return _find_ability(model)[0]


def can_think(model: str) -> bool | None:
    """Return whether a model can think before it answers; None where that is not known."""
    return _find_ability(model)[1]


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, without asking a name server. A name below localhost (`a.localhost`) is
    not: many resolvers ask a name server for it."""
    from ipaddress import ip_address

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_loopback_url(url: str) -> bool:
    """Return whether a URL surely names this machine; False for one with a user, a query or unusual characters."""
    match = _PLAIN_URL.fullmatch(url)
    return match is not None and is_loopback(match[1].strip("[]"))
