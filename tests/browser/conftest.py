"""Fixtures of the tests in a browser. Tests are async functions; they run in one loop, in which the browser lives.

`stage` is a served kernel for one test, `browser_page` a page of it that the operator is logged in to: what went wrong
in the page fails the test when it has ended. `new_page` opens more, for other people, themes and sizes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.chromium import program
from tests.browser.stage import Stage, staged
from tests.browser.watched_page import WatchedPage, opened_page
from verify.chromium import running_browser

if TYPE_CHECKING:
    from playwright.async_api import Browser

PAST = pytest.mark.parametrize("stage", [{"has_past": True}], indirect=True, ids=["past"])
SLOW = pytest.mark.parametrize("stage", [{"pace": 0.4}], indirect=True, ids=["slow"])

NewPage = Callable[..., AbstractAsyncContextManager[WatchedPage]]


@pytest.fixture(scope="session")
def loop_runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def browser(loop_runner: asyncio.Runner) -> Iterator[Browser]:
    stack = AsyncExitStack()
    yield loop_runner.run(stack.enter_async_context(running_browser(program())))
    loop_runner.run(stack.aclose())


@pytest.fixture
def stage(loop_runner: asyncio.Runner, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A served kernel; `PAST` gives its nodes a past, `SLOW` lets its agents speak slowly."""
    stack = AsyncExitStack()
    settings = getattr(request, "param", {})
    yield loop_runner.run(stack.enter_async_context(staged(tmp_path, **settings)))
    loop_runner.run(stack.aclose())


@pytest.fixture
def new_page(browser: Browser, stage: Stage) -> NewPage:
    """Opens a page: `async with new_page(viewport=PHONE, color_scheme="dark") as page`. Checked when it is closed."""

    @asynccontextmanager
    async def open_one(**options: Any) -> AsyncIterator[WatchedPage]:
        async with opened_page(browser, stage, **options) as page:
            yield page
            await page.check()

    return open_one


@pytest.fixture
def browser_page(loop_runner: asyncio.Runner, new_page: NewPage) -> Iterator[WatchedPage]:
    stack = AsyncExitStack()
    page = loop_runner.run(stack.enter_async_context(new_page()))
    yield page
    loop_runner.run(stack.aclose())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is an async function, in the loop of the browser."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or "loop_runner" not in pyfuncitem.fixturenames:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    runner: Any = pyfuncitem.funcargs["loop_runner"]
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
