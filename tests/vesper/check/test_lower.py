"""The program of a node."""
# ruff: noqa: E501 - a small node is read as one line

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lyra.errors import CheckError
from lyra.vesper import ir
from lyra.vesper.check import check, has_errors, program_of
from lyra.vesper.ir import (
    AssignStep,
    BranchStep,
    EffectStep,
    ForEachStep,
    LoopStep,
    NodeProgram,
    ParallelStep,
    ReturnStep,
    StepRetry,
    TransitionStep,
    ValidateStep,
)
from lyra.vesper.nodes import load
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    DECIMAL,
    INTEGER,
    NULL,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordType,
    SetType,
)

FILES = Path(__file__).parent.parent / "files"
HEAD = "node_id: example_v1\ntype: function\nintent: an example\n"


def program(text: str, *, allow: str = "") -> NodeProgram:
    security = f"security: {{capabilities_required: [{allow}]}}\n" if allow else ""
    return program_of(load(HEAD + security + text))


def value_of(
    expression: str, inputs: str = "{n: integer, d: {type: decimal, scale: 2}, s: string, ns: array<integer>}"
) -> Any:
    """The expression that a step assigns."""
    text = f'inputs: {inputs}\noutputs: {{r: any}}\nflow:\n  - {{step: r, operation: arithmetic, expression: "{expression}"}}\n'
    (step,) = program(text).steps
    assert isinstance(step, AssignStep)
    return step.value


def template_value(template: str) -> Any:
    text = f"inputs: {{n: integer, s: string}}\noutputs: {{r: any}}\nflow:\n  - {{step: r, operation: string_template, template: '{template}'}}\n"
    (step,) = program(text).steps
    assert isinstance(step, AssignStep)
    return step.value


@pytest.mark.parametrize("file", sorted(FILES.glob("*.vsp")), ids=lambda file: file.stem)
def test_example_files_have_programs(file: Path) -> None:
    node = load(file)
    assert not has_errors(check(node))
    assert len(program_of(node).digest) == 64


# ------------------------------------------------------------------ expressions
@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("n + 1", INTEGER),
        ("n / 2", DECIMAL),
        ("n % 2", INTEGER),
        ("d + d", DecimalType(2)),
        ("d * d", DecimalType(4)),
        ("d + n", DecimalType(2)),
        ("d * 1.5", DecimalType(3)),
        ("d / n", DECIMAL),
        ("-d", DecimalType(2)),
        ("s + 'x'", STRING),
        ("n > 0", BOOLEAN),
        ("s.length", INTEGER),
        ("len(ns)", INTEGER),
        ("SUM(ns)", INTEGER),
        ("AVG(ns)", Nullable(DECIMAL)),
        ("MIN(ns)", Nullable(INTEGER)),
        ("COUNT(ns)", INTEGER),
        ("round(d, 1)", DecimalType(1)),
        ("abs(n)", INTEGER),
        ("current_timestamp()", TIMESTAMP),
        ("ns[0]", Nullable(INTEGER)),
        ("[1, 2.5]", Array(DECIMAL)),
        ("[1, null]", Array(Nullable(INTEGER))),
        ("null", NULL),
        ("user.name", ANY),
        ("inputs.n", INTEGER),
    ],
)
def test_types_of_expressions(expression: str, kind: Any) -> None:
    assert value_of(expression).type == kind


def test_forms_of_the_language() -> None:
    assert isinstance(value_of("s IS NOT NULL"), ir.Not)
    assert isinstance(value_of("s IS NOT NULL").operand, ir.IsNull)
    contains = value_of("ns CONTAINS n")
    assert (type(contains), contains.item.name, contains.collection.name) == (ir.Membership, "n", "ns")
    assert value_of("n => n", "{n: boolean}").operator == "implies"
    quantifier = value_of("FORALL n: n > 0", "{ns: array<integer>}")
    assert (quantifier.kind, quantifier.name, quantifier.collection.name) == ("forall", "n", "ns")
    every = value_of("all(n > 0)", "{ns: array<integer>}")
    assert (every.kind, every.name, every.collection.name) == ("forall", "n", "ns")
    some = value_of("any(flags)", "{flags: array<boolean>}")
    assert (some.kind, some.body.name) == ("exists", "item")
    assert isinstance(value_of("ps.x", "{ps: 'array<map<string, integer>>'}"), ir.Projection)
    assert value_of("-9223372036854775808").value == -(2**63)
    assert value_of("-1.50").value == Decimal("-1.50")
    assert value_of("{n} + 1").left.name == "n"


