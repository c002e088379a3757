"""The pages of the core: complete HTML with their data, regions, and addresses that hold below a path."""

from __future__ import annotations

import asyncio
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import Mount

import lyra.server
from lyra import Kernel
from lyra.kernel.supervision.child import Child
from lyra.server.dashboard import pages
from lyra.server.dashboard.layout import NAV
from lyra.server.site import PAGES
from tests.agents.support import model_called
from tests.server.dashboard.support import ADA, OPERATOR, VIEWER, Served, elements, logged_in, served, words
from tests.server.http.support import TOKENS, echo, in_loop

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


async def waits(ctx: Any) -> None:
    await ctx.receive()


async def starts(ctx: Any, count: int) -> None:
    for _ in range(count):
        ctx.spawn(waits)
    await ctx.receive()


async def crashes(ctx: Any) -> None:
    await ctx.receive()
    raise RuntimeError(HOSTILE)


async def _wait_for(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.01)


@served(echo(), waits, starts, crashes)
async def test_every_page_of_the_navigation_is_there(parts: Served) -> None:
    """Each has one `<nav>`, one `<main>`, one `<h1>`, a skip link and the figures of the header."""
    parts.kernel.spawn(waits, name="a")
    async with logged_in(parts) as browser:
        links = [row["href"] for row in elements(await browser.page("/"), "a") if row.get("data-key")]
        assert {"./", "./processes", "./settings"} <= set(links)
        for link in links:
            page = await browser.page(f"/{link}")
            assert [len(elements(page, name)) for name in ("nav", "main", "h1")] == [1, 1, 1], link
            assert [row for row in elements(page, "a") if row.get("class") == "skip"] == [
                {"href": "#main", "class": "skip"}
            ]
            assert "1 alive" in words(page), link
            assert not re.search(r"<script(?![^>]* src=)|<style| style=", page), link


@served(waits, starts)
async def test_the_overview_shows_the_tree_and_the_restarts(parts: Served) -> None:
    kernel = parts.kernel
    await kernel.supervise([Child("s", waits, name="style")], name="reviewers")
    kernel.spawn(starts, 30, name="writers")
    await _wait_for(lambda: kernel.live == 33)
    async with logged_in(parts) as browser:
        await browser.call("POST", f"/api/processes/{kernel.whereis('style').pid}/restart")
        page = words(await browser.page("/"))
    assert "reviewers one_for_one" in page
    assert "style" in page
    assert "1 restart" in page
    assert "writers (30)" in page


@served(crashes)
async def test_what_happens_is_told_in_sentences_as_text(parts: Served) -> None:
    """A hostile name and error are shown as text."""
    kernel = parts.kernel
    async with logged_in(parts) as browser:
        await browser.page("/")
        handle = kernel.spawn(crashes, name=HOSTILE)
        await kernel.send(handle.pid, "go")
        await handle.wait()
        await kernel.supervise([Child("s", crashes, name="style")], name="team")
        await kernel.send(kernel.whereis("style").pid, "go")
        await _wait_for(lambda: kernel.supervisors.tables and next(iter(kernel.supervisors.tables.values())).times)
        page = await browser.page("/", region="events")
        whole = await browser.page("/")
    assert f"crashed: {HOSTILE}" in words(page)
    assert "restart 1 of 3 in 60 s" in words(page)
    assert "<script>alert" not in whole
    assert not any("onerror" in row for row in elements(whole, "img"))
    assert page.startswith('<section id="events"')
    assert "<nav" not in page


@served(waits)
async def test_a_region_that_does_not_exist_is_404(parts: Served) -> None:
    async with logged_in(parts) as browser:
        for name in ("nothing", "<b>", "x" * 200):
            await browser.page("/", status=404, region=name)


@served(waits)
async def test_the_figures_of_the_header(parts: Served) -> None:
    """Alive, waiting for a person, failed in the last minute, spent today of the kernel's budget."""
    kernel = parts.kernel
    async with logged_in(parts) as browser:
        await browser.page("/")
        kernel.spawn(waits)
        failing = kernel.spawn(_fails)
        await failing.wait()
        await kernel.interrupts.create_interrupt(kernel.spawn(waits).pid, "confirmation", question="Refund?")
        bar = words(await browser.page("/figures"))
    assert "2 alive" in bar
    assert "1 waiting" in bar
    assert "1 failed/min" in bar


async def _fails(ctx: Any) -> None:
    del ctx
    raise ValueError("x")


