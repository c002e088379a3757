"""The system's Chromium, driven by playwright, for tests and pictures of the pages. Downloads no browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.async_api import Browser

__all__ = ["chromium_path", "running_browser"]

_FLAGS: Final = ("--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars")


def chromium_path() -> str | None:
    """Where it is installed; None where it is not."""
    return shutil.which("chromium")


@asynccontextmanager
async def running_browser(path: str) -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # Chromium's sandbox does not work for root
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, headless=True, args=flags)
        try:
            yield browser
        finally:
            await browser.close()
