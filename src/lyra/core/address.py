"""An address to listen on or to call: HOST:PORT, with an IPv6 host in brackets."""

from __future__ import annotations

import ipaddress
from typing import Any, NamedTuple, Self

from lyra.errors import ConfigError

_HINT = "write HOST:PORT, such as 127.0.0.1:8420 or [::1]:8420"


class Address(NamedTuple):
    """A host and a port; port 0 has the system choose a free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: Any) -> Self:
        if not isinstance(text, str):
            raise ConfigError("an address is text", hint=_HINT)
        host, colon, port = text.strip().rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not colon or not host or (":" in host) != bracketed or any(letter in " /@\0" for letter in host):
            raise ConfigError(f"{text!r} is no address", hint=_HINT)
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
            raise ConfigError(f"{port!r} is no port", hint=_HINT)
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this machine can reach it; of a name other than localhost it is not known."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
