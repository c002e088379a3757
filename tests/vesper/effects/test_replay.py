"""Effects are performed once: a path that replays a log is answered from it, and its requests are compared."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from lyra.vesper.effects.compiled_path import drive
from lyra.vesper.effects.replay import EffectLog, ReplayEffects, request_digest
from lyra.vesper.effects.request import EffectError, EffectRequest


def request(payload: Any = None, *, step: str = "pay", call_index: int = 0) -> EffectRequest:
    return EffectRequest(step, call_index, "http.call", "network.x", payload)


def log_of(*requests: EffectRequest) -> EffectLog:
    log = EffectLog()
    for number, item in enumerate(requests):
        log.add(item, response=number)
    return log


def test_a_request_is_answered_by_its_step_and_number() -> None:
    replay = ReplayEffects(log_of(request(1), request(1, call_index=1)))
    assert drive(replay.perform(request(1, call_index=1))) == 1
    assert drive(replay.perform(request(1))) == 0
    assert replay.mismatches() == []


def test_a_logged_error_is_raised_again() -> None:
    log = EffectLog()
    log.add(request(), error=EffectError("declined", "no", {"code": 5}))
    with pytest.raises(EffectError) as caught:
        drive(ReplayEffects(log).perform(request()))
    assert (caught.value.kind, caught.value.message, caught.value.fields) == ("declined", "no", {"code": 5})


def test_a_request_that_the_log_lacks_is_a_mismatch_and_is_not_performed() -> None:
    replay = ReplayEffects(EffectLog())
    with pytest.raises(EffectError):
        drive(replay.perform(request()))
    (row,) = replay.mismatches()
    assert (row["path"], row["kind"], row["python"]) == ("root.effects.pay[0]", "effect_mismatch", "no request")


def test_a_different_request_is_a_mismatch_and_is_answered() -> None:
    replay = ReplayEffects(log_of(request(1)))
    assert drive(replay.perform(request(2))) == 0
    assert [row["kind"] for row in replay.mismatches()] == ["effect_mismatch"]


def test_a_request_that_is_never_made_is_a_mismatch() -> None:
    (row,) = ReplayEffects(log_of(request())).mismatches()
    assert (row["python"], row["direct"]) == ("performed", "not asked for")
    (row,) = ReplayEffects(log_of(request()), replayed="python").mismatches()
    assert (row["python"], row["direct"]) == ("not asked for", "performed")


def test_has_tells_whether_the_very_request_was_performed() -> None:
    replay = ReplayEffects(log_of(request(1)))
    assert replay.has(request(1))
    assert not replay.has(request(2))
    assert not replay.has(request(1, call_index=1))


def test_a_copy_of_a_log_grows_alone() -> None:
    log = log_of(request())
    log.copy().add(request(call_index=1))
    assert len(log) == 1


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (Decimal("-0.0"), Decimal("0.0"), True),
        (Decimal("1.0"), Decimal("1.00"), False),
        (1, Decimal(1), False),
        (1, True, False),
        (b"a", "a", False),
        (["decimal", "1"], Decimal(1), False),
        (frozenset({"a", "b"}), frozenset({"b", "a"}), True),
        (frozenset({"a"}), ["a"], False),
    ],
)
def test_requests_are_alike_when_every_value_is(first: Any, second: Any, alike: bool) -> None:
    assert (request_digest(request(first)) == request_digest(request(second))) is alike


def test_every_part_of_a_request_counts() -> None:
    plain = EffectRequest("s", 0, "k", "c", None)
    others = [
        EffectRequest("t", 0, "k", "c", None),
        EffectRequest("s", 1, "k", "c", None),
        EffectRequest("s", 0, "l", "c", None),
        EffectRequest("s", 0, "k", "d", None),
        EffectRequest("s", 0, "k", "c", None, timeout_s=1.0),
        EffectRequest("s", 0, "k", "c", None, idempotency_key="x"),
    ]
    assert len({request_digest(item) for item in [plain, *others]}) == 7


def test_a_coroutine_that_waits_cannot_be_driven() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="did not answer at once"):
        drive(waits())
