"""Was it one after the other? A checker of histories for linearizability, and models of what Lyra shares.

A history is a list of `Op`: what was asked, what was answered, when it began and when its answer came; an answer that
never came is `None` (`UNKNOWN`), and its op may have happened at any time after its beginning, or not at all. A history
is linearizable if its ops can be put in one order that agrees with all answers, in which no op comes before one that
had ended before it began.

`check` searches for such an order as Wing and Gong do, with the memory of Lowe and of Porcupine: a set of ops that was
put in order once and led to a state is not tried again. Ops of different keys are searched for themselves. A model
says which states may follow: none where the answer is impossible, several where the answer is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

UNKNOWN: Final = None
_TRIED_MAX: Final = 1_000_000  # sets of ops with their states, of one key: more than that has no verdict


class Op(NamedTuple):
    """One act on something shared. `key` names the thing."""

    key: str
    what: str
    args: tuple[Any, ...]
    answer: Any  # UNKNOWN where none came
    began: float
    ended: float | None  # None where no answer came
    by: str = ""

    def __str__(self) -> str:
        told = "?" if self.ended is None else repr(self.answer)
        until = "…" if self.ended is None else f"{self.ended:g}"
        return f"{self.by} {self.what}{self.args} = {told} [{self.began:g}, {until}]"


# State and op → the states that may follow; none if the answer is impossible in that state.
Step = Callable[[Any, Op], Iterable[Hashable]]


class Model(NamedTuple):
    """What one key begins with, and how an op changes it."""

    start: Hashable
    step: Step


class Fault(NamedTuple):
    """A key whose ops have no order: the longest one that was found, and the ops of which none can come next."""

    key: str
    ordered: tuple[Op, ...]
    stuck: tuple[Op, ...]

    def __str__(self) -> str:
        done = "; ".join(map(str, self.ordered[-5:]))
        return f"{self.key}: after [{done}] none can follow of [{'; '.join(map(str, self.stuck))}]"


def check(model: Model, history: Iterable[Op]) -> list[Fault]:
    """Return a fault for each key whose ops are not linearizable."""
    by_key: dict[str, list[Op]] = {}
    for op in history:
        by_key.setdefault(op.key, []).append(op)
    faults = [_check_key(model, key, ops) for key, ops in by_key.items()]
    return [fault for fault in faults if fault is not None]


def _check_key(model: Model, key: str, history: Sequence[Op]) -> Fault | None:
    ops = sorted(history, key=lambda op: op.began)
    ends = [math.inf if op.ended is None else op.ended for op in ops]
    must = sum(1 << number for number, end in enumerate(ends) if end != math.inf)
    tried: set[tuple[int, Hashable]] = {(0, model.start)}
    order: list[int] = []
    longest: list[int] = []
    stack: list[Iterator[tuple[int, Hashable]]] = [_next_steps(model, ops, ends, 0, model.start)]
    masks = [0]
    while stack:
        if masks[-1] & must == must:
            return None
        for number, state in stack[-1]:
            mask = masks[-1] | 1 << number
            if (mask, state) in tried:
                continue
            tried.add((mask, state))
            if len(tried) > _TRIED_MAX:
                raise RuntimeError(f"no order of the {len(ops)} ops of {key} is found among {_TRIED_MAX} beginnings")
            order.append(number)
            masks.append(mask)
            stack.append(_next_steps(model, ops, ends, mask, state))
            if len(order) > len(longest):
                longest = list(order)
            break
        else:
            stack.pop()
            masks.pop()
            if order:
                order.pop()
    done = sum(1 << number for number in longest)
    return Fault(key, tuple(ops[number] for number in longest), tuple(ops[at] for at in _first(ops, ends, done)))


def _first(ops: Sequence[Op], ends: Sequence[float], mask: int) -> Iterator[int]:
    """Give the ops that may come next: no other one that is left had ended before they began."""
    soonest = math.inf
    candidates = []
    for number, op in enumerate(ops):
        if mask >> number & 1:
            continue
        if op.began > soonest:
            break
        candidates.append(number)
        soonest = min(soonest, ends[number])
    return (number for number in candidates if ops[number].began <= soonest)


def _next_steps(
    model: Model, ops: Sequence[Op], ends: Sequence[float], mask: int, state: Hashable
) -> Iterator[tuple[int, Hashable]]:
    for number in _first(ops, ends, mask):
        for following in model.step(state, ops[number]):
            yield number, following


def drop_unseen(history: Iterable[Op]) -> list[Op]:
    """Leave out ops of a register without an answer of which nobody saw the effect: reads, and writes and swaps whose
    value nobody was told. Right where each value is written once and a swap expects only what somebody was told: then
    the history is linearizable with them if it is without them, and the search is much shorter."""
    ops = list(history)
    seen = {op.answer for op in ops if op.ended is not None}
    return [op for op in ops if op.ended is not None or (op.args and op.args[-1] in seen)]


def check_received(sent: Iterable[Op], received: Sequence[Any]) -> list[str]:
    """Return what is wrong with the messages of one sender, all different, as their receiver got them: the verdict of
    `mailbox` without a search. `sent` are the sends, `received` the messages in their order, the last one included."""
    sends, faults = {op.args[0]: op for op in sent}, []
    if len(set(received)) != len(received):
        faults.append(f"{sorted({message for message in received if received.count(message) > 1})} came twice")
    faults += [f"{message} came and was never sent" for message in received if message not in sends]
    lost = [message for message, op in sends.items() if op.ended is not None and message not in set(received)]
    if lost:
        faults.append(f"{lost} were acknowledged and did not come")
    latest = -math.inf
    for message in received:
        op = sends.get(message)
        if op is None:
            continue
        if op.ended is not None and op.ended < latest:
            faults.append(f"{message} came after one that was sent when it had been acknowledged")
        latest = max(latest, op.began)
    return faults


# ---------------------------------------------------------------------- models


def register(start: Hashable = 0) -> Model:
    """Make the model of a value: `read()` gives it, `write(new)` and `swap(old, new)` give what it was before."""

    def step(value: Any, op: Op) -> Iterator[Hashable]:
        if op.ended is not None and op.answer != value:
            return
        if op.what == "write":
            yield op.args[0]
        elif op.what == "swap" and value == op.args[0]:
            yield op.args[1]
        else:
            yield value

    return Model(start, step)


def compared(start: Hashable = None) -> Model:
    """Make the model of a value of a blackboard: `compare(old, new)` is True and writes the new one where the value is
    the old one, and False elsewhere."""

    def step(value: Any, op: Op) -> Iterator[Hashable]:
        old, new = op.args
        if op.answer is not False and value == old:
            yield new
        if op.answer is UNKNOWN or (op.answer is False and value != old):
            yield value

    return Model(start, step)


def budget(limit: int, *, idle_max: int = 0) -> Model:
    """Make the model of a budget: `spend(amount)` is "ok" and never goes past the limit, or "refused" where it would.

    A budget that is lent in portions may refuse while as much as `idle_max` lies idle elsewhere.
    """

    def step(spent: Any, op: Op) -> Iterator[Hashable]:
        amount = op.args[0]
        if op.answer in ("ok", UNKNOWN) and spent + amount <= limit:
            yield spent + amount
        if op.answer == UNKNOWN or (op.answer == "refused" and spent + amount > limit - idle_max):
            yield spent

    return Model(0, step)


def once() -> Model:
    """Make the model of something that happens once: `fire()` gives True to the first, and False to all others. The key
    is the name and the time."""

    def step(fired: Any, op: Op) -> Iterator[Hashable]:
        if op.answer in (True, UNKNOWN) and not fired:
            yield True
        if op.answer in (False, UNKNOWN) and (fired or op.answer is UNKNOWN):
            yield fired

    return Model(False, step)


def mailbox() -> Model:
    """Make the model of the messages of one sender for one receiver: `send(message)` puts it behind the others,
    `receive()` gives the oldest one, or "empty". The key is the pair."""

    def step(waiting: Any, op: Op) -> Iterator[Hashable]:
        if op.what == "send":
            yield (*waiting, op.args[0])
            if op.ended is None:
                yield waiting
        elif op.ended is None:
            yield waiting
            if waiting:
                yield waiting[1:]
        elif waiting and op.answer == waiting[0]:
            yield waiting[1:]
        elif not waiting and op.answer == "empty":
            yield waiting

    return Model((), step)
