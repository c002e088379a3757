"""The garbage collector rests while a session is opened, and is left as it was."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from lyra.cli.process_io import CollectorPause


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The collector is on before a test and after it."""
    gc.enable()
    yield
    gc.enable()
    gc.unfreeze()


def test_it_rests_until_the_session_is_open() -> None:
    """From `end` on the collector works, and what was there before is out of its sight."""
    with CollectorPause() as pause:
        assert not gc.isenabled()
        pause.end()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0


def test_what_comes_after_the_pause_is_collected() -> None:
    with CollectorPause() as pause:
        pause.end()
        ring: list[object] = []
        ring.append(ring)
        del ring
        assert gc.collect() > 0


def test_the_end_of_the_block_leaves_the_collector_as_it_was() -> None:
    """Also where the session was never opened; nothing stays frozen."""
    for is_opened in (True, False):
        with CollectorPause() as pause:
            if is_opened:
                pause.end()
        assert (gc.isenabled(), gc.get_freeze_count()) == (True, 0)


def test_a_second_end_does_nothing() -> None:
    with CollectorPause() as pause:
        pause.end()
        frozen = gc.get_freeze_count()
        kept = [[] for _ in range(1_000)]
        pause.end()
        assert gc.get_freeze_count() == frozen, len(kept)


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with CollectorPause() as pause:
        pause.end()
        assert not gc.isenabled()
    assert not gc.isenabled()
