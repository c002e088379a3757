"""A Picture shows a run as it is: who there is, what each waits for, what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lyra.core.budgets.money import Money
from lyra.errors import VegaError
from lyra.vega import run
from lyra.vega.runtime.picture import Picture, PictureRow

SLOW = 'model "sim/script:script.toml"'


@pytest.fixture(autouse=True)
def script(tmp_path, monkeypatch):
    """A model that takes a moment, and fails the first time it is asked by a flaky agent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.toml").write_text(
        """
        first_s = 0.05
        [price]
        input_usd_per_mtok = 1000
        output_usd_per_mtok = 1000
        [[replies]]
        system = "flaky"
        text = "sorry"
        error = { kind = "overloaded", attempts = 1 }
        [[replies]]
        text = "ok"
        """
    )


def watched(source: str, **options: Any) -> tuple[Picture, list[list[PictureRow]]]:
    """The picture at the end, and how it was every few milliseconds."""
    picture, frames = Picture(), []

    async def main() -> None:
        work = asyncio.ensure_future(run(source, picture=picture, stdout=lambda _: None, **options))
        while not work.done():
            frames.append(picture.rows(1000)[0])
            await asyncio.sleep(0.01)
        await work

    asyncio.run(main())
    return picture, frames


def row(rows: list[PictureRow], name: str) -> PictureRow:
    return next(row_ for row_ in rows if row_.name == name)


def ever(frames: list[list[PictureRow]], test: Callable[[PictureRow], bool]) -> bool:
    return any(test(row_) for rows in frames for row_ in rows)


def test_calls_belong_to_the_process_that_was_asked():
    """Two processes of one agent have a row each."""
    picture, frames = watched(f"""
        agent A {{ {SLOW} }}
        let first = spawn A;
        let second = spawn A;
        first <- "x"; first <- "y"; second <- "z";
    """)
    rows, more = picture.rows(10)
    assert [(row_.name, row_.calls, row_.state) for row_ in rows] == [
        ("main", 0, "ended"),
        ("A", 2, "idle"),
        ("A", 1, "idle"),
    ]
    assert more == 0
    total = picture.total()
    assert (total.calls, total.tokens, total.cost) == (
        3,
        sum(row_.tokens for row_ in rows),
        sum(row_.cost for row_ in rows),
    )
    assert total.cost == Money(total.tokens * 1000)
    assert ever(frames, lambda row_: row_.name == "main" and row_.waits_for == "A")
    assert ever(frames, lambda row_: row_.state == "working" and row_.waits_for == "sim/script:script.toml")


@pytest.mark.parametrize("memory", ["", "memory conversation"])
@pytest.mark.parametrize("call", ['a <- "x";', 'for piece in a <~ "x" { print(piece); }'])
def test_every_way_to_ask_is_counted(memory: str, call: str):
    """With memory and without, at once and as a stream; it works while it is asked, and then no more."""
    picture, frames = watched(f"agent A {{ {SLOW} {memory} }} let a = spawn A; {call} {call}")
    assert row(picture.rows(10)[0], "A")[2:4] == ("idle", 2)
    assert ever(frames, lambda row_: row_.name == "A" and row_.state == "working")


def test_a_crash_is_a_restart_of_the_same_row():
    """While its supervisor waits it is restarting."""
    picture, frames = watched(f"""
        agent Flaky {{ {SLOW} system "flaky" retry {{ max_attempts 1 }} }}
        let flaky = spawn Flaky supervised by {{ strategy restart backoff constant(50ms) }};
        try {{ flaky <- "x"; }} catch AgentFailed {{ flaky <- "x"; }}
    """)
    flaky = row(picture.rows(10)[0], "Flaky")
    assert (flaky.state, flaky.calls, flaky.restarts) == ("idle", 2, 1)
    assert ever(frames, lambda row_: row_.name == "Flaky" and row_.state == "restarting")
    assert picture.total().restarts == 1


def test_children_of_a_supervisor_keep_their_row():
    """Under their supervisor and their name, whatever pid they have now."""
    picture, _ = watched("""
        fn broken() { process::whereis("main") <- "up"; throw "again"; }
        fn fine() { process::sleep(10s); }
        supervisor Team { strategy restart max_restarts 100 window 60s child one = fn broken() child two = fn fine() }
        process::register("main");
        spawn Team;
        for i in list::range(0, 4) { receive { up => null, } }
    """, stderr=lambda _: None)  # fmt: skip
    rows = picture.rows(10)[0]
    assert [(row_.name, row_.state) for row_ in rows if row_.name != "broken"] == [
        ("main", "ended"),
        ("Team", "watching"),
        ("fine", "waiting"),
    ]
    assert sum(row_.name == "broken" for row_ in rows) == 1
    assert row(rows, "broken").restarts >= 3
    assert row(rows, "fine").restarts == 0


def test_processes_that_ended_well_are_counted_and_those_that_failed_stay():
    picture, frames = watched("""
        fn quick() { process::sleep(20ms); }
        fn broken() { throw "no"; }
        fn listens() { receive { stop => null, } }
        spawn fn listens();
        process::monitor(spawn fn broken());
        for i in list::range(0, 50) { process::monitor(spawn fn quick()); }
        for i in list::range(0, 51) { receive { down => null, } }
    """, stderr=lambda _: None)  # fmt: skip
    rows, more = picture.rows(10)
    assert [(row_.name, row_.state, row_.waits_for) for row_ in rows] == [
        ("main", "ended", ""),
        ("listens", "waiting", "a message"),
        ("broken", "failed", ""),
    ]
    assert (more, picture.total().ended) == (0, 50)
    assert ever(frames, lambda row_: row_.name == "main" and row_.waits_for == "a message")
    assert ever(frames, lambda row_: row_.name == "quick" and row_.waits_for == "line 2")


def test_the_busiest_are_chosen_in_the_order_in_which_they_began():
    picture, _ = watched(f"""
        agent A {{ {SLOW} }}
        fn listens() {{ receive {{ stop => null, }} }}
        for i in list::range(0, 1000) {{ spawn fn listens(); }}
        let a = spawn A;
        a <- "x";
    """)
    rows, more = picture.rows(3)
    assert [row_.name for row_ in rows] == ["main", "listens", "A"]
    assert more == 999


def test_the_budget_is_the_runs_or_the_sessions():
    source = f'agent A {{ {SLOW} max_tokens 10 }} session budget $0.50 {{ let a = spawn A; a <- "x"; }}'
    inside, whole = watched(source)[0].total(), watched(source, budget="$2.00")[0].total()
    assert (inside.limit, whole.limit) == (Money.parse("$0.50"), Money.parse("$2.00"))
    assert inside.spent == inside.cost == whole.spent > 0
    assert watched("process::sleep(1ms);")[0].total().limit is None


def test_news_are_told_one_by_one():
    news: list[tuple[str, str]] = []
    source = f"""
        agent Flaky {{ {SLOW} system "flaky" retry {{ max_attempts 2 backoff constant(1ms) }} }}
        let flaky = spawn Flaky;
        flaky <- "x";
    """
    run(source, picture=Picture(lambda name, sentence: news.append((name, sentence))))
    assert news[0] == ("Flaky", "started")
    assert news[1][1].startswith("try 2 after 0.0 s: ")
    assert news[2][1].endswith("tokens, $0.004")
    assert len(news) == 3


def test_a_failed_run_has_a_last_picture():
    picture = Picture()
    with pytest.raises(VegaError):
        run('process::sleep(1ms); throw "no";', picture=picture)
    assert [row_.state for row_ in picture.rows(10)[0]] == ["failed"]
