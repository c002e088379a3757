"""Whatever a client sends to AG-UI: a stream of valid events or a refusal with a 4xx status, never a 5xx."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cases import cases
from tests.server.http.support import echo, in_loop, serving
from tests.server.protocols.agui.support import events_of, run_input

GOOD = run_input(
    "t",
    "r",
    {"id": "s", "role": "system", "content": "be brief"},
    {
        "id": "a",
        "role": "assistant",
        "content": "hi",
        "toolCalls": [{"id": "k", "type": "function", "function": {"name": "note", "arguments": "{}"}}],
    },
    {"id": "m", "role": "tool", "toolCallId": "k", "content": "ok"},
    "hello",
    tools=[{"name": "pick", "description": "d", "parameters": {"type": "object"}}],
    context=[{"description": "d", "value": "v"}],
    state={"a": 1},
    forwardedProps={"lyra": {"onDisconnect": "stop"}},
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    rows = [path]
    if isinstance(value, dict):
        rows += [place for key, inner in value.items() for place in places(inner, (*path, key))]
    elif isinstance(value, list):
        rows += [place for index, inner in enumerate(value) for place in places(inner, (*path, index))]
    return rows


PLACES = [place for place in places(GOOD) if place]


def changed(place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    given_input = copy.deepcopy(GOOD)
    inner: Any = given_input
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return given_input


@pytest.mark.slow
def test_a_changed_input_is_answered_or_refused() -> None:
    """Any part of a good input replaced by any JSON value."""

    @settings(max_examples=cases(5), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(st.sampled_from(PLACES), JSON), min_size=25, max_size=25))
    def attack(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
        in_loop(send(changes))

    async def send(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
        async with serving(echo()) as served:
            for place, value in changes:
                body = json.dumps(changed(place, value)).encode("utf-8", "surrogatepass")
                answer = await served.ada.post("/agui/echo", content=body)
                assert answer.status_code == 200 or 400 <= answer.status_code < 500, (place, value, answer.text)
                if answer.status_code == 200:
                    events_of(answer.text)

    attack()


HOSTILE: list[bytes] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe",
    b'{"threadId":"t","runId":"r","messages":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"threadId":"t","runId":"r","messages":[],"state":' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}",
    b'{"threadId":"t","runId":"r","messages":[{"id":"1","role":"user","content":"\\ud800"}]}',
    b'{"threadId":"\\u0000","runId":"r","messages":[]}',
    b'{"threadId":"t","runId":"","messages":[]}',
    b'{"threadId":"' + b"x" * 5000 + b'","runId":"r","messages":[]}',
    json.dumps(run_input("t", "r", "x", tools=[{"name": "a b", "description": "d"}])).encode(),
    json.dumps(
        run_input("t", "r", "x", tools=[{"name": "t", "description": "d", "parameters": {"type": "array"}}])
    ).encode(),
    json.dumps(run_input("t", "r", "x", tools=[{"name": "t", "description": "d"}] * 2)).encode(),
    json.dumps(run_input("t", "r", "x", tools=[{"name": f"t{n}", "description": "d"} for n in range(200)])).encode(),
    json.dumps(run_input("t", "r", "x", state=[1])).encode(),
    json.dumps(run_input("t", "r", "x", forwardedProps={"lyra": {"onDisconnect": "explode"}})).encode(),
    json.dumps(run_input("t", "r", "x", resume=[{"interruptId": "x", "status": "resolved"}])).encode(),
]


def test_hostile_bodies_are_refused() -> None:
    async def main() -> None:
        async with serving(echo()) as served:
            for body in HOSTILE:
                answer = await served.ada.post("/agui/echo", content=body)
                assert 400 <= answer.status_code < 500, (body[:120], answer.status_code, answer.text[:200])
            alive = await served.ada.post("/agui/echo", json=run_input("t", "r", "still here"))
            assert events_of(alive.text)[-1].type == "RUN_FINISHED"

    in_loop(main())
