"""On what a server listens and what it takes: addresses, tokens, TLS, bounds.

`ServeSettings.from_config` reads the section `[server]`; flags of `lyra serve` come in as overrides. An address that
other machines can reach needs TLS, or `plaintext`.

`announce` writes the address, and no token, to a file in the user's data folder, named by the hash of the store, so
that commands which name a store (`lyra keys`) find the server that owns it. One that a killed server left is passed
over.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from lyra.config.files import alone, write_private
from lyra.core.address import Address
from lyra.core.limits import SERVER_CONNECTIONS_MAX, SERVER_DRAIN_S, SERVER_MESSAGE_BYTES_MAX
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError
from lyra.server.identity import TokenTable

if TYPE_CHECKING:
    from lyra.config import Config


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of TLS, as PEM: a certificate chain, its key, and with mutual TLS the authorities of clients."""

    cert: str
    key: str
    client_ca: str | None = None

    def read(self) -> tuple[bytes, bytes, bytes | None]:
        """Their contents: certificate, key, authorities."""
        return _read_pem(self.cert), _read_pem(self.key), _read_pem(self.client_ca) if self.client_ca else None


def _read_pem(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", hint="see [server] tls_cert, tls_key") from None


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What one server is started with. A face whose address is None does not listen."""

    tokens: TokenTable
    grpc: Address | None = None
    http: Address | None = None
    tls: TlsFiles | None = None
    plaintext: bool = False
    message_bytes_max: int = SERVER_MESSAGE_BYTES_MAX
    connections_max: int = SERVER_CONNECTIONS_MAX
    requests_per_minute: int | None = None
    drain_s: float = SERVER_DRAIN_S
    hosts: tuple[str, ...] = ()  # names under which clients reach it, besides its address
    gateway: bool = False  # whether clients may call model providers through it
    cluster: bool = False  # whether it is one of the hosts of a cluster
    token_source: str = ""  # in words, for the person who starts it

    def __post_init__(self) -> None:
        if self.grpc is None and self.http is None:
            raise ConfigError("a server needs an address for gRPC or for HTTP")
        if self.tls is not None or self.plaintext:
            return
        for address in (self.grpc, self.http):
            if address is not None and not address.is_loopback:
                raise ConfigError(
                    f"{address} can be reached from other machines, and tokens would travel as plain text",
                    hint="set [server] tls_cert and tls_key; behind a proxy that does TLS, [server] plaintext = true",
                )

    @classmethod
    def from_config(
        cls, config: Config, flags: Mapping[str, Any] | None = None, *, env: Mapping[str, str] = os.environ
    ) -> Self:
        """Return the settings in force; a flag that is None counts as not given."""
        section = config.server
        given = {name: value for name, value in (flags or {}).items() if value is not None}
        token_file = given.pop("token_file", section.token_file)
        tls = _tls_files(
            given.pop("tls_cert", section.tls_cert),
            given.pop("tls_key", section.tls_key),
            given.pop("tls_client_ca", section.tls_client_ca),
        )
        tokens, source = TokenTable.load(token_file, env)
        settings: dict[str, Any] = {
            "grpc": section.grpc and Address.parse(section.grpc),
            "http": section.http and Address.parse(section.http),
            "plaintext": section.plaintext,
            "message_bytes_max": section.message_bytes_max,
            "connections_max": section.connections_max,
            "requests_per_minute": section.requests_per_minute,
            "drain_s": section.drain_s,
            "hosts": section.hosts,
            "gateway": section.gateway,
            "cluster": section.cluster,
        }
        return cls(**{**settings, **given, "tokens": tokens, "tls": tls, "token_source": source})


def _tls_files(cert: str | None, key: str | None, client_ca: str | None) -> TlsFiles | None:
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise ConfigError("TLS needs a certificate and its key", hint="set both [server] tls_cert and tls_key")
    return TlsFiles(cert, key, client_ca)


_FOLDER: Final = "servers"
_URL_CHARS_MAX: Final = 500


def _file(target: str, env: Mapping[str, str]) -> Path:
    path = target.removeprefix("sqlite://")
    name = target if target == "memory" or "://" in path else f"sqlite://{os.path.realpath(path)}"
    return data_folder(env) / _FOLDER / hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def announce(target: str, url: str, env: Mapping[str, str] = os.environ) -> None:
    """Say that the server of this store is at this URL."""
    path = _file(target, env)
    with suppress(OSError), alone(path):  # without the file, commands need the server's address
        write_private(path, url.encode())


def withdraw(target: str, url: str, env: Mapping[str, str] = os.environ) -> None:
    """Take it back, unless another server has said so since."""
    with suppress(OSError):
        path = _file(target, env)
        if path.read_bytes() == url.encode():
            path.unlink()


def read_announcement(target: str, env: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the server of this store; "" where none has said so."""
    return _url(_file(target, env))


def all_announced(env: Mapping[str, str] = os.environ) -> list[str]:
    """Return the URLs of all servers that have said so, of any store; some may be gone."""
    try:
        files = sorted((data_folder(env) / _FOLDER).iterdir())
    except OSError:
        return []
    return list(dict.fromkeys(filter(None, map(_url, files))))


def _url(path: Path) -> str:
    try:
        url = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return url if url.startswith(("http://", "https://")) and len(url) <= _URL_CHARS_MAX else ""
