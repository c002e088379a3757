"""A page that remembers what went wrong in it: errors on the console, exceptions, violations of the content security
policy, requests that failed or were answered with an error, requests to another place than the server.

`WatchedPage` is what tests use; `check` raises with the list of what went wrong. A test that means to cause an error
names it in `expected`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from playwright.async_api import Browser, ConsoleMessage, Page, Request, Response

    from tests.browser.stage import Stage

__all__ = ["PHONE", "SCREEN", "WatchedPage", "opened_page"]

SCREEN: Final = {"width": 1440, "height": 900}
PHONE: Final = {"width": 375, "height": 812}
_PATIENCE_MS: Final = 30_000  # for a busy machine

# A violation of the policy is an event of the document; Chromium also writes it to the console.
_LISTENER: Final = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
    window.__violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""


class WatchedPage:
    """One page of one browser. `go` opens a path of the server."""

    def __init__(self, page: Page, stage: Stage) -> None:
        self.page = page
        self.stage = stage
        self.problems: list[str] = []
        self.expected: list[str] = []  # parts of problems that the test causes itself
        page.on("console", self._hear_console)
        page.on("pageerror", lambda error: self.problems.append(f"exception: {error}"))
        page.on("request", self._hear_request)
        page.on("requestfailed", self._hear_failure)
        page.on("response", self._hear_response)

    def _hear_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def _hear_request(self, request: Request) -> None:
        # The pages work on a machine without a network.
        if not request.url.startswith((self.stage.url, "data:", "blob:")):
            self.problems.append(f"request to another place: {request.url}")

    def _hear_failure(self, request: Request) -> None:
        # A page that is left gives up what it was loading, its stream of events above all.
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"request failed: {request.method} {request.url}: {request.failure}")

    def _hear_response(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"answer {response.status}: {response.request.method} {response.url}")

    async def go(self, path: str) -> None:
        """Open a path of the server; it is there when its parts are loaded."""
        await self.page.goto(self.stage.url + path, wait_until="load")

    async def shown(self, selector: str, **options: Any) -> Any:
        """The first element that fits, once it is visible."""
        place = self.page.locator(selector, **options).first
        await place.wait_for(state="visible")
        return place

    async def overflow_px(self) -> int:
        """By how much the page is wider than its window."""
        width: int = await self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return width

    async def check(self) -> None:
        """Raise if something went wrong in the page."""
        violations = await self.page.evaluate("window.__violations || []")
        problems = [*self.problems, *(f"policy: {text}" for text in violations)]
        left = [text for text in problems if not any(part in text for part in self.expected)]
        assert not left, "\n".join(left)


@asynccontextmanager
async def opened_page(
    browser: Browser, stage: Stage, *, token: str | None = None, **options: Any
) -> AsyncIterator[WatchedPage]:
    """A page that is logged in with the token (the operator's), in a context of its own. `options` are playwright's:
    `viewport`, `color_scheme`, `java_script_enabled`, `bypass_csp` …"""
    context = await browser.new_context(**{"viewport": SCREEN, "reduced_motion": "reduce", **options})
    context.set_default_timeout(_PATIENCE_MS)
    try:
        await context.add_init_script(_LISTENER)
        page = WatchedPage(await context.new_page(), stage)
        if not options.get("java_script_enabled", True):
            page.expected.append(".js: csp")  # so Chromium names scripts that it does not load in such a context
        if token != "":
            await page.go(f"/?token={token or stage.token}")
        yield page
    finally:
        await context.close()