@served(echo())
async def test_a_user_sees_their_own_processes_and_figures(parts: Served) -> None:
    """Neither the tree, the events nor the spend of another user."""
    await parts.operator.get("/")  # from here on the pages hear of events
    await parts.bob.post("/api/agents/echo/chat", json={"message": "bob's secret"})
    await parts.ada.post("/api/agents/echo/chat", json={"message": "hello"})
    pids = {row["user_id"]: row["pid"] for row in (await parts.operator.get("/api/processes")).json()["processes"]}
    parts.kernel.publish(pids["bob"], "model.called", model_called(latency_ms=5_000, cost_usd=7.0).to_data())
    assert "$7.00" in words((await parts.operator.get("/figures")).text)
    flat = re.compile(r'points="(?:[\d.]+,14\.0 ?)+"')
    async with logged_in(parts, ADA) as browser:
        figures = await browser.page("/figures")
        assert "$0.00 today" in words(figures)
        assert "5.0 s" not in words(figures)
        assert flat.search(figures)
        assert not flat.search((await parts.operator.get("/figures")).text)
        for path in ("/", "/processes", "/settings", "/figures"):
            page = await browser.page(path)
            assert pids["bob"] not in page
        assert "1 alive" in words(await browser.page("/figures"))
        assert pids["ada"] in await browser.page("/processes")
        await browser.page(f"/processes/{pids['bob']}", status=404)
        rows = (await browser.http.get("/api/tree")).json()["rows"]
        assert [row[0] for row in rows] == [pids["ada"]]


@served(waits, starts)
async def test_the_processes_are_paged_without_a_script(parts: Served) -> None:
    kernel = parts.kernel
    kernel.spawn(starts, 150, name="many")
    await _wait_for(lambda: kernel.live == 151)
    async with logged_in(parts) as browser:
        first = await browser.page("/processes")
        second = await browser.page("/processes?page=2")
        found = await browser.page("/processes?q=many")
        none = await browser.page("/processes?state=blocked")
    assert len(elements(first, "tr")) == 101
    assert len(elements(second, "tr")) == 52
    assert "Page 1 of 2" in words(first)
    assert len(elements(found, "tr")) == 2
    assert len(elements(none, "tr")) == 1


@served(echo(), waits)
async def test_the_heading_of_a_process_is_its_name_with_its_pid_beside(parts: Served) -> None:
    """An agent is known by its name; where there is none, the pid stands alone."""
    await parts.operator.post("/api/agents/echo/chat", json={"message": "hello"})
    (agent,) = parts.kernel.processes
    plain = parts.kernel.spawn(waits)
    async with logged_in(parts) as browser:
        (heading,) = re.findall("<h1>(.*?)</h1>", await browser.page(f"/processes/{agent}"))
        (alone,) = re.findall("<h1>(.*?)</h1>", await browser.page(f"/processes/{plain.pid}"))
    assert words(heading) == f"echo {agent}"
    assert alone == plain.pid


@served(waits, starts)
async def test_the_tree_is_fetched_once_and_then_what_changed(parts: Served) -> None:
    kernel = parts.kernel
    first = kernel.spawn(waits, name="first")
    whole = (await parts.operator.get("/api/tree")).json()
    assert whole["whole"] is True
    assert [dict(zip(whole["columns"], row, strict=True))["name"] for row in whole["rows"]] == ["first"]
    second = kernel.spawn(waits, name="second")
    await kernel.terminate(first.pid, "done")
    changes = (await parts.operator.get("/api/tree", params={"since": whole["mark"]})).json()
    assert changes["whole"] is False
    assert [row[0] for row in changes["rows"]] == [second.pid]
    assert changes["gone"] == [first.pid]
    nothing = (await parts.operator.get("/api/tree", params={"since": changes["mark"]})).json()
    assert (nothing["rows"], nothing["gone"]) == ([], [])
    foreign = (await parts.operator.get("/api/tree", params={"since": "elsewhere.3"})).json()
    assert foreign["whole"] is True
    ended = (await parts.operator.get("/api/tree", params={"ended": "true"})).json()
    assert {row[0] for row in ended["rows"]} == {first.pid, second.pid}


@served(waits)
async def test_the_figures_of_a_process_page(parts: Served) -> None:
    """Who it is, its rights in words, its budget with what is set aside, and what waits in its mailbox."""
    kernel = parts.kernel
    handle = kernel.spawn(
        _asleep, name=HOSTILE, budget={"usd": "$2", "llm_calls": 4}, grant={"allow": ["fs.read:/tmp/**"]}
    )
    reservation = kernel.processes[handle.pid].budget.reserve(_usage("$0.50"))
    await kernel.send(handle.pid, {"text": HOSTILE})
    async with logged_in(parts) as browser:
        page = await browser.page(f"/processes/{handle.pid}")
    said = words(page)
    assert HOSTILE in said
    assert "<script>alert" not in page
    assert "$0.00 of $2.00, $0.50 set aside" in said
    assert "fs.read:/tmp/** read files and list folders" in said
    assert "Started by the outside" in said
    assert "No supervisor looks after this process" in page
    kernel.processes[handle.pid].budget.release(reservation)