def test_length_is_a_field_where_a_record_declares_it() -> None:
    text = "types: {P: {fields: {length: string}}}\ninputs: {p: P}\noutputs: {r: any}\nflow: [{step: r, operation: arithmetic, expression: p.length}]\n"
    (step,) = program(text).steps
    assert isinstance(step, AssignStep)
    assert isinstance(step.value, ir.FieldOf)
    assert step.value.type == STRING


def test_templates_keep_the_type_of_a_single_placeholder() -> None:
    assert template_value("{n}").type == INTEGER
    assert template_value("no.{n}").parts[0] == "no."
    assert template_value("plain {{x}}") == ir.Constant(
        type=STRING, value="plain {x}", place=template_value("plain {{x}}").place
    )
    assert template_value("{s.length}").type == INTEGER


def test_places_are_lines_and_columns_of_the_file() -> None:
    value = value_of("n + s.length")
    assert value.place == (7, 51)
    assert value.right.place == (7, 55)


def test_parameters_of_a_template_are_names_in_it() -> None:
    text = "inputs: {n: integer}\noutputs: {r: string}\nflow:\n  - {step: r, operation: string_template, template: 'a {x}', parameters: {x: '{n}'}}\n"
    (step,) = program(text).steps
    assert isinstance(step, AssignStep)
    assert isinstance(step.value, ir.TemplateText)
    assert isinstance(step.value.parts[1], ir.NodeVariable)
    assert step.value.parts[1].name == "n"


def test_a_scale_rounds_the_whole_expression() -> None:
    text = "inputs: {n: integer}\noutputs: {r: decimal}\nflow:\n  - {step: r, operation: arithmetic, expression: n / 3, scale: 2, rounding: half_up}\n"
    (step,) = program(text).steps
    assert isinstance(step, AssignStep)
    rounded = step.value
    assert isinstance(rounded, ir.Rounded)
    assert (rounded.scale, rounded.rounding, rounded.type) == (2, "half_up", DecimalType(2))
    assert isinstance(rounded.operand, ir.Arithmetic)


def test_a_quotient_of_integers_may_be_an_integer() -> None:
    """Only a run can tell, so the checker does not refuse it."""
    text = "inputs: {n: integer}\noutputs: {r: integer}\nflow:\n  - {step: q, operation: arithmetic, expression: n / 3}\n  - {step: x, operation: return, return_success: {r: '{q}'}}\n"
    assert program(text).steps


