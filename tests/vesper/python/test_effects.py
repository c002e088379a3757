"""Effects on the Python path: requests, responses, rules, compensation, parallel steps, transitions."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from lyra.vesper.effects.request import EffectError, EffectRequest
from lyra.vesper.ir import ErrorRule, NodeProgram, ParallelStep, StepRetry
from lyra.vesper.python.run import run, start
from lyra.vesper.values.outcome import Execution, Outcome
from lyra.vesper.values.types import ANY, INTEGER, STRING, Array
from tests.vesper.python.examples import EXAMPLES
from tests.vesper.python.programs import (
    assign,
    cmp,
    contract,
    effect,
    failure,
    field,
    for_each,
    inputs,
    mapped,
    outputs,
    program,
    succeed,
    text,
    var,
)

EXECUTION = Execution(now=datetime(2026, 1, 1, tzinfo=UTC), trace_id="trace")
BY_ID = {example.node_id: example for example in EXAMPLES}
ERRORS = outputs(error_code=STRING, message=STRING)


class Script:
    """Answers requests by step name: a value, an error to raise, or a list of those, one for each call."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.requests: list[EffectRequest] = []

    async def perform(self, request: EffectRequest) -> Any:
        self.requests.append(request)
        reply = self.answers.get(request.step)
        if isinstance(reply, list):
            reply = reply[request.call_index]
        if isinstance(reply, EffectError):
            raise reply
        return reply

    @property
    def steps(self) -> list[str]:
        return [request.step for request in self.requests]


def pay(script: Script, **values: Any) -> Outcome:
    return run(BY_ID["payment_v1"], {"amount": "5.00", "key": "k1", **values}, EXECUTION, script)


def test_requests_and_responses() -> None:
    """Each act is one request with its payload, key, time limit and retries; its response is bound and extracted."""
    script = Script(look=[], charge={"id": "tx1"})
    script.answers["look"] = [[]]
    outcome = pay(script)
    assert outcome.outputs == {"transaction": "tx1"}
    assert script.steps == ["look", "charge", "save", "tell"]
    charge = script.requests[1]
    assert charge == EffectRequest(
        "charge",
        0,
        "http.call",
        "http.call.x",
        {"provider": "bank", "parameters": {"amount": Decimal("5.00"), "key": "k1"}},
        5.0,
        StepRetry(attempts=2),
        "k1/charge/0",
    )


def test_found_rows_end_the_flow() -> None:
    """The steps for rows that were found may answer."""
    script = Script(look=[[{"id": "old"}]])
    assert pay(script).outputs == {"transaction": "old"}
    assert script.steps == ["look"]


def test_rules_of_a_step_then_of_the_node() -> None:
    """The step's first matching rule answers; else the node's rule for the code; else the error itself."""
    declined = pay(Script(look=[[]], charge=EffectError("declined", "no money")))
    assert declined.error is not None
    assert (declined.error.code, declined.error.message) == ("payment_declined", "Declined: k1")
    other = pay(Script(look=[[]], charge=EffectError("broken_pipe")))
    assert other.error is not None
    assert other.error.code == "unavailable"
    timeout = pay(Script(look=[[]], charge=EffectError("timeout", "too slow")))
    assert timeout.error is not None
    assert (timeout.error.code, timeout.error.message) == ("timeout", "too slow")


def test_compensation_of_a_failed_step() -> None:
    """A step that fails runs its compensation, then answers with the declared error."""
    script = Script(look=[[]], charge={"id": "tx1"}, save=EffectError("disk_full"))
    outcome = pay(script)
    assert outcome.error is not None
    assert outcome.error.code == "not_saved"
    assert script.steps == ["look", "charge", "save", "refund"]
    assert script.requests[-1].payload == {"provider": "bank", "refund": "tx1"}


def _saga() -> NodeProgram:
    def step(name: str) -> Any:
        undo = effect(f"undo_{name}", "custom.a.undo", mapped(of=var(name)))
        return effect(name, "custom.a.do", mapped(), name, rules=(ErrorRule("*", "compensate", None, (undo,)),))

    return program(
        step("first"),
        step("second"),
        step("third"),
        succeed(out=1),
        success=outputs(out=INTEGER),
        error=ERRORS,
        pure=False,
    )


def test_compensations_run_in_reverse_order() -> None:
    """The failing step's compensation comes first, then those of completed steps, the latest first."""
    script = Script(first=1, second=2, third=EffectError("bad"), undo_second=EffectError("stuck"))
    outcome = run(_saga(), {}, EXECUTION, script)
    assert outcome.error is not None
    assert outcome.error.code == "effect_failed"
    assert script.steps == ["first", "second", "third", "undo_third", "undo_second", "undo_first"]
    assert [request.payload for request in script.requests[3:]] == [{"of": None}, {"of": 2}, {"of": 1}]


