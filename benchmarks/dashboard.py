"""The dashboard with ten thousand processes: pages and rows from the server, a thousand open pages, and in Chromium the
first paint, an event on screen and scrolling.

The server is a process of its own on loopback. A page that is open is a reader of `/api/events` that is known by its
cookie; the figure is the memory that all of them need together. All times are wall time, as a person meets them. Where
Chromium and playwright are not installed, the rows of the browser are left out.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any, Final
from urllib.parse import urlsplit

from benchmarks.measure import Figure, Row, Size, at_most
from verify.chromium import chromium_path, running_browser

_TOKEN: Final = "benchmark-token-0123456789"
_PROCESSES: Final = 10_000
_FAMILY: Final = 100
_PAGES: Final = 1_000
_REPEATS: Final = 7


# ---------------------------------------------------------------- the server
async def _rests(ctx: Any) -> None:
    await ctx.receive()


async def _family(ctx: Any, count: int) -> None:
    for _ in range(count):
        ctx.spawn(_rests)
    await ctx.receive()


async def _serve(processes: int, family: int) -> None:
    """A server until the standard input ends; prints its address. Its processes are families of that size, each below
    one that is a run. A line of the input is the name of a process to start, which is answered with the time of the
    event."""
    from lyra.core.address import Address
    from lyra.kernel import Kernel
    from lyra.server.identity import TokenTable
    from lyra.server.serve import Server
    from lyra.server.settings import ServeSettings

    kernel = Kernel("memory", programs=[_rests, _family], processes_max=2 * processes + 100)
    settings = ServeSettings(TokenTable({_TOKEN: ""}), http=Address("127.0.0.1", 0), connections_max=10_000)
    async with Server(kernel, settings) as server:
        for number in range(processes // family):
            kernel.spawn(_family, family - 1, name=f"family {number}")
        while kernel.live < processes // family * family:  # noqa: ASYNC110 - the kernel has no event for it
            await asyncio.sleep(0.01)
        print(server.ready_line()["http"], flush=True)
        while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
            kernel.spawn(_rests, name=name)
            print(kernel.clock.now(), flush=True)


class _DashboardServer:
    """The process with the server."""

    def __init__(self, processes: int, family: int = _FAMILY) -> None:
        command = [sys.executable, "-m", "benchmarks.dashboard", str(processes), str(family)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def start_process(self, name: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return float(self._line())

    def memory_mib(self) -> float:
        with open(f"/proc/{self._process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def __enter__(self) -> _DashboardServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate("")


class _LoggedIn:
    """A connection that has the cookie of a login."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self.host, self.port = place.hostname or "", place.port or 0
        self._connection = http.client.HTTPConnection(self.host, self.port)
        self._connection.request("GET", f"/?token={_TOKEN}")
        answer = self._connection.getresponse()
        answer.read()
        self.cookie = answer.headers["set-cookie"].partition(";")[0]

    def get(self, path: str) -> tuple[bytes, float]:
        """The body, and milliseconds until it was read."""
        began_s = time.perf_counter()
        self._connection.request("GET", path, headers={"cookie": self.cookie})
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return body, (time.perf_counter() - began_s) * 1000

    def best_ms(self, path: str) -> float:
        return min(self.get(path)[1] for _ in range(_REPEATS))