# ------------------------------------------------------------------ inputs
def test_inputs() -> None:
    text = """\
types:
  Money: {base: decimal, scale: 2, constraints: [">= 0"]}
  Item: {fields: {name: {type: string, max_length: 5}, price: Money, note: {type: string, required: false}}, constraints: ["price < 100"]}
inputs:
  a: {type: integer, required: false}
  b: {type: integer, required: false, default: 3, constraints: [positive, {max: 9}]}
  c: {type: decimal, scale: 2, default: "1.5"}
  d: {type: timestamp, required: false, default: 2025-01-02}
  e: {type: bytes, default: "AQI="}
  f: {type: set<string>, default: [x, y]}
  g: enum[one, two]
  h: array<Item>
  i: {type: 'map<string, Item>', required: false, default: null, sensitive: true}
security: {sensitive_data: [a]}
"""
    inputs = {item.name: item for item in program(text).inputs}
    assert (inputs["a"].type, inputs["a"].required, inputs["a"].default) == (Nullable(INTEGER), False, msgspec.UNSET)
    assert (inputs["b"].type, inputs["b"].default) == (INTEGER, 3)
    assert [check.text for check in inputs["b"].constraints] == ["positive", "max: 9"]
    assert (str(inputs["c"].default), inputs["c"].required) == ("1.50", False)
    assert inputs["d"].default == datetime(2025, 1, 2, tzinfo=UTC)
    assert inputs["e"].default == b"\x01\x02"
    assert (inputs["f"].type, inputs["f"].default) == (SetType(STRING), frozenset({"x", "y"}))
    assert inputs["g"].type == EnumType(("one", "two"))
    item = inputs["h"].type
    assert isinstance(item, Array)
    assert isinstance(item.item, RecordType)
    assert item.item.field("price") is not None
    assert [check.text for check in inputs["h"].constraints] == ["name: max_length: 5", "price: >= 0", "price < 100"]
    assert all(isinstance(check.expression, ir.Quantifier) for check in inputs["h"].constraints)
    assert isinstance(inputs["i"].type, Nullable)
    assert isinstance(inputs["i"].type.type, MapType)
    assert inputs["i"].default is None
    assert [name for name, item in inputs.items() if item.sensitive] == ["a", "i"]


def test_a_constraint_of_an_optional_input_allows_null() -> None:
    (item,) = program("inputs: {a: {type: integer, required: false, constraints: [positive]}}\n").inputs
    (check,) = item.constraints
    assert isinstance(check.expression, ir.Logic)
    assert isinstance(check.expression.left, ir.IsNull)


@pytest.mark.parametrize(
    ("kind", "constraint", "shape"),
    [
        ("string", "non_empty", ir.Compare),
        ("string", "{pattern: '^a'}", ir.FunctionCall),
        ("string", "'pattern: ^a'", ir.FunctionCall),
        ("integer", "'min: -5'", ir.Compare),
        ("integer", "'> 3'", ir.Compare),
        ("integer", "'value > 3 OR value == -1'", ir.Logic),
        ("integer", "'x % 2 == 0'", ir.Compare),
        ("string", "'length <= 3'", ir.Compare),
        ("string", "\"IN ['a', 'b']\"", ir.Membership),
        ("timestamp", "{min: 2025-01-01}", ir.Compare),
        ("array<string>", "{max_length: 3}", ir.Compare),
    ],
)
def test_spellings_of_constraints(kind: str, constraint: str, shape: type) -> None:
    (item,) = program(f"inputs: {{x: {{type: '{kind}', constraints: [{constraint}]}}}}\n").inputs
    assert [type(check.expression) for check in item.constraints] == [shape]


def test_constraints_of_outputs_are_postconditions() -> None:
    text = "inputs: {n: integer}\noutputs: {r: {type: integer, constraints: [positive]}}\nflow: [{step: r, operation: arithmetic, expression: n}]\n"
    (contract,) = program(text).postconditions
    assert contract.text == "r: positive"
    assert contract.expression is not None


# ------------------------------------------------------------------ contracts
def test_contracts_are_judged_or_unverifiable() -> None:
    text = """\
inputs: {n: integer}
outputs: {success: {r: integer}, error: {error_code: string}}
contracts:
  preconditions: ["n > 0", "unknown > 0", "is_allowed(n)", "bare_word"]
  postconditions: ["r == old(n) + old(n)", "success OR error.code == 'x'", "outputs.r > 0", "user.balance > 0"]
  invariants: ["the sky is blue"]
flow: [{step: r, operation: arithmetic, expression: n}]
"""
    compiled = program(text)
    first, second, third, fourth = compiled.preconditions
    assert isinstance(first.expression, ir.Compare)
    assert (second.expression, second.reason) == (None, "`unknown` is not defined")
    assert isinstance(third.expression, ir.HostCall)
    assert isinstance(fourth.expression, ir.HostCall)
    assert len(compiled.olds) == 1
    assert all(contract.expression is not None for contract in compiled.postconditions)
    assert compiled.invariants[0].expression is None
    assert compiled.ambient == ("user",)


