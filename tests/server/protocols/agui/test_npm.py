"""AG-UI with the client of the npm package as its front end."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from lyra import tool
from tests.mcp.node import FOLDER, MODULES
from tests.server.http.support import ADA, in_loop, serving
from tests.server.protocols.agui.support import sequence


@pytest.mark.slow
def test_a_conversation_with_the_npm_client() -> None:
    """An approval, a tool of the front end, state and messages: the client, which checks the order of all events, ends
    with the conversation that the agent has."""
    if shutil.which("node") is None or not (MODULES / "@ag-ui" / "client").is_dir():
        pytest.skip("@ag-ui/client is not installed: .ci/node")

    async def main() -> None:
        @tool
        async def paint(colour: str) -> str:
            """Paint the wall."""
            group = next(name for name in kernel.groups.names() if name.startswith("state."))
            await kernel.groups.bb_set(group, "wall", colour)
            return "painted"

        agent = sequence(
            "painter",
            {"thinking": "hm", "tool_calls": [{"id": "c1", "name": "paint", "arguments": {"colour": "red"}}]},
            "It is red.",
            {"tool_calls": [{"id": "c2", "name": "pick_colour", "arguments": {}}]},
            "You like teal.",
            tools=[paint],
            permissions={"ask": ["paint"]},
            thinking_tokens=1024,
        )
        async with serving(agent) as served:
            kernel = served.kernel
            front_end = await asyncio.create_subprocess_exec(
                "node",
                str(Path(__file__).parent / "client.mjs"),
                f"{served.url}/agui/painter",
                ADA,
                env={**os.environ, "LYRA_TEST_NODE": str(FOLDER)},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            output, errors = await front_end.communicate()
            assert front_end.returncode == 0, errors.decode()
            told = json.loads(output)
        assert [outcome["type"] for outcome in told["outcomes"]] == ["interrupt", "success", "success", "success"]
        assert told["interrupts"][0]["toolCallId"] == "c1"
        assert told["state"] == {"wall": "red"}
        assert told["patches"] == [{"op": "replace", "path": "/wall", "value": "red"}]
        spoken = [(row["role"], row.get("content")) for row in told["messages"] if row["role"] != "reasoning"]
        assert spoken == [
            ("user", "paint the wall"),
            ("assistant", None),
            ("tool", "painted"),
            ("assistant", "It is red."),
            ("user", "ask me"),
            ("assistant", None),
            ("tool", "teal"),
            ("assistant", "You like teal."),
        ]
        assert "REASONING_MESSAGE_CONTENT" in told["kinds"]
        ids = [row["id"] for row in told["messages"]]
        assert len(set(ids)) == len(ids)

    in_loop(main())
