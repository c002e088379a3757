"""The client that the conformance suite drives: ours, told nothing but a URL.

The suite names the scenario in `MCP_CONFORMANCE_SCENARIO` and judges what its server hears. A page to log in at is
opened as a browser would, which in the suite is a redirect straight back.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import Any

import httpx2

from lyra.errors import ToolError
from lyra.mcp import Approvals, McpServers, ServerSettings

ARGUMENTS = {"a": 5, "b": 3}


async def authorize(server: str, url: str) -> None:
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(url)


async def elicit(server: str, message: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The defaults of the form."""
    return {name: field["default"] for name, field in schema["properties"].items() if "default" in field}


async def main() -> None:
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    auth = {"kind": "oauth"} if scenario.startswith("auth/") else {}
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if "client_id" in given:  # registered by hand: the name in the settings, the secret in the environment
        os.environ["SUITE_SECRET"] = given["client_secret"]
        auth |= {"client_id": given["client_id"], "client_secret_env": "SUITE_SECRET"}
    settings = ServerSettings(name="suite", url=sys.argv[-1], transport="http", auth=auth, timeout_s=20)
    options: dict[str, Any] = {"authorize": authorize} if auth else {}
    if scenario.startswith("elicitation"):
        options["elicit"] = elicit
    with tempfile.TemporaryDirectory() as folder:
        async with McpServers(
            [settings], workspace=folder, approvals=Approvals(None), folder=None, **options
        ) as servers:
            for tool in await servers.tools():
                known = tool.schema.get("properties", {})
                assert tool.run is not None
                try:
                    print(tool.name, await tool.run(**{name: ARGUMENTS[name] for name in known if name in ARGUMENTS}))
                except ToolError as error:  # a server may refuse; that the client is still here is what counts
                    print(tool.name, error)
            print(servers.states())


if __name__ == "__main__":
    asyncio.run(main())