def test_an_unverifiable_contract_takes_no_snapshot() -> None:
    text = "inputs: {n: integer}\ncontracts: {postconditions: ['old(n) == nothing_known', 'old(n) == n']}\n"
    compiled = program(text)
    assert len(compiled.olds) == 1
    assert isinstance(compiled.postconditions[1].expression, ir.Compare)


def test_strict_makes_warnings_errors() -> None:
    node = load(
        HEAD
        + "inputs: {n: integer}\ncontracts: {preconditions: ['m > 0']}\nflow: [{step: r, operation: arithmetic, expression: n}]\n"
    )
    assert program_of(node).digest
    with pytest.raises(CheckError) as caught:
        program_of(node, strict=True)
    assert caught.value.fields["problems"][0]["code"] == "no_description"
    assert caught.value.place == "<text>:5:30"


# ------------------------------------------------------------------ steps
def test_validation_and_returns() -> None:
    text = """\
inputs: {n: integer}
outputs: {success: {r: integer}, error: {error_code: string, message: string}}
flow:
  - {step: v, operation: validation, guards: ["n > 0", host_says_so], on_failure: {return_error: {error_code: low, message: "{n} is low"}}}
  - {step: w, operation: validation, conditions: [{condition: "n < 10"}], return_error: high}
  - {step: x, operation: return, guards: ["n == 5"], return_error: five}
  - {step: y, operation: return, success: {r: 1}}
"""
    first, second, third, fourth = program(text).steps
    assert isinstance(first, ValidateStep)
    assert [check.text for check in first.checks] == ["n > 0", "host_says_so"]
    assert isinstance(first.checks[1].expression, ir.HostCall)
    assert first.failure is not None
    assert [name for name, _ in first.failure.fields] == ["message"]
    assert isinstance(second, ValidateStep)
    assert second.failure is not None
    assert isinstance(third, ReturnStep)
    assert third.error is not None
    assert len(third.guards) == 1
    assert isinstance(fourth, ReturnStep)
    assert fourth.success is not None


def test_branches_share_one_scope() -> None:
    """A variable that only one branch writes may be null; one that the other branch cannot miss may not."""
    text = """\
inputs: {b: boolean}
outputs: {r: any, q: any, p: any}
flow:
  - step: c
    operation: conditional
    condition: b
    then: [{operation: arithmetic, expression: "1", output: r}, {operation: arithmetic, expression: "1", output: p}]
    else: [{operation: arithmetic, expression: "1.5", output: r}]
  - step: e
    operation: conditional
    condition: b
    then: {return_error: stop}
    else: [{operation: arithmetic, expression: "1", output: q}]
  - {step: f, operation: return, return_success: {r: "{r}", q: "{q}", p: "{p}"}}
"""
    branch, second, last = program(text).steps
    assert isinstance(branch, BranchStep)
    assert isinstance(second, BranchStep)
    assert isinstance(second.then[0], ReturnStep)
    assert isinstance(last, ReturnStep)
    assert last.success is not None
    assert [value.type for _, value in last.success] == [DECIMAL, INTEGER, Nullable(INTEGER)]


def test_loops_widen_types() -> None:
    text = """\
inputs: {ns: array<decimal>}
outputs: {total: decimal}
flow:
  - {step: a, operation: arithmetic, expression: "0", output: total}
  - {step: b, operation: for_each, input: ns, as: n, steps: [{operation: arithmetic, expression: total + n, output: total}]}
  - {step: c, operation: loop, condition: "total < 10", max_iterations: 5, steps: [{operation: arithmetic, expression: total + 1, output: total}]}
  - {step: d, operation: parallel, steps: [{operation: arithmetic, expression: total, output: x}, {operation: arithmetic, expression: total, output: y}]}
"""
    _, each, loop, parallel = program(text).steps
    assert isinstance(each, ForEachStep)
    (inner,) = each.steps
    assert isinstance(inner, AssignStep)
    assert inner.value.type == DECIMAL
    assert isinstance(loop, LoopStep)
    assert loop.max_iterations == 5
    assert isinstance(parallel, ParallelStep)
    assert len(parallel.steps) == 2


