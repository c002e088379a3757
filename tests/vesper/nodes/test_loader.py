"""From a file to a Node."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from lyra.errors import CheckError, ConfigError, ParseError
from lyra.vesper.check import check_text
from lyra.vesper.check.judge import program_of
from lyra.vesper.ir import EffectStep
from lyra.vesper.nodes import Node, load, read_node
from lyra.vesper.nodes.model import NodeTracing
from lyra.vesper.nodes.steps import OPERATIONS, operation_named

FILES = Path(__file__).parent.parent / "files"
HEAD = "node_id: a_v1\ntype: function\nintent: an example\n"


@pytest.mark.parametrize("file", sorted(FILES.glob("*.vsp")), ids=lambda file: file.stem)
def test_example_files_load(file: Path) -> None:
    assert load(file).node_id.startswith(file.stem)


def test_everything_of_a_file_is_in_the_node() -> None:
    node = load(FILES / "payment_handler.vsp")
    assert (node.kind, node.metadata.version, node.metadata.tags) == ("http_handler", "1.2.0", ("payments", "orders"))
    assert node.metadata.created == "2025-01-08T10:00:00Z"
    assert node.metadata.changelog[0].changes == ("first version",)
    amount = node.inputs[0]
    assert (amount.name, amount.type, amount.scale, amount.required) == ("amount", "decimal", 2, True)
    assert amount.constraints[0][0] == "positive"
    assert str(amount.constraints[1][0]["max"]) == "50000.00"
    assert node.inputs[1].values == ("USD", "EUR", "GBP")
    assert (node.inputs[1].default, node.inputs[1].required) == ("USD", False)
    assert node.inputs[4].sensitive
    assert [field.name for field in node.success] == ["transaction_id", "status", "amount_charged", "message"]
    assert [field.name for field in node.error] == ["error_code", "message", "retry_after_seconds"]
    assert not node.error[2].required
    assert [contract.text for contract in node.contracts.preconditions] == ["amount > 0", "order_id.length > 0"]
    assert len(node.contracts.invariants) == 1
    assert [step.name for step in node.flow][:2] == ["validate_request", "find_earlier_charge"]
    assert [step.name for step in node.flow[3].compensations[0]] == ["mark_failed"]
    assert [rule.code for rule in node.error_handling] == ["provider_unavailable", "database_unavailable"]
    assert (node.performance.timeout_seconds, node.performance.memory_limit_mb) == (45, 256)
    assert node.security.audit_level == "detailed"
    assert node.security.sensitive_data == ("payment_token",)
    assert "secrets.read.stripe_api_key" in node.security.capabilities_required
    assert node.observability.tracing == NodeTracing(enabled=True, sample_rate=Decimal("0.1"))
    assert node.testing.test_cases[0].inputs["amount"] == Decimal("100000.00")
    assert node.testing.property_tests[0].property == "idempotency"
    assert node.testing.differential_tests.sample_size == 10000
    assert node.documentation == {"examples": []}
    machine = node.state_machines[0]
    assert (machine.initial, len(machine.moves)) == ("pending", 4)
    assert {step.name for step in node.all_steps()} >= {"mark_failed", "answer", "find_earlier_charge.if_found"}


def test_short_forms() -> None:
    node = load(HEAD + "inputs: {n: integer, size: [small, large]}\noutputs: {x: string}\n")
    assert [(field.name, field.type, field.values) for field in node.inputs] == [
        ("n", "integer", ()),
        ("size", "enum", ("small", "large")),
    ]
    assert ([field.name for field in node.success], node.error) == (["x"], ())


def test_an_output_named_error_is_a_field_where_it_is_no_mapping() -> None:
    node = load(HEAD + "outputs: {error: string, value: integer}\n")
    assert [field.name for field in node.success] == ["error", "value"]


def test_a_default_of_null_is_not_no_default() -> None:
    node = load(
        HEAD + "inputs: {a: {type: string, required: false, default: null}, b: {type: string, required: false}}\n"
    )
    assert node.inputs[0].default is None
    assert node.inputs[1].default is msgspec.UNSET


def test_settings_stand_at_the_top_or_under_parameters() -> None:
    """The top wins; what is no setting is a parameter of the author's."""
    node = load(
        HEAD
        + "flow:\n"
        + "  - {step: a, operation: arithmetic, parameters: {expression: x + 1, output: y, x: 5}}\n"
        + "  - {step: b, operation: arithmetic, expression: '2', parameters: {expression: '3'}}\n"
        + "  - {step: c, operation: database_query, query: SELECT 1, parameters: {query: q}}\n"
        + "  - {step: d, operation: database_query, parameters: {query: SELECT 1, parameters: {a: 1}}}\n"
        + "  - {step: e, operation: custom.a.b, parameters: {timeout: 3}, size: 4, timeout: 5s}\n"
        + "  - {step: f, operation: external_api_call, provider: p, parameters: {method: x}}\n"
    )
    first, second, third, fourth, fifth, sixth = node.flow
    assert first.settings["expression"].value == "x + 1"
    assert first.settings["output"].value == "y"
    assert {name: setting.value for name, setting in first.parameters.items()} == {"x": 5}
    assert second.settings["expression"].value == "2"
    assert third.parameters["query"].value == "q"
    assert {name: setting.value for name, setting in fourth.parameters.items()} == {"a": 1}
    assert {name: setting.value for name, setting in fifth.parameters.items()} == {"timeout": 3, "size": 4}
    assert fifth.settings["timeout"].value == "5s"
    assert "method" in sixth.parameters
    assert node.issues == ()


