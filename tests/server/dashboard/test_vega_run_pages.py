"""The page of a durable Vega run: scrubbed with its variables, forked from a step, and watched beside its fork."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from html import escape
from pathlib import Path
from typing import Any

import pytest

from lyra.cli.main import main as lyra
from lyra.server.dashboard.run_view import VegaRunFacts, vega_notes
from lyra.vega.durable.runs import Runs
from tests.cli.vega.test_node_imports import PRICE
from tests.server.dashboard.support import ADA, OPERATOR, VIEWER, Browser, Served, logged_in, serving
from tests.server.http.support import in_loop
from tests.server.http.test_timelines import guide

SOURCE = """\
agent Poet { model "sim/script" }
let poet = spawn Poet;
fn asked(topic) {
    let words = "write of ${topic}";
    return poet <- words;
}
let poem = asked("the sea");
print(poem);
if poem == "stones" { print(poet <- "again"); }
print(poet <- "last");
"""
SCRIPT = """\
replies:
  - {user: "write of (.*)", text: "waves of {1}"}
  - {text: "You said: {user}"}
"""
MODEL_STEP = 5  # where the poet's model answers for the first time


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with a Vega run that is over."""
    (tmp_path / "script.yaml").write_text(SCRIPT)
    monkeypatch.setenv("LYRA_SIM_SCRIPT", str(tmp_path / "script.yaml"))
    return ran(tmp_path, SOURCE)


def ran(folder: Path, source: str, name: str = "poems") -> str:
    (folder / "p.vega").write_text(source)
    store = str(folder / "run.db")
    assert lyra(["run", str(folder / "p.vega"), "--db", store, "--run-id", name]) == 0
    return store


