"""The pages of a cluster of two real hosts: all shards at the root, each shard below it, a host that is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import lyra.cluster
from tests.browser.watched_page import WatchedPage, opened_page
from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture
from tests.server.cluster.support import MODEL, OPERATOR, Cluster, serving
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
    await ctx.receive() if answer.approved else None

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


@pytest.fixture
def running(
    loop_runner: asyncio.Runner, browser: Browser, tmp_path: Path, database: PostgresServer
) -> Iterator[Running]:
    stack = AsyncExitStack()

    async def start() -> Running:
        (tmp_path / "jobs.py").write_text(JOBS)
        flags = ("--load", str(tmp_path / "jobs.py"))
        cluster = await stack.enter_async_context(serving(tmp_path, database.url, "a", "b", flags=flags))
        client = await stack.enter_async_context(lyra.cluster.connect(cluster.url))
        made = Running(cluster, client, browser)
        await made.shards_of("a")
        await made.until_open()
        return made

    yield loop_runner.run(start())
    loop_runner.run(stack.aclose())


async def test_look(running: Running) -> None:
    mine, other = (await running.shards_of("a"))[0], (await running.shards_of("b"))[0]
    await running.client.spawn("lyra_server_setup:parent", other, shard=mine, pid="boss", name="boss")
    await running.client.spawn("lyra_server_setup:asks", shard=other, pid="asker", name="publisher")
    async with running.page("a") as page:
        page.expected += ["403"]
        for path in (
            "/",
            "/cluster",
            "/processes",
            "/inbox",
            "/costs",
            "/runs",
            "/chat",
            "/services",
            "/traces",
            "/nodes",
            "/settings",
        ):
            await page.go(path)
            await asyncio.sleep(1)
            await page.page.screenshot(path=f"/tmp/w/shot{path.replace('/', '_')}.png")
        await page.go("/processes")
        await page.page.get_by_role("link", name="reader").click()
        await asyncio.sleep(1)
        await page.page.screenshot(path="/tmp/w/shot_process.png")
        print(page.page.url, page.problems)
