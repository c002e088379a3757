"""Pictures of the dashboard: pages of `lyra demo --web` in Chromium, as PNG files of few colours.

`PICTURES` is the table: a file, the page, its size and theme, and what is done in the page before. The figures in the
pictures are those of the run that they were taken from.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from lyra.cli.demo.web.show import FIRST_ROUND, Office, Scene, live_through_past
from lyra.core.address import Address
from lyra.kernel.kernel import Kernel
from lyra.server.identity import TokenHolder, TokenTable
from lyra.server.serve import Server
from lyra.server.settings import ServeSettings
from verify.chromium import chromium_path, running_browser
from verify.screenshots.scenes import FOLDER

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

__all__ = ["PICTURES", "write"]

_TOKEN: Final = "picture-token-0123456789"  # noqa: S105 - of a server that lives for the pictures
_SCREEN: Final = (1280, 800)
_PHONE: Final = (375, 812)
_PACE: Final = 0.5
_ROUNDS: Final = 9
_BYTES_MAX: Final = 200_000

# The font that `system-ui` stands for on the machine that takes the pictures.
_FONTS: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <match target="pattern">
    <test name="family" compare="eq" qual="any"><string>DejaVu Sans</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit>
  </match>
  <match target="pattern">
    <test name="family" compare="eq" qual="any"><string>sans</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit>
  </match>
</fontconfig>
"""


class Picture(NamedTuple):
    """One file: the page, its theme and size, and what is done before the picture is taken."""

    path: str
    theme: Literal["light", "dark"] = "light"
    size: tuple[int, int] = _SCREEN
    before: Callable[[Page], Awaitable[None]] | None = None


async def _talk(page: Page) -> None:
    await page.get_by_role("textbox").fill("How is the team doing?")
    await page.keyboard.press("Enter")
    await page.locator("article.said.agent >> text=inside its budget").wait_for()
    await page.locator("#talk[data-running=no]").wait_for()
    await page.locator("details.tool summary").click()


async def _open_trace(page: Page) -> None:
    """The trace of an agent that called two tools and asked a person."""
    await page.locator("main table a", has_text="support").first.click()
    await page.wait_for_load_state("load")


async def _open_run(page: Page) -> None:
    """A run in the middle: what it has got so far, and what follows."""
    await page.locator("main table a", has_text="change 1063").first.click()
    await page.wait_for_load_state("load")
    await page.goto(f"{page.url.partition('?')[0]}?at=7")


PICTURES: Final[dict[str, Picture]] = {
    "web-overview": Picture("/"),
    "web-overview-dark": Picture("/", "dark"),
    "web-inbox": Picture("/inbox"),
    "web-inbox-phone": Picture("/inbox", size=_PHONE),
    "web-chat": Picture("/chat/guide", before=_talk),
    "web-node": Picture("/nodes/loyalty_points_v1"),
    "web-costs": Picture("/costs?days=7"),
    "web-trace": Picture("/traces", "dark", before=_open_trace),
    "web-run": Picture("/runs", before=_open_run),
}


async def _agree(kernel: Kernel) -> None:
    """Answer the first question of the support agent, and leave the others."""
    questions = [row for row in kernel.interrupts.list_interrupts() if row.question.startswith("Refund")]
    if len(questions) == 1 and questions[0].status == "pending":
        await kernel.resolve_interrupt(questions[0].id, {"approved": True, "text": "a good customer"})


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[tuple[Server, Office]]:
    store = str(folder / "demo.db")
    await live_through_past(store, folder, seed=1)
    scene = Scene(folder, seed=1, pace=_PACE)
    tokens = TokenTable({_TOKEN: TokenHolder("you", "operator")})
    settings = ServeSettings(tokens=tokens, http=Address("127.0.0.1", 0), drain_s=0.2)
    try:
        async with Server(Kernel(store), settings, setup=scene.prepare) as server:
            yield server, Office(scene, FIRST_ROUND)
    finally:
        await scene.close()


async def _take(browser: Browser, url: str, picture: Picture, target: Path) -> None:
    width, height = picture.size
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=picture.theme, reduced_motion="reduce"
    )
    try:
        page = await context.new_page()
        await page.goto(f"{url}/?token={_TOKEN}")
        await page.goto(url + picture.path)
        await page.locator("#live[data-live=open]").wait_for()
        if picture.before is not None:
            await picture.before(page)
            await page.locator("#live[data-live=open]").wait_for()
        await asyncio.sleep(0.5)  # the plots are drawn when their script has come
        await page.screenshot(path=target)
    finally:
        await context.close()


async def _write(folder: Path, names: list[str]) -> list[str]:
    path = chromium_path()
    if path is None:
        raise SystemExit("pictures of the pages need Chromium: apt-get install chromium")
    written = []
    async with _served(folder) as (server, office), running_browser(path) as browser:
        for _ in range(_ROUNDS):
            await office.bring(office.take_number())
            await _agree(server.kernel)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(office.run())
            for name in names:
                target = FOLDER / f"{name}.png"
                await _take(browser, server.ready_line()["http"], PICTURES[name], target)
                size = target.stat().st_size
                assert size <= _BYTES_MAX, f"{name} has {size} bytes"
                written.append(target.name)
            work.cancel()
    return written


def write(names: list[str] | None = None) -> list[str]:
    """Take the pictures, all or those of these names; the names of their files."""
    with tempfile.TemporaryDirectory(prefix="lyra-pictures-") as name:
        folder = Path(name)
        fonts = folder / "fonts.conf"
        fonts.write_text(_FONTS)
        os.environ["FONTCONFIG_FILE"] = str(fonts)
        return asyncio.run(_write(folder, names or list(PICTURES)))
