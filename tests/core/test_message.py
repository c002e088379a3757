"""Tools, calls, results and messages are checked where they are made."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.message import Message
from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import ConfigError
from tests.cases import cases

NEEDS: Any = ("fs::read:/project/**",)
quick = settings(derandomize=True, deadline=None, max_examples=cases(100))


def test_a_tool_knows_what_it_needs():
    """Needs may be written as text; a schema left out is an object without properties."""
    tool = Tool("read_file", "Read a file.", needs=NEEDS, idempotent=True, run=len)
    assert tool.needs == (Capability("fs.read", "/project/**"),)
    assert tool.schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize("name", ["", "1a", "a b", "a.b", "é", "x" * 201, 5, "-a"])
def test_a_tools_name_is_what_every_provider_accepts(name):
    """Letters, digits, `_` and `-`, a letter first."""
    for make in (lambda: Tool(name), lambda: ToolCall("1", name), lambda: ToolResult("1", name)):
        with pytest.raises(ConfigError):
            make()


@pytest.mark.parametrize(
    "wrong", [{"schema": {"type": "string"}}, {"schema": [1]}, {"run": 5}, {"needs": ("fs.raed",)}]
)
def test_a_wrong_tool_is_a_config_error(wrong):
    """A schema that is no object, something that cannot run, a capability that does not exist."""
    with pytest.raises(ConfigError):
        Tool("t", **wrong)


@pytest.mark.parametrize(
    "message",
    [
        Message("system", "Be brief."),
        Message("user", "hello", trust="untrusted"),
        Message("user", ({"type": "text", "text": "look"}, {"type": "image", "data": "…"})),
        Message("assistant", "", (ToolCall("c1", "read_file", {"path": "/x"}),)),
        Message("tool", tool_results=(ToolResult("c1", "read_file", "text"), ToolResult("c2", "t", 5, is_error=True))),
    ],
)
def test_a_message_survives_being_saved(message):
    """from_data ∘ to_data is the identity."""
    assert Message.from_data(message.to_data()) == message


def test_the_text_of_a_message():
    """Parts that are not text are left out."""
    assert Message("user", "a").text == "a"
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text"}]
    assert Message.from_data({"role": "user", "content": parts}).text == "a"


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"role": "robot"},
        {"role": "user", "content": 5},
        {"role": "user", "content": ["text"]},
        {"role": "user", "content": [{"text": "no type"}]},
        {"role": "user", "trust": "maybe"},
        {"role": "user", "rolle": 1},
        {"role": "user", "tool_calls": [{"id": "1", "name": "t"}]},
        {"role": "assistant", "tool_results": [{"id": "1", "name": "t"}]},
        {"role": "assistant", "tool_calls": "x"},
        {"role": "assistant", "tool_calls": [5]},
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        {"role": "assistant", "tool_calls": [{"id": 1, "name": "t"}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "name": "t", "arguments": [1]}]},
        {"role": "assistant", "tool_calls": [{"id": "1", "name": "t", "arguments": {1: 2}}]},
        {"role": "tool", "tool_results": [{"id": "1", "name": "t", "is_error": "no"}]},
        {"role": "tool", "tool_results": [{"id": "1", "name": "t", "x": 1}]},
    ],
)
def test_a_wrong_message_is_a_config_error(wrong):
    """Hostile data is refused with the key that is wrong."""
    with pytest.raises(ConfigError):
        Message.from_data(wrong)


def test_values_of_the_wrong_kind_are_refused():
    """tool_calls holds ToolCalls."""
    calls: Any = ({"id": "1"},)
    with pytest.raises(ConfigError):
        Message("assistant", "", calls)


@quick
@given(
    st.dictionaries(
        st.sampled_from(["role", "content", "tool_calls", "trust"]), st.none() | st.text() | st.lists(st.integers())
    )
)
def test_any_mapping_is_a_message_or_a_config_error(data):
    """Nothing else is raised."""
    with contextlib.suppress(ConfigError):
        Message.from_data(data)


def test_the_arguments_of_a_call_have_a_depth():
    """A model may nest them as it likes; what walks through them must not run out of stack."""
    arguments: dict[str, object] = {}
    for _ in range(199):
        arguments = {"a": arguments}
    assert ToolCall("1", "t", arguments).arguments == arguments
    for deep in ({"a": arguments}, {"a": [arguments]}):
        with pytest.raises(ConfigError, match="nested more than 200 levels deep"):
            ToolCall("1", "t", deep)
    itself: dict[str, object] = {}
    itself["a"] = [itself, itself]
    with pytest.raises(ConfigError, match="levels deep"):
        ToolCall("1", "t", itself)
