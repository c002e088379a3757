"""An address is HOST:PORT, and says whether only this machine can reach it."""

from __future__ import annotations

import pytest

from lyra.core.address import Address
from lyra.errors import ConfigError


@pytest.mark.parametrize("text", ["127.0.0.1:0", "localhost:8420", "[::1]:65535", "example.org:1"])
def test_an_address_is_read_and_written_alike(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "8420", ":8420", "host:", "host:x", "host:65536", "host:-1", "::1:80", "a b:1", "http://h:1", "h:٣", None],
)
def test_anything_else_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ConfigError) as refused:
        Address.parse(text)
    assert "127.0.0.1" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example.org:1", False),
    ],
)
def test_loopback_is_known(text: str, expected: bool) -> None:
    assert Address.parse(text).is_loopback is expected
