"""An agent of a Markdown file without Sage: what its file, the folder and the configuration make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.agents.headless.options import HeadlessOptions
from lyra.config import Config
from lyra.core.budgets.budget import Budget
from lyra.core.rights.capability import Capability
from lyra.errors import ConfigError
from lyra.sage.agent.file_agent import FileAgent, agent_definition
from lyra.sage.extensions.extensions import Extensions
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


def _with_file(folder: Path, text: str) -> FileAgent:
    (folder / ".lyra" / "agents" / "looker.md").write_text(text.format(""))
    env = {"HOME": str(folder)}
    extensions = Extensions(str(folder), trusted=True, env=env)
    options = HeadlessOptions(folder=str(folder), model="sim/echo", trusted=True)
    return FileAgent(agent_definition("looker", extensions), extensions, options, Config.load(str(folder), env=env))


async def test_an_untrusted_file_is_not_an_agent(tmp_path: Path) -> None:
    """Its name is known, and the error says what is missing."""
    made(tmp_path)
    with pytest.raises(ConfigError, match="not trusted"):
        agent_definition("looker", Extensions(str(tmp_path), trusted=False, env={"HOME": str(tmp_path)}))