def test_transforms() -> None:
    text = """\
types: {Sale: {fields: {kind: string, price: {type: decimal, scale: 2}, n: integer}}}
inputs: {sales: array<Sale>, n: integer}
outputs: {a: any, b: any, c: any, d: any, e: any, f: any, g: any}
flow:
  - {step: a, operation: data_transform, input: sales, transform: map, function: "x => x.price * x.n"}
  - {step: b, operation: data_transform, input: "{sales}", transform: filter, function: price > 1.00}
  - {step: c, operation: data_transform, input: sales, transform: reduce, initial: 0, function: accumulator + record.n}
  - {step: d, operation: data_transform, input: sales, transform: aggregate, group_by: kind, aggregations: {total: SUM(price * n), number: COUNT(*), top: {function: max, field: price}}}
  - {step: e, operation: data_transform, input: sales, transform: aggregate, aggregations: [{output: total, function: sum, field: n}]}
  - {step: f, operation: data_transform, input: sales, transform: aggregate, function: sum, field: price}
  - {step: g, operation: data_transform, input: sales, transform: group_by, group_by: [kind, n]}
"""
    a, b, c, d, e, f, g = [step.value for step in program(text).steps if isinstance(step, AssignStep)]
    assert isinstance(a, ir.MapOver)
    assert (a.name, a.type) == ("x", Array(DecimalType(2)))
    assert isinstance(b, ir.Filter)
    assert isinstance(b.body, ir.Compare)
    assert isinstance(b.body.left, ir.FieldOf)
    assert isinstance(c, ir.Reduce)
    assert (c.type, c.accumulator) == (INTEGER, "accumulator")
    assert isinstance(d, ir.GroupBy)
    assert isinstance(d.type, Array)
    row = d.type.item
    assert isinstance(row, RecordType)
    assert [(field.name, field.type) for field in row.fields] == [
        ("kind", STRING),
        ("total", DecimalType(2)),
        ("number", INTEGER),
        ("top", Nullable(DecimalType(2))),
    ]
    operand = d.aggregations[0].operand
    assert isinstance(operand, ir.Arithmetic)
    assert isinstance(operand.right, ir.FieldOf)  # a field of the element comes before the input n
    assert isinstance(e, ir.GroupBy)
    assert isinstance(e.type, RecordType)
    assert isinstance(f, ir.Aggregate)
    assert f.type == DecimalType(2)
    assert isinstance(g, ir.GroupBy)
    assert isinstance(g.type, Array)
    assert g.aggregations == ()


# ------------------------------------------------------------------ effects
def entries(expression: ir.TypedExpression) -> dict[str, Any]:
    assert isinstance(expression, ir.MapOf)
    return dict(expression.entries)


def effect(step: str, allow: str) -> EffectStep:
    text = f"inputs: {{n: integer, s: string, amount: decimal}}\noutputs: {{r: any}}\nflow:\n  - {{step: r, {step}}}\n"
    (lowered,) = program(text, allow=allow).steps
    assert isinstance(lowered, EffectStep)
    return lowered


def test_values_of_a_query_are_bound() -> None:
    step = effect(
        "operation: database_query, query: \"SELECT * FROM users u JOIN cards c WHERE a = '{s}' AND b = {n} AND c = :x OR t = '10:30'\", parameters: {x: '{n}'}",
        "database.read.users, database.read.cards",
    )
    request = entries(step.request)
    assert (
        request["query"].value
        == "SELECT * FROM users u JOIN cards c WHERE a = :p0 AND b = :p1 AND c = :p2 OR t = '10:30'"
    )
    assert list(entries(request["values"])) == ["p0", "p1", "p2"]
    assert (step.kind, step.capability, step.output_type) == ("db.query", "database.read.users", Array(ANY))
    assert step.extract[0][0] == "query_result"


