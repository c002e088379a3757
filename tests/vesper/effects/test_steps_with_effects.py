"""Steps that act outside, on every evaluator: requests, responses, errors, rules, compensations, transitions."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.vesper import ir
from lyra.vesper.direct.run import run as direct
from lyra.vesper.effects.replay import EffectLog, ReplayEffects
from lyra.vesper.effects.request import EffectError, EffectRequest
from lyra.vesper.evidence.compare import compare
from lyra.vesper.ir import (
    AssignStep,
    EffectStep,
    ErrorRule,
    ForEachStep,
    Machine,
    NodeInput,
    NodeProgram,
    ParallelStep,
    Step,
    StepRetry,
    TransitionStep,
)
from lyra.vesper.values.outcome import Outcome
from lyra.vesper.values.types import ANY, INTEGER, STRING
from tests.vesper.building import EXECUTION, check, comp, contract, fails, give, lit, name, node
from tests.vesper.paths import PATHS, RunPath

pytestmark = pytest.mark.parametrize("path", PATHS)


class Answers:
    """Answers by step; a value that is an exception is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.requests: list[EffectRequest] = []

    async def perform(self, request: EffectRequest) -> Any:
        self.requests.append(request)
        answer = self.answers.get(request.step)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def steps(self) -> list[str]:
        return [request.step for request in self.requests]


def act(step: str, payload: Any = None, **more: Any) -> EffectStep:
    settings: dict[str, Any] = {"kind": "http.call", "capability": "network.x", "output": step, "output_type": ANY}
    return EffectStep(name=step, request=lit(payload), **(settings | more))


def acting(*steps: Step, **more: Any) -> NodeProgram:
    return node(*steps, pure=False, **more)


def code(outcome: Outcome) -> str:
    assert outcome.error is not None, outcome
    return outcome.error.code


def test_a_response_is_bound_to_the_output(path: RunPath) -> None:
    answers = Answers(pay={"id": 7, "fee": 1.5})
    program = acting(
        act("pay", {"sum": 5}, timeout_s=2.0, retry=StepRetry(2)),
        give(result=ir.FieldOf(type=ANY, target=name("pay"), name="id")),
    )
    assert path(program, {}, EXECUTION, answers).outputs == {"result": 7}
    (request,) = answers.requests
    assert (request.step, request.call_index, request.kind, request.capability) == ("pay", 0, "http.call", "network.x")
    assert (request.payload, request.timeout_s, request.retry) == ({"sum": 5}, 2.0, StepRetry(2))
    assert request.idempotency_key == "trace/pay/0"


def test_the_key_input_begins_the_keys_of_requests(path: RunPath) -> None:
    answers = Answers()
    program = acting(act("pay"), give(result=1), inputs=(NodeInput("key", STRING),), idempotency_key="key")
    path(program, {"key": "k1"}, EXECUTION, answers)
    assert answers.requests[0].idempotency_key == "k1/pay/0"


def test_requests_of_one_step_are_numbered(path: RunPath) -> None:
    answers = Answers()
    loop = ForEachStep(name="f", collection=lit([5, 6]), variable="i", steps=(act("pay", name("i")),))
    path(acting(loop, give(result=1)), {}, EXECUTION, answers)
    assert [(request.call_index, request.payload) for request in answers.requests] == [(0, 5), (1, 6)]


def test_values_are_extracted_from_the_response(path: RunPath) -> None:
    extract = (("id", ir.FieldOf(type=ANY, target=name("response"), name="id")),)
    program = acting(act("pay", output="response", extract=extract), give(result=name("id")))
    assert path(program, {}, EXECUTION, Answers(pay={"id": 3})).outputs == {"result": 3}


@pytest.mark.parametrize(("rows", "result"), [([], "none"), (None, "none"), ([{"a": 1}], "some")])
def test_a_query_goes_on_with_its_steps_for_rows_or_none(path: RunPath, rows: Any, result: str) -> None:
    program = acting(
        act("query", kind="db.query", found=(give(result="some"),), empty=(give(result="none"),)), give(result="after")
    )
    assert path(program, {}, EXECUTION, Answers(query=rows)).outputs == {"result": result}


