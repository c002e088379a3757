"""Servers that other people wrote: `server-everything` and `server-filesystem` from npm, in the sandbox."""

from __future__ import annotations

import shutil
from dataclasses import replace

from lyra.agents.declaration.output import Image
from lyra.core.tool import progress
from lyra.mcp import ServerSettings
from tests.mcp.node import FOLDER, script
from tests.mcp.support import free_port, http_server, run, using


def from_npm(package: str, name: str, *args: str) -> ServerSettings:
    return ServerSettings(
        name=name, command="node", args=(str(script(package)), *args), readable=(str(FOLDER),), timeout_s=20
    )


def test_everything_over_stdio(tmp_path):
    """Tools, a picture, data, progress, resources, prompts; in the handshake of older servers."""
    told: list[tuple[str, float | None]] = []

    async def main():
        async with using(from_npm("server-everything", "every"), folder=tmp_path) as use:
            state = use.state("every")
            assert (state.state, state.protocol) == ("connected", "2025-11-25")
            assert len(state.tools) >= 10
            assert await use.call("mcp__every__echo", message="hi") == "Echo: hi"
            assert "is 3" in await use.call("mcp__every__get-sum", a=1, b=2)
            picture = await use.call("mcp__every__get-tiny-image")
            assert any(isinstance(part, Image) for part in picture)
            assert "temperature" in str(await use.call("mcp__every__get-structured-content", location="New York"))
            progress.set(lambda text, fraction: told.append((text, fraction)))
            await use.call("mcp__every__trigger-long-running-operation", duration=1, steps=2)
            assert told[-1][1] == 1.0
            listed = await use.call("McpResource", server="every")
            assert len(str(await use.call("McpResource", server="every", uri=listed[0]["uri"]))) > 20
            assert "simple-prompt" in {prompt["name"] for prompt in await use.call("McpPrompt", server="every")}
            assert "user:" in await use.call("McpPrompt", server="every", name="simple-prompt")

    run(main())


def test_everything_over_http(tmp_path):
    """The same server at a URL."""
    port = free_port()
    node = shutil.which("node")
    argv = (str(node), str(script("server-everything")), "streamableHttp")

    async def main():
        with http_server(port, *argv, env={"PORT": str(port)}):
            settings = ServerSettings(name="every", url=f"http://127.0.0.1:{port}/mcp", transport="http", timeout_s=20)
            async with using(settings, folder=tmp_path) as use:
                assert use.state("every").state == "connected"
                assert await use.call("mcp__every__echo", message="hi") == "Echo: hi"

    run(main())


def test_files_in_one_folder(tmp_path):
    """It can write where the settings let it, and what it has not promised to leave alone the sandbox keeps."""
    folder, other = tmp_path / "project", tmp_path / "other"
    for path in (folder, other):
        path.mkdir()
    (folder / "a.txt").write_text("hello")
    (folder / ".env").write_text("SECRET=1")
    (other / "b.txt").write_text("theirs")

    async def main():
        # It is told that it may use both folders; the sandbox knows of one.
        settings = from_npm("server-filesystem", "files", str(folder), str(other))
        async with using(replace(settings, args=settings.args[:2], writable=(str(folder),)), folder=folder) as use:
            assert len(use.state("files").tools) >= 10
            assert await use.call("mcp__files__read_text_file", path=str(folder / "a.txt")) == "hello"
            await use.call("mcp__files__write_file", path=str(folder / "new.txt"), content="made")
            assert (folder / "new.txt").read_text() == "made"
            assert "EACCES" in (await use.error("mcp__files__read_text_file", path=str(folder / ".env"))).message
            await use.error("mcp__files__read_text_file", path=str(other / "b.txt"))
        async with using(settings, folder=folder) as use:
            error = await use.error("mcp__files__write_file", path=str(folder / "more.txt"), content="x")
            assert "read-only" in error.message or "EROFS" in error.message
            assert not (folder / "more.txt").exists()

    run(main())