async def _asleep(ctx: Any) -> None:
    await ctx.sleep(1_000)


def _usage(usd: str) -> Any:
    from lyra.core.budgets.budget import Usage

    return Usage(usd=usd)


@served(echo())
async def test_a_conversation_is_shown_on_the_page_of_its_process(parts: Served) -> None:
    await parts.operator.post("/api/agents/echo/chat", json={"message": HOSTILE})
    pid = next(iter(parts.kernel.processes))
    async with logged_in(parts) as browser:
        page = await browser.page(f"/processes/{pid}")
    assert words(page).count(HOSTILE) == 2
    assert "<script>alert" not in page
    assert "Trace" in words(page)


@served(echo(), waits)
async def test_stop_restart_and_ask(parts: Served) -> None:
    """The forms of a process do it, lead back to its page, and name the person in the acts."""
    kernel = parts.kernel
    acts: list[Any] = []
    kernel.on_event(acts.append, kinds=("person.acted",))
    await kernel.supervise([Child("s", waits, name="style")], name="team")
    pid = kernel.whereis("style").pid
    helper = kernel.spawn(echo(), name="helper")
    async with logged_in(parts) as browser:
        again = await browser.post(f"/acts/processes/{pid}/restart")
        assert again.status_code == 303
        replaced = kernel.whereis("style").pid
        assert replaced != pid
        assert again.headers["location"] == f"../../../processes/{replaced}"
        refused = await browser.post(f"/acts/processes/{helper.pid}/restart")
        assert refused.status_code == 409
        assert "text/html" in refused.headers["content-type"]
        asked = await browser.post(f"/acts/processes/{helper.pid}/ask", {"message": "hello you"})
        assert asked.status_code == 303
        await _wait_for(lambda: helper.current is None and len(helper.messages) == 2)
        assert "hello you" in words(await browser.page(f"/processes/{helper.pid}"))
        stopped = await browser.post(f"/acts/processes/{helper.pid}/stop")
        assert stopped.status_code == 303
        assert not helper.alive
    told = [(act.data["act"], act.data["outcome"]) for act in acts if act.data["act"] != "login"]
    assert told == [
        ("acts.process_restart", "ok"),
        ("acts.process_restart", "invalid_transition"),
        ("acts.process_ask", "ok"),
        ("acts.process_stop", "ok"),
    ]


@served(waits)
async def test_a_viewer_sees_the_buttons_with_the_reason(parts: Served) -> None:
    handle = parts.kernel.spawn(waits)
    async with logged_in(parts, VIEWER) as browser:
        page = await browser.page(f"/processes/{handle.pid}")
        answer = await browser.post(f"/acts/processes/{handle.pid}/stop")
    assert all("disabled" in row for row in elements(page, "fieldset"))
    assert "The role viewer changes nothing" in page
    assert answer.status_code == 403
    assert "403 Forbidden" in answer.text
    assert handle.alive


@served(waits)
async def test_a_form_without_its_token_changes_nothing(parts: Served) -> None:
    handle = parts.kernel.spawn(waits)
    async with logged_in(parts) as browser:
        answer = await browser.post(f"/acts/processes/{handle.pid}/stop", {"form_token": "0" * 64})
        cross = await browser.post(f"/acts/processes/{handle.pid}/stop", None, **{"sec-fetch-site": "cross-site"})
    assert (answer.status_code, cross.status_code) == (403, 403)
    assert handle.alive


@served(echo())
async def test_settings_show_roles_and_no_token(parts: Served) -> None:
    """An operator sees who may log in and, on request, the doctor; a user sees themselves."""
    async with logged_in(parts) as browser:
        page = await browser.page("/settings")
        doctor = await browser.page("/settings?doctor=true")
    assert "vera viewer sees everything and changes nothing" in words(page)
    assert not any(token in page for token in TOKENS)
    assert "write-ahead log works" in words(doctor)
    assert "sandbox" in words(doctor)
    async with logged_in(parts, ADA) as browser:
        page = words(await browser.page("/settings?doctor=true"))
    assert "user: sees and changes what belongs to this user" in page
    assert "vera" not in page
    assert "write-ahead" not in page


