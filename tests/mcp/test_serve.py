"""`lyra mcp serve`: Lyra's tools for any MCP client, here the official SDK's, under the rules of the folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from lyra.errors import ConfigError
from lyra.mcp.serve import Offer, OfferOptions
from tests import warm
from tests.mcp.support import free_port, run, wait_for_port
from tests.source import PYTHONPATH

LYRA = "lyra.cli.main:main"
OWN = '''
import asyncio
import lyra
from lyra.core.tool import report

print("the file is loaded")

@lyra.tool
async def double(n: int) -> int:
    """Twice as much."""
    print("it is called")
    report("half of it", 0.5)
    return 2 * n

@lyra.tool
async def wait() -> str:
    """Take long."""
    try:
        await asyncio.sleep(60)
    finally:
        open("cancelled", "w").close()
    return "done"

echo = lyra.Agent("echo", model="sim/echo", description="Says it again.")
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "home").mkdir()
    (work / "a.txt").write_text("hello\nworld\n")
    (work / "own.py").write_text(OWN)
    return work


def environment(folder: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder.parent / "home"), "PYTHONPATH": PYTHONPATH}


def server(folder: Path, *args: str) -> AbstractAsyncContextManager[Any]:
    command, *words = warm.command(LYRA)
    parameters = StdioServerParameters(
        command=command, args=[*words, "mcp", "serve", *args], cwd=str(folder), env=environment(folder)
    )
    # The stream that is usual there is that of its import, which may be closed by now.
    return stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)


async def call(client: Client, name: str, /, **arguments: Any) -> tuple[bool, str]:
    result = await client.call_tool(name, arguments)
    return result.is_error, "\n".join(getattr(part, "text", "?") for part in result.content)


def test_built_in_tools_under_the_rules(folder):
    """Reading needs no rule; writing does, and who edits has to have read. The newest protocol and the older one."""

    async def main(mode):
        async with Client(server(folder, "--allowed-tools", "Edit(a.txt)"), mode=mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert {"Read", "Write", "Edit", "Glob", "Grep", "Bash", "WebFetch"} <= set(tools)
            assert not {"AskUser", "TodoWrite", "Task", "ToolSearch"} & set(tools)
            assert tools["Read"].input_schema["required"] == ["file_path"]
            (folder / "a.txt").write_text("hello\nworld\n")
            assert (await call(client, "Edit", file_path="a.txt", old_string="hello", new_string="bye"))[0]
            assert (await call(client, "Read", file_path="a.txt")) == (False, "     1\thello\n     2\tworld")
            assert not (await call(client, "Edit", file_path="a.txt", old_string="hello", new_string="bye"))[0]
            assert (folder / "a.txt").read_text() == "bye\nworld\n"
            assert "world" in (await call(client, "Grep", pattern="wor", output_mode="content"))[1]
            for name, arguments in (
                ("Write", {"file_path": "b.txt", "content": "x"}),
                ("Bash", {"command": "touch b.txt"}),
                ("Read", {"file_path": "/etc/passwd"}),
                ("WebFetch", {"url": "https://example.org/"}),
            ):
                failed, text = await call(client, name, **arguments)
                assert failed
                assert "no person is there to be asked" in text
            assert not (folder / "b.txt").exists()
            failed, text = await call(client, "Reed")
            assert failed
            assert "did you mean 'Read'?" in text

    run(main("auto"))
    run(main("legacy"))


def test_a_pattern_is_no_answer_for_a_client(folder):
    """It is not known what it has read: a rule that allows a kind of command allows none, one for the tool does."""

    async def main(rule):
        async with Client(server(folder, "--tools", "Bash", "--allowed-tools", rule)) as client:
            return await call(client, "Bash", command="expr hi")

    assert run(main("Bash(expr *)"))[0]
    failed, text = run(main("Bash"))
    assert not failed
    assert "hi" in text


def test_tools_and_agents_of_a_file(folder):
    """Progress is passed on, a cancelled call is stopped, and nothing but the protocol is on stdout."""
    told = []

    async def main():
        async def heard(progress, total, message):
            told.append((progress, total, message))

        names = [f"own.py:{name}" for name in ("double", "wait", "echo")]
        async with Client(server(folder, *(word for name in names for word in ("--agent", name)))) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["double", "wait", "echo"]
            result = await client.call_tool("double", {"n": 4}, progress_callback=heard)
            assert result.content[0].text == "8"
            assert (await call(client, "double", n="x"))[0]
            assert (await call(client, "echo", task="say it")) == (False, "say it")
            waiting = asyncio.ensure_future(client.call_tool("wait", {}))
            await asyncio.sleep(0.5)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
            for _ in range(500):
                if (folder / "cancelled").exists():
                    break
                await asyncio.sleep(0.01)
            assert (folder / "cancelled").exists()

    run(main())
    assert told == [(0.5, 1.0, "half of it")]


def test_stdout_is_the_protocol_alone(folder):
    """Every line is a message, whatever files and tools print."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    ask = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "double", "arguments": {"n": 2}}}
    done = subprocess.Popen(
        [*warm.command(LYRA), "mcp", "serve", "--agent", "own.py:double"],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.stdin is not None
    assert done.stdout is not None
    lines = []
    for message in (hello, told, ask):
        done.stdin.write(json.dumps(message) + "\n")
        done.stdin.flush()
        if "id" in message:
            lines.append(done.stdout.readline())
    rest, errors = done.communicate(timeout=30)
    assert [json.loads(line)["id"] for line in lines] == [1, 2]
    assert rest == ""
    assert "the file is loaded" in errors
    assert "it is called" in errors
    assert done.returncode == 0


def test_over_http_with_a_token(folder):
    """On this machine, for who has the token; a page of another origin and another Host are refused."""
    port, token = free_port(), "a-token-of-the-test"
    started = subprocess.Popen(
        [*warm.command(LYRA), "mcp", "serve", "--tools", "Read", "--http", str(port), "--token-env", "TEST_TOKEN"],
        cwd=folder,
        env={**environment(folder), "TEST_TOKEN": token},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    url = f"http://127.0.0.1:{port}/mcp"

    async def main():
        async with httpx2.AsyncClient() as web:
            assert (await web.post(url, json={})).status_code == 401
            assert (await web.post(url, json={}, headers={"authorization": "Bearer wrong"})).status_code == 401
            known = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
            foreign = await web.post(url, json={}, headers={**known, "origin": "https://evil.example"})
            assert foreign.status_code == 403
            assert (await web.post(url, json={}, headers={**known, "host": "evil.example"})).status_code == 421
        client = httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"})
        async with client, Client(streamable_http_client(url, http_client=client)) as asked:
            assert (await call(asked, "Read", file_path="a.txt"))[1].endswith("world")

    try:
        wait_for_port(port, started)
        run(main())
    finally:
        started.terminate()
        out, _ = started.communicate(timeout=20)
    assert out == b""


def test_mistakes_are_told_before_anything_is_served(folder, monkeypatch):
    """A tool that is not there, with the one that was meant."""
    monkeypatch.setenv("HOME", str(folder.parent / "home"))
    with pytest.raises(ConfigError) as caught:
        Offer(OfferOptions(str(folder), ("Raed",)))
    assert caught.value.hint == "did you mean Read?"


def test_many_calls_wait_for_no_more_than_they_must(folder, monkeypatch):
    """More calls than one process takes; those of tools of a file run beside each other."""
    monkeypatch.setenv("HOME", str(folder.parent / "home"))

    async def nap() -> str:
        """Take a moment."""
        await asyncio.sleep(0.3)
        return "rested"

    async def main():
        async with Offer(OfferOptions(str(folder), ("Read",), (nap,))) as offer:
            came = await asyncio.gather(*(offer.call("Read", {"file_path": "a.txt"}) for _ in range(60)))
            assert not any(result.is_error for result in came)
            loop = asyncio.get_running_loop()
            began = loop.time()
            came = await asyncio.gather(*(offer.call("nap", {}) for _ in range(5)))
            assert [result.output for result in came] == ["rested"] * 5
            assert loop.time() - began < 1.2

    run(main())


def test_a_rule_takes_a_tool_back(folder):
    async def main(*rules):
        async with Client(server(folder, "--tools", "Read", *rules)) as client:
            return await call(client, "Read", file_path="a.txt")

    assert not run(main())[0]
    assert run(main("--disallowed-tools", "Read(a.txt)"))[0]


def test_a_clients_call_with_a_key_is_refused_not_changed(folder, monkeypatch):
    """As a message to a process the key would be masked, and a file be written that says something else."""
    key = "sk-ant-planted-5f2a9c81b7d64e03"
    monkeypatch.setenv("HOME", str(folder.parent / "home"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    taken: list[str] = []

    async def keep(text: str) -> str:
        """Keep a text."""
        taken.append(text)
        return "kept"

    async def main():
        async with Offer(OfferOptions(str(folder), ("Write", "Read"), (keep,), mode="bypass")) as offer:
            for name, arguments in (
                ("Write", {"file_path": "b.txt", "content": f"key {key}"}),
                ("keep", {"text": key.encode().hex()}),
                ("keep", {"text": key[:-1]}),
            ):
                result = await offer.call(name, arguments)
                assert result.is_error
                assert f"{name} was not run: a key of a model provider" in result.output
                assert key not in result.output
            assert (await offer.call("keep", {"text": "sk-ant-"})).output == "kept"

    run(main())
    assert taken == ["sk-ant-"]
    assert not (folder / "b.txt").exists()
