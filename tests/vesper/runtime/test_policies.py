"""The kernel's policies at work for nodes: retries, back-off, circuit breakers, time-outs, time and memory."""

from __future__ import annotations

import asyncio
import time

import pytest

from lyra import vesper
from lyra.vesper.effects.request import EffectError
from lyra.vesper.evidence.modes import ORDER

NODE = """\
node_id: ask_v1
type: function
intent: ask a service that may fail
inputs:
  question: string
outputs:
  success: {{answer: string}}
  error: {{error_code: string, message: string}}
flow:
  - step: ask
    operation: custom.service.ask
    question: "{{question}}"
{step}
    output: answer
{node}
security:
  capabilities_required: [custom.service.ask]
"""


class Service:
    """Fails so often with this error; each call is counted."""

    def __init__(self, *errors, answer="yes", takes_s=0.0):
        self.errors = list(errors)
        self.answer = answer
        self.takes_s = takes_s
        self.calls = 0

    async def __call__(self, question):
        self.calls += 1
        await asyncio.sleep(self.takes_s)
        if self.errors:
            raise self.errors.pop(0)
        return self.answer


def node(step="", rules="", more=""):
    step = "\n".join(f"    {line}" for line in step.splitlines())
    rules = "error_handling:\n" + "\n".join(f"  {line}" for line in rules.splitlines()) if rules else ""
    return vesper.load(NODE.format(step=step, node=f"{rules}\n{more}"))


def runtime_for(service, store="memory"):
    return vesper.Runtime(store, custom={"service.ask": service}, grant=["custom.service.ask"])


def ask(service, subject, mode="dual_verify"):
    """The outcome's status or code; both paths agree."""
    with runtime_for(service) as runtime:
        outcome = runtime.execute(subject, {"question": "?"}, mode)
        assert runtime.evidence(subject).divergences == 0, runtime.evidence(subject).found
        return outcome.status if outcome.error is None else outcome.error.code


def unreachable(kind="unreachable"):
    return EffectError(kind, "not now")


@pytest.mark.parametrize("mode", ORDER)
def test_a_retry_policy_repeats_the_call_and_nothing_else(mode):
    service = Service(unreachable(), OSError("gone"))
    assert ask(service, node("retry_policy: {max_attempts: 3, initial_delay: 1ms}"), mode) == "success"
    assert service.calls == 3


@pytest.mark.parametrize("mode", ORDER)
def test_attempts_end_with_their_number(mode):
    service = Service(*[unreachable() for _ in range(9)])
    assert ask(service, node("retry_policy: {max_attempts: 3, initial_delay: 1ms}"), mode) == "effect_failed"
    assert service.calls == 3


def test_without_a_policy_there_is_one_call():
    service = Service(unreachable())
    assert ask(service, node()) == "effect_failed"
    assert service.calls == 1


def test_what_cannot_pass_is_not_repeated():
    service = Service(unreachable("bad_card"), ValueError("wrong"))
    assert ask(service, node("retry_policy: {max_attempts: 3, initial_delay: 1ms}")) == "effect_failed"
    assert service.calls == 1


def test_a_rule_repeats_the_error_that_it_names():
    subject = node("on_error:\n  - {error_type: bad_card, action: retry, max_retries: 2, initial_delay: 1ms}")
    service = Service(unreachable("bad_card"), unreachable("bad_card"))
    assert ask(service, subject) == "success"
    assert service.calls == 3
    service = Service(unreachable())
    assert ask(service, subject) == "effect_failed"
    assert service.calls == 1


def test_a_rule_of_the_node_repeats_for_a_step_without_one():
    subject = node(rules="unreachable: {action: retry, max_retries: 2, initial_delay: 1ms}")
    assert ask(Service(unreachable(), unreachable()), subject) == "success"
    other = Service(unreachable("bad_card"))
    assert ask(other, subject) == "effect_failed"
    assert other.calls == 1


@pytest.mark.parametrize(("backoff", "least_s"), [("constant", 0.06), ("linear", 0.09), ("exponential", 0.09)])
def test_back_off_waits_between_attempts(backoff, least_s):
    service = Service(unreachable(), unreachable())
    began = time.monotonic()
    policy = f"retry_policy: {{max_attempts: 3, initial_delay: 30ms, backoff: {backoff}}}"
    assert ask(service, node(policy)) == "success"
    assert least_s <= time.monotonic() - began


