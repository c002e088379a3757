"""Results of nodes that declare themselves idempotent are kept: in memory; for Redis see test_redis_results."""

from __future__ import annotations

from decimal import Decimal

import pytest

from lyra import vesper
from lyra.vesper.evidence.modes import ORDER
from lyra.vesper.runtime import results as results_module
from lyra.vesper.runtime.results import MemoryResults
from lyra.vesper.values.limits import RESULTS_TIME_S

NODE = """\
node_id: rate_v1
type: function
intent: ask for a rate
idempotent: true
inputs:
  currency: string
  pin: {type: string, sensitive: true, required: false}
outputs:
  success: {rate: {type: decimal, scale: 4}}
  error: {error_code: string, message: string}
flow:
  - {step: ask, operation: custom.rates.ask, currency: "{currency}", output: rate}
security: {capabilities_required: [custom.rates.ask]}
"""


class Rates:
    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = []

    def __call__(self, currency):
        self.calls.append(currency)
        if self.errors:
            raise self.errors.pop(0)
        return Decimal("1.0825")


def runtime_for(rates, **more):
    return vesper.Runtime(custom={"rates.ask": rates}, grant=["custom.rates.ask"], **more)


@pytest.mark.parametrize("mode", ORDER)
def test_equal_inputs_are_executed_once(mode):
    rates = Rates()
    node = vesper.load(NODE)
    with runtime_for(rates) as runtime:
        outcomes = [runtime.execute(node, {"currency": word}, mode) for word in ("EUR", "EUR", "USD", "EUR")]
        assert runtime.evidence(node).divergences == 0
    assert rates.calls == ["EUR", "USD"]
    assert [str(outcome.outputs["rate"]) for outcome in outcomes] == ["1.0825"] * 4
    assert len({outcome.trace_id for outcome in outcomes}) == 4


def test_a_node_that_does_not_say_so_is_executed_each_time():
    rates = Rates()
    with runtime_for(rates) as runtime:
        for _ in range(2):
            runtime.execute(vesper.load(NODE.replace("idempotent: true\n", "")), {"currency": "EUR"})
    assert len(rates.calls) == 2


def test_errors_are_not_kept_and_a_changed_node_starts_again():
    rates = Rates(ValueError("no"))
    with runtime_for(rates) as runtime:
        assert runtime.execute(vesper.load(NODE), {"currency": "EUR"}).error is not None
        assert runtime.execute(vesper.load(NODE), {"currency": "EUR"}).error is None
        changed = vesper.load(NODE.replace("step: ask", "step: ask_again"))
        assert runtime.execute(changed, {"currency": "EUR"}).error is None
    assert len(rates.calls) == 3


def test_a_kept_result_needs_the_rights_of_its_node():
    rates, store = Rates(), MemoryResults()
    with runtime_for(rates, results=store) as runtime:
        runtime.execute(vesper.load(NODE), {"currency": "EUR"})
    with vesper.Runtime(results=store) as runtime:
        assert runtime.execute(vesper.load(NODE), {"currency": "EUR"}).error.code == "capability_denied"


def test_ambient_objects_are_part_of_the_question():
    text = NODE.replace('currency: "{currency}"', 'currency: "{user.name}"')
    rates = Rates()
    with runtime_for(rates) as runtime:
        for name in ("ann", "bob", "ann"):
            runtime.execute(vesper.load(text), {"currency": "EUR"}, ambient={"user": {"name": name}})
    assert rates.calls == ["ann", "bob"]


def test_the_number_the_size_and_the_time_of_results_have_limits(monkeypatch):
    now = [0.0]
    store = MemoryResults(lambda: now[0])
    monkeypatch.setattr(results_module, "RESULTS_MAX", 3)
    for key in "abcd":
        store.put(key, b"x")
    assert (len(store), store.get("a"), store.get("d")) == (3, None, b"x")
    monkeypatch.setattr(results_module, "RESULTS_BYTES_MAX", 10)
    store.put("e", b"x" * 9)
    assert (len(store), store.get("d")) == (2, b"x")
    now[0] = RESULTS_TIME_S + 1
    assert store.get("d") is None
    monkeypatch.setattr(results_module, "RESULT_BYTES_MAX", 4)
    rates = Rates()
    with runtime_for(rates) as runtime:
        for _ in range(2):
            runtime.execute(vesper.load(NODE), {"currency": "EUR"})
    assert len(rates.calls) == 2  # too large to be kept
