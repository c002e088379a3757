"""An agent with the built-in tools: rights to paths, one memory of reads a process, errors told to the model."""

from __future__ import annotations

import asyncio

from lyra import Agent, Kernel, run
from lyra.models.sim import SimProvider
from lyra.tools.builtin import builtin_tools


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


async def answered(agent: Agent, grant: list[str]) -> str:
    async with Kernel() as kernel:
        process = await kernel.spawn(agent, grant=["model.use", "tool.use", *grant])
        return str(await process.send("go"))


def test_an_agent_reads_edits_and_searches(tmp_path):
    """Through the door, in a thread or beside the loop."""
    (tmp_path / "a.txt").write_text("one\n")
    script = [
        call("Read", file_path="a.txt"),
        call("Edit", file_path="a.txt", old_string="one", new_string="two"),
        call("Grep", pattern="two", output_mode="content"),
        {"text": "{result}"},
    ]
    tools = builtin_tools(str(tmp_path))
    agent = Agent("editor", model=SimProvider(script), tools=tools, permissions={"mode": "accept-edits"})
    assert run(agent, "go") == "a.txt:1:two"
    assert (tmp_path / "a.txt").read_text() == "two\n"


def test_what_a_grant_does_not_cover_is_denied(tmp_path):
    """By the path that a link leads to; the model is told, the file is not touched."""
    (tmp_path / "open").mkdir()
    (tmp_path / "shut").mkdir()
    (tmp_path / "shut" / "s.txt").write_text("secret")
    (tmp_path / "open" / "link").symlink_to("../shut/s.txt")
    for path, denied in (("open/link", True), ("shut/s.txt", True), ("open/a.txt", False)):
        (tmp_path / "open" / "a.txt").write_text("fine")
        script = [call("Read", file_path=path), {"text": "{result}"}]
        agent = Agent("reader", model=SimProvider(script), tools=builtin_tools(str(tmp_path)))
        answer = asyncio.run(answered(agent, [f"fs.read:{tmp_path}/open/**"]))
        assert "secret" not in answer
        assert ("fine" in answer) is not denied
