"""The pages of a cluster of two real hosts: all shards at the root, each shard below it, a host that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import lyra.cluster
from tests.browser.watched_page import WatchedPage, opened_page
from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture
from tests.server.cluster.support import ADA, MODEL, OPERATOR, Cluster, serving
from verify.servers import PostgresServer

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = pytest.mark.slow

JOBS = f"""
from lyra import Agent

async def idle(ctx):
    await ctx.receive()

async def parent(ctx, shard):
    ctx.spawn(idle, shard=shard, pid="child", name="reader")
    await ctx.receive()

async def asks(ctx):
    answer = await ctx.ask("Publish the report?", kind="confirmation")
    return "published" if answer.approved else "kept"

def setup(kernel):
    for program in (idle, parent, asks):
        kernel.register(program)
    kernel.register(Agent("clerk", model="{MODEL}", description="Answers letters."))
"""


class Running:
    """Two hosts with two of four shards each; `client` spawns on them."""

    def __init__(self, cluster: Cluster, client: Any, browser: Browser) -> None:
        self.cluster = cluster
        self.client = client
        self._browser = browser

    async def shards_of(self, host: str) -> list[str]:
        """Return the shards of a host, once the hosts have as many each."""
        while True:
            view = await self.client.refresh()
            held = {name: [row.name for row in view.shards.values() if row.host == name] for name in ("a", "b")}
            if len(held["a"]) == len(held["b"]) == 2:
                return held[host]
            await asyncio.sleep(0.05)

    async def until_open(self) -> None:
        """Return when every shard answers."""
        async with self.cluster.client("a", OPERATOR) as http:
            while "lyra-missing-shards" in (await http.get("/api/processes")).headers:
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def page(self, host: str, token: str = OPERATOR, **options: Any) -> AsyncIterator[WatchedPage]:
        """Open a page of one host in the browser."""
        stage: Any = SimpleNamespace(url=self.cluster.hosts[host].http)
        async with opened_page(self._browser, stage, token=token, **options) as page:
            yield page


@pytest.fixture(scope="module")
def running(
    loop_runner: asyncio.Runner, browser: Browser, tmp_path_factory: pytest.TempPathFactory, database: PostgresServer
) -> Iterator[Running]:
    """One cluster for the tests of this file; the last one kills a host of it."""
    stack, tmp_path = AsyncExitStack(), tmp_path_factory.mktemp("cluster")

    async def start() -> Running:
        (tmp_path / "jobs.py").write_text(JOBS)
        flags = ("--load", str(tmp_path / "jobs.py"))
        cluster = await stack.enter_async_context(serving(tmp_path, database.url, "a", "b", flags=flags, lease_s=5.0))
        client = await stack.enter_async_context(lyra.cluster.connect(cluster.url))
        made = Running(cluster, client, browser)
        await made.shards_of("a")
        await made.until_open()
        return made

    yield loop_runner.run(start())
    loop_runner.run(stack.aclose())


async def test_the_page_of_the_cluster_says_who_has_what(running: Running) -> None:
    """That all is well, each host with its shards, each shard with its host; the overview says it, too."""
    async with running.page("a") as page:
        await page.go("/cluster")
        await page.shown("text=All is well")
        for host in ("a", "b"):
            row = page.page.locator(f'#host-rows tr[data-key="{host}"]')
            assert "up" in await row.inner_text()
            for shard in await running.shards_of(host):
                assert await row.get_by_role("link", name=shard, exact=True).count() == 1
                told = await page.page.locator(f'#shard-rows tr[data-key="{shard}"]').inner_text()
                assert told.split()[:4] == [shard, "●", "open", host]
        await page.page.get_by_role("link", name="s1", exact=True).first.click()
        await page.shown("nav .shard >> text=s1")
        await page.go("/")
        await page.shown("text=4 of 4 shards are open on 2 hosts")
        await page.check()


async def test_a_process_of_another_host_is_opened_from_the_list(running: Running) -> None:
    """It stands below its parent of another shard; its page is that of its shard, leads to the parent, acts on it."""
    mine, other = (await running.shards_of("a"))[0], (await running.shards_of("b"))[0]
    await running.client.spawn("lyra_server_setup:parent", other, shard=mine, pid="boss", name="boss")
    async with running.page("a") as page:
        await page.go("/processes")
        row = await page.shown(".grid-box >> text=reader")
        rows = (await page.page.locator(".grid-box").inner_text()).splitlines()
        named = [name for line in rows for name in ("boss", "reader") if name in line]
        assert named == ["boss", "reader"]
        await row.click()
        await page.shown("h1 >> text=reader")
        assert page.page.url.endswith(f"/shards/{other}/processes/child")
        assert f"{other}/child" in await page.page.locator("main").inner_text()
        await page.page.get_by_role("link", name=f"{mine}/boss").click()
        await page.shown("h1 >> text=boss")
        assert page.page.url.endswith(f"/shards/{mine}/processes/boss")
        await page.page.go_back()
        await page.page.get_by_role("button", name="Stop").click()
        await running.client.process(f"{other}/child").wait()
        await page.page.get_by_role("link", name="Processes").click()
        await page.page.locator(".grid-box >> text=boss").wait_for()
        await page.page.locator(".grid-box >> text=reader").wait_for(state="detached")
        await page.check()


async def test_a_question_of_another_host_is_answered_in_the_inbox(running: Running) -> None:
    """It comes up without a reload, and Approve lets the process go on."""
    other = (await running.shards_of("b"))[0]
    async with running.page("a") as page:
        await page.go("/inbox")
        await page.shown("text=No question waits for you")
        asker = await running.client.spawn("lyra_server_setup:asks", shard=other, pid="asker", name="publisher")
        card = await page.shown("article.question")
        assert "Publish the report?" in await card.inner_text()
        await page.page.locator("nav .count", has_text="1").wait_for()
        await card.get_by_role("button", name="Approve").click()
        assert (await asker.wait()).result == "published"
        await page.shown("#ended >> text=approved")
        await page.shown("text=No question waits for you")
        assert await running.client.interrupts() == []
        await page.check()


async def test_a_conversation_is_begun_and_found_again_from_the_list(running: Running) -> None:
    """It begins on the shard that new work goes to, and the other host's page of all lists it and its cost."""
    async with running.page("a") as page, running.page("b") as second:
        await page.go("/chat")
        await page.page.get_by_role("link", name="clerk").click()
        await page.page.get_by_label("Your message to clerk").fill("Is the mail in?")
        assert "/shards/s" in page.page.url
        await page.page.get_by_role("button", name="Send").click()
        await page.shown("text=The 1. answer is here.")
        await second.go("/chat")
        await second.page.get_by_role("link", name="Is the mail in?").click()
        await second.shown("text=The 1. answer is here.")
        assert "/shards/s" in second.page.url
        await second.go("/costs")
        await second.shown("#spend td >> text=clerk")
        await page.check()
        await second.check()