async def _open_pages(server: _DashboardServer, person: _LoggedIn, count: int) -> tuple[float, float]:
    """MiB of so many open pages, and milliseconds until an event has reached all of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * count + 100)), hard))
    before = server.memory_mib()
    head = f"GET /api/events?kinds=process.created HTTP/1.1\r\nhost: {person.host}:{person.port}\r\n"

    async def opened() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(person.host, person.port)
        writer.write(f"{head}cookie: {person.cookie}\r\n\r\n".encode())
        await reader.readuntil(b": open\n\n")
        return reader, writer

    pages = [await opened() for _ in range(count)]
    began_s = time.perf_counter()
    await asyncio.to_thread(server.start_process, "for all")
    await asyncio.gather(*(reader.readuntil(b"for all") for reader, _ in pages))
    reached_ms = (time.perf_counter() - began_s) * 1000
    taken_mib = server.memory_mib() - before
    for _, writer in pages:
        writer.close()
    return taken_mib, reached_ms


# ---------------------------------------------------------------- the browser
_PAINT: Final = """
() => new Promise((painted) => {
  const tell = (entries) => entries.find((entry) => entry.name === "first-contentful-paint");
  new PerformanceObserver((list, observer) => {
    const paint = tell(list.getEntries());
    if (paint) { observer.disconnect(); painted(paint.startTime); }
  }).observe({ type: "paint", buffered: true });
})
"""
_SEEN: Final = """
(text) => new Promise((seen) => {
  const look = () => document.body.innerText.includes(text) && (seen(Date.now() / 1000), true);
  if (look()) return;
  const observer = new MutationObserver(() => look() && observer.disconnect());
  observer.observe(document.body, { subtree: true, childList: true, characterData: true });
})
"""
_SCROLL: Final = """
async () => {
  const box = document.querySelector(".grid-box");
  const frames = [];
  let last = performance.now();
  for (let step = 0; step < 60; step += 1) {
    box.scrollTop = step * 2000;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return frames.sort((a, b) => a - b)[Math.floor(frames.length * 0.95)];
}
"""


async def _in_browser(server: _DashboardServer, program: str, repeats: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    async with running_browser(program) as browser:
        context = await browser.new_context(viewport={"width": 1440, "height": 900})
        page = await context.new_page()
        await page.goto(f"{server.url}/?token={_TOKEN}")
        for name, path in (("overview", "/"), ("processes", "/processes")):
            paints = []
            for _ in range(repeats):
                await page.goto(server.url + path, wait_until="load")
                paints.append(await page.evaluate(_PAINT))
            figures[name] = sorted(paints)[len(paints) // 2]
        await page.locator("table[role=treegrid]").wait_for()
        figures["scroll"] = await page.evaluate(_SCROLL)
        figures["heap"] = await page.evaluate("performance.memory.usedJSHeapSize / 2**20")
        await page.goto(f"{server.url}/")
        await page.locator('#live[data-live="open"]').wait_for()
        delays = []
        for number in range(repeats):
            seen = asyncio.ensure_future(page.evaluate(_SEEN, f"newcomer {number}"))
            await asyncio.sleep(0.5)
            happened = await asyncio.to_thread(server.start_process, f"newcomer {number}")
            delays.append((await seen - happened) * 1000)
        figures["event"] = sorted(delays)[len(delays) // 2]
        await context.close()
    return figures


def _pages_of_runs(processes: int) -> list[Row]:
    """The page that lists the runs, where each process is one."""
    with _DashboardServer(processes, family=1) as server:
        person = _LoggedIn(server.url)
        return [
            Row(f"The page of {processes} runs", Figure(person.best_ms("/runs"), "ms"), goals=(at_most(300, "ms"),)),
            Row("The same, narrowed by a text", Figure(person.best_ms("/runs?text=9999"), "ms")),
        ]


def run(size: Size) -> list[Row]:
    processes, pages = size.of(_PROCESSES, 200), size.of(_PAGES, 20)
    with _DashboardServer(processes) as server:
        person = _LoggedIn(server.url)
        rows = [
            Row("The overview, from the server", Figure(person.best_ms("/"), "ms"), goals=(at_most(100, "ms"),)),
            Row("The page of processes", Figure(person.best_ms("/processes"), "ms"), goals=(at_most(100, "ms"),)),
            Row("The figures of the header", Figure(person.best_ms("/figures"), "ms")),
            Row(f"All rows of {processes} processes", Figure(person.best_ms("/api/tree"), "ms")),
        ]
        mark = json.loads(person.get("/api/tree")[0])["mark"]
        rows.append(Row("The rows that changed", Figure(person.best_ms(f"/api/tree?since={mark}"), "ms")))
        memory_mib, reached_ms = asyncio.run(_open_pages(server, person, pages))
        rows += [
            Row(f"Memory of {pages} open pages", Figure(memory_mib, "MiB"), goals=(at_most(100, "MiB"),)),
            Row(f"One event to {pages} open pages", Figure(reached_ms, "ms")),
        ]
        program = chromium_path()
        figures = {} if program is None else asyncio.run(_in_browser(server, program, size.of(_REPEATS, 2)))
    rows += _pages_of_runs(processes)
    if not figures:
        return rows
    return [
        *rows,
        Row("First paint of the overview", Figure(figures["overview"], "ms"), goals=(at_most(300, "ms"),)),
        Row("First paint of the processes", Figure(figures["processes"], "ms"), goals=(at_most(300, "ms"),)),
        Row("An event on screen", Figure(figures["event"], "ms"), goals=(at_most(250, "ms"),)),
        Row("A frame while scrolling, the 95th of 100", Figure(figures["scroll"], "ms"), goals=(at_most(34, "ms"),)),
        Row("Memory of the page's script", Figure(figures["heap"], "MiB"), goals=(at_most(100, "MiB"),)),
    ]


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