def test_steps_without_a_name_are_called_after_the_step_around_them() -> None:
    node = load(
        HEAD
        + "flow:\n  - step: check\n    operation: conditional\n    condition: 'true'\n"
        + "    then: [{operation: arithmetic, expression: '1'}, {return_success: {}}]\n    else: {return_error: x}\n"
    )
    (check,) = node.flow
    assert [step.name for step in check.blocks["then"]] == ["check.then[0]", "check.then[1]"]
    assert [step.operation for step in check.blocks["then"]] == ["arithmetic", "return"]
    assert [(step.name, step.operation) for step in check.blocks["else"]] == [("check.else", "return")]


def test_a_text_has_a_line_break_and_a_path_has_none(tmp_path: Path) -> None:
    file = tmp_path / "a_v1.vsp"
    file.write_text(HEAD)
    assert load(file).file == str(file)
    assert load(str(file)).node_id == "a_v1"
    assert load(HEAD).file == "<text>"
    with pytest.raises(ConfigError):
        load(tmp_path / "none.vsp")


def test_all_problems_come_at_once() -> None:
    with pytest.raises(CheckError) as caught:
        load("node_id: Wrong\ntype: function\nintent: x\ninputs: {a: 5}\nflow: [5]\n")
    problems = caught.value.fields["problems"]
    assert [(problem["code"], problem["line"]) for problem in problems] == [
        ("bad_node_id", 1),
        ("missing_type", 4),
        ("wrong_form", 5),
    ]
    assert caught.value.place == "<text>:1:10"
    assert "2 more" in str(caught.value)


def test_yaml_that_cannot_be_read_is_a_parse_error() -> None:
    with pytest.raises(ParseError) as caught:
        load("node_id: [a\ntype: function\n")
    (problem,) = caught.value.fields["problems"]
    assert (problem["severity"], problem["code"]) == ("error", "syntax")


def test_a_node_is_given_as_far_as_it_can_be_read() -> None:
    node, issues = read_node("node_id: a_v1\ninputs: {a: 5, b: string}\n")
    assert isinstance(node, Node)
    assert [field.name for field in node.inputs] == ["a", "b"]
    assert {issue.code for issue in issues} == {"missing_key", "missing_type"}
    assert read_node("- 1\n")[0] is None


def test_limits_of_a_file() -> None:
    many_steps = "flow:\n" + "".join(
        f"  - {{step: s{i}, operation: arithmetic, expression: '1'}}\n" for i in range(1_001)
    )
    many_inputs = "inputs:\n" + "".join(f"  i{i}: string\n" for i in range(300))
    many_contracts = "contracts:\n  preconditions:\n" + "    - 'true'\n" * 300
    deep = "{operation: loop, condition: 'true', steps: " * 18 + "[]" + "}" * 18
    for text in (many_steps, many_inputs, many_contracts, f"flow: [{deep}]\n"):
        with pytest.raises(CheckError) as caught:
            load(HEAD + text)
        assert "limit" in {problem["code"] for problem in caught.value.fields["problems"]}


