"""Providers as plain facts: what counts as this machine."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

from lyra.core.providers import SETTINGS, TIMEOUTS, USUAL, is_loopback, is_loopback_url
from lyra.models import providers
from lyra.models.provider import LLMProvider
from lyra.models.settings import Timeouts


def test_every_provider_has_a_row():
    """A client class in a module of `lyra.models.providers` without a row in the table is named."""
    clients = {usual.client for usual in USUAL.values()}
    for found in pkgutil.iter_modules(providers.__path__, "lyra.models.providers."):
        for name, kind in vars(import_module(found.name)).items():
            if isinstance(kind, type) and issubclass(kind, LLMProvider) and kind.__module__ == found.name:
                assert f"{found.name}:{name}" in clients, f"give {name} a row in USUAL of lyra/core/providers.py"


def test_the_tables_agree():
    """A time-out has its name, a need is a setting, and a row that the first screen or the mock server uses can be."""
    assert Timeouts.__struct_fields__ == TIMEOUTS
    assert {need for usual in USUAL.values() for need in usual.needs} <= set(SETTINGS)
    for name, usual in USUAL.items():
        assert not usual.example or usual.key or usual.url, f"{name} has an example and no variable to show with it"
        assert usual.mock is None or usual.url, f"{name} has a path on the mock server and no variable for its address"
        if usual.client == USUAL["openai"].client:
            assert usual.mock is not None, f"{name} speaks OpenAI's format: say in `mock` where the mock server answers"


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
