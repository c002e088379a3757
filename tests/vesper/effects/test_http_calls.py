"""Calls of an outside API: the address that is called, and answers that are no success."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lyra import vesper
from lyra.tools.http_guard import ANSWER_BYTES_MAX
from lyra.vesper.effects.performers import request_url
from lyra.vesper.effects.request import EffectError

NODE = """\
node_id: calling_v1
type: function
intent: call a server
inputs: {x: string}
outputs: {success: {r: any}}
security: {capabilities_required: [network.http_client.shop]}
flow:
  - {step: call, operation: external_api_call, provider: shop, endpoint: "ENDPOINT", method: METHOD, output: r}
"""


class Shop:
    """Answers with `answer`, and remembers the lines of requests."""

    def __init__(self) -> None:
        self.targets: list[str] = []
        self.answer: tuple[int, bytes] = (200, b'{"ok": true}')
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                owner.targets.append(self.path)
                status, data = owner.answer
                self.send_response(status)
                if status // 100 == 3:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    return  # the client has read enough

            do_GET = do_POST  # noqa: N815 - named by the base class

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def shop():
    server = Shop()
    yield server
    server.close()


def call(shop: Shop, endpoint: str, value: str, mode: str = "python_only", method: str = "POST"):
    node = vesper.load(NODE.replace("ENDPOINT", endpoint).replace("METHOD", method))
    with vesper.Runtime(providers={"shop": shop.url}, grant=["network.http_client.shop"]) as runtime:
        outcome = runtime.execute(node, {"x": value}, mode)
        assert runtime.evidence(node).divergences == 0
    return outcome


@pytest.mark.parametrize("mode", ["python_only", "direct_only", "dual_verify"])
@pytest.mark.parametrize(
    ("value", "segment"),
    [
        ("../../admin/refund", "..%2F..%2Fadmin%2Frefund"),
        ("%2e%2e/%2e%2e/admin", "%252e%252e%2F%252e%252e%2Fadmin"),
        ("a?b=1#c", "a%3Fb%3D1%23c"),
        ("größe x", "gr%C3%B6%C3%9Fe%20x"),
    ],
)
def test_a_value_stays_inside_its_segment(shop, value, segment, mode):
    assert call(shop, "/orders/{x}/lines", value, mode).error is None
    assert shop.targets == [f"/v1/orders/{segment}/lines"]


@pytest.mark.parametrize(
    ("endpoint", "value"),
    [("/orders/{x}", ".."), ("/orders/{x}", "."), ("/orders/.{x}", "."), ("{x}", ".."), ("/a/../{x}", "b")],
)
def test_dot_segments_are_refused(shop, endpoint, value):
    outcome = call(shop, endpoint, value)
    assert (outcome.error.code, shop.targets) == ("effect_failed", [])


def test_a_question_mark_of_the_file_begins_the_query(shop):
    assert call(shop, "/ok?x=1&y={x}", "a&b=c d?/").error is None
    assert shop.targets == ["/v1/ok?x=1&y=a%26b%3Dc%20d%3F%2F"]


def test_parameters_join_the_query_of_the_file():
    assert request_url("http://h/v1", "/a?b=1", {"c": "d e"}) == "http://h/v1/a?b=1&c=d+e"
    assert request_url("http://h/v1", ["/a/", "b/?c", "/d?e=", "f&g"], {}) == "http://h/v1/a/b%2F%3Fc/d?e=f%26g"
    assert request_url("http://h/v1", "", {}) == "http://h/v1"
    for endpoint in ("/a/%2E%2e/b", ["/", "..", "/x"], "."):
        with pytest.raises(EffectError) as caught:
            request_url("http://h/v1", endpoint, {})
        assert caught.value.kind == "bad_endpoint"


@pytest.mark.parametrize("status", [300, 302, 303, 304, 307, 308])
def test_a_redirect_is_no_success(shop, status):
    shop.answer = (status, b"")
    outcome = call(shop, "/charge", "a")
    assert outcome.error.code == "effect_failed"
    assert str(status) in outcome.error.message
    assert len(shop.targets) == 1


def test_a_rule_can_name_the_redirect(shop):
    shop.answer = (302, b"")
    text = (
        NODE.replace("ENDPOINT", "/charge")
        .replace("METHOD", "POST")
        .replace(
            "output: r}", "output: r, on_error: [{error_type: http_302, return_error: {code: moved, message: moved}}]}"
        )
    )
    with vesper.Runtime(providers={"shop": shop.url}, grant=["network.http_client.shop"]) as runtime:
        outcome = runtime.execute(vesper.load(text), {"x": "a"})
    assert outcome.error.code == "moved"


def test_an_answer_that_is_too_large_says_so(shop):
    shop.answer = (200, json.dumps("x" * (ANSWER_BYTES_MAX + 10)).encode())
    outcome = call(shop, "/large", "a", method="GET")
    assert outcome.error.code == "resource_limit"
    assert str(ANSWER_BYTES_MAX) in outcome.error.message
