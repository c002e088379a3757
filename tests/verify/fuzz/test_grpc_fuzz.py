"""The fuzz of the gRPC server: clean on this tree, and it notices a handler that trips over a value."""

from __future__ import annotations

import logging

import pytest

from lyra.server.grpc import messages
from tests.cases import ALL
from verify.fuzz import grpc_fuzz


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_no_message_gives_unknown_or_internal():
    """Many messages to each RPC, a hundred in `make cases`: every one has an answer or a status of its own."""
    count = 100 if ALL else 40
    fuzzed = grpc_fuzz.run(count, 1)
    assert fuzzed.failures == []
    assert fuzzed.methods >= 39
    assert fuzzed.codes["OK"] > 5 * count
    assert fuzzed.codes["INVALID_ARGUMENT"] > 5 * count


@pytest.mark.slow
def test_json_that_is_not_checked_is_noticed(monkeypatch):
    """Planted: bytes that are no JSON raise what the decoder raises."""

    def unchecked(data: bytes, field: str) -> object:
        return messages._read_field(data)

    monkeypatch.setattr("lyra.server.grpc.services.json_value", unchecked)
    failures = grpc_fuzz.run(25, 1).failures
    assert any("CommBusService" in failure and "INTERNAL" in failure for failure in failures)
