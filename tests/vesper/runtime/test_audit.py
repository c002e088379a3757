"""The audit level of a node decides which rows its executions leave."""

from __future__ import annotations

import pytest

from lyra import vesper
from lyra.vesper.check.judge import check_text
from lyra.vesper.runtime.recording import AUDIT_LEVELS

PURE = """\
node_id: sum_v1
type: function
intent: add
inputs: {a: integer, pin: {type: string, sensitive: true}}
outputs:
  success: {total: integer, code: {type: string, sensitive: true}}
LEVEL
flow:
  - {step: add, operation: arithmetic, expression: "a + 1", output: total}
  - {step: make_code, operation: string_template, template: "{pin}!", output: code}
"""
ACTING = PURE.replace("flow:", 'flow:\n  - {step: act, operation: custom.test.act, parameters: {a: "{a}"}}').replace(
    "sum_v1", "act_v1"
)
HEAD = {"trace_id", "time", "user", "action", "node", "digest", "path", "mode", "outcome", "code"}


def level(text, word):
    needs = "capabilities_required: [custom.test.act]" if "custom." in text else "compliance: []"
    return text.replace("LEVEL", f"security: {{{needs}{'' if word is None else f', audit_level: {word}'}}}")


def rows_after(store, text):
    def act(a):
        return a

    with vesper.Runtime(store, custom={"test.act": act}, grant=["custom.test.act"]) as nodes:
        node = vesper.load(text)
        assert nodes.execute(node, {"a": 1, "pin": "0000-zz"}).status == "success"
        assert nodes.execute(node, {"a": 2**63 - 1, "pin": "0000-zz"}).error.code == "overflow"
    with vesper.Runtime(store) as nodes:  # they last
        return nodes.audit()


@pytest.mark.parametrize("text", [PURE, ACTING], ids=["pure", "acting"])
@pytest.mark.parametrize("word", sorted(AUDIT_LEVELS))
def test_each_level_writes_what_it_says(tmp_path, text, word):
    rows = rows_after(str(tmp_path / "lyra.db"), level(text, word))
    assert [(row["outcome"], row["code"]) for row in rows] == (
        [] if word == "none" else [("success", ""), ("error", "overflow")]
    )
    for row in rows:
        assert set(row) == (HEAD if word == "basic" else HEAD | {"inputs", "outputs"})
    if word == "detailed":
        assert rows[0]["inputs"] == {"a": 1, "pin": "[redacted]"}
        assert rows[0]["outputs"] == {"total": 2, "code": "[redacted]"}


def test_a_node_that_says_nothing_is_audited_where_it_acts(tmp_path):
    assert rows_after(str(tmp_path / "a.db"), level(PURE, None)) == []
    rows = rows_after(str(tmp_path / "b.db"), level(ACTING, None))
    assert [set(row) for row in rows] == [HEAD, HEAD]


USED = PURE.replace("a: integer,", "a: integer, user_id: {type: string, required: false},")


@pytest.mark.parametrize("text", [USED, ACTING], ids=["pure", "acting"])
def test_a_row_says_who_did_what(tmp_path, text):
    """The user is the input `user_id`, else the user of the context; the action is the node's intent."""
    node = vesper.load(level(text, "basic"))
    inputs = {"a": 1, "pin": "0000-zz"}
    with vesper.Runtime(custom={"test.act": abs}, grant=["custom.test.act"]) as nodes:
        nodes.execute(node, inputs)
        nodes.execute(node, inputs, ambient={"user": {"id": "ada"}})
        if text is USED:
            nodes.execute(node, {**inputs, "user_id": "bea"}, ambient={"user": {"id": "ada"}})
        rows = nodes.audit()
    assert [row["user"] for row in rows] == (["anonymous", "ada", "bea"] if text is USED else ["anonymous", "ada"])
    assert {row["action"] for row in rows} == {"add"}


def test_a_sensitive_user_is_not_told(tmp_path):
    node = vesper.load(level(USED.replace("user_id: {", "user_id: {sensitive: true, "), "basic"))
    with vesper.Runtime() as nodes:
        nodes.execute(node, {"a": 1, "pin": "0000-zz", "user_id": "bea"})
        assert [row["user"] for row in nodes.audit()] == ["[redacted]"]


def test_audit_rows_are_events(tmp_path):
    heard = []
    with vesper.Runtime(str(tmp_path / "lyra.db")) as nodes:
        nodes.on_event(heard.append, ["vesper.audited"])
        nodes.execute(vesper.load(level(PURE, "basic")), {"a": 1, "pin": "x"})
        nodes.settle()
        assert len(heard) == 1


def test_a_stored_execution_is_told_as_an_event(tmp_path):
    heard = []
    with vesper.Runtime(str(tmp_path / "lyra.db")) as nodes:
        nodes.on_event(heard.append, ["vesper.traced"])
        nodes.execute(vesper.load(level(PURE, "basic")), {"a": 1, "pin": "x"})
        outcome = nodes.execute(vesper.load(level(PURE, "basic")), {"a": 1, "pin": "x"}, trace=True)
        nodes.settle()
    assert [event.data["trace_id"] for event in heard] == [outcome.trace_id]


def test_an_unknown_level_is_an_error():
    issues = [issue for issue in check_text(level(PURE, "much")) if issue.severity == "error"]
    assert [(issue.code, issue.path) for issue in issues] == [("unknown_word", "security.audit_level")]
