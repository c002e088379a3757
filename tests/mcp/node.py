"""What `.ci/node` installed: MCP servers from npm, and Node 22 with the conformance suite."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("LYRA_TEST_NODE") or Path.home() / ".cache" / "lyra-tests" / "node")
MODULES = FOLDER / "node_modules"
SUITE = MODULES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
NODE_22 = MODULES / ".bin" / "node"


def script(package: str) -> Path:
    """The program of a server from npm; the test is skipped where it is not there."""
    path = MODULES / "@modelcontextprotocol" / package / "dist" / "index.js"
    if shutil.which("node") is None or not path.is_file():
        pytest.skip(f"{package} is not installed: .ci/node")
    return path
