"""The fuzz of the kernel's public methods: clean on this tree, and it notices values that reach a row unchecked."""

from __future__ import annotations

import logging

import pytest

from lyra.kernel.base import core
from tests.cases import ALL
from verify.fuzz import kernel_calls


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_hostile_values_leave_a_store_that_opens():
    """Worlds with all kinds of values, each opened again."""
    fuzzed = kernel_calls.run(30 if ALL else 12, 1)
    assert fuzzed.failures == []
    assert fuzzed.methods > 200
    assert fuzzed.refused > 100


def test_a_pid_that_is_not_checked_is_noticed(monkeypatch):
    """Planted: facts are written with whatever was given as a pid."""
    monkeypatch.setattr(core, "sendable_text", lambda value, what: value)
    monkeypatch.setattr("lyra.kernel.journal.journal.sendable_text", lambda value, what: value)
    assert kernel_calls.run(1, 39).failures or kernel_calls.run(60, 1).failures  # that world shows it
