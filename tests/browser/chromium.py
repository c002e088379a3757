"""What the tests need to show pages; a test is skipped where it is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.mcp.node import MODULES
from verify.chromium import chromium_path

__all__ = ["axe_source", "program"]

_AXE: Final = MODULES / "axe-core" / "axe.min.js"


def program() -> str:
    """The path of Chromium."""
    path = chromium_path()
    if path is None:
        pytest.skip("needs chromium, to show the pages: .ci/chromium, or apt-get install chromium")
    return path


def axe_source() -> Path:
    """The judge of accessibility."""
    if not _AXE.is_file():
        pytest.skip("axe-core is not installed: .ci/node")
    return _AXE
