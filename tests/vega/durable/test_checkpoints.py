"""Durable runs from the inside: saved processes, kept output, budgets and full disks over several lives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lyra import vega
from lyra.core.event import Event
from lyra.models.client import LLMClient
from lyra.models.pricing import Price, Prices
from lyra.models.provider import Request
from lyra.models.sim import SimProvider
from lyra.store.space import Space
from lyra.vega import VegaError
from lyra.vega.durable import durable_run as saving
from lyra.vega.durable.durable_run import RunExecution
from lyra.vega.durable.runs import DurableRun
from lyra.vega.runtime.world import RunOptions

AGENT = """
agent A { model "sim/script" max_tokens 2 }
agent M { model "sim/script" max_tokens 2 memory conversation }
let a = spawn A;
"""


class Priced(SimProvider):
    """A dollar a token."""

    _price = Prices({"x/y": {"input_usd_per_mtok": 0, "output_usd_per_mtok": 1_000_000}}).find("x/y")

    def price(self, model: str) -> Price | None:
        return self._price


class Lives:
    """The lives of one run: what each printed and asked."""

    def __init__(self, folder: Path, source: str, **options: Any) -> None:
        self.path = folder / "run.db"
        self.program = vega.compile(source, "x.vega")
        self.options = options
        self.asked: list[str] = []
        self.lines: list[str] = []
        self.life: RunExecution | None = None
        self.heard: list[Event] = []

    def live_once(self, *, until: str | None = None) -> list[str]:
        """One life, to its end or until it has printed a line; what it printed."""
        return asyncio.run(self._live(until))

    async def _live(self, until: str | None) -> list[str]:
        space = Space(self.path, "r")
        lines: list[str] = []
        reached = asyncio.get_running_loop().create_future()

        def write(line: str) -> None:
            lines.append(line)
            if line == until and not reached.done():
                reached.set_result(None)

        run = DurableRun(space)
        before = run if run.has_begun else None
        self.life = life = RunExecution(
            space, self.program, RunOptions(write=write, warn=self.lines.append, **self.options), before=before
        )
        life.kernel.on_event(self.heard.append)
        client = LLMClient()
        client.register("sim", Priced(script=self._answer))
        life.kernel.parts["models"] = client
        life.world.runtime.models.client = client
        work = asyncio.ensure_future(life.run({"file": "x.vega"} if before is None else None))
        try:
            if until is None:
                await asyncio.wait_for(work, 30)
            else:
                await asyncio.wait({work, reached}, return_when=asyncio.FIRST_COMPLETED, timeout=30)
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
        finally:
            space.close()
        return lines

    def _answer(self, request: Request) -> str:
        self.asked.append(" ".join(message.text for message in request.messages))
        return request.messages[-1].text

    def run(self) -> DurableRun:
        return DurableRun(Space(self.path, "r"))


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(saving, "EFFECTS", 4)
    monkeypatch.setattr(saving, "LOOK_EVERY", 1)


WAIT = 'receive { "never" => {} after 50ms => {} }\n'


def test_a_long_loop_is_not_replayed_from_its_beginning(tmp_path):
    """The process was saved on the way: what was before that is forgotten, and never asked for."""
    source = AGENT + "let n = 0;\nlet seen = [];\nfor let i = 0; i < 400; i = i + 1 {\n"
    source += (
        '  n = n + str::len(a <- "x${i}");\n  seen.push(i);\n}\nprint("there");\n' + WAIT + "print([n, seen.len()]);"
    )
    lives = Lives(tmp_path, source, sequential=True)
    assert lives.live_once(until="there") == ["there"]
    main = lives.run().main
    assert bytes(main.restored) != b"\xc0"
    assert len(main.effects) < 600
    assert lives.live_once() == ["[1490, 400]"]
    assert len(lives.asked) == 400
    assert lives.run().output() == ["there", "[1490, 400]"]


def test_what_a_saved_process_holds_is_there_again(tmp_path, often):
    """Variables that are shared, closures, sessions, names, sent messages, numbers and lines printed."""
    source = (
        AGENT
        + """
let shared = [1];
let other = shared;
let add = |x| { shared.push(x); return shared.len(); };
process::register("boss");
let m = spawn M;
session budget $500.00 {
    for let i = 0; i < 10; i = i + 1 {
        add(i);
        print(a <- "word");
        print(budget::used());
    }
    print(m <- "remember");
    print("there");
"""
        + WAIT
        + """
    print(other == shared);
    print(add(99));
    print(process::whereis("boss") == process::self());
    print(m <- "this");
    print(budget::limit());
}
print(budget::limit() > 1000);
"""
    )
    calm = Lives(tmp_path / "calm", source)
    whole = calm.live_once()
    lives = Lives(tmp_path / "killed", source)
    for line in ("1", "5", "there"):
        lives.live_once(until=line)
    lives.live_once()
    assert lives.run().output() == whole
    assert lives.asked == calm.asked
    assert lives.run().main.exit is not None


def test_pids_do_not_tell_how_often_a_process_was_saved(tmp_path, monkeypatch):
    """When a process is saved is not the program's to say, so nothing that it sees may follow from it."""
    source = (
        AGENT
        + """
fn idle() { receive { never => never } }
fn makes() {
    for i in [1, 2, 3] {
        a <- "m${i}";
        print(spawn fn idle());
    }
}
for i in [1, 2, 3, 4] {
    print(a <- "x${i}");
    print(spawn fn idle());
    if i == 3 { print("there"); """
        + WAIT
        + """}
}
makes();
"""
    )
    whole = Lives(tmp_path / "calm", source, sequential=True).live_once()
    monkeypatch.setattr(saving, "EFFECTS", 4)
    monkeypatch.setattr(saving, "LOOK_EVERY", 1)
    lives = Lives(tmp_path / "often", source, sequential=True)
    lives.live_once(until="there")
    assert bytes(lives.run().main.restored) != b"\xc0"
    lives.live_once()
    assert lives.run().output() == whole


