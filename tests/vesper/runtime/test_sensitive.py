"""Sensitive values are not in the store, its write-ahead log, Events, errors and figures; effects get them."""

from __future__ import annotations

import base64
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from lyra import vesper
from lyra.errors import ContractViolation, SourceError, StoreError
from lyra.vesper.effects.sealing import Sealer
from lyra.vesper.evidence.modes import ORDER, prometheus
from lyra.vesper.values.outcome import Outcome
from lyra.vesper.values.redaction import REDACTED, Redaction
from tests import warm
from tests.vesper.runtime import secrets
from tests.vesper.runtime.payments import PaymentServer
from tests.vesper.runtime.secrets import CARD, DERIVED, NODES, PURE, runtime


def spellings():
    data = CARD.encode()
    return [data, data.lower(), data.upper(), base64.b64encode(data), data.hex().encode()]


def assert_absent(folder):
    """The card is in no file of the store."""
    files = [path for path in Path(folder).iterdir() if path.name.startswith("lyra.db")]
    assert files
    for path in files:
        content = path.read_bytes()
        assert not any(spelling in content for spelling in spellings()), path


@pytest.fixture
def server():
    server = PaymentServer()
    yield server
    server.close()


@pytest.fixture
def folder(tmp_path):
    connection = sqlite3.connect(tmp_path / "cards.db")
    connection.execute("CREATE TABLE cards (card TEXT, amount INTEGER)")
    connection.commit()
    connection.close()
    return tmp_path


class Wrong:
    """A direct path that gives the card as the total."""

    def run(self, program, inputs, execution):
        return Outcome("success", {"total": f"wrong {inputs['card']}"}, None, "direct")

    async def start(self, program, inputs, execution, effects):
        raise ValueError(f"broken by {inputs['card']}")


@pytest.mark.parametrize("mode", ORDER)
@pytest.mark.parametrize("name", sorted(NODES))
def test_the_store_has_no_sensitive_value(folder, server, name, mode):
    """In each mode and for each kind of node, also where the direct path is wrong and the divergence is kept."""
    events = []
    node = vesper.load(NODES[name])
    for direct in (None, Wrong()):
        with runtime(folder, server.url, direct=direct) as nodes:
            nodes.on_event(events.append)
            outcome = nodes.execute(node, {"card": CARD, "amount": 5}, mode, trace=True)
            assert (outcome.status, nodes.audit()[-1]["inputs"]["card"]) == ("success", REDACTED) or direct
            nodes.settle()
            shown = [
                repr(events),
                repr(nodes.audit()),
                repr(nodes.traces()),
                prometheus(nodes.state.by_digest.values()),
            ]
            shown.append(repr(nodes.state.by_digest))
            assert not any(CARD in text for text in shown)
            assert_absent(folder)  # with the write-ahead log
        assert_absent(folder)
    if name == "http":
        assert server.requests[0][1]["card"] == CARD
    if name == "database":
        with closing(sqlite3.connect(folder / "cards.db")) as database:
            assert database.execute("SELECT card FROM cards").fetchone() == (CARD,)


def test_errors_tell_no_sensitive_value(folder, server):
    """Messages of the node, of Lyra and of a server that repeats the value."""
    server.answers.append((402, {"error": {"code": "card_declined", "message": f"{CARD} is closed"}}))
    with runtime(folder, server.url) as nodes:
        declined = nodes.execute(vesper.load(NODES["http"]), {"card": CARD, "amount": 5})
        too_much = nodes.execute(vesper.load(PURE), {"card": CARD, "amount": 500})
        wrong = nodes.execute(vesper.load(PURE), {"card": {"number": CARD}, "amount": CARD})
    assert declined.error.message == f"refused: {REDACTED} is closed"
    assert too_much.error.message == f"no 500 with {REDACTED}"
    assert CARD not in repr(wrong)
    assert_absent(folder)
    assert CARD not in repr(vesper.execute(vesper.load(PURE), {"card": CARD, "amount": 500}))
    with pytest.raises(ContractViolation) as caught:
        vesper.compile(vesper.load(PURE))(CARD, 500)
    assert CARD not in repr(caught.value) + repr(caught.value.fields)


class Partial:
    """A direct path that gives a part of the card as the tail."""

    def run(self, program, inputs, execution):
        return Outcome("success", {"tail": f"{inputs['card'][5:10]}!", "shown": "-9876"}, None, "direct")


