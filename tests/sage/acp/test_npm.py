"""`sage acp` with the client of the npm package as its editor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.mcp.node import FOLDER, MODULES


@pytest.mark.slow
def test_a_conversation_with_the_npm_client(tmp_path: Path) -> None:
    """A write that is allowed, one that is not, a mode, a command; every message fits the package's own schema."""
    if shutil.which("node") is None or not (MODULES / "@agentclientprotocol" / "sdk").is_dir():
        pytest.skip("@agentclientprotocol/sdk is not installed: .ci/node")
    for name in ("work", "home"):
        (tmp_path / name).mkdir()
    write: dict[str, Any] = {"name": "Write", "arguments": {"file_path": "a.txt", "content": "new\n"}}
    other = {"name": "Write", "arguments": {"file_path": "b.txt", "content": "new\n"}}
    replies = [{"tool_calls": [write]}, {"text": "Written."}, {"tool_calls": [other]}, {"text": "Not written."}]
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"sequence": replies}))
    command = ["node", str(Path(__file__).parent / "client.mjs"), str(tmp_path / "work")]
    home = {"HOME": str(tmp_path / "home"), "XDG_DATA_HOME": str(tmp_path / "data"), "LYRA_TEST_NODE": str(FOLDER)}
    done = subprocess.run(
        [*command, *warm.command("lyra.cli.main:sage"), "acp", "--model", f"sim/script:{script}"],
        env={**os.environ, **home},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["begun"]["agentCapabilities"]["loadSession"] is True
    assert told["reasons"] == ["end_turn", "end_turn", "end_turn"]
    assert (tmp_path / "work" / "a.txt").read_text() == "new\n"
    assert not (tmp_path / "work" / "b.txt").exists()
    assert told["asked"][0]["toolCall"]["content"][0]["newText"] == "new\n"
    kinds = {update["sessionUpdate"] for update in told["updates"]}
    assert {"available_commands_update", "tool_call", "tool_call_update", "agent_message_chunk"} <= kinds
    assert "current_mode_update" in kinds
    assert told["session"]["sessionId"] in json.dumps(told["updates"])
