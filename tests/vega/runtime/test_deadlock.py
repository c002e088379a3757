"""A run that can never go on says so; one that can waits on. In real time."""

from __future__ import annotations

import asyncio

import pytest

from lyra import vega
from lyra.vega import VegaError

OTHERS = """
    agent A { model "sim/echo" }
    fn w() { receive { x => {} } }
    supervisor S { child c = fn w() }
    spawn S;
    spawn fn w();
    spawn fn w() supervised by { strategy restart };
    let a = spawn A;
    a <- "x";
"""


@pytest.mark.parametrize("before", ["", OTHERS], ids=["alone", "with others that wait"])
def test_a_message_that_no_process_will_send(before):
    with pytest.raises(VegaError) as raised:
        vega.run(before + "receive { x => {} }", name="a.vega")
    assert (raised.value.name, raised.value.file) == ("Deadlock", "a.vega")
    assert raised.value.line == before.count("\n") + 1
    assert "no process will send" in raised.value.text


@pytest.mark.parametrize(
    "sender",
    [
        "process::sleep(900ms); m <- 1;",
        "receive { x => {} after 900ms => { m <- 1; } }",
        "m <- later();",
        'm <- 1; throw "and again, after a pause";',
    ],
    ids=["sleeps", "waits with a limit", "calls its host", "is restarted"],
)
def test_a_process_that_still_may_send(sender):
    async def later() -> int:
        await asyncio.sleep(0.9)
        return 1

    lines: list[str] = []
    source = f"""
        fn w(m) {{ {sender} }}
        spawn fn w(process::self()) supervised by {{ strategy restart max_restarts 1 backoff constant(900ms) }};
        receive {{ x => {{ print(x); }} }}
    """
    if "again" in sender:
        source += "receive { x => { print(x); } }"
    vega.run(source, stdout=lines.append, stderr=lambda _: None, host={"later": later})
    assert lines == ["1", "1"] if "again" in sender else ["1"]
