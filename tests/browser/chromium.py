"""The system's Chromium, one for all tests of a process. No browser is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.mcp.node import MODULES

if TYPE_CHECKING:
    from playwright.async_api import Browser

__all__ = ["AXE", "program", "running_browser"]

AXE: Final = MODULES / "axe-core" / "axe.min.js"
_FLAGS: Final = ("--disable-gpu", "--disable-dev-shm-usage", "--force-color-profile=srgb", "--hide-scrollbars")


def program() -> str:
    """The path of Chromium; the test is skipped where it is not installed."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("needs chromium, to show the pages: .ci/chromium, or apt-get install chromium")
    return path


def axe_source() -> Path:
    """The judge of accessibility; the test is skipped where it is not installed."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: .ci/node")
    return AXE


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # Chromium's sandbox does not work for root
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program(), headless=True, args=flags)
        try:
            yield browser
        finally:
            await browser.close()
