"""Providers as plain facts: what counts as this machine."""

from __future__ import annotations

import pytest

from lyra.core.providers import SETTINGS, TIMEOUTS, USUAL, is_loopback, is_loopback_url
from lyra.models.names import PROVIDERS
from lyra.models.wire.http import Timeouts


def test_the_tables_agree():
    """Every provider that can be asked has its row, and a time-out its name."""
    assert set(USUAL) == set(PROVIDERS)
    assert Timeouts.__struct_fields__ == TIMEOUTS
    assert {need for usual in USUAL.values() for need in usual.needs} <= set(SETTINGS)


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
