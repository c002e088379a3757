"""An agent of a Markdown file without Sage: what its file, the folder and the configuration make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.agents.headless.options import HeadlessOptions
from lyra.config import Config
from lyra.core.budgets.budget import Budget
from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.kernel.kernel import Kernel
from lyra.sage.agent.file_agent import FileAgent, agent_definition
from lyra.sage.extensions.extensions import Extensions
from lyra.tools.function import tool
from lyra.tools.permissions.subjects import subject_of

pytestmark = pytest.mark.anyio

FILE = """---
description: Looks at changes
tools: Read, Grep, Bash(git diff *)
max_turns: 7
budget: $0.50
{}
---
You look at changes.
"""


def made(folder: Path, more: str = "", **options: Any) -> FileAgent:
    (folder / ".lyra" / "agents").mkdir(parents=True, exist_ok=True)
    (folder / ".lyra" / "agents" / "looker.md").write_text(FILE.format(more))
    env = {"HOME": str(folder)}
    config = Config.load(str(folder), env=env, flags=["agent.model=sim/echo"])
    extensions = Extensions(str(folder), trusted=True, env=env)
    given = HeadlessOptions(folder=str(folder), attended=True, trusted=True, **options)
    return FileAgent(agent_definition("looker", extensions), extensions, given, config)


async def test_the_settings_of_the_file_count(tmp_path: Path) -> None:
    """Prompt, tools, turns and budget are those of the file; the model is the configuration's where it names none."""
    file_agent = made(tmp_path)
    agent = file_agent.agent
    assert (agent.system, agent.model, agent.max_iterations) == ("You look at changes.", "sim/echo", 7)
    tools = [*agent.tools, *(tool.name for source in agent.sources for tool in source.__lyra_tools__())]
    assert sorted(tools) == ["Bash", "Glob", "Grep", "Read"]  # the rule Read speaks of the tools that read
    assert repr(agent.budget) == repr(Budget.of("$0.50"))
    assert made(tmp_path, "model: sim/script:x.json").agent.model == "sim/script:x.json"
    assert file_agent.notes == ()


async def test_a_limit_of_the_file_holds_beside_the_permission_files(tmp_path: Path) -> None:
    """A tool that the file limits is denied elsewhere, also where a rule allows it."""
    permissions = made(tmp_path, allow=("Bash(*)",)).agent.permissions
    assert permissions is not None
    decisions = [
        permissions.decide(subject_of("Bash", {"command": command}, workspace=str(tmp_path), home=str(tmp_path)))
        for command in ("git diff HEAD", "git push")
    ]
    assert [row.decision for row in decisions] == ["allow", "deny"]


async def test_a_mode_of_the_file_only_tightens(tmp_path: Path) -> None:
    """`plan` takes the rights to write away; a looser mode than the run's does not count."""
    plan = made(tmp_path, "permission_mode: plan")
    assert plan.agent.permissions is not None
    assert plan.agent.permissions.mode == "plan"
    assert not plan.grant().allows(Capability("fs.write", f"{tmp_path}/a.txt"))
    default = made(tmp_path, "permission_mode: bypass")
    assert default.agent.permissions is not None
    assert default.agent.permissions.mode == "default"
    assert default.grant().allows(Capability("fs.write", f"{tmp_path}/a.txt"))
    assert not default.grant().allows(Capability("fs.write", "/etc/hosts"))


async def test_a_tool_that_there_is_not_is_told(tmp_path: Path) -> None:
    """A rule of the file that names no tool has a did-you-mean."""
    (tmp_path / ".lyra" / "agents").mkdir(parents=True)
    file = FILE.replace("Grep", "Grepp")
    (note,) = _with_file(tmp_path, file).notes
    assert "did you mean 'Grep'?" in note


class GrowingSource:
    """A source whose tools change, as those of an MCP server do."""

    def __init__(self) -> None:
        self.names = ["mcp__maps__route"]

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        return tuple(tool(self._ask, name=name, needs=[f"net.http:{name}.example"]) for name in self.names)

    @staticmethod
    async def _ask(place: str) -> str:
        """Look a place up."""
        return place


async def test_tools_that_come_later_bring_their_rights(tmp_path: Path) -> None:
    """A tool of a server that the file names is offered, others are not; the process has the rights of those that
    there are."""
    source = GrowingSource()
    file = FILE.replace("Read, Grep", "Read, mcp__maps__route, mcp__maps__near")
    (tmp_path / ".lyra" / "agents").mkdir(parents=True)
    file_agent = _with_file(tmp_path, file, tools=(source,))
    assert FileAgent.uses_servers(file_agent.definition)
    near = Capability("net.http", "mcp__maps__near.example")
    async with Kernel() as kernel:
        file_agent.attach(kernel)
        process = await kernel.spawn(file_agent.agent, pid="talk", grant=file_agent.grant())
        await process.send("hello")
        assert not kernel.processes["talk"].grant.allows(near)
        source.names += ["mcp__maps__near", "mcp__maps__other"]
        await process.send("hello again")
        assert kernel.processes["talk"].grant.allows(near)
        assert not kernel.processes["talk"].grant.allows(Capability("net.http", "mcp__maps__other.example"))


def _with_file(folder: Path, text: str, **more: Any) -> FileAgent:
    (folder / ".lyra" / "agents" / "looker.md").write_text(text.format(""))
    env = {"HOME": str(folder)}
    extensions = Extensions(str(folder), trusted=True, env=env)
    options = HeadlessOptions(folder=str(folder), model="sim/echo", trusted=True, **more)
    return FileAgent(agent_definition("looker", extensions), extensions, options, Config.load(str(folder), env=env))


async def test_an_untrusted_file_is_not_an_agent(tmp_path: Path) -> None:
    """Its name is known, and the error says what is missing."""
    made(tmp_path)
    with pytest.raises(ConfigError, match="not trusted"):
        agent_definition("looker", Extensions(str(tmp_path), trusted=False, env={"HOME": str(tmp_path)}))