def test_without_effects_an_act_is_denied(path: RunPath) -> None:
    assert code(path(acting(act("pay"), give(result=1)), {}, EXECUTION)) == "capability_denied"


def test_an_act_that_fails_without_a_rule(path: RunPath) -> None:
    program = acting(act("pay"), give(result=1))
    assert code(path(program, {}, EXECUTION, Answers(pay=EffectError("declined")))) == "effect_failed"
    assert code(path(program, {}, EXECUTION, Answers(pay=EffectError("timeout")))) == "timeout"
    call = acting(act("pay", kind="node.call"), give(result=1))
    assert code(path(call, {}, EXECUTION, Answers(pay=EffectError("too_small")))) == "too_small"


def test_the_first_rule_of_the_step_that_matches_answers(path: RunPath) -> None:
    rules = (
        ErrorRule("declined", "retry"),
        ErrorRule("timeout", "map_to", fails("slow")),
        ErrorRule("declined", "map_to", fails("refused")),
        ErrorRule("*", "return_error", fails("other")),
    )
    program = acting(act("pay", rules=rules), give(result=1))
    assert code(path(program, {}, EXECUTION, Answers(pay=EffectError("declined")))) == "refused"
    assert code(path(program, {}, EXECUTION, Answers(pay=EffectError("timeout")))) == "slow"
    assert code(path(program, {}, EXECUTION, Answers(pay=EffectError("broken")))) == "other"


def test_an_error_goes_on_to_the_rules_of_the_node(path: RunPath) -> None:
    program = acting(act("pay"), give(result=1), rules=(ErrorRule("declined", "map_to", fails("mapped")),))
    assert code(path(program, {}, EXECUTION, Answers(pay=EffectError("declined")))) == "mapped"


def test_compensations_run_the_latest_first(path: RunPath) -> None:
    def undo(step: str) -> ErrorRule:
        return ErrorRule("*", "compensate", None, (act(f"undo_{step}"),))

    answers = Answers(c=EffectError("declined"))
    program = acting(
        act("a", rules=(undo("a"),)), act("b", rules=(undo("b"),)), act("c", rules=(undo("c"),)), give(result=1)
    )
    assert code(path(program, {}, EXECUTION, answers)) == "effect_failed"
    assert answers.steps == ["a", "b", "c", "undo_c", "undo_b", "undo_a"]


def test_an_error_in_a_compensation_is_passed_over_and_its_rule_may_answer(path: RunPath) -> None:
    answers = Answers(b=EffectError("declined"), undo_b=EffectError("broken"))
    rules = (ErrorRule("*", "compensate", fails("sorry"), (act("undo_b"),)),)
    program = acting(act("a", rules=(ErrorRule("*", "compensate", None, (act("undo_a"),)),)), act("b", rules=rules))
    assert code(path(program, {}, EXECUTION, answers)) == "sorry"
    assert answers.steps == ["a", "b", "undo_b", "undo_a"]


def test_an_invariant_is_checked_after_each_act(path: RunPath) -> None:
    answers = Answers(a=-1)
    program = acting(
        act("a", rules=(ErrorRule("declined", "compensate", None, (act("undo_a"),)),), output="n"),
        act("b"),
        give(result=1),
        invariants=(contract(comp(name("n"), ">=", 0)),),
    )
    assert code(path(program, {}, EXECUTION, answers)) == "invariant_failed"
    assert answers.steps == ["a", "undo_a"]


def test_all_parallel_steps_end_before_the_first_error_counts(path: RunPath) -> None:
    answers = Answers(a=EffectError("timeout"), b=EffectError("declined"))
    program = acting(ParallelStep(name="p", steps=(act("a"), act("b"), act("c"))), give(result=1))
    assert code(path(program, {}, EXECUTION, answers)) == "timeout"
    assert answers.steps == ["a", "b", "c"]


MACHINE = Machine("order", "new", ("new", "paid"), (("new", "paid", None), ("paid", "new", check(False))))


def move(source: str, target: str, **more: Any) -> TransitionStep:
    return TransitionStep(
        name="move", machine="order", entity=lit("o1"), source=lit(source), target=lit(target), **more
    )


