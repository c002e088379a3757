"""Vega programs on a model that fails by a seed: crashes, 429s, answers that never come.

Three scenes a seed. `calls`: one supervised agent is asked many things, some of which fail; a model of a page says what
each call comes to, which reach the provider, and when the agent is gone for good. `tree`: children of a supervisor
crash and end; a table says who starts anew. `team`: workers, agents with memory, breakers and streams all at once, on
a model that does anything; every call comes to an end. After each, no process is left. Time is virtual: a run is a
function of its seed. Prints nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from lyra.core.ids import ProcessRandom, make_random
from lyra.kernel.kernel import Kernel
from lyra.models.client import LLMClient
from lyra.models.provider import Request
from lyra.models.script import Reply
from lyra.models.sim import SimProvider
from lyra.testing.clock import SimClock
from lyra.testing.loop import run as run_in_virtual_time

__all__ = ["SCENES", "VegaFaults", "calls", "run", "team", "tree"]

_TURNS_TO_END: Final = 50  # of the loop: for what was told to end


class VegaFaults(NamedTuple):
    """How many seeds ran, the model calls in them, and what went wrong (a sentence and the seed of each)."""

    seeds: int
    calls: int
    failures: list[str]


class Played(NamedTuple):
    lines: list[str]
    live: int  # processes that were left
    calls: int


def run(seeds: int, seed: int = 0, *, progress: Callable[[int, int], object] = lambda _done, _of: None) -> VegaFaults:
    """Play every scene with that many seeds."""
    failures: list[str] = []
    asked = 0
    for offset in range(seeds):
        for name, scene in SCENES.items():
            problem, calls_made = scene(seed + offset)
            asked += calls_made
            if problem:
                failures.append(f"{name} seed {seed + offset}: {problem}")
        progress(offset + 1, seeds)
    return VegaFaults(seeds, asked, failures)


def _play(source: str, answer: Callable[[Request], Any], seed: int) -> Played:
    """One program in virtual time, on a kernel that outlives it."""
    from lyra import vega

    lines: list[str] = []
    clock = SimClock()
    asked = 0

    def counted(request: Request) -> Any:
        nonlocal asked
        asked += 1
        return answer(request)

    async def main() -> int:
        async with Kernel(clock=clock, seed=seed) as kernel:
            client = LLMClient()
            client.register("sim", SimProvider(script=counted))
            kernel.parts["models"] = client
            await vega.run(source, kernel=kernel, stdout=lines.append, stderr=lambda _: None)
            for _ in range(_TURNS_TO_END):
                await asyncio.sleep(0)
            return kernel.live

    return Played(lines, run_in_virtual_time(main(), clock=clock), asked)


def _compared(got: Iterable[str], wanted: Iterable[str], played: Played) -> str:
    """What differs, in a sentence; "" if nothing does."""
    if played.live:
        return f"{played.live} processes are left"
    got, wanted = list(got), list(wanted)
    for step, (is_, should) in enumerate(zip(got, wanted, strict=False)):
        if is_ != should:
            return f"step {step}: {is_!r}, where {should!r} was to come"
    return "" if len(got) == len(wanted) else f"{len(got)} steps, where {len(wanted)} were to come"


# ---------------------------------------------------------------- one agent and its calls

_KINDS: Final = ("fine", "fine", "fine", "bad", "busy", "flaky", "hangs", "cut")
_TIMEOUT_S: Final = 5


def calls(seed: int) -> tuple[str, int]:
    """One agent, its calls one after the other, and what each has to come to."""
    rng = make_random(seed)
    strategy = rng.choice(["restart", "restart", "restart", "stop", "escalate"])
    most, window_s, pause_s = rng.randrange(4), rng.choice([7, 61]), rng.choice([0, 0, 2])
    tries, memory = rng.choice([1, 2, 3]), rng.choice(["none", "conversation"])
    plan = [(rng.choice(_KINDS), rng.choice([0, 1, 3])) for _ in range(12)]
    backoff = f"backoff constant({pause_s}s)" if pause_s else ""
    source = f"""
        agent Bot {{ model "sim/script" timeout {_TIMEOUT_S}s memory {memory}
            retry {{ max_attempts {tries} backoff constant(100ms) on [overloaded, rate_limit, temporary] }} }}
        let bot = spawn Bot supervised by {{ strategy {strategy} max_restarts {most} window {window_s}s {backoff} }};
        let asked = 0;
        for each in {_literal(plan)} {{
            asked = asked + 1;
            let said = "";
            try {{ said = bot <- "${{asked}} ${{each[0]}}"; }}
            catch DeadlineExceeded(r) {{ said = "late"; }}
            catch AgentFailed(r) {{ said = match str::contains(r, "is gone") {{ true => "gone", _ => "failed" }}; }}
            print("${{each[0]}} ${{said}} ${{time::now()}}");
            process::sleep(1s * each[1]);
        }}
    """
    tried: dict[str, int] = {}
    played = _play(source, lambda request: _calls_answer(request, tried), seed)
    wanted = _expected(played, plan, tried, Policy(strategy, most, window_s, tries))
    return _compared([line.rpartition(" ")[0] for line in played.lines], wanted, played), played.calls


def _literal(plan: list[tuple[str, int]]) -> str:
    return "[" + ", ".join(f'["{kind}", {pause}]' for kind, pause in plan) + "]"


def _calls_answer(request: Request, tried: dict[str, int]) -> Any:
    question = request.messages[-1].text
    tried[question] = tried.get(question, 0) + 1
    kind = question.partition(" ")[2]
    if kind == "flaky" and tried[question] > 1:
        kind = "fine"
    return Reply.from_data(_REPLIES[kind])


_REPLIES: Final[dict[str, dict[str, Any]]] = {
    "fine": {"text": "ok"},
    "slow": {"text": "ok", "first_s": 3},
    "bad": {"error": {"kind": "bad_request"}},
    "busy": {"error": {"kind": "overloaded"}},
    "flaky": {"error": {"kind": "rate_limit"}},
    "hangs": {"text": "ok", "first_s": 10_000},
    "cut": {"text": "ok then more", "error": {"kind": "stream_truncated", "after_chunks": 1}},
}


class Policy(NamedTuple):
    strategy: str
    most: int
    window_s: float
    tries: int = 1


def _expected(played: Played, plan: list[tuple[str, int]], tried: dict[str, int], policy: Policy) -> list[str]:
    """What each call comes to. The times are those the run itself tells: only what follows from them is judged."""
    crashes: list[float] = []
    is_gone = False
    wanted: list[str] = []
    for number, ((kind, _), line) in enumerate(zip(plan, played.lines, strict=False), start=1):
        at_s = float(line.rpartition(" ")[2])
        outcome = _outcome(kind, policy.tries)
        requests = {"fine": 1, "bad": 1, "hangs": 1, "flaky": min(2, policy.tries)}.get(kind, policy.tries)
        if is_gone:
            outcome, requests = "gone", 0
        elif outcome == "failed":
            crashes = [then for then in crashes if at_s - then <= policy.window_s] + [at_s]
            is_gone = policy.strategy != "restart" or len(crashes) > policy.most
        requests_made = tried.get(f"{number} {kind}", 0)
        wanted.append(
            f"{kind} {outcome}" if requests_made == requests else f"{kind}: {requests_made} requests, not {requests}"
        )
    return wanted


def _outcome(kind: str, tries: int) -> str:
    if kind == "flaky":
        return "ok" if tries > 1 else "failed"
    return {"fine": "ok", "hangs": "late"}.get(kind, "failed")


# ---------------------------------------------------------------- children of a supervisor


def tree(seed: int) -> tuple[str, int]:
    """A supervisor whose children crash and end, and who has to start anew."""
    rng = make_random(seed ^ 0x7EEE)
    strategy = rng.choice(["restart", "restart_all", "rest_for_one", "stop", "escalate"])
    names = "abcde"[: rng.randrange(2, 6)]
    most, window_s = rng.randrange(4), rng.choice([5, 61])
    acts = [(rng.choice(names), rng.choice(["crash", "crash", "crash", "end"])) for _ in range(8)]
    pauses = [rng.choice([0, 2, 3]) for _ in acts]
    children = "\n".join(f'child {name} = fn worker("{name}", process::whereis("main"))' for name in names)
    steps = "\n".join(
        f'act("{name}", "{what}"); process::sleep({pause}s);' for (name, what), pause in zip(acts, pauses, strict=True)
    )
    source = f"""
        fn worker(name, main) {{
            main <- name;
            receive {{ "crash" => {{ throw "boom"; }} "end" => {{ return; }} }}
        }}
        supervisor Tree {{ strategy {strategy} max_restarts {most} window {window_s}s {children} }}
        fn heard() {{
            let found = [];
            let goes_on = true;
            while goes_on {{
                receive {{
                    ["DOWN", who, reason] => {{ list::push(found, "down"); }}
                    name => {{ list::push(found, name); }}
                    after 50ms => {{ goes_on = false; }}
                }}
            }}
            return str::join(found, "");
        }}
        fn act(name, what) {{
            let child = process::whereis(name);
            if child != null {{ child <- what; }}
            print("${{name}} ${{what}}: ${{heard()}} ${{time::now()}}");
        }}
        process::register("main");
        spawn Tree;
        print("start: ${{heard()}} ${{time::now()}}");
        {steps}
    """
    played = _play(source, lambda _: "", seed)
    wanted = [f"start: {names}", *_restarts(played, names, acts, Policy(strategy, most, window_s))]
    return _compared([line.rpartition(" ")[0] for line in played.lines], wanted, played), played.calls


_AGAIN: Final[dict[str, Callable[[str, int], str]]] = {
    "restart": lambda names, place: names[place],
    "restart_all": lambda names, _: names,
    "rest_for_one": lambda names, place: names[place:],
}


def _restarts(played: Played, names: str, acts: list[tuple[str, str]], policy: Policy) -> list[str]:
    """Which children start after each act: in order, and none once the supervisor has given up, which main is told."""
    alive = set(names)
    crashes: list[float] = []
    wanted = []
    for (name, what), line in zip(acts, played.lines[1:], strict=False):
        at_s = float(line.rpartition(" ")[2])
        started = ""
        if name in alive:
            alive.discard(name)
            if what == "crash" and policy.strategy == "stop":
                started = "down"
            elif what == "crash" and policy.strategy == "escalate":
                alive.clear()
            elif what == "crash":
                crashes = [then for then in crashes if at_s - then <= policy.window_s] + [at_s]
                is_over = len(crashes) > policy.most
                started = "down" if is_over else _AGAIN[policy.strategy](names, names.index(name))
                alive = set() if is_over else alive | set(started)
        wanted.append(f"{name} {what}: {started}")
    return wanted


# ---------------------------------------------------------------- everything at once

_TEAM: Final = """
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

