"""The modules of the A2A SDK, imported at first use: its messages, its conversions for protocol 0.3, its client.

The SDK comes with the `a2a` extra. Nothing else in Lyra imports it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from lyra.errors import ConfigError

PROTOCOL: Final = "1.0"
PROTOCOL_BEFORE: Final = "0.3"
# An extension in the card of a server: a message that comes twice under one id is one task.
IDEMPOTENT_MESSAGES: Final = "urn:lyra:a2a:idempotent-messages"


def messages() -> Any:
    """Return the message classes of protocol 1.0."""
    return _module("a2a.types.a2a_pb2")


def compat() -> Any:
    """Return the conversions between protocol 1.0 and 0.3."""
    return _module("a2a.compat.v0_3.conversions")


def compat_types() -> Any:
    """Return the message classes of protocol 0.3."""
    return _module("a2a.compat.v0_3.types")


def client_module(name: str) -> Any:
    """Return a module of the SDK's client, such as `client_factory`."""
    return _module(f"a2a.client.{name}")


def to_json(message: Any) -> dict[str, Any]:
    """Return a message as plain JSON data."""
    data: dict[str, Any] = _module("google.protobuf.json_format").MessageToDict(message)
    return data


def from_json(data: Any, message: Any) -> Any:
    """Return a message filled from plain JSON data; unknown fields are passed over, and ConfigError says what does not
    fit."""
    json_format = _module("google.protobuf.json_format")
    try:
        return json_format.ParseDict(data, message, ignore_unknown_fields=True)
    except (json_format.ParseError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        detail = " ".join(str(error).split())[:200]
        raise ConfigError(f"not a {type(message).__name__} of A2A: {detail}") from None


@cache
def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError("A2A needs its SDK, which is not installed", hint="pip install 'lyra-agents[a2a]'") from None