def test_a_field_of_query_result_is_that_of_the_first_row() -> None:
    text = """\
inputs: {n: integer}
outputs: {r: any, total: any}
flow:
  - {step: q, operation: database_query, query: "SELECT * FROM t"}
  - {step: a, operation: arithmetic, expression: query_result.x, output: r}
  - {step: b, operation: arithmetic, expression: SUM(query_result.x) + query_result.length, output: total}
"""
    _, first, second = program(text, allow="database.read.*").steps
    assert isinstance(first, AssignStep)
    assert isinstance(first.value, ir.FieldOf)
    assert isinstance(first.value.target, ir.ItemOf)
    assert isinstance(second, AssignStep)
    assert isinstance(second.value, ir.Arithmetic)
    assert isinstance(second.value.left, ir.Aggregate)
    assert isinstance(second.value.left.collection, ir.Projection | ir.FieldOf)
    assert isinstance(second.value.right, ir.Length)


def test_an_update_is_sql_with_bound_values() -> None:
    step = effect(
        "operation: database_update, table: users, where: \"id = {s} AND (kind IN ['a', 'b'] OR gone IS NULL) AND NOT x == '{n}'\","
        " set: {balance: 'balance - {amount}', note: 'ref-{s}', state: paid, rate: {expression: '{amount} * factor'}}",
        "database.write.users",
    )
    request = entries(step.request)
    where = entries(request["where"])
    assert where["sql"].value == (
        '((("users"."id" = :p0) AND (("users"."kind" IN (:p1, :p2)) OR ("users"."gone" IS NULL)))'
        ' AND (NOT ("users"."x" = :p3)))'
    )
    kinds = [type(value).__name__ for value in entries(where["values"]).values()]
    assert kinds == ["NodeVariable", "Constant", "Constant", "NodeVariable"]
    changes = {column: entries(change) for column, change in entries(request["set"]).items()}
    assert {column: change["sql"].value for column, change in changes.items()} == {
        "balance": '("users"."balance" - :p0)',
        "note": ":p0",
        "state": ":p0",
        "rate": '(:p0 * "users"."factor")',
    }
    assert isinstance(entries(changes["note"]["values"])["p0"], ir.TemplateText)


def test_where_may_be_a_mapping() -> None:
    step = effect("operation: database_update, table: t, where: {id: '{s}', gone: null}, set: {a: 1}", "database.*")
    assert entries(entries(step.request)["where"])["sql"].value == '"t"."id" = :p0 AND "t"."gone" IS NULL'


def test_a_call_of_a_server() -> None:
    step = effect(
        "operation: external_api_call, provider: stripe, endpoint: '/v1/{s}', method: get, headers: {K: '{s}'},"
        " parameters: {amount: '{amount}'}, timeout: 500ms, retry_policy: {max_retries: 1, backoff: linear, initial_delay: 2s},"
        " on_success: {extract: {id: response.id, kind: 'data.kind', text: 'x{response.a}'}},"
        " on_error: [{error_type: '*', action: map_to, map_to: failed}, {error_type: timeout, action: retry}]",
        "network.http_client.api.stripe.com",
    )
    request = entries(step.request)
    assert (request["provider"].value, request["method"].value) == ("stripe", "GET")
    assert isinstance(request["endpoint"], ir.ListOf)
    first, second = request["endpoint"].items
    assert isinstance(first, ir.Constant)
    assert isinstance(second, ir.TemplateText)
    assert list(entries(request["parameters"])) == ["amount"]
    assert step.capability == "network.http_client.api.stripe.com"
    assert step.timeout_s == 0.5
    assert step.retry == StepRetry(2, "linear", 2, 2.0, errors=("*", "timeout"))
    assert [name for name, _ in step.extract] == ["response", "id", "kind", "text"]
    assert [rule.error for rule in step.rules] == ["timeout", "*"]
    kind = step.extract[2][1]
    assert isinstance(kind, ir.FieldOf)
    assert isinstance(kind.target, ir.FieldOf)