def test_a_step_ends_after_its_time_and_is_tried_again():
    slow = Service(takes_s=5.0)
    began = time.monotonic()
    assert ask(slow, node("timeout: 50ms\nretry_policy: {max_attempts: 2, initial_delay: 1ms}")) == "timeout"
    assert slow.calls == 2
    assert time.monotonic() - began < 4.0


@pytest.mark.parametrize("mode", ORDER)
def test_a_node_ends_after_its_time_also_in_an_act_without_a_limit(mode):
    slow = Service(takes_s=5.0)
    began = time.monotonic()
    assert ask(slow, node(more="performance: {timeout_seconds: 0.1}"), mode) == "timeout"
    assert time.monotonic() - began < 4.0


def test_pauses_do_not_go_beyond_the_time_of_the_node():
    service = Service(*[unreachable() for _ in range(9)])
    subject = node("retry_policy: {max_attempts: 9, initial_delay: 20s}", more="performance: {timeout_seconds: 2}")
    began = time.monotonic()
    assert ask(service, subject) == "effect_failed"
    assert (service.calls, time.monotonic() - began < 2.0) == (1, True)


def test_time_in_acts_is_no_divergence():
    """The live path waited almost all of its time; the path that replays waits for nothing, and agrees."""
    service = Service(takes_s=0.3)
    assert ask(service, node(more="performance: {timeout_seconds: 0.5}")) == "success"


@pytest.mark.parametrize("mode", ORDER)
def test_a_response_beyond_the_memory_of_the_node_is_refused(mode):
    subject = node(more="performance: {memory_limit_mb: 1}")
    assert ask(Service(answer="x" * 1_000_000), subject, mode) == "success"
    assert ask(Service(answer="x" * 1_100_000), subject, mode) == "resource_limit"


BREAKER = "unreachable: {action: circuit_breaker, threshold: 3, timeout: 200ms}"


@pytest.mark.parametrize("mode", ["python_only", "dual_verify", "direct_only"])
def test_a_breaker_opens_and_closes_again(mode):
    service = Service(*[unreachable() for _ in range(3)])
    subject = node("on_error:\n  - {error_type: circuit_open, action: map_to, map_to: closed_for_now}", BREAKER)
    with runtime_for(service) as runtime:

        def asked():
            error = runtime.execute(subject, {"question": "?"}, mode).error
            return "success" if error is None else error.code

        assert [asked() for _ in range(5)] == ["effect_failed"] * 3 + ["closed_for_now"] * 2
        assert service.calls == 3
        time.sleep(0.25)
        assert asked() == "success"
        assert asked() == "success"
        assert runtime.evidence(subject).divergences == 0


def test_a_breaker_counts_calls_in_a_row_after_their_last_attempt():
    """Two attempts a call: three failed calls open it, and an error that no rule names is not counted."""
    policy = "retry_policy: {max_attempts: 2, initial_delay: 1ms}"
    service = Service(*[unreachable() for _ in range(4)], unreachable("fine"), *[unreachable() for _ in range(4)])
    with runtime_for(service) as runtime:
        subject = node(policy, BREAKER)
        for _ in range(5):
            runtime.execute(subject, {"question": "?"})
        assert service.calls == 2 + 2 + 1 + 2


def test_a_breaker_knows_the_code_that_an_error_is_mapped_to():
    step = 'on_error:\n  - {error_type: "*", action: map_to, map_to: provider_down}'
    service = Service(*[unreachable() for _ in range(9)])
    with runtime_for(service) as runtime:
        subject = node(step, "provider_down: {action: circuit_breaker, threshold: 2, timeout: 60s}")
        codes = [runtime.execute(subject, {"question": "?"}).error.code for _ in range(4)]
    assert codes == ["provider_down"] * 4
    assert service.calls == 2


def test_an_open_breaker_stays_open_over_a_restart(tmp_path):
    store = str(tmp_path / "lyra.db")
    subject = node(rules="unreachable: {action: circuit_breaker, threshold: 1, timeout: 60s}")
    with runtime_for(Service(unreachable()), store) as runtime:
        runtime.execute(subject, {"question": "?"})
    service = Service()
    with runtime_for(service, store) as runtime:
        assert runtime.execute(subject, {"question": "?"}).error is not None
    assert service.calls == 0
