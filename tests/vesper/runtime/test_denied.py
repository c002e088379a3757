"""What a node denies itself is refused also where it is granted: `security.denied_capabilities`."""

from __future__ import annotations

import pytest

from lyra import vesper
from lyra.vesper.evidence.modes import ORDER
from tests.vesper.runtime.payments import GRANT, NODE, PaymentServer, make_database, request

ACTING = """\
node_id: acting_v1
type: function
intent: do something outside
outputs: {success: {done: boolean}}
flow:
  - {step: act, operation: custom.shop.act, output: done}
security: {capabilities_required: [custom.shop.act]}
"""
CALLING = """\
node_id: NAME_v1
type: function
intent: have another node do it
outputs: {success: {done: boolean}}
flow:
  - {step: call, operation: call_node, node_id: OTHER_v1, output: answer}
  - {step: end, operation: return, return_success: {done: true}}
security: {denied_capabilities: DENIED}
"""


def calling(name, other, denied):
    text = CALLING.replace("NAME", name).replace("OTHER", other).replace("DENIED", denied)
    return vesper.load(text)


class Acts:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return True


@pytest.mark.parametrize("mode", ORDER)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    ("denied", "is_refused"),
    [
        ("[]", False),
        ("[custom.other.act]", False),
        ("[custom.shop.act]", True),
        ("[custom.shop]", True),
        ("['custom.*']", True),
        ("[custom]", True),
    ],
)
def test_a_called_node_may_not_do_what_its_caller_denies(mode, depth, denied, is_refused):
    """Also where another node stands between them."""
    acts = Acts()
    between = calling("between", "acting", "[]")
    subject = calling("subject", "acting" if depth == 1 else "between", denied)
    nodes = [vesper.load(ACTING), between, subject]
    with vesper.Runtime(custom={"shop.act": acts}, grant=["custom.shop.act"], nodes=nodes) as runtime:
        outcome = runtime.execute(subject, {}, mode)
    assert (outcome.error is not None) is is_refused
    assert outcome.error is None or outcome.error.code == "capability_denied"
    assert acts.calls == (0 if is_refused else 1)


@pytest.mark.parametrize(("denied", "is_refused"), [("[]", False), ("[custom.shop.act]", True)])
def test_a_node_that_is_called_denies_it_to_those_that_it_calls(denied, is_refused):
    acts = Acts()
    subject = calling("subject", "between", "[]")
    nodes = [vesper.load(ACTING), calling("between", "acting", denied), subject]
    with vesper.Runtime(custom={"shop.act": acts}, grant=["custom.shop.act"], nodes=nodes) as runtime:
        outcome = runtime.execute(subject, {})
    assert (outcome.error is not None, acts.calls) == (is_refused, 0 if is_refused else 1)


@pytest.mark.parametrize(("denied", "is_refused"), [("127.0.0.1", True), ("internal.example", False)])
def test_an_address_behind_a_provider_may_be_denied(tmp_path, denied, is_refused):
    """The node may call `stripe`, but not at the address that it was given."""
    text = NODE.read_text(encoding="utf-8").replace(
        "    - filesystem.write\n", f"    - filesystem.write\n    - network.http_client.{denied}\n"
    )
    server = PaymentServer()
    with vesper.Runtime(
        database=make_database(tmp_path / "orders.db"),
        providers={"stripe": server.url},
        grant=GRANT,
        predicates={"order_not_locked": lambda: True},
    ) as runtime:
        outcome = runtime.execute(vesper.load(text), request(1))
    server.close()
    assert (outcome.error is not None) is is_refused
    assert len(server.requests) == (0 if is_refused else 1)
