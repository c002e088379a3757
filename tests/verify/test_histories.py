"""The checker of histories says yes where an order exists and no where none does, as trying all orders does."""

from __future__ import annotations

from itertools import permutations

import pytest

from lyra.core.ids import make_random
from tests.cases import cases
from verify.histories import (
    Model,
    Op,
    budget,
    check,
    check_received,
    compared,
    drop_unseen,
    mailbox,
    once,
    register,
)

SEEDS = cases(2_000)


def _op(what, args, answer, began, ended, key="k"):
    return Op(key, what, args, answer, began, ended)


# Each: model, history, whether it is linearizable.
KNOWN = {
    "a read sees the write before it": (
        register(),
        [_op("write", (1,), 0, 0, 1), _op("read", (), 1, 2, 3)],
        True,
    ),
    "a read after a write does not see the old value": (
        register(),
        [_op("write", (1,), 0, 0, 1), _op("read", (), 0, 2, 3)],
        False,
    ),
    "a read beside a write may see either": (
        register(),
        [_op("write", (1,), 0, 0, 5), _op("read", (), 0, 1, 2), _op("read", (), 1, 3, 4)],
        True,
    ),
    "two reads beside a write do not see it and then unsee it": (
        register(),
        [_op("write", (1,), 0, 0, 9), _op("read", (), 1, 1, 2), _op("read", (), 0, 3, 4)],
        False,
    ),
    "two swaps from one value do not both succeed": (
        register(),
        [_op("swap", (0, 1), 0, 0, 5), _op("swap", (0, 2), 0, 0, 5)],
        False,
    ),
    "a write without an answer may happen late": (
        register(),
        [_op("write", (7,), None, 0, None), _op("read", (), 0, 1, 2), _op("read", (), 7, 3, 4)],
        True,
    ),
    "a write without an answer happens once": (
        register(),
        [
            _op("write", (7,), None, 0, None),
            _op("read", (), 7, 1, 2),
            _op("write", (0,), 7, 3, 4),
            _op("read", (), 7, 5, 6),
        ],
        False,
    ),
    "two that compare with one value do not both succeed": (
        compared(),
        [_op("compare", (None, 1), True, 0, 5), _op("compare", (None, 2), True, 0, 5)],
        False,
    ),
    "one of two that compare with one value succeeds": (
        compared(),
        [_op("compare", (None, 1), True, 0, 5), _op("compare", (None, 2), False, 0, 5)],
        True,
    ),
    "a comparison does not fail where nobody wrote": (compared(), [_op("compare", (None, 1), False, 0, 5)], False),
    "a budget is spent to its limit": (
        budget(10),
        [_op("spend", (6,), "ok", 0, 1), _op("spend", (6,), "refused", 2, 3), _op("spend", (4,), "ok", 4, 5)],
        True,
    ),
    "a budget is not spent past its limit": (
        budget(10),
        [_op("spend", (6,), "ok", 0, 4), _op("spend", (6,), "ok", 0, 4)],
        False,
    ),
    "a budget does not refuse what is there": (budget(10), [_op("spend", (6,), "refused", 0, 1)], False),
    "a budget in portions refuses while some lies idle": (
        budget(10, idle_max=5),
        [_op("spend", (6,), "refused", 0, 1)],
        True,
    ),
    "a spend without an answer may be why the next is refused": (
        budget(10),
        [_op("spend", (6,), None, 0, None), _op("spend", (6,), "refused", 2, 3)],
        True,
    ),
    "a spend that ended before another began is counted by it": (
        budget(10),
        [_op("spend", (6,), "refused", 0, 1), _op("spend", (6,), "ok", 2, 3)],
        False,
    ),
    "a job fires once": (once(), [_op("fire", (), True, 0, 5), _op("fire", (), False, 1, 2)], True),
    "a job does not fire twice": (once(), [_op("fire", (), True, 0, 5), _op("fire", (), True, 9, 10)], False),
    "somebody fires a job": (once(), [_op("fire", (), False, 0, 5)], False),
    "a firing without an answer may be the one": (
        once(),
        [_op("fire", (), None, 0, None), _op("fire", (), False, 1, 2)],
        True,
    ),
    "messages come in their order": (
        mailbox(),
        [_op("send", (1,), None, 0, 1), _op("send", (2,), None, 2, 3), _op("receive", (), 1, 4, 5)],
        True,
    ),
    "messages do not overtake": (
        mailbox(),
        [_op("send", (1,), None, 0, 1), _op("send", (2,), None, 2, 3), _op("receive", (), 2, 4, 5)],
        False,
    ),
    "a message comes once": (
        mailbox(),
        [_op("send", (1,), None, 0, 1), _op("receive", (), 1, 2, 3), _op("receive", (), 1, 4, 5)],
        False,
    ),
    "a message that was sent is there": (
        mailbox(),
        [_op("send", (1,), None, 0, 1), _op("receive", (), "empty", 2, 3)],
        False,
    ),
    "keys are judged for themselves": (
        register(),
        [_op("write", (1,), 0, 0, 1, key="a"), _op("read", (), 0, 2, 3, key="b")],
        True,
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_histories(name):
    """What is linearizable is found to be, and what is not is not."""
    model, history, expected = KNOWN[name]
    assert (check(model, history) == []) is expected


def _by_brute_force(model: Model, history: list[Op]) -> bool:
    """Try every order of every choice of the ops that need not have happened."""
    must = [op for op in history if op.ended is not None]
    free = [op for op in history if op.ended is None]
    for choice in range(1 << len(free)):
        ops = must + [op for number, op in enumerate(free) if choice >> number & 1]
        for order in permutations(ops):
            if any(
                later.ended is not None and later.ended < earlier.began
                for place, earlier in enumerate(order)
                for later in order[place + 1 :]
            ):
                continue
            states = {model.start}
            for op in order:
                states = {following for state in states for following in model.step(state, op)}
            if states:
                return True
    return False


def _history(rng, kind: str) -> list[Op]:
    ops = []
    for number in range(rng.randint(2, 6)):
        began = rng.randrange(8)
        ended = None if rng.random() < 0.2 else began + rng.randrange(1, 6) + 0.5
        if kind == "register":
            what = rng.choice(["read", "write", "swap"])
            args = {"read": (), "write": (rng.randrange(3),), "swap": (rng.randrange(3), rng.randrange(3))}[what]
            answer = rng.randrange(3)
        elif kind == "compared":
            what, args, answer = "compare", (rng.choice([None, 1, 2]), rng.choice([1, 2])), rng.random() < 0.6
        elif kind == "budget":
            what, args, answer = "spend", (rng.choice([2, 3, 5]),), rng.choice(["ok", "ok", "refused"])
        elif kind == "once":
            what, args, answer = "fire", (), rng.random() < 0.4
        else:
            what = rng.choice(["send", "receive"])
            args = (number,) if what == "send" else ()
            answer = rng.choice([*range(number + 1), "empty"]) if what == "receive" else "sent"
        ops.append(Op("k", what, args, answer if ended is not None else None, began, ended))
    return ops


MODELS = {"register": register(), "compared": compared(), "budget": budget(8), "once": once(), "mailbox": mailbox()}


@pytest.mark.parametrize("kind", MODELS)
def test_random_histories_as_by_brute_force(kind):
    """On small histories the search agrees with trying every order, and both verdicts occur."""
    rng, verdicts = make_random(7), {True: 0, False: 0}
    for _ in range(SEEDS // 5):
        history = _history(rng, kind)
        expected = _by_brute_force(MODELS[kind], history)
        assert (check(MODELS[kind], history) == []) is expected, [str(op) for op in history]
        verdicts[expected] += 1
    assert min(verdicts.values()) > SEEDS // 100


@pytest.mark.parametrize("seed", range(8))
def test_messages_are_judged_without_a_search_as_with_one(seed):
    """What `check_received` says of the messages of one sender is what the model of a mailbox says."""
    rng, verdicts = make_random(seed), set()
    for _ in range(SEEDS // 8):
        sends = []
        for number in range(rng.randint(1, 4)):
            began = number * 2 + rng.randrange(3)
            ended = None if rng.random() < 0.3 else began + rng.randrange(1, 3) + 0.5
            sends.append(_op("send", (number,), None, began, ended))
        received = [number for number in range(len(sends)) if rng.random() < 0.9]
        if rng.random() < 0.3:
            rng.shuffle(received)
        if received and rng.random() < 0.1:
            received.append(rng.choice(received))
        takes = [_op("receive", (), word, 90 + at, 90 + at) for at, word in enumerate([*received, "empty"])]
        expected = check(mailbox(), [*sends, *takes]) == []
        assert (check_received(sends, received) == []) is expected, [*map(str, sends), received]
        verdicts.add(expected)
    assert verdicts == {True, False}


def test_ops_that_nobody_saw_change_no_verdict():
    """A register's history has the same verdict without ops that have no answer and no effect that was seen."""
    rng = make_random(3)
    for _ in range(SEEDS // 4):
        history, told = [], [0]
        for number in range(rng.randint(2, 6)):
            what = rng.choice(["read", "write", "swap"])
            new = number + 1
            args = {"read": (), "write": (new,), "swap": (rng.choice(told), new)}[what]
            began = rng.randrange(8)
            ended = None if rng.random() < 0.4 else began + rng.randrange(1, 6) + 0.5
            answer = rng.choice([0, *range(1, number + 1)]) if ended is not None else None
            if answer is not None:
                told.append(answer)
            history.append(_op(what, args, answer, began, ended))
        assert (check(register(), history) == []) is (check(register(), drop_unseen(history)) == []), history


def test_a_fault_says_where_the_order_ends():
    """A reader of a failure sees the last ops that fit and those that do not."""
    history = [_op("write", (1,), 0, 0, 1), _op("read", (), 0, 2, 3)]
    (fault,) = check(register(), history)
    assert "write(1,) = 0" in str(fault)
    assert "read() = 0" in str(fault)


def test_long_histories_are_searched_in_good_time():
    """A thousand ops of eight at a time: the memory keeps the search from trying all orders."""
    rng, value, history = make_random(1), 0, []
    for number in range(1_000):
        began = number - rng.uniform(0.0, 4.0)
        new = rng.randrange(3)
        history.append(_op("write", (new,), value, began, number + rng.uniform(0.0, 4.0)))
        value = new
    assert check(register(), history) == []