def test_other_effects() -> None:
    event = effect("operation: event_publish, event_type: order.paid, data: {n: '{n}'}", "events.publish.order.*")
    assert (event.kind, event.capability) == ("event.publish", "events.publish.order.paid")
    subscription = effect("operation: event_subscribe, event_type: a, handler: other_v1", "events.subscribe.a")
    assert subscription.kind == "event.subscribe"
    call = effect("operation: call_node, node_id: other, parameters: {x: '{n}'}", "a")
    assert (call.kind, call.capability) == ("node.call", "")
    assert entries(call.request)["node_id"].value == "other"
    agent = effect("operation: agent_call, agent: helper, prompt: 'look at {s}'", "agents.call.helper")
    assert (agent.kind, agent.capability) == ("agent.call", "agents.call.helper")
    custom = effect("operation: custom.mail.send, parameters: {to: '{s}'}, output: r", "custom.mail.send")
    assert (custom.kind, custom.output) == ("custom.mail.send", "r")
    assert list(entries(custom.request)) == ["to"]


def test_the_payment_handler() -> None:
    compiled = program_of(load(FILES / "payment_handler.vsp"))
    steps = {step.name: step for step in compiled.steps}
    query = steps["find_earlier_charge"]
    assert isinstance(query, EffectStep)
    assert isinstance(query.found[0], ReturnStep)
    charge = steps["charge_card"]
    assert isinstance(charge, EffectStep)
    assert charge.rules[0].action == "compensate"
    assert charge.rules[0].answer is not None
    assert isinstance(charge.rules[0].compensation[0], TransitionStep)
    assert charge.rules[2].error == "*"
    move = steps["start_processing"]
    assert isinstance(move, TransitionStep)
    assert compiled.machines[0].moves[0][2] is not None
    assert not compiled.pure
    assert compiled.idempotency_key == "idempotency_key"
    assert (compiled.limits.time_s, compiled.limits.memory_mb) == (45.0, 256)
    assert [rule.action for rule in compiled.rules] == ["circuit_breaker", "retry"]
    retry = compiled.rules[1].retry
    assert retry is not None
    assert retry.attempts == 3
    assert [contract.expression is None for contract in compiled.invariants] == [True]
    assert len(compiled.olds) == 1


def test_guards_of_a_transition_are_its_checks() -> None:
    text = """\
inputs: {b: boolean}
outputs: {r: string}
state_machines: {m: {initial: a, states: [a, b], transitions: [{from: [a, b], to: b, guard: b}]}}
flow: [{step: r, operation: state_machine_transition, state_machine: m, entity: x, from: a, to: b, guards: [b, free]}]
"""
    (step,) = program(text).steps
    assert isinstance(step, TransitionStep)
    assert (len(step.checks), step.guards) == (2, ())


# ------------------------------------------------------------------ the digest
def test_the_digest_is_of_what_the_node_does() -> None:
    """Comments, places and descriptions do not matter; a value, its type and its scale do."""

    def digest(text: str) -> str:
        return program_of(load(text)).digest

    flow = "inputs: {n: integer}\noutputs: {r: decimal}\nflow:\n  - {step: r, operation: arithmetic, expression: n + 1.0}\n"
    base = digest(HEAD + flow)
    assert digest("# a comment\n" + HEAD + "metadata: {description: other}\n" + flow) == base
    assert digest(HEAD + flow.replace("n: integer", "n: {type: integer, description: a number}")) == base
    for change in (
        ("1.0", "1.00"),
        ("1.0", "1"),
        ("n + 1", "n - 1"),
        ("step: r", "step: q, output: r"),
        ("n: integer", "n: decimal"),
    ):
        assert digest(HEAD + flow.replace(*change)) != base, change
    assert digest(HEAD + flow + "security: {denied_capabilities: [x]}\n") != base
    assert digest(HEAD.replace("_v1", "_v2") + flow) != base