fn dying() { process::sleep(700ms); throw "dead"; }
fn reader(p) { process::link(spawn fn dying()); for chunk in p <~ "cut off" { } }
fn leaver(p) { for chunk in p <~ "left" { process::exit("enough"); } }

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
for p in agents { spawn fn reader(p); spawn fn leaver(p); }
for i in list::range(0, 5) {
    let p = process::whereis("one");
    if p != null { p <- "go"; receive { "up" => {} after 5s => {} } }
    process::sleep(10ms);
}
for i in list::range(0, 4) {
    try { for chunk in agents[2] <~ "story" { if i == 1 { break; } } } catch Error(r) { }
}
let unread = agents[2] <~ "an answer that is never read";
try { parallel { let a = agents[0] <- "a"; let b = agents[2] <- "b"; let c = agents[2] <- "c"; } } catch Error(r) { }
let total = 0;
for i in list::range(0, 6) { receive { ["worker", done, failed] => { total = total + done + failed; } } }
print(total);
print(process::whereis("one") != null && process::whereis("two") != null);
"""


def team(seed: int) -> tuple[str, int]:
    """Workers, agents and streams on a model that does anything: all that was begun comes to an end."""
    rng: ProcessRandom = make_random(seed ^ 0x7EA3)
    played = _play(_TEAM, lambda _: Reply.from_data(_REPLIES[rng.choice(list(_REPLIES))]), seed)
    return _compared(played.lines, ["36", "true"], played), played.calls


SCENES: Final[dict[str, Callable[[int], tuple[str, int]]]] = {"calls": calls, "tree": tree, "team": team}
