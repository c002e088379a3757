"""A sensitive value is hidden in each form that it takes: as given, as the node reads it, and as data."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from lyra import vesper
from lyra.vesper.evidence.modes import ORDER
from lyra.vesper.runtime.entries import HttpEntry
from lyra.vesper.runtime.privacy import redaction_of
from lyra.vesper.values.json_values import json_shape
from lyra.vesper.values.redaction import REDACTED, Redaction

NODE = """\
node_id: secret_v1
type: http_handler
intent: fail with a sensitive value in texts and fields
inputs:
  a: {{type: '{kind}', sensitive: true}}
outputs:
  success: {{x: integer}}
  error: {{error_code: "enum[no]", message: string, d: {{type: any, required: false}}}}
security:
  audit_level: detailed
  capabilities_required: [{right}]
flow:
{publish}
  - {{step: t, operation: string_template, template: "<{text}>", output: t}}
  - {{step: r, operation: return, return_error: {{error_code: no, message: "v={{t}}", d: ["{{a}}", {{k: "{{a}}"}}]}}}}
"""
PUBLISH = '  - {step: p, operation: event_publish, event_type: told, data: {a: "{a}", list: ["{a}"]}}'
LATER = datetime(2031, 3, 4, 5, 6, 7, tzinfo=timezone(timedelta(hours=2)))
FORMS = [
    ("decimal", "7.735e1", ["77.35", "7.735"]),
    ("decimal", "1e3", ["1000", "1e3", "1E+3"]),
    ("decimal", "+55.50", ["55.5"]),
    ("decimal", "0077.35", ["77.35"]),
    ("decimal", "-0077.35", ["77.35", "-"]),
    ("decimal", 1234.5, ["1234.5"]),
    ("decimal", Decimal("6.3721e2"), ["637.21"]),
    ("decimal(4)", "77.35", ["77.35", "00"]),
    ("decimal(4)", 7735, ["7735", "00"]),
    ("integer", 1234567, ["1234567"]),
    ("timestamp", "2031-03-04T05:06:07Z", ["2031-03-04", "05:06"]),
    ("timestamp", "2031-03-04T05:06:07+02:00", ["2031-03-04", "05:06", "03:06"]),
    ("timestamp", "2031-03-04 05:06:07.5", ["2031-03-04", "05:06"]),
    ("timestamp", "2031-03-04T05:06Z", ["2031-03-04", "05:06"]),
    ("timestamp", LATER, ["2031-03-04", "05:06", "03:06"]),
    ("boolean", True, ["true", "True"]),
    ("boolean", False, ["false", "False"]),
    ("string", "Straße 1", ["Straße", "STRASSE"]),
    ("bytes", "c2VjcmV0c2VjcmV0", ["c2VjcmV0", "secret"]),
    ("array<decimal>", ["7.735e1", "1e3"], ["77.35", "1000"]),
    ("map<string, integer>", {"topkey": 1234567}, ["topkey", "1234567"]),
    ("any", {"topkey": ["1e3", 7.5]}, ["topkey", "1000", "1e3"]),
]
IN_TEMPLATES = ("decimal", "integer", "timestamp", "boolean", "string")


def node_of(kind, *, acts=False, shown=None):
    can_be_shown = kind.startswith(IN_TEMPLATES) if shown is None else shown
    right = "events.publish.told" if acts else ""
    publish = PUBLISH if acts else ""
    return vesper.load(NODE.format(kind=kind, right=right, publish=publish, text="{a}" if can_be_shown else "x"))


def text_of(value):
    """All that a reader of this value could see."""
    return repr(value) + json.dumps(json_shape(value), ensure_ascii=False) if isinstance(value, dict) else repr(value)


@pytest.mark.parametrize(("kind", "value", "secrets"), FORMS)
def test_errors_tell_no_form_of_a_sensitive_value(kind, value, secrets):
    """On each path, from the runtime, in compiled functions and in HTTP replies."""
    node = node_of(kind)
    outcomes = [vesper.execute(node, {"a": value}, path=path) for path in ("python", "direct", "reference")]
    with vesper.Runtime() as runtime:
        outcomes.append(runtime.execute(node, {"a": value}, "dual_verify", trace=True))
        texts = [repr((row["inputs"], row["outputs"])) for row in runtime.audit()]
        texts += [repr(trace.inputs) for trace in runtime.traces().values()]
        if isinstance(value, str | int | float | dict | list):
            body = json.dumps({"a": value}).encode()
            reply = HttpEntry(runtime, [node]).handle("POST", "/secret", body=body)
            assert reply.status == 422, reply
            texts.append(json.dumps(json.loads(reply.body)["error"], ensure_ascii=False))
    for outcome in outcomes:
        assert outcome.error.code == "no", outcome.error
        fields = dict(outcome.error.fields)
        texts += [outcome.error.message, text_of(fields)]
    for secret in secrets:
        for text in texts:
            assert secret not in text.replace("trace_", ""), (secret, text)


@pytest.mark.parametrize("mode", ORDER)
@pytest.mark.parametrize(("kind", "value", "secrets"), [FORMS[0], FORMS[11], FORMS[14], FORMS[7], FORMS[20]])
def test_the_store_has_no_form_of_a_sensitive_value(tmp_path, kind, value, secrets, mode):
    """Of a node that publishes it, in any mode."""
    secrets = [secret for secret in secrets if len(secret) > 4]  # shorter ones stand in a store by chance
    node = node_of(kind, acts=True)
    events = []
    with vesper.Runtime(str(tmp_path / "lyra.db"), grant=["events.publish.told"]) as runtime:
        runtime.on_event(events.append)
        outcome = runtime.execute(node, {"a": value}, mode)
        assert outcome.error.code == "no", outcome.error
        shown = [repr(events), repr(runtime.audit()), repr(runtime.traces()), repr(runtime.state.by_digest)]
    content = b"".join(path.read_bytes() for path in Path(tmp_path).iterdir() if path.name.startswith("lyra.db"))
    for secret in secrets:
        assert secret.encode() not in content
        assert not any(secret in text for text in shown)


def test_names_of_fields_are_no_secret():
    """The names of a record's fields stand in the node; keys of maps are the caller's."""
    text = NODE.format(kind="box", right="", publish="", text="x")
    node = vesper.load(f"{text}types:\n  box: {{fields: {{amount: integer, tags: 'map<string, string>'}}}}\n")
    value = {"amount": 1234567, "tags": {"topkey": "topvalue"}}
    redaction = redaction_of(_program(node), {"a": value})
    assert redaction.text("amount tags topkey topvalue 1234567.00") == f"amount tags {' '.join([REDACTED] * 3)}"


def _program(node):
    with vesper.Runtime() as runtime:
        return runtime.program(node)


def test_data_is_compared_as_values():
    """A number of any scale and type, and a time in any zone."""
    redaction = Redaction([Decimal("77.35"), LATER, 1e3, 8])
    for value in (Decimal("77.3500"), 77.35, LATER.astimezone(UTC), 1000, Decimal("1E+3"), Decimal("8.0")):
        assert redaction.value(value) == REDACTED
    assert redaction.value([77, LATER + timedelta(days=9), True, None]) == [77, LATER + timedelta(days=9), True, None]
    assert Redaction([True]).value([True, False, None, 1]) == [REDACTED, REDACTED, None, 1]


@pytest.mark.parametrize(
    "value",
    [10**5_000, -(10**20_000), Decimal("1E+999999"), Decimal("NaN"), float("inf"), "1e999999999"],
    ids=["integer", "long", "decimal", "nan", "inf", "text"],
)
def test_extreme_numbers_are_refused_without_an_exception(value):
    """A sensitive number that no node takes is invalid input, not a failure of the redaction."""
    for kind in ("integer", "decimal", "any"):
        for path in ("python", "direct", "reference"):
            outcome = vesper.execute(node_of(kind, shown=False), {"a": value}, path=path)
            assert outcome.error is not None


def test_long_rows_of_zeros_are_searched_quickly():
    """Time grows with the length of a text, not with its square."""
    text = "0" * 1_000_000
    assert Redaction([Decimal("77.35"), "00001"]).text(text) == text