def test_a_session_remembers_what_was_spent_in_it(tmp_path):
    """Also where the process was not saved: what is replayed has been paid, and counts."""
    source = AGENT + 'session budget $10.00 {\n  print(a <- "one");\n  print("there");\n' + WAIT
    source += (
        '  print(budget::used());\n  try { while true { a <- "more"; } } catch BudgetExceeded { print("out"); }\n}\n'
    )
    calm = Lives(tmp_path / "calm", source)
    whole = calm.live_once()
    lives = Lives(tmp_path / "killed", source)
    lives.live_once(until="there")
    lives.live_once()
    assert lives.run().output() == whole
    assert "out" in whole
    assert lives.asked == calm.asked


def test_the_budget_of_the_run_counts_all_its_lives(tmp_path):
    source = AGENT + 'a <- "one";\nprint("there");\n' + WAIT + 'while true { a <- "more"; }'
    calm = Lives(tmp_path / "calm", source, budget="10")
    with pytest.raises(VegaError, match="BudgetExceeded"):
        calm.live_once()
    lives = Lives(tmp_path / "killed", source, budget="10")
    lives.live_once(until="there")
    with pytest.raises(VegaError, match="BudgetExceeded"):
        lives.live_once()
    assert lives.asked == calm.asked


def test_much_output_is_kept(tmp_path):
    """Older lines are put together, and no snapshot carries them around."""
    source = 'for let i = 0; i < 3000; i = i + 1 { print("line ${i} of a program that prints a good deal of text"); }'
    lives = Lives(tmp_path, source + '\nprint("there");\n' + WAIT + 'print("end");')
    lives.live_once(until="there")
    run = lives.run()
    assert len(run.facts.packed) > 1
    assert len(run.facts.lines) < 2_000
    lives.live_once()
    output = lives.run().output()
    assert (len(output), output[0][:7], output[2999][:9], output[-1]) == (3002, "line 0 ", "line 2999", "end")


def test_a_full_disk_holds_the_run_still_until_there_is_room(tmp_path):
    """Nothing is lost, nothing is said before it is kept, and every waiting caller is told why."""

    async def live() -> tuple[list[str], list[str]]:
        space = Space(tmp_path / "run.db", "r")
        lines: list[str] = []
        warned: list[str] = []
        source = 'print("one");\nprocess::sleep(50ms);\nprint(str::repeat("much ", 60000));\nprint("three");'
        life = RunExecution(space, vega.compile(source, "x.vega"), RunOptions(write=lines.append, warn=warned.append))
        work = asyncio.ensure_future(life.run({"file": "x.vega"}))
        while not space._ask("SELECT 1 FROM journal"):
            await asyncio.sleep(0)
        pages = space._ask("PRAGMA page_count")[0][0]
        space._ask(f"PRAGMA max_page_count={pages + 2}")
        while not warned:
            assert not work.done()
            await asyncio.sleep(0.01)
        assert "three" not in lines
        space._ask("PRAGMA max_page_count=1000000")
        await asyncio.wait_for(work, 30)
        space.close()
        return lines, warned

    lines, warned = asyncio.run(live())
    assert (len(lines), lines[0], lines[2]) == (3, "one", "three")
    assert "there is no room left" in warned[0]


def test_the_rows_of_a_run_can_be_read_by_others(tmp_path):
    lives = Lives(tmp_path, AGENT + 'print(a <- "one");')
    lives.live_once()
    run = lives.run()
    assert (run.state, run.output(), run.program().name) == ("finished", ["one"], "x.vega")
    assert [json.loads(json.dumps(row.kind)) for row in run.rows(kind="run.printed")] == ["run.printed"]
    assert run.brief()["lines"] == 1
    assert run.spent["llm_calls"] == 1


def test_a_run_that_is_over_is_listed_without_reading_all_its_rows(tmp_path, monkeypatch):
    """However much it did: how it stands is in its first row and its last."""
    lives = Lives(tmp_path, AGENT + 'print(a <- "one");')
    lives.live_once()
    with monkeypatch.context() as patch:
        patch.setattr(DurableRun, "_fold", lambda _: pytest.fail("it was read as a whole"))
        in_short = lives.run().brief()
    assert (in_short["state"], in_short["lines"], in_short["calls"]) == ("finished", 1, 1)


def test_who_listens_to_a_run_hears_what_it_does(tmp_path, monkeypatch):
    """Its beginning and end, what it printed, the names it gave, what a session was paid, what it learned."""
    monkeypatch.setattr("lyra.vega.durable.record._PACK_BYTES", 100)
    source = AGENT + 'process::register("boss");\nlet m = spawn M;\n'
    source += 'session budget $500.00 {\n  print(m <- "word");\n}\nprint("x".repeat(200));\n'
    source += 'a <- "some words ".repeat(300);\nprint("end");'
    lives = Lives(tmp_path, source)
    assert lives.live_once()[-1] == "end"
    heard: dict[str, list[Event]] = {}
    for event in lives.heard:
        heard.setdefault(event.kind, []).append(event)
    assert heard["run.began"][0].data["file"] == "x.vega"
    assert [event.data["text"] for event in heard["run.printed"]] == ["word", "x" * 200, "end"]
    assert [event.data["name"] for event in heard["run.named"]] == ["boss"]
    assert heard["run.paid"][0].data["usage"]
    assert heard["run.learned"][0].data["model"].startswith("sim")
    assert heard["run.packed"][0].data["lines"] >= 1
    assert (heard["run.ended"][0].data["state"], heard["run.ended"][0].data["lines"]) == ("finished", 3)