def test_what_is_computed_from_a_sensitive_value_is_hidden(folder):
    """In rows, divergences and errors; an output that is declared `sensitive: false` is shown. Callers are answered."""
    node = vesper.load(DERIVED)
    with runtime(folder, "http://127.0.0.1:1", direct=Partial()) as nodes:
        outcome = nodes.execute(node, {"card": CARD}, "dual_verify", trace=True)
        assert outcome.outputs == {"tail": "ZEBRA", "shown": "-9876"}
        refused = nodes.execute(node, {"card": CARD[1:]}, "python_only", trace=True)
        assert refused.error.message == REDACTED
        assert nodes.audit()[0]["outputs"] == {"tail": REDACTED, "shown": "-9876"}
        nodes.settle()
        kept = [*nodes.audit(), *nodes.traces().values(), *nodes.evidence(node).found]
        assert [row["path"] for row in nodes.evidence(node).found[0].differences] == ["root.tail"]
    files = (path.read_bytes().lower() for path in folder.iterdir() if path.name.startswith("lyra.db"))
    assert not any(b"zebra" in content for content in files)
    assert "zebra" not in repr(kept).lower()


def test_a_label_of_a_metric_is_not_computed_from_a_sensitive_value():
    labels = "observability: {{metrics: [{{name: cards, labels: [{}]}}]}}\n"
    vesper.load(DERIVED + labels.format("shown"))
    with pytest.raises(SourceError, match="`tail` is computed from a sensitive input"):
        vesper.load(DERIVED + labels.format("tail"))


def test_an_input_that_a_step_overwrites_is_hidden_as_it_is_then(folder):
    text = DERIVED.replace("output: middle", "output: card").replace("slice(middle", "slice(card")
    text = text.replace("card.length != 21", "card != 'zebra'").replace("{slice(card, 5, 10)}", "{card}")
    outcome = vesper.execute(vesper.load(text), {"card": CARD})
    assert outcome.error.message == REDACTED


