"""Attacks on a real `lyra serve`: secrets on its surfaces, hostile clients."""

from __future__ import annotations

import pytest

from verify.attacks.server import exposed_secrets, gateway_secrets, hostile_clients
from verify.attacks.server.exposed_secrets import Surfaces

pytestmark = pytest.mark.slow


def test_no_secret_shows_on_any_surface_of_the_server() -> None:
    """Keys of providers, tokens, the password of the store and the key of TLS: neither in answers, headers, statuses,
    trailers, streams, events, history, metrics, logs and telemetry, nor in what a failed start says."""
    tried = exposed_secrets.run()
    assert tried.effects == []
    assert tried.attempts > 500


def test_no_key_of_the_gateway_shows_on_any_surface() -> None:
    """Keys of the gateway and of its providers, where the provider quotes them and clients send them astray: neither in
    answers, streams, headers, pages, records, metrics, logs and telemetry, nor in a byte of the store."""
    tried = gateway_secrets.run()
    assert tried.effects == []
    assert tried.attempts > 1_050


def test_the_search_finds_a_secret_in_its_spellings() -> None:
    surfaces = Surfaces({"a key": "plum.orchard.7731.lantern"})
    for text in ("x plum.orchard.7731.lantern y", "706c756d2e6f7263686172642e373733312e6c616e7465726e", "harmless"):
        surfaces.look("here", text)
    surfaces.look("base64", "Authorization: Basic dXNlcjpwbHVtLm9yY2hhcmQuNzczMS5sYW50ZXJu")
    assert surfaces.found == ["here shows a key", "here shows a key", "base64 shows a key"]


def test_hostile_clients_are_refused_and_hold_nobody_up() -> None:
    """Wrong tokens, hosts and origins, smuggled requests, strange bodies, names and fields, endless bodies, drips,
    half-open and silent connections, subscribers that never read: others are answered, and memory is bounded."""
    tried = hostile_clients.run(idle=400, endless_mb=16)
    assert tried.effects == []
    assert tried.attempts > 300
