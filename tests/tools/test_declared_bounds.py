"""What a tool allows itself: paths, commands and hosts, by what a call names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.errors import CapabilityDenied, ConfigError
from tests.agents.support import calls, says


def answered(agent: Agent, grant: Any = None) -> str:
    async def work() -> str:
        async with Kernel() as kernel:
            process = await kernel.spawn(agent, grant=None if grant is None else ["model.use", "tool.use", *grant])
            return str(await process.send("go"))

    return asyncio.run(work())


def test_a_path_is_held_against_what_the_tool_allows(tmp_path):
    """By where it leads, also where the process may do everything; and the grant is asked for exactly that."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("fine")
    (tmp_path / "b.txt").write_text("secret")
    (tmp_path / "in" / "link").symlink_to("../b.txt")

    @tool(needs=["fs::read"], allowed_paths=[f"{tmp_path}/in/**"])
    def read_file(path: str) -> str:
        """Read."""
        return Path(path).read_text()

    def ask(path: str, grant: Any = None) -> str:
        name = str(tmp_path / path)
        return answered(Agent("a", model=says(calls("read_file", path=name), "{result}"), tools=[read_file]), grant)

    assert ask("in/a.txt") == "fine"
    for path in ("b.txt", "in/link", "in/../b.txt"):
        assert "no allow rule covers it" in ask(path)
    assert ask("in/a.txt", [f"fs.read:{tmp_path}/in/a.txt"]) == "fine"
    assert "denied" in ask("in/a.txt", [f"fs.read:{tmp_path}/in/b.txt"])


def test_globs_of_names_too(tmp_path):
    """`/data/*.json` is files of that name in that folder."""

    @tool(needs="fs.read", allowed_paths=[f"{tmp_path}/*.json"])
    def load(file: str) -> str:
        """Load."""
        return file

    assert load.needs_of is not None
    assert [str(need) for need in load.needs_of({"file": f"{tmp_path}/a.json"})] == [f"fs.read:{tmp_path}/a.json"]
    for path in (f"{tmp_path}/a.txt", f"{tmp_path}/x/a.json", "/etc/passwd", "a\0b", "", 7):
        with pytest.raises(CapabilityDenied):
            list(load.needs_of({"file": path}))


def test_commands_and_hosts():
    """A chain is no command that is listed; a host is the one that the URL names."""

    @tool(needs=["process::exec"], allowed_commands=["npm test", "pytest"])
    def run_tests(command: str) -> str:
        """Run."""
        return command

    @tool(needs=["net.http"], allowed_hosts=["docs.python.org"])
    def fetch(url: str) -> str:
        """Fetch."""
        return url

    assert run_tests.needs_of is not None
    assert fetch.needs_of is not None
    assert list(run_tests.needs_of({"command": "npm test"}))
    for command in ("npm install", "npm test; rm x", "npm test && ls", "$(pytest)"):
        with pytest.raises(CapabilityDenied):
            list(run_tests.needs_of({"command": command}))
    assert [str(need) for need in fetch.needs_of({"url": "https://docs.python.org/3/"})] == ["net.http:docs.python.org"]
    for url in ("https://evil.org/docs.python.org", "https://docs.python.org@evil.org/", "https://", "http://[::"):
        with pytest.raises(CapabilityDenied):
            list(fetch.needs_of({"url": url}))


def test_without_a_parameter_it_needs_all_that_it_lists():
    """The grant has to cover it before the tool runs."""

    @tool(needs=["process::exec"], allowed_commands=["npm test", "pytest"])
    def run_tests() -> str:
        """Run."""
        return "ran"

    assert [str(need) for need in run_tests.needs] == ["process.exec:npm test", "process.exec:pytest"]
    model = [calls("run_tests"), "{result}"]
    assert answered(Agent("a", model=says(*model), tools=[run_tests]), ["process.exec"]) == "ran"
    assert "denied" in answered(Agent("a", model=says(*model), tools=[run_tests]), ["process.exec:pytest"])


def test_a_bound_that_bounds_nothing_is_an_error():
    """And so is one that is no list, or a right with a scope of its own."""

    def nothing() -> str:
        return ""

    with pytest.raises(ConfigError, match="allowed_paths"):
        tool(nothing, allowed_paths=["/x"])
    with pytest.raises(ConfigError, match="list of texts"):
        tool(nothing, needs=["fs.read"], allowed_paths="/x")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="already names a scope"):
        tool(nothing, needs=["fs.read:/y"], allowed_paths=["/x"])


def test_what_a_call_leaves_out_counts_as_its_default(tmp_path):
    """It is checked like what a call names; and where a call names nothing, all that the tool lists is needed."""
    (tmp_path / "shut.txt").write_text("secret")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("fine")

    def asked(default: str | None, grant: list[str], **given: Any) -> str:
        def look(path: str | None = default) -> str:
            """Look."""
            return Path(path or tmp_path / "in" / "a.txt").read_text()

        look_tool = tool(look, needs=["fs.read"], allowed_paths=[f"{tmp_path}/in/**"])
        return answered(Agent("a", model=says(calls("look", **given), "{result}"), tools=[look_tool]), grant)

    inside, single = f"fs.read:{tmp_path}/in/**", f"fs.read:{tmp_path}/in/a.txt"
    assert "secret" not in asked(str(tmp_path / "shut.txt"), ["fs.read"])
    assert "fine" not in asked(str(tmp_path / "in/a.txt"), [])
    assert asked(str(tmp_path / "in/a.txt"), [single]) == "fine"
    assert "fine" not in asked(None, [single])
    assert asked(None, [inside]) == "fine"
    assert "fine" not in asked(str(tmp_path / "in/a.txt"), [single], path=None)