def test_the_table_of_operations_is_complete() -> None:
    assert len(OPERATIONS) == 21
    assert all(operation.text for operation in OPERATIONS.values())
    custom = operation_named("custom.mail.send")
    assert custom is not None
    assert custom.acts
    assert operation_named("custom.mail") is None
    assert operation_named("mail") is None


# Every form that the description of the language writes a node with.
DESCRIBED = """\
node_id: settle_order_v23        # with its version
type: http_handler
intent: charge an order and say whether it is paid

metadata:
  author: shop
  created: 2025-01-08T14:23:15Z
  dependencies: [notify_buyer_v1]
  tags: [payments, orders]

types:
  User:
    fields:
      id: string
      email: string
      balance: decimal
      authenticated: boolean
    constraints:
      - balance >= 0
  Order:
    fields: {id: string, status: "enum[pending, paid, payment_failed]"}

inputs:
  amount:
    type: decimal
    constraints: [amount > 0]
    required: true
  user: {type: User, required: true}
  order: {type: Order, required: true}
  labels: {type: "map<string, set<string>>", required: false, default: {}}

outputs:
  success:
    status: string
    charge_id: string
  error:
    error_code: enum[declined, payment_failed]
    message: string

contracts:
  preconditions:
    - "amount > 0"
    - "user.authenticated"
    - "order.status == 'pending'"
  postconditions:
    - "transaction.recorded OR error.logged"
    - "status IN ['paid', 'payment_failed'] OR error.occurred"
    - "user.balance == old(user.balance) OR error.occurred"
  invariants:
    - "SUM(all_user_balances) == total_system_balance"
    - "all(user.balance >= 0)"

flow:
  - step: validate_request
    operation: validation
    guards: ["amount <= user.balance"]
    on_failure: {return_error: {error_code: declined, message: "not enough"}}
  - step: call_stripe_api
    operation: external_api_call
    parameters:
      provider: stripe
      endpoint: /v1/charges
      method: POST
      amount: "{amount}"
    guards: ["amount > 0"]
    timeout: 30s
    on_success: {extract: {charge: response.id}}
    error_handling:
      timeout: {action: map_to, map_to: payment_failed}
      card_declined: {action: return_error, error_code: declined, message: declined}
      any: {action: map_to, map_to: payment_failed}
  - step: answer
    operation: return
    return_success: {status: paid, charge_id: "{charge}"}

performance:
  expected_latency_ms: 200
  memory_limit_mb: 256
  timeout_seconds: 45

security:
  capabilities_required:
    - network.http_client.stripe.com
    - secrets.read.stripe_api_key
  denied_capabilities: [filesystem.write, network.http_server, exec.shell_command]
  sensitive_data: true
  audit_level: detailed
"""


def test_every_form_of_the_description_loads() -> None:
    """Without a mistake; a step's `error_handling` is a mapping by errors, of which `timeout` is one."""
    assert [issue.message for issue in check_text(DESCRIBED) if issue.severity == "error"] == []
    program = program_of(load(DESCRIBED))
    assert program.intent.startswith("charge")
    call = next(step for step in program.steps if isinstance(step, EffectStep))
    assert [(rule.error, rule.action) for rule in call.rules] == [
        ("timeout", "map_to"),
        ("card_declined", "return_error"),
        ("*", "map_to"),
    ]
    assert (call.timeout_s, program.audit, program.limits.time_s) == (30, "detailed", 45)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("type: decimal\n    con", "type: string | integer\n    con", "'string | integer' is no type"),
        ("status: string", "status: type", "there is no type `type`"),
        ("operation: validation", "operation: operation_type", "there is no operation `operation_type`"),
        ("required: true\n", "required: boolean\n", "`required` must be true or false"),
        ("timeout_seconds: 45", "timeout_seconds: integer", "`timeout_seconds` must be a number"),
        ("audit_level: detailed", "audit_level: none | basic", "`audit_level` is one of basic, none, detailed"),
        ("sensitive_data: true", "sensitive_data: boolean", "there is no input or output `boolean`"),
    ],
)
def test_a_placeholder_is_told_what_belongs_there(old: str, new: str, words: str) -> None:
    """A placeholder of the description is a mistake, with the words or the form that it represents."""
    (issue, *_) = [issue for issue in check_text(DESCRIBED.replace(old, new, 1)) if words in issue.message]
    assert issue.hint or " must be " in words or " is one of " in words