def test_compensation_in_a_loop_keeps_the_values_of_its_round() -> None:
    """Each round registers its own compensation."""
    undo = effect("undo", "custom.a.undo", mapped(of=var("booked")))
    book = effect(
        "book", "custom.a.do", mapped(n=var("n")), "booked", rules=(ErrorRule("*", "compensate", None, (undo,)),)
    )
    tree = program(
        for_each(var("numbers"), "n", book),
        effect("end", "custom.a.end", mapped()),
        succeed(out=1),
        inputs=inputs(numbers=Array(INTEGER)),
        success=outputs(out=INTEGER),
        rules=(ErrorRule("effect_failed", "compensate"),),
        pure=False,
    )
    script = Script(book=["a", "b"], end=EffectError("bad"))
    assert run(tree, {"numbers": [1, 2]}, EXECUTION, script).error is not None
    assert [request.payload for request in script.requests if request.step == "undo"] == [{"of": "b"}, {"of": "a"}]
    assert [request.call_index for request in script.requests if request.step == "book"] == [0, 1]


def test_a_broken_invariant_takes_back_what_was_done() -> None:
    """An invariant is checked after each act; when it fails, registered compensations run."""
    undo = effect("undo", "custom.a.undo", mapped())
    tree = program(
        effect("take", "custom.a.take", mapped(), "left", rules=(ErrorRule("bad", "compensate", None, (undo,)),)),
        succeed(out=1),
        success=outputs(out=INTEGER),
        invariants=(contract("left >= 0", cmp(">=", var("left"), 0)),),
        pure=False,
    )
    assert run(tree, {}, EXECUTION, Script(take=5)).outputs == {"out": 1}
    script = Script(take=-1)
    outcome = run(tree, {}, EXECUTION, script)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.phase) == ("invariant_failed", "invariant")
    assert script.steps == ["take", "undo"]


def test_transitions() -> None:
    """A move must be declared, its checks and guard true; the request names the machine and both states."""
    script = Script(first="x", second="y", mark_paid="paid")
    tree = BY_ID["order_states_v1"]
    outcome = run(tree, {"order_id": "o1", "amount": 5}, EXECUTION, script)
    assert outcome.outputs == {"state": "paid", "answers": ["x", "y"]}
    move = script.requests[-1]
    assert (move.kind, move.capability) == ("state.transition", "state.order")
    assert move.payload == {"machine": "order", "entity": "o1", "from": "open", "to": "paid", "initial": "open"}
    for amount in (0, 100):
        refused = run(tree, {"order_id": "o1", "amount": amount}, EXECUTION, Script())
        assert refused.error is not None
        assert refused.error.code == "invalid_transition"


class Together(Script):
    """Answers after all requests have arrived."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self.expected = expected
        self.all_there = asyncio.Event()

    async def perform(self, request: EffectRequest) -> Any:
        self.requests.append(request)
        if len(self.requests) == self.expected:
            self.all_there.set()
        await self.all_there.wait()
        if request.step == "second":
            raise EffectError("late")
        return request.step

    async def together(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        return await asyncio.gather(*coroutines, return_exceptions=True)


def test_parallel_acts_run_at_once() -> None:
    """Acts of a Parallel wait for each other; the first error in written order is raised when all have ended."""
    both = ParallelStep(
        name="both", steps=(effect("first", "custom.a.b", mapped(), "one"), effect("second", "c.d", mapped()))
    )
    tree = program(both, succeed(out=var("one")), success=outputs(out=ANY), pure=False)

    async def main() -> tuple[Outcome, Together]:
        effects = Together(2)
        return await start(tree, {}, EXECUTION, effects), effects

    outcome, effects = asyncio.run(main())
    assert outcome.error is not None
    assert outcome.error.code == "effect_failed"
    assert sorted(effects.steps) == ["first", "second"]


def test_codes_of_failed_effects() -> None:
    """A callee's code is the caller's; a code of Lyra stays; any other kind is effect_failed."""

    def code(kind: str, error: str) -> str:
        tree = program(effect("act", kind, mapped()), succeed(out=1), success=outputs(out=INTEGER), pure=False)
        failed = run(tree, {}, EXECUTION, Script(act=EffectError(error))).error
        assert failed is not None
        return failed.code

    assert code("node.call", "their_code") == "their_code"
    assert code("http.call", "capability_denied") == "capability_denied"
    assert code("http.call", "their_code") == "effect_failed"


def test_without_effects_an_act_is_denied() -> None:
    """A node that was given no effects cannot act."""
    outcome = run(_saga(), {}, EXECUTION, None)
    assert outcome.error is not None
    assert outcome.error.code == "capability_denied"


def test_rules_see_variables_and_the_error() -> None:
    """A rule's answer may name what the flow knew when the error came."""
    rule = ErrorRule(
        "*", "return_error", failure("failed", message=text(field(var("error"), "message"), "/", var("x")))
    )
    tree = program(
        assign("x", 7),
        effect("act", "custom.a.b", mapped(), rules=(rule,)),
        succeed(out=1),
        success=outputs(out=INTEGER),
        error=ERRORS,
        pure=False,
    )
    failed = run(tree, {}, EXECUTION, Script(act=EffectError("kind", "why"))).error
    assert failed is not None
    assert failed.message == "why/7"
