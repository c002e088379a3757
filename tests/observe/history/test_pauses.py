"""Where processes stood still, read from Events."""

from __future__ import annotations

from typing import Any

from lyra.core.event import Event
from lyra.observe.history.call_contents import PauseHistory


def test_a_retry_and_a_question_are_pauses() -> None:
    facts: tuple[tuple[str, dict[str, Any]], ...] = (
        ("effect.retried", {"key": 1, "name": "model:a:m", "attempt": 1, "delay_s": 2.5, "error": "overloaded"}),
        ("interrupt.created", {"id": "i1", "question": "may I?"}),
        ("interrupt.resolved", {"id": "i1"}),
        ("interrupt.created", {"id": "i2", "question": "and this?"}),
    )
    history = PauseHistory()
    history.add_all(Event(seq, 10.0 * seq, "p1", kind, data) for seq, (kind, data) in enumerate(facts, 1))
    retry, wait, still = history.pauses
    assert (retry.kind, retry.started_at, retry.ended_at, retry.why) == ("retry", 10.0, 12.5, "overloaded")
    assert retry.key == "1"
    assert (wait.kind, wait.started_at, wait.ended_at, wait.why) == ("wait", 20.0, 30.0, "may I?")
    assert still.ended_at is None


def test_the_number_of_pauses_is_bounded() -> None:
    history = PauseHistory()
    for number in range(10_050):
        history.add(Event(number, float(number), "p1", "effect.retried", {"key": number, "delay_s": 1}))
    assert len(history.pauses) == 10_000
    assert history.pauses[0].started_at == 50.0