async def test_a_person_sees_their_own_on_all_shards_and_nothing_of_others(running: Running) -> None:
    """On every page of all shards and in every list; the page of the cluster is for operators."""
    mine, other = (await running.shards_of("a"))[0], (await running.shards_of("b"))[0]
    await running.client.spawn("lyra_server_setup:asks", shard=other, pid="secret", name="secret-asker")
    async with running.cluster.client("a", ADA) as http:
        said = await http.post("/api/agents/clerk/chat", json={"message": "my own letter"})
        assert said.status_code == 200, said.text
        for path in ("/api/processes", "/api/tree", "/api/interrupts", "/api/history", "/api/traces", "/api/sessions"):
            assert "secret" not in (await http.get(path)).text, path
        for shard in (mine, other):
            assert (await http.get(f"/shards/{shard}/api/processes/secret")).status_code == 404
        for name in ("overview", "processes", "questions", "runs", "conversations", "traces", "costs"):
            for shard in (mine, other):
                told = await http.get(f"/shards/{shard}/data/{name}")
                assert told.status_code == 200, told.text
                assert "secret" not in told.text
    async with running.page("b", ADA) as page:
        for path in ("/", "/processes", "/inbox", "/runs", "/costs", "/chat", "/traces", "/services"):
            await page.go(path)
            await page.page.locator('#live[data-live="open"]').wait_for()
            assert "secret" not in await page.page.content(), path
            assert "Publish the report?" not in await page.page.content(), path
        await page.go("/chat")
        await page.shown("text=my own letter")
        assert await page.page.get_by_role("link", name="Cluster").count() == 0
        assert "up" not in (await page.page.locator("main").inner_text()).split()
        page.expected += ["403"]
        await page.go("/cluster")
        await page.shown("text=for operators")
        page.expected += ["404"]
        await page.go(f"/processes/{other}%2Fsecret")
        await page.shown("text=404")
        await page.check()


async def test_a_host_that_is_drained_gives_its_shards_away(running: Running) -> None:
    """By a button of the page, which shows it as it happens; and takes shards again by another."""
    async with running.page("a") as page:
        await page.go("/cluster")
        row = page.page.locator('#host-rows tr[data-key="b"]')
        await row.get_by_role("button", name="Drain").click()
        await page.shown("text=Host b drains: it has no shard any more: it can be stopped.")
        await row.get_by_role("button", name="Take shards again").click()
        await running.shards_of("b")
        await running.until_open()
        await page.shown("text=All is well")
        await page.check()


async def test_a_host_that_is_killed_is_told_in_a_sentence_and_the_rest_works(running: Running) -> None:
    """Pages of the other host show what it has at once and name the shards that are missing; when these are taken over,
    all is shown again, without a reload."""
    killed = await running.shards_of("b")
    mine, other = (await running.shards_of("a"))[0], killed[0]
    await running.client.spawn("lyra_server_setup:idle", shard=mine, pid="near", name="near-one")
    await running.client.spawn("lyra_server_setup:idle", shard=other, pid="far", name="far-one")
    async with running.page("a") as page, running.page("a") as second:
        page.expected += ["503"]
        await page.go("/cluster")
        await second.go("/")
        await second.shown("text=far-one")
        await running.cluster.kill("b")
        await second.go("/processes")
        await second.shown("text=near-one")
        held = sorted(killed)
        await second.shown(f"#missing >> text=Not all is shown: shards {held[0]} and {held[1]} do not answer")
        assert "far-one" not in await second.page.locator("main").inner_text()
        await second.page.get_by_role("link", name="near-one").click()
        await second.shown("h1 >> text=near-one")
        await page.shown("#report >> text=Host b has not renewed for")
        await second.go("/")
        await second.shown("text=near-one")
        await second.shown("text=far-one")
        await second.page.locator("#missing p").wait_for(state="detached")
        await page.shown(f'#shard-rows tr[data-key="{other}"] >> text=open')
        await page.shown("#report >> text=it counts as gone; its shards are with others")
        await page.check()
        await second.check()
