"""ToolRegistry: tools by name, handed to agents in parts."""

from __future__ import annotations

import pytest

from lyra import Agent, ToolRegistry, run, tool
from lyra.errors import ConfigError
from lyra.models.sim import SimProvider


@tool
def read_page(url: str) -> str:
    """Read a page."""
    return f"page {url}"


def read_file(path: str) -> str:
    """Read a file."""
    return f"file {path}"


def test_functions_and_tools_are_kept_by_name():
    """Registered as they come, found by name, in their order."""
    registry = ToolRegistry([read_page, read_file])

    @registry.register
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @registry.register(name="minus", idempotent=True)
    def subtract(a: int, b: int) -> int:
        """Subtract."""
        return a - b

    assert registry.names == ("read_page", "read_file", "add", "minus")
    assert registry.get("read_page") is read_page
    assert registry["minus"].idempotent
    assert registry.get("nothing") is None
    assert "add" in registry
    assert len(registry) == 4
    assert [schema["description"] for schema in registry.schemas()][:2] == ["Read a page.", "Read a file."]


def test_a_wrong_name_is_answered_with_a_near_one():
    """As everywhere: did you mean."""
    with pytest.raises(ConfigError, match="read_pgae") as caught:
        ToolRegistry([read_page])["read_pgae"]
    assert "read_page" in str(caught.value.hint)


def test_two_of_one_name_are_refused():
    """Unless one is meant to replace the other."""
    registry = ToolRegistry([read_page])
    with pytest.raises(ConfigError, match="already"):
        registry.register(read_file, name="read_page")
    registry.register(read_file, name="read_page", replace=True)
    assert registry["read_page"](path="x") == "file x"
    assert registry.unregister("read_page").name == "read_page"
    assert not registry.names


def test_filters():
    """By pattern, by function, and without some."""
    registry = ToolRegistry([read_page, read_file, tool(read_file, name="write_file")])
    assert registry.filter("read_*").names == ("read_page", "read_file")
    assert registry.filter(without="read_*").names == ("write_file",)
    assert registry.filter(lambda each: "file" in each.name, without=["write_*"]).names == ("read_file",)


def test_an_agent_takes_one():
    """`tools=registry`, or a part of it."""
    script = [{"tool_calls": [{"name": "read_page", "arguments": {"url": "a"}}]}, {"text": "{result}"}]
    registry = ToolRegistry([read_page, read_file])
    agent = Agent("reader", model=SimProvider(script), tools=registry.filter("*_page"))
    assert set(agent.tools) == {"read_page"}
    assert run(agent, "go") == "page a"
