"""What is offered at each place of a node, also while the text is no YAML."""

from __future__ import annotations

import msgspec
import pytest

from lyra.vesper.check import check_text, infer
from lyra.vesper.expressions import functions
from lyra.vesper.expressions.functions import FUNCTIONS
from lyra.vesper.lsp import completion
from lyra.vesper.lsp.completion import cursor_at
from lyra.vesper.nodes.sections import NODE_KEYS
from lyra.vesper.nodes.steps import OPERATIONS

from .nodes import CURSOR, HERE, NOTE, opened, replaced


def offered(text: str, **others: str) -> dict[str, str]:
    """Labels and details."""
    language, offset = opened(text, **others)
    return {item.label: item.detail for item in language.complete(HERE, offset)}


def test_keys_that_are_there_are_not_offered_again():
    labels = offered(replaced("contracts:\n", "‸\ncontracts:\n"))
    assert labels.keys() < set(NODE_KEYS)
    assert "security" in labels
    assert "flow" not in labels
    assert offered("‸").keys() == set(NODE_KEYS)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("type: function", "type: ‸", "http_handler"),
        ("percent: {type: decimal", "percent: {type: ‸", "timestamp"),
        ("percent: {type: decimal", "percent: {type: dec‸", "Line"),
        ("percent: {type: decimal,", "percent: {‸ type: decimal,", "constraints"),
        ("  postconditions:\n", "  ‸\n  postconditions:\n", "invariants"),
        ("operation: for_each", "operation: ‸", "transaction"),
        ("    output: fee", "    ‸\n    output: fee", "rounding"),
        ("node_id: note", "node_id: ‸", "note_v2"),
        ("inputs: {text: ", "inputs: {‸ other: ", "text"),
        ("testing:\n", "testing:\n  ‸\n", "property_tests"),
        ("testing:\n", "error_handling:\n  ‸\n\ntesting:\n", "timeout"),
        ("testing:\n", "security:\n  audit_level: ‸\n\ntesting:\n", "detailed"),
        ("testing:\n", "security:\n  sensitive_data: [‸]\n\ntesting:\n", "percent"),
        ("round(sum * percent / 100, 2)", "round(sum * ‸", "percent"),
        ("round(sum * percent / 100, 2)", "‸", "days"),
        ("sum + line.price", "sum + ‸", "line"),
        ("sum + line.price", "sum + line.‸", "price"),
        ("- success => fee <= sum", "- success => ‸", "fee"),
        ("- success => fee <= sum", "- ‸", "old"),
        ("round(sum * percent / 100, 2)", "‸", "all"),
        ("a fee of {fee}", "a fee of {‸", "fee"),
        ("guards: [COUNT(lines) > 0]", "guards: [CO‸", "COUNT"),
    ],
)
def test_what_fits_is_offered(old, new, expected):
    assert expected in offered(replaced(old, new), note=NOTE)


def test_settings_are_those_of_the_operation():
    labels = offered(replaced("    output: fee", "    ‸\n    output: fee"))
    assert "scale" in labels
    assert not labels.keys() & {"steps", "query", "on_success", "retry_policy", "on_failure", "expression"}
    labels = offered(replaced("    as: line\n", "    ‸\n"))
    assert labels["as"] == ""
    assert "retry_policy" not in labels


def test_functions_have_their_signature_example_and_place_for_arguments():
    language, offset = opened(replaced("round(sum * percent / 100, 2)", "rou‸"))
    items = {item.label: item for item in language.complete(HERE, offset)}
    assert items["round"].detail == FUNCTIONS["round"].signature
    assert FUNCTIONS["round"].example in items["round"].text
    assert items["round"].insert == "round($1)"
    assert all(name in items for name, function in FUNCTIONS.items() if function.is_public)
    assert not any(name in items for name, function in FUNCTIONS.items() if not function.is_public)
    assert {"SUM", "all", "any"} <= items.keys()
    assert "old" not in items  # of contracts alone


def test_a_function_of_the_table_is_offered_and_its_typo_gets_a_hint_without_another_list(monkeypatch):
    """Completion and hints read one table: an entry that is added or taken away is in both, or in none."""
    made = msgspec.structs.replace(FUNCTIONS["round"], name="sparkle")
    names = [name for name in functions.CALLED_NAMES if name != "upper"]
    monkeypatch.setattr(completion, "PUBLIC_FUNCTIONS", (made,))
    monkeypatch.setattr(infer, "CALLED_NAMES", (*names, "sparkle"))
    assert "sparkle" in offered(replaced("round(sum * percent / 100, 2)", "‸"))
    assert "upper" not in offered(replaced("round(sum * percent / 100, 2)", "‸"))
    assert {function.name for function in functions.PUBLIC_FUNCTIONS} < {*functions.CALLED_NAMES}
    hints = [
        issue.hint
        for issue in check_text(replaced("round(sum * percent / 100, 2)", "sparkel(sum)").replace(CURSOR, ""))
    ]
    assert "did you mean `sparkle`?" in hints


def test_variables_have_their_types_and_come_with_the_step_that_gives_them():
    assert offered(replaced("round(sum * percent / 100, 2)", "‸"))["sum"] == "decimal"
    assert "fee" not in offered(replaced("round(sum * percent / 100, 2)", "‸"))
    assert "fee" in offered(replaced("a fee of {fee}", "{‸}"))


def test_a_text_without_braces_is_no_expression():
    assert offered(replaced("a fee of {fee}", "a fee of ‸")) == {}
    assert offered(replaced("intent: Add up the fee of a payment", "intent: ‸")) == {}


def test_operations_say_what_they_need():
    labels = offered(replaced("operation: for_each", "operation: ‸"))
    assert labels.keys() == OPERATIONS.keys()
    assert labels["for_each"] == "needs input, steps"


@pytest.mark.parametrize(
    ("text", "path", "before"),
    [
        ("inputs:\n  a: {type: ‸", ("inputs", "a", "type"), ""),
        ("inputs:\n  a:\n    ‸\nflow: []", ("inputs", "a"), ""),
        ("flow:\n- step: a\n  operation: x\n  gu‸", ("flow", 0), "gu"),
        ("flow:\n- step: a\n- {step: b, steps: [{expression: 'x + ‸", ("flow", 1, "steps", 0, "expression"), "'x + "),
        ("flow:\n  - query: |\n      select {a\n      {b‸\n    output: c", ("flow", 0, "query"), "{b"),
        ("contracts:\n  preconditions:\n  - a > 1\n  - ‸", ("contracts", "preconditions", 1), ""),
        ("a: b\r\nflow:\r\n  - condition: ‸\r\n", ("flow", 0, "condition"), ""),
        ("‸", (), ""),
    ],
)
def test_the_path_of_a_cursor_needs_no_valid_text(text, path, before):
    cursor = cursor_at(text.replace(CURSOR, ""), text.index(CURSOR))
    assert (cursor.path, cursor.before) == (path, before)
