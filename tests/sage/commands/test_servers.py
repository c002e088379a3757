"""MCP servers of a session: their states, and their prompts as commands."""

from __future__ import annotations

import pytest

from lyra.errors import ConfigError
from lyra.mcp import ServerSettings
from lyra.sage.commands.registry import command_list
from tests.mcp.support import program, tiny, using
from tests.sage.commands.shown import rows, run, words
from tests.sage.open_session import Project, say


@pytest.mark.slow
async def test_servers_and_their_prompts(project: Project) -> None:
    """States and tools are shown; a prompt is a command with its arguments in order, sent as text from outside."""
    broken = ServerSettings(name="broken", command="/nowhere/at/all")
    async with (
        using(program("server.py"), tiny(), broken, folder=project.folder) as use,
        project.open(options={"tools": (use.servers,)}) as session,
    ):
        listed = {row[0]: row for row in rows(await run(session, "/mcp"))}
        assert listed["own"][1] == listed["tiny"][1] == "connected"
        assert listed["broken"][1] != "connected"
        assert dict(rows(await run(session, "/status")))["MCP"] == "2 of 3 connected"
        details = words(await run(session, "/mcp own"))
        assert "mcp__own__add" in details
        assert "/own:greet | A greeting." in details
        with pytest.raises(ConfigError, match="no MCP server 'owm'"):
            await run(session, "/mcp owm")
        assert words(await run(session, "/mcp reconnect tiny")) == "tiny: connected"

        assert "own:greet" not in dict(command_list(session)), "no server is asked while a person types"
        assert "/own:greet | MCP server own | A greeting." in words(await run(session, "/commands"))
        assert ("own:greet", "A greeting.") in command_list(session)
        result = await run(session, "/own:greet 'Bo Diddley'")
        assert result.send_with == {"beside": "user: Say hello to Bo Diddley."}
        await say(session, result.prompt, **result.send_with)
        assert "Say hello to Bo Diddley." in session.messages[0].text
        assert session.kernel.taint.is_tainted("sage")
        for line, sentence in (
            ("/own:greet", "name is missing"),
            ("/own:greet a b", "'b' is not expected here"),
            ("/own:great", "there is no command /own:great"),
            ("/none:greet", "there is no command /none:greet"),
        ):
            with pytest.raises(ConfigError, match=sentence):
                await run(session, line)


async def test_a_session_without_servers(project: Project) -> None:
    async with project.open() as session:
        assert "no MCP server" in words(await run(session, "/mcp"))
