"""Programs on a model that fails by a seed: crashes, 429s, answers that never come. Trees behave, nothing leaks."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from lyra import Kernel, vega
from lyra.models.client import LLMClient
from lyra.models.request import Request
from lyra.models.script import Reply
from lyra.models.sim import SimProvider
from lyra.testing.clock import SimClock
from lyra.testing.loop import run as run_in_virtual_time

FAULTS = {
    "fine": {"text": "ok"},
    "slow": {"text": "ok", "first_s": 3},
    "rate_limit": {"error": {"kind": "rate_limit"}},
    "overloaded": {"error": {"kind": "overloaded"}},
    "bad": {"error": {"kind": "bad_request"}},
    "hangs": {"text": "ok", "first_s": 10_000},
    "breaks": {"text": "ok then more", "error": {"kind": "stream_truncated", "after_chunks": 1}},
}

TEAM = """
agent Steady { model "sim/script" timeout 20s retry { max_attempts 2 backoff constant(1s) } memory conversation }
agent Flaky { model "sim/script" timeout 20s retry { max_attempts 1 } }
agent Careful { model "sim/script" timeout 5s circuit_breaker { threshold 3 reset_after 10s } concurrency 2 }

fn worker(main, number, p) {
    let done = 0;
    let failed = 0;
    for i in list::range(0, 6) {
        try { p <- "job ${i} of ${number}"; done = done + 1; } catch Error(reason) { failed = failed + 1; }
        process::sleep(500ms);
    }
    main <- ["worker", done, failed];
}

fn crashing(main) { receive { "go" => { main <- "up"; throw "worker crashed"; } } }

supervisor Pool { strategy restart max_restarts 50 window 1s
    child one = fn crashing(process::whereis("main"))
    child two = fn crashing(process::whereis("main")) }

process::register("main");
let me = process::self();
spawn Pool;
let agents = [
    spawn Steady supervised by { strategy restart max_restarts 100 window 60s },
    spawn Flaky,
    spawn Careful supervised by { strategy restart max_restarts 100 window 60s backoff constant(1s) },
];
for i in list::range(0, 6) { spawn fn worker(me, i, agents[i % 3]); }
for i in list::range(0, 5) {
    let p = process::whereis("one");
    if p != null { p <- "go"; receive { "up" => {} after 5s => {} } }
    process::sleep(10ms);
}
let streamed = 0;
for i in list::range(0, 4) {
    try { for chunk in agents[2] <~ "story" { streamed = streamed + 1; } } catch Error(r) { }
}
try { parallel { let a = agents[0] <- "a"; let b = agents[2] <- "b"; let c = agents[2] <- "c"; } } catch Error(r) { }
let total = 0;
for i in list::range(0, 6) { receive { ["worker", done, failed] => { total = total + done + failed; } } }
print(total);
print(process::whereis("one") != null && process::whereis("two") != null);
"""


def played(seed: int) -> tuple[list[str], int, int]:
    chance = random.Random(seed)
    lines: list[str] = []
    clock = SimClock()
    calls = 0

    def answer(_: Request) -> Any:
        nonlocal calls
        calls += 1
        return Reply.from_data(FAULTS[chance.choice(list(FAULTS))])

    async def main() -> int:
        async with Kernel(clock=clock, seed=seed) as kernel:
            client = LLMClient()
            client.register("sim", SimProvider(script=answer))
            kernel.parts["models"] = client
            await vega.run(TEAM, kernel=kernel, stdout=lines.append, stderr=lambda _: None)
            for _ in range(50):
                await asyncio.sleep(0)
            return kernel.live

    return lines, run_in_virtual_time(main(), clock=clock), calls


@pytest.mark.parametrize("seed", range(12))
def test_every_call_comes_to_an_end_and_nothing_is_left(seed):
    lines, live, calls = played(seed)
    assert lines == ["36", "true"]
    assert live == 0
    assert calls > 10


def test_the_same_seed_is_the_same_run():
    assert played(3) == played(3)