def in_browser(store: str, test: Callable[[Served, Browser], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with serving(guide(), store=store) as parts, logged_in(parts, OPERATOR) as browser:
            await test(parts, browser)

    in_loop(main())


async def until(browser: Browser, path: str, text: str) -> str:
    async with asyncio.timeout(30):
        while text not in (page := await browser.page(path)):
            await asyncio.sleep(0.05)
    return page


def test_a_vega_run_is_listed_with_its_plan(store: str) -> None:
    """With its state, for those who see all runs."""

    async def look(parts: Served, browser: Browser) -> None:
        listed = await browser.page("/runs?kind=vega")
        assert 'runs/poems"' in listed
        assert "finished" in listed
        page = await browser.page("/runs/poems")
        assert "<h1>Run of poems</h1>" in page
        assert "<h2>Plan</h2>" in page
        assert f"vega replay poems --db {store}" in page
        async with logged_in(parts, ADA) as ada:
            await ada.page("/runs/poems", status=404)
            assert "poems" not in await ada.page("/runs")

    in_browser(store, look)


def test_the_variables_of_its_program_are_shown_at_each_step(store: str) -> None:
    """Function by function, with what was printed so far; over HTTP, too. A viewer starts no program."""

    async def look(parts: Served, browser: Browser) -> None:
        assert "Run the program up to here" in await browser.page(f"/runs/poems?at={MODEL_STEP}")
        inside = await browser.page(f"/runs/poems?at={MODEL_STEP}&frames=1", region="moment")
        assert "asked, line 5 of p.vega" in inside
        assert f"<dt>words</dt><dd><code>{escape(chr(34))}write of the sea" in inside
        assert "<dt>poem</dt>" not in inside
        assert "Nothing was printed yet." in inside
        after = await browser.page("/runs/poems?frames=1&at=9", region="moment")
        assert f"<dt>poem</dt><dd><code>{escape(chr(34))}waves of the sea" in after
        assert '<h3>Output</h3><pre tabindex="0">waves of the sea</pre>' in after
        told = (await parts.operator.get("/api/runs/poems/at/9", params={"frames": "true"})).json()
        assert told["frames"][-1]["variables"]["poem"] == '"waves of the sea"'
        assert told["output"] == ["waves of the sea"]
        async with logged_in(parts, VIEWER) as viewer:
            assert "<dt>poem</dt>" not in await viewer.page("/runs/poems?at=9&frames=1")

    in_browser(store, look)


@pytest.mark.slow
def test_it_is_forked_from_a_step_and_shown_beside_the_fork(store: str) -> None:
    """The fork is a run of its own in the same store. What its program asks as before is answered as it was, and what
    is new is asked for real; both are told in the audit log's words."""

    async def fork(parts: Served, browser: Browser) -> None:
        fields = {"at": str(MODEL_STEP), "what": "reply", "text": "stones"}
        answer = await browser.post("/acts/runs/poems/fork", fields)
        assert answer.status_code == 303, answer.text
        assert "other=poems-fork-1" in answer.headers["location"]
        page = await until(browser, f"/runs/poems?at={MODEL_STEP}&other=poems-fork-1", "You said: again")
        assert f"Step {MODEL_STEP} is the first that differs." in page
        assert 'href="../runs/poems-fork-1?at=' in page
        assert "stones" in page
        done = await until(browser, "/runs/poems-fork-1", "finished")
        assert "Fork of" in done
        assert "fork of poems" in await browser.page("/runs?kind=vega")
        first = await browser.page("/runs/poems")
        assert "finished" in first
        api = await parts.operator.post("/api/runs/poems/fork", json={"at": MODEL_STEP, "reply": "third"})
        assert api.status_code == 202, api.text
        assert api.json()["pid"] == "poems-fork-2"
        await until(browser, "/runs/poems-fork-2", "finished")

    in_browser(store, fork)
    with Runs(store) as runs:
        assert runs["poems"].output() == ["waves of the sea", "You said: last"]
        assert runs["poems-fork-1"].output() == ["stones", "You said: again", "You said: last"]
        assert runs["poems-fork-2"].output() == ["third", "You said: last"]
        assert runs["poems-fork-1"].state == "finished"


def test_a_step_without_a_reply_says_so(store: str) -> None:
    """The form is disabled there, and the act refused; so is a change that Vega runs do not have."""

    async def refuse(_: Served, browser: Browser) -> None:
        page = await browser.page("/runs/poems?at=2")
        assert "This step has no reply" in page
        assert "<fieldset disabled" in page
        assert 'value="prompt"' not in page
        assert "<fieldset disabled" not in await browser.page(f"/runs/poems?at={MODEL_STEP}")
        for fields in (
            {"at": "2", "what": "reply", "text": "x"},
            {"at": str(MODEL_STEP), "what": "none"},
            {"at": str(MODEL_STEP), "what": "model", "text": "sim/echo"},
            {"at": "900", "what": "reply", "text": "x"},
        ):
            assert (await browser.post("/acts/runs/poems/fork", fields)).status_code == 400

    in_browser(store, refuse)
    with Runs(store) as runs:
        assert runs.names == ["poems"]


def test_only_an_operator_forks_it(store: str) -> None:
    """Its program runs with the rights of the server."""

    async def refuse(parts: Served, _: Browser) -> None:
        fields = {"at": str(MODEL_STEP), "what": "reply", "text": "x"}
        for token, status in ((ADA, 404), (VIEWER, 403)):  # for a user there is no such run
            async with logged_in(parts, token) as other:
                assert (await other.post("/acts/runs/poems/fork", fields)).status_code == status

    in_browser(store, refuse)
    with Runs(store) as runs:
        assert runs.names == ["poems"]


@pytest.mark.slow
def test_hostile_text_of_a_program_is_shown_as_text(tmp_path: Path) -> None:
    """Of its variables, its output and its names."""
    hostile = "<img src=x onerror=alert(1)></script>"
    source = f'agent Bot {{ model "sim/echo" }}\nlet bot = spawn Bot;\nlet text = bot <- "{hostile}";\nprint(text);\n'
    store = ran(tmp_path, source)

    async def look(_: Served, browser: Browser) -> None:
        for at in range(8):
            page = await browser.page(f"/runs/poems?at={at}&frames=1&other=poems")
            assert "<img" not in page
        assert escape(hostile) in page

    in_browser(store, look)


@pytest.mark.slow
def test_a_fork_under_way_stays_in_the_store_when_the_server_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page follows it while it runs; later it says how it goes on, which it then does."""
    (tmp_path / "script.yaml").write_text(SCRIPT)
    monkeypatch.setenv("LYRA_SIM_SCRIPT", str(tmp_path / "script.yaml"))
    pauses = 'if poem == "stones" { process::sleep(1h); }'
    store = ran(tmp_path, SOURCE.replace('if poem == "stones" { print(poet <- "again"); }', pauses))

    async def fork(_: Served, browser: Browser) -> None:
        fields = {"at": str(MODEL_STEP), "what": "reply", "text": "stones"}
        assert (await browser.post("/acts/runs/poems/fork", fields)).status_code == 303
        page = await until(browser, "/runs/poems-fork-1", "sleeps 3.6e+03 s")
        assert 'data-state="running"' in page
        assert 'data-refresh="1000"' in page
        assert "vega resume" not in page

    async def later(_: Served, browser: Browser) -> None:
        assert f"vega resume poems-fork-1 --db {store}" in await browser.page("/runs/poems-fork-1")
        assert "data-refresh" not in (await browser.page("/runs/poems")).split('id="main"')[1]

    in_browser(store, fork)
    with Runs(store) as runs:
        assert (runs["poems-fork-1"].state, runs["poems-fork-1"].owner) == ("stopped", "")
    in_browser(store, later)


def test_what_a_run_asks_is_shown_with_the_command_that_answers() -> None:
    facts = VegaRunFacts("r", "p.vega", "/a b/run.db", "waiting", "", 0, ["<b>Really?</b>"], "")
    notes = str(vega_notes(facts, "", is_executed=False))
    assert "It asks a person: &lt;b&gt;Really?&lt;/b&gt;" in notes
    assert escape("vega answer r --db '/a b/run.db'") in notes


def test_the_journal_of_nodes_is_no_run(store: str) -> None:
    """The pages list what is one: a space beside the runs that has not begun is left out."""
    from lyra.store.space import Space

    Space(store, "poems.nodes").close()

    async def look(_: Served, browser: Browser) -> None:
        assert "poems.nodes" not in await browser.page("/runs?kind=vega")
        await browser.page("/runs/poems.nodes", status=404)

    in_browser(store, look)


def test_a_program_with_nodes_is_forked_by_the_command_line(tmp_path: Path) -> None:
    """A server does not start what it imports: the page names the command, and the act is refused before anything is
    written. Its journal of nodes stands beside the run and is none."""
    (tmp_path / "price.vsp").write_text(PRICE)
    source = (
        'import node "price.vsp" as price;\nagent Bot { model "sim/echo" }\nlet bot = spawn Bot;\n'
        'print(bot <- "hello");\nprint(price(2, "1.50").total);\n'
    )
    store = ran(tmp_path, source)

    async def look(_: Served, browser: Browser) -> None:
        page = await browser.page(f"/runs/poems?at={MODEL_STEP}")
        assert "Its program imports nodes" in page
        assert f"vega replay poems --db {store} --live" in page
        assert "<fieldset disabled" in page
        fields = {"at": str(MODEL_STEP), "what": "reply", "text": "x"}
        refused = await browser.post("/acts/runs/poems/fork", fields)
        assert refused.status_code == 400
        assert "imports nodes" in refused.text
        assert "poems.nodes" not in await browser.page("/runs?kind=vega")

    in_browser(store, look)
    with Runs(store) as runs:
        assert [run.id for run in runs] == ["poems"]
