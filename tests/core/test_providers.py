"""Providers as plain facts: every row is complete, one row is a whole provider, and what counts as this machine."""

from __future__ import annotations

import asyncio
import pkgutil
from decimal import Decimal
from importlib import import_module

import pytest

from lyra.core.providers import SETTINGS, TIMEOUTS, USUAL, KnownModel, Usual, is_loopback, is_loopback_url
from lyra.models import LLMClient, Message, Request, providers
from lyra.models.names import model_name
from lyra.models.pricing import Price, Prices, _find, context_window, list_published_names
from lyra.models.provider import LLMProvider
from lyra.models.settings import Timeouts, settings_of
from lyra.sage.terminal.first_run import _set_up_lines, missing_variables
from lyra.testing.mock import MockServer


def test_every_provider_has_a_row():
    """A client class in a module of `lyra.models.providers` without a row in the table is named."""
    clients = {usual.client for usual in USUAL.values()}
    for found in pkgutil.iter_modules(providers.__path__, "lyra.models.providers."):
        for name, kind in vars(import_module(found.name)).items():
            if isinstance(kind, type) and issubclass(kind, LLMProvider) and kind.__module__ == found.name:
                assert f"{found.name}:{name}" in clients, f"give {name} a row in USUAL of lyra/core/providers.py"


def find_gaps(name: str, usual: Usual) -> list[str]:
    """Return a sentence for each column that the row leaves out and something else needs."""
    speaks_openai = usual.client == USUAL["openai"].client
    listed = [model.name for model in usual.models if _find(usual.prices or name, model.name) is not None]
    unpriced = [
        model.name
        for model in usual.models
        if model.window <= 0 or min(Decimal(model.input_usd_per_mtok), Decimal(model.output_usd_per_mtok)) < 0
    ]
    gaps = {
        "has a key in `key` and may be asked without: put `api_key` into `needs`": speaks_openai
        and usual.key
        and "api_key" not in usual.needs,
        "needs a key: name its environment variable in `key`": "api_key" in usual.needs and not usual.key,
        "has no address: give `base_url`, or `base_url` among `needs`": speaks_openai
        and not usual.base_url
        and "base_url" not in usual.needs,
        "speaks OpenAI's format: say in `mock` where the mock server answers": speaks_openai and usual.mock is None,
        "has a path on the mock server: name the environment variable of its address in `url`": usual.mock is not None
        and not usual.url,
        "has an example and no variable to show with it: fill `key` or `url`": usual.example
        and not (usual.key or usual.url),
        f"needs {sorted({*usual.needs} - {*SETTINGS})}, which no setting is called": {*usual.needs} - {*SETTINGS},
        f"has models that genai-prices lists, remove them: {listed}": listed,
        f"has models without a window, or with a price below 0: {unpriced}": unpriced,
    }
    return [f"{name} in USUAL of core/providers.py {gap}" for gap, is_there in gaps.items() if is_there]


def test_the_tables_agree():
    """A time-out has its name, and no row lacks what its client, the first screen or the mock server needs."""
    assert Timeouts.__struct_fields__ == TIMEOUTS
    gaps = [gap for name, usual in USUAL.items() for gap in find_gaps(name, usual)]
    assert not gaps, "; ".join(gaps)


QUILLON = Usual(
    USUAL["openai"].client,
    key=("QUILLON_API_KEY",),
    url=("QUILLON_BASE_URL",),
    base_url="https://api.quillon.example/v1",
    needs=("api_key",),
    ids=("quill-",),
    models=(KnownModel("quill-1", 128_000, "0.20", "0.80"), KnownModel("quill-2", 400_000, "2", "8")),
    example="quill-1",
    mock="/v1",
)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"key": ()}, "`key`"),
        ({"needs": ()}, "`needs`"),
        ({"url": ()}, "`url`"),
        ({"base_url": ""}, "`base_url`"),
        ({"mock": None}, "`mock`"),
        ({"key": (), "url": (), "needs": (), "mock": None, "client": USUAL["ollama"].client}, "example"),
        ({"needs": ("api_key", "adress")}, "adress"),
        ({"models": (KnownModel("gpt-4o", 1, "1", "1"),), "prices": "openai"}, "genai-prices lists"),
        ({"models": (KnownModel("quill-1", 0, "1", "1"),)}, "without a window"),
    ],
)
def test_a_column_that_is_left_out_is_named(change, place):
    """The sentence names the row, the file and the column."""
    assert find_gaps("quillon", QUILLON) == []
    (gap,) = find_gaps("quillon", QUILLON._replace(**change))
    assert gap.startswith("quillon in USUAL of core/providers.py")
    assert place in gap


def test_one_row_is_a_provider(monkeypatch):
    """From its row alone a provider has names, keys, prices, windows and its place in Sage and on the mock server."""
    monkeypatch.setitem(USUAL, "quillon", QUILLON)

    async def ask() -> str:
        async with MockServer({"replies": [{"text": "Hello"}]}) as server, LLMClient(env=server.env) as client:
            assert "quillon" in client.configured()
            return (await client.complete("quill-1", Request("", (Message("user", "hi"),)))).text

    assert asyncio.run(ask()) == "Hello"
    assert model_name("quill-2") == ("quillon", "quill-2")
    assert settings_of("quillon", {}, {"QUILLON_API_KEY": "k"}).base_url == "https://api.quillon.example/v1"
    assert list_published_names("quillon") == ["quill-1", "quill-2"]
    assert context_window("quillon/quill-1") == 128_000
    assert context_window("quillon/quill-3") is None
    assert Prices().find("quillon/quill-2") == Price.per_mtok("2", "8")
    assert Prices().find("quillon/quill-3") is None
    assert missing_variables("quillon/quill-1", {}, {}) == ("QUILLON_API_KEY",)
    assert any("sage --model quillon/quill-1" in text for line in _set_up_lines("", ()) for _, text in line)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_hosts_of_this_machine(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "10.0.0.1", "example.com", "localhost.example.com", "notlocalhost", "a.localhost", "localhost."],
)
def test_hosts_of_others(host):
    """A name that only looks like this machine's may belong to another host: resolvers ask a name server for it."""
    assert not is_loopback(host)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1", "https://localhost:1/v1/", "http://[::1]:8000/v1", "127.0.0.1:11434", "localhost"]
)
def test_addresses_of_this_machine(url):
    assert is_loopback_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://",
        "http://example.com",
        "http://127.0.0.1@example.com",
        "http://example.com@127.0.0.1",
        "http://127.0.0.1\\@example.com",
        "http://127.0.0.1?x",
        "http://127.0.0.1#x",
        "http://127.0.0.1 .example.com",
        "http://127.0.0.1\n.example.com",
        "http:///127.0.0.1",
        "//127.0.0.1",
        "file://127.0.0.1/x",
        "http://127.0.0.1:123456",
        "http://2130706433",
    ],
)
def test_addresses_that_are_not_plainly_this_machine(url):
    """Anything that two readers of URLs could read differently is not."""
    assert not is_loopback_url(url)