def test_a_transition_asks_for_the_move(path: RunPath) -> None:
    answers = Answers(move="paid")
    program = acting(move("new", "paid", output="state"), give(result=name("state")), machines=(MACHINE,))
    assert path(program, {}, EXECUTION, answers).outputs == {"result": "paid"}
    (request,) = answers.requests
    assert request.kind == "state.transition"
    payload = {key: request.payload[key] for key in ("machine", "entity", "from", "to")}
    assert payload == {"machine": "order", "entity": "o1", "from": "new", "to": "paid"}


@pytest.mark.parametrize("step", [move("paid", "new"), move("new", "new"), move("new", "paid", checks=(check(False),))])
def test_a_move_that_is_not_allowed_is_never_asked_for(path: RunPath, step: TransitionStep) -> None:
    answers = Answers()
    assert code(path(acting(step, give(result=1), machines=(MACHINE,)), {}, EXECUTION, answers)) == "invalid_transition"
    assert answers.requests == []


def test_a_replay_gives_the_same_outcome_without_mismatches(path: RunPath) -> None:
    class Logged(Answers):
        log = EffectLog()

        async def perform(self, request: EffectRequest) -> Any:
            response = await super().perform(request)
            self.log.add(request, response=response)
            return response

    number = AssignStep(name="n", target="n", value=ir.Length(type=INTEGER, target=name("pay")))
    program = acting(act("pay", [1]), number, act("tell", name("n")), give(result=name("tell")))
    live = Logged(pay=[1, 2, 3], tell="ok")
    first = direct(program, {}, EXECUTION, live)
    replay = ReplayEffects(live.log)
    assert compare(first, path(program, {}, EXECUTION, replay)) == []
    assert replay.mismatches() == []


@pytest.mark.parametrize(
    ("kind", "status", "rule", "is_met"),
    [
        ("http.call", 402, "http_402", True),
        ("http.call", 402, "http_4xx", True),
        ("http.call", 402, "http_5xx", False),
        ("http.call", 402, "card_declined", True),
        ("http.call", 402, "effect_failed", True),
        ("http.call", 0, "http_0", False),
        ("http.call", True, "http_True", False),
        ("node.call", 402, "http_402", False),
    ],
)
def test_rules_are_met_by_code_and_by_status(path: RunPath, kind: str, status: int, rule: str, is_met: bool) -> None:
    """The status is that of a server's answer; a field of the same name of a called node is none."""
    error = EffectError("card_declined", fields={"status": status})
    rules = (ErrorRule(rule, "return_error", fails("mapped")),)
    unmapped = "effect_failed" if kind == "http.call" else "card_declined"
    outcome = path(acting(act("pay", kind=kind, rules=rules), give(result=1)), {}, EXECUTION, Answers(pay=error))
    assert code(outcome) == ("mapped" if is_met else unmapped)
    outcome = path(acting(act("pay", kind=kind), give(result=1), rules=rules), {}, EXECUTION, Answers(pay=error))
    assert code(outcome) == ("mapped" if is_met else unmapped)


@pytest.mark.parametrize(
    ("kind", "answer", "result"),
    [(INTEGER, 5, 5), (INTEGER, "5", "type_error"), (STRING, "5", "5"), (STRING, 5, "type_error"), (ANY, "5", "5")],
)
def test_an_answer_of_an_agent_is_of_its_type(path: RunPath, kind: Any, answer: Any, result: Any) -> None:
    """A rule about type_error is met by an answer that is not."""
    ask = act("ask", kind="agent.call", output_type=kind)
    outcome = path(acting(ask, give(result=name("ask"))), {}, EXECUTION, Answers(ask=answer))
    assert (outcome.outputs.get("result") if outcome.error is None else code(outcome)) == result
    mapped = act("ask", kind="agent.call", output_type=kind, rules=(ErrorRule("type_error", "map_to", fails("odd")),))
    outcome = path(acting(mapped, give(result=name("ask"))), {}, EXECUTION, Answers(ask=answer))
    assert (outcome.outputs.get("result") if outcome.error is None else code(outcome)) == (
        "odd" if result == "type_error" else result
    )