@pytest.mark.slow
@pytest.mark.parametrize("mode", ORDER)
def test_a_killed_execution_goes_on_with_the_real_value(folder, mode):
    """The journal of the killed process is sealed; the process that goes on sends the card itself."""
    server = PaymentServer(delay_s=0.5)
    try:
        words = [str(folder), server.url, mode, "http"]
        first = warm.start(secrets.__file__, words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        end = time.monotonic() + 30
        while not server.requests:
            assert time.monotonic() < end
            assert first.poll() is None, first.communicate()
            time.sleep(0.005)
        first.kill()
        first.communicate()
        assert_absent(folder)
        with runtime(folder, server.url) as nodes:
            while not nodes.traces():
                assert time.monotonic() < end + 30
                time.sleep(0.01)
            assert next(iter(nodes.traces().values())).status == "success"
            assert_absent(folder)
        assert [body["card"] for _, body in server.requests] == [CARD, CARD]
        assert len(server.charges) == 1
    finally:
        server.close()


CALLER = """\
node_id: caller_v1
type: function
intent: hand a card on
inputs:
  card: {type: string, sensitive: true}
outputs:
  success: {total: integer}
security:
  capabilities_required: [events.publish.card.used]
flow:
  - step: tell
    operation: event_publish
    event_type: card.used
    data: {card: "{card}", text: "card {card}", part: "{upper(card)}", more: "from {slice(card, 5, 10)}"}
  - step: call
    operation: call_node
    node_id: callee_v1
    parameters: {number: "{card}", part: "{slice(card, 5, 10)}"}
    output: reply
  - step: total
    operation: arithmetic
    expression: "1 + 1"
    output: total
"""
CALLEE = """\
node_id: callee_v1
type: function
intent: write a number down
inputs:
  number: string
  part: string
outputs:
  success: {rows: integer}
security:
  capabilities_required: [database.write.cards]
  audit_level: detailed
flow:
  - step: keep
    operation: database_write
    parameters:
      table: cards
      data: {card: "{number}", amount: 1}
  - step: total
    operation: arithmetic
    expression: "1 + 0"
    output: rows
"""


def test_events_and_called_nodes_keep_the_value_secret(folder):
    """Events carry [redacted]; a called node treats what it is handed as sensitive."""
    heard = []
    grant = ["events.publish.card.used", "database.write.cards", "process.spawn"]
    path = f"sqlite:///{folder}/cards.db"
    with vesper.Runtime(str(folder / "lyra.db"), database=path, grant=grant, nodes=[vesper.load(CALLEE)]) as nodes:
        nodes.on_event(heard.append)
        published = []

        async def subscribe(kernel):
            kernel.bus.subscribe("card.used", lambda message: published.append(message.payload))

        nodes._thread.call(subscribe)
        outcome = nodes.execute(vesper.load(CALLER), {"card": CARD})
        assert published == [{"card": REDACTED, "text": f"card {REDACTED}", "part": REDACTED, "more": REDACTED}]
        assert outcome.status == "success", outcome
        assert {row["node"]: row.get("inputs") for row in nodes.audit()} == {
            "caller_v1": None,
            "callee_v1": {"number": REDACTED, "part": REDACTED},
        }
        assert CARD not in repr(heard)
        assert_absent(folder)
    with closing(sqlite3.connect(folder / "cards.db")) as database:
        assert database.execute("SELECT card FROM cards").fetchall() == [(CARD,)]


def test_a_field_of_a_custom_type_makes_the_input_sensitive():
    text = (
        PURE.replace("card: {type: string, sensitive: true}", "card: Card")
        .replace("outputs:", "types:\n  Card:\n    fields:\n      number: {type: string, sensitive: true}\noutputs:", 1)
        .replace("{card}", "{card.number}")
    )
    outcome = vesper.execute(vesper.load(text), {"card": {"number": CARD}, "amount": 500})
    assert outcome.error.message == f"no 500 with {REDACTED}"


def test_sealed_values_open_with_the_key_only():
    sealer = Sealer(b"k" * 32)
    sealed = sealer.seal({"card": CARD})
    assert sealer.open(sealed) == {"card": CARD}
    assert sealer.seal({"card": CARD}) == sealed  # replays compare requests
    for other in (sealed[:-8] + "AAAA" + sealed[-4:], "", "no base64"):
        with pytest.raises(StoreError):
            sealer.open(other)
    with pytest.raises(StoreError):
        Sealer(b"o" * 32).open(sealed)


def test_short_values_are_hidden_where_they_stand_alone():
    redaction = Redaction(["7", 12345])
    assert redaction.text("7 of 17 and 12345") == f"{REDACTED} of 17 and {REDACTED}"
    assert redaction.value({"a": [12345, True, None, 17]}) == {"a": [REDACTED, True, None, 17]}


@pytest.mark.parametrize("mode", ["python_only", "direct_only"])
def test_inputs_that_no_node_takes_are_an_error_and_nothing_more(mode):
    """Hiding, auditing and storing them raises nothing."""
    endless = []
    endless.append(endless)
    with vesper.Runtime() as nodes:
        for inputs in ({"card": endless, "amount": 5}, {"card": object(), "amount": 5}, {"card": CARD, "crd": CARD}):
            outcome = nodes.execute(vesper.load(PURE), inputs, mode, trace=True)
            assert outcome.error.code == "invalid_input"
            assert CARD not in repr(outcome)
        assert CARD not in repr(nodes.audit())


KEYED = """\
node_id: keyed_v1
type: function
intent: move a card
inputs:
  card: {type: string, sensitive: true}
  idempotency_key: {type: string, sensitive: true}
outputs:
  success: {state: string}
state_machines:
  card: {initial: open, states: [open, shut], transitions: [{from: open, to: shut}]}
flow:
  - {step: shut, operation: state_machine_transition, state_machine: card, entity: "{card}", from: open, to: shut}
  - {step: done, operation: string_template, template: "shut", output: state}
"""


def test_sensitive_keys_and_entities_go_by_a_digest(tmp_path):
    """They still tell executions and entities apart, and the same ones alike, also after a restart."""
    node = vesper.load(KEYED)
    store = str(tmp_path / "lyra.db")
    other = "5500-other-card-KEY"
    with vesper.Runtime(store) as nodes:
        first = nodes.execute(node, {"card": CARD, "idempotency_key": f"k {CARD}"})
        second = nodes.execute(node, {"card": other, "idempotency_key": other})
        assert (first.status, second.status) == ("success", "success")
        assert first.trace_id != second.trace_id
    assert_absent(tmp_path)
    assert other.encode() not in Path(store).read_bytes()
    with vesper.Runtime(store) as nodes:
        again = nodes.execute(node, {"card": CARD, "idempotency_key": f"k {CARD}"})
        moved = nodes.execute(node, {"card": CARD, "idempotency_key": "a new one"})
    assert again.trace_id == first.trace_id  # the same execution
    assert moved.error.code == "invalid_transition"  # the same entity, which is shut
    assert CARD not in repr(moved)