def test_the_configuration_is_shown_with_its_sources_and_no_secret(tmp_path: Any, monkeypatch: Any) -> None:
    from lyra.config import Config

    monkeypatch.setenv("LYRA_KERNEL_STORE", "postgresql://ada:hunter2@db.example/lyra")
    config = Config.load(env={"LYRA_KERNEL_STORE": "postgresql://ada:hunter2@db.example/lyra", "HOME": str(tmp_path)})
    kernel = Kernel("memory", programs=(echo(),))
    kernel.config = config

    async def look() -> str:
        from tests.server.dashboard.support import serving

        async with serving(kernel=kernel) as parts, logged_in(parts) as browser:
            return await browser.page("/settings")

    page = in_loop(look())
    assert "kernel.store" in page
    assert "db.example" in page
    assert "hunter2" not in page


def test_the_site_works_below_a_path() -> None:
    """Every address of a page is relative, the cookie is for the path, and the bare path leads to its slash."""

    async def look() -> None:
        async with Kernel("memory", programs=(echo(),)) as kernel:
            app = Starlette(routes=[Mount("/ops/lyra", lyra.server.app(kernel, tokens={OPERATOR: ""}))])
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://testserver", follow_redirects=True
            ) as http:
                page = await http.get("/ops/lyra", params={"token": OPERATOR})
                assert page.status_code == 200, page.text
                assert str(page.url) == "http://testserver/ops/lyra/"
                (cookie,) = http.cookies.jar
                assert cookie.path == "/ops/lyra"
                handle = kernel.spawn(waits)
                for path in ("/ops/lyra/", "/ops/lyra/processes", f"/ops/lyra/processes/{handle.pid}"):
                    text = (await http.get(path)).text
                    rows = [*elements(text, "a"), *elements(text, "link"), *elements(text, "script")]
                    addresses = [row.get("href") or row.get("src") or "" for row in rows]
                    assert not [address for address in addresses if address.startswith("/") or "://" in address]
                    for address in addresses:
                        if not address.startswith("#"):
                            assert (
                                await http.get(httpx.URL(f"http://testserver{path}").join(address))
                            ).status_code == 200

    in_loop(look())


@served()
async def test_files_are_kept_for_ever_and_no_other_can_be_reached(parts: Served) -> None:
    page = (await parts.stranger.get("/")).text
    sheet = next(row["href"] for row in elements(page, "link") if row.get("rel") == "stylesheet")
    assert sheet is not None
    answer = await parts.stranger.get(f"/{sheet}")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "--running" in answer.text
    folder = f"/{sheet}".rpartition("/")[0]
    for path in (
        f"{folder}/../html.py",
        f"{folder}/..%2fhtml.py",
        f"{folder}/%2e%2e%2fhtml.py",
        f"{folder}/html.py",
        "/assets/0/all.css",
        f"{folder}/",
    ):
        assert (await parts.stranger.get(path)).status_code == 404, path


def test_the_sentences_never_raise() -> None:
    """Each kind is told from empty data and from wrong data."""
    from lyra.core.event import KINDS
    from lyra.server.dashboard.sentences import SENTENCES, sentence_of

    assert set(SENTENCES) <= set(KINDS)
    for kind in SENTENCES:
        for data in ({}, {"error": "x", "starts": "y", "cost_usd": None}, {"question": HOSTILE * 100}):
            told = sentence_of(kind, data)
            assert told is not None
            assert 0 < len(told.text) <= 200
    assert sentence_of("effect.started", {}) is None


def test_every_page_has_its_places():
    """A module of pages is in the table, a link of the navigation leads to a page, and a page has its line in the docs;
    a forgotten place is named."""
    paths = {endpoint.path for endpoint in PAGES if endpoint.group == "pages"}
    for module in pkgutil.iter_modules(pages.__path__, "lyra.server.dashboard.pages."):
        for endpoint in import_module(module.name).ENDPOINTS:
            assert endpoint in PAGES, f"give {module.name} a row in PAGES of server/site.py"
    for item in NAV:
        place = f"{item.path} in NAV of server/dashboard/layout.py"
        assert item.path in paths, f"{place} leads to no page: the name of a page's Endpoint begins with `pages.`"
        same = [other.path for other in NAV if other.key == item.key]
        assert same == [item.path], f"{place} has the key {item.key!r} of {same}: give it another letter"
    guide = (Path(__file__).parents[3] / "docs" / "how-to" / "dashboard.md").read_text(encoding="utf-8")
    listed = {word for row in re.findall(r"^\| ([^|]+) \|", guide, re.MULTILINE) for word in row.split(", ")}
    for path in paths - {"/figures"}:  # a part of the header
        if "{" not in path:
            items = [item for item in NAV if item.path == path]
            assert items, f"give {path} a link in NAV of server/dashboard/layout.py"
            assert items[0].label in listed, f"give {items[0].label} a line in docs/how-to/dashboard.md"
