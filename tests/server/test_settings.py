"""A server listens on loopback, or with TLS, or where a person said that plain text is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.config import Config
from lyra.core.address import Address
from lyra.errors import ConfigError
from lyra.server.identity import TokenTable
from lyra.server.settings import ServeSettings, TlsFiles

TOKENS = TokenTable({"0123456789abcdef": ""})
EVERYWHERE = Address("0.0.0.0", 0)


def test_an_address_for_other_machines_needs_tls_or_a_word() -> None:
    faces: list[dict[str, Any]] = [{"grpc": EVERYWHERE}, {"http": EVERYWHERE}]
    for face in faces:
        with pytest.raises(ConfigError, match="plain text"):
            ServeSettings(tokens=TOKENS, **face)
        ServeSettings(tokens=TOKENS, plaintext=True, **face)
        ServeSettings(tokens=TOKENS, tls=TlsFiles("c", "k"), **face)
    with pytest.raises(ConfigError, match="needs an address"):
        ServeSettings(tokens=TOKENS)


def test_the_section_server_and_flags_are_read(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("0123456789abcdef bob\n")
    config = Config.load(
        flags=[
            "server.grpc=none",
            "server.http=127.0.0.1:0",
            "server.drain_s=3",
            "server.connections_max=7",
            "server.message_bytes_max=2048",
            "server.requests_per_minute=60",
        ]
    )
    settings = ServeSettings.from_config(config, {"token_file": str(tmp_path / "t"), "tls_cert": None})
    assert (settings.grpc, settings.http) == (None, Address("127.0.0.1", 0))
    assert (settings.drain_s, settings.connections_max, settings.message_bytes_max) == (3.0, 7, 2048)
    assert settings.requests_per_minute == 60
    assert settings.tls is None
    assert settings.tokens.caller("0123456789abcdef").user_id == "bob"


def test_half_of_tls_is_a_mistake_and_a_missing_file_is_named(tmp_path: Path) -> None:
    config = Config.load()
    env = {"LYRA_TOKEN": "0123456789abcdef"}
    for flags in ({"tls_cert": "c"}, {"tls_key": "k"}, {"tls_client_ca": "a"}):
        with pytest.raises(ConfigError, match="certificate and its key"):
            ServeSettings.from_config(config, flags, env=env)
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        TlsFiles(str(tmp_path / "nowhere.pem"), "k").read()
