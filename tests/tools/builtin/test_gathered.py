"""The built-in tools as a whole: what each is marked with, and what it asks for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.agents.helpers.task import task_tool
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.models.sim import SimProvider
from lyra.tools.builtin import builtin_tools
from lyra.tools.builtin.ask_user import ask_tools
from lyra.tools.permissions import Layer, permissions_of
from lyra.tools.permissions.subjects import TOOLS
from tests.agents.support import calls, run

# name: untrusted, guarded, concurrency, needs of a call
MARKS: dict[str, tuple[bool, bool, str, tuple[dict[str, Any], list[str]]]] = {
    "Read": (True, False, "parallel", ({"file_path": "a"}, ["fs.read:{root}/a"])),
    "Write": (False, True, "sequential", ({"file_path": "a"}, ["fs.read:{root}/a", "fs.write:{root}/a"])),
    "Edit": (False, True, "sequential", ({"file_path": "a"}, ["fs.read:{root}/a", "fs.write:{root}/a"])),
    "MultiEdit": (False, True, "sequential", ({"file_path": "a"}, ["fs.read:{root}/a", "fs.write:{root}/a"])),
    "NotebookEdit": (False, True, "sequential", ({"notebook_path": "a"}, ["fs.read:{root}/a", "fs.write:{root}/a"])),
    "Glob": (True, False, "parallel", ({"pattern": "*"}, ["fs.read:{root}"])),
    "Grep": (True, False, "parallel", ({"pattern": "x", "path": "a"}, ["fs.read:{root}/a"])),
    "Bash": (True, True, "sequential", ({"command": "git log"}, ["process.exec:git log"])),
    "Git": (True, True, "exclusive", ({"command": "commit -m x"}, ["process.exec:git commit -m x"])),
    "BashOutput": (True, False, "parallel", ({"bash_id": "bash_1"}, [])),
    "KillShell": (True, False, "parallel", ({"bash_id": "bash_1"}, [])),
    "WebFetch": (True, True, "parallel", ({"url": "https://a.org/"}, ["net.http:a.org:443"])),
    "TodoWrite": (False, False, "parallel", ({"todos": []}, [])),
    "AskUser": (False, False, "parallel", ({"question": "x"}, ["human.ask:clarification"])),
    "ToolSearch": (False, False, "parallel", ({"query": "x"}, [])),
}


def gathered(root: Path, **options: Any) -> dict[str, Tool]:
    return {tool.name: tool for tool in builtin_tools(str(root), **options)}


def test_every_tool_is_marked_as_it_must_be(tmp_path: Path):
    """What brings text from outside marks the session; what writes, runs or fetches is asked about in any case."""
    tools = gathered(tmp_path)
    assert set(tools) == set(MARKS)
    for name, (untrusted, guarded, concurrency, (arguments, needs)) in MARKS.items():
        tool = tools[name]
        assert (tool.untrusted, tool.guarded, tool.concurrency) == (untrusted, guarded, concurrency), name
        asked = tool.needs_of(arguments) if tool.needs_of is not None else ()
        assert [str(need) for need in (*tool.needs, *asked)] == [need.format(root=tmp_path) for need in needs], name
        assert tool.description
        assert all("description" in parameter for parameter in tool.schema["properties"].values()), name


def test_permission_rules_know_every_tool(tmp_path: Path):
    """No built-in tool is unknown to the rules: each call of such a tool would be asked about."""
    for name in (*gathered(tmp_path), task_tool().name, "Remember", "Recall"):
        assert TOOLS[name.lower()].name == name


def test_every_tool_has_its_row_in_the_docs(tmp_path: Path):
    page = (Path(__file__).parents[3] / "docs/how-to/built-in-tools.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {name.strip().strip("`") for row in rows for name in row.split(",")}
    assert listed == {*gathered(tmp_path), task_tool().name, "Remember", "Recall", "WebSearch"}


# ---------------------------------------------------------------- AskUser
async def answered(answer: dict[str, Any], **arguments: Any) -> str:
    def script(request: Any) -> Any:
        results = request.messages[-1].tool_results
        return {"text": str(results[0].output)} if results else calls("AskUser", **arguments)

    agent = Agent("asker", model=SimProvider(script), tools=ask_tools())
    async with Kernel() as kernel:
        process = await kernel.spawn(agent)
        pending = process.send_async("go")
        while not kernel.interrupts.pending():
            await asyncio.sleep(0.001)
        (question,) = kernel.interrupts.pending()
        assert question.kind == "clarification"
        assert question.question == f"The agent asks:\n> {arguments['question']}"
        assert all(option in question.message for option in arguments.get("options", ()))
        kernel.interrupts.resolve(question.id, answer)
        return str(await pending)


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"text": "blue"}, "blue"),
        ({"text": "2"}, "green"),
        ({"text": "7"}, "7"),
        ({"decision": "red"}, "red"),
        ({"approved": True}, "yes"),
        ({"approved": False}, "no"),
        ({"data": {"a": 1}}, "{'a': 1}"),
    ],
)
def test_the_answer_is_the_persons(answer: dict[str, Any], result: str):
    """A word, the number of an option, or whatever they say instead."""
    assert run(answered(answer, question="Which colour?", options=["red", "green"])) == result


def test_the_words_of_a_model_are_shown_as_such():
    """Each line is marked, an option is one line, and invisible characters are shown as their codes."""

    async def shown() -> Any:
        arguments = {"question": "Allow Bash?\nls\x1b[2J\u202e", "options": ["\x1b[31mallow\u202e", "x\n3. deny\r4. y"]}
        script = [calls("AskUser", **arguments), {"text": "done"}]
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("asker", model=SimProvider(script), tools=ask_tools()))
            pending = process.send_async("go")
            while not kernel.interrupts.pending():
                await asyncio.sleep(0.001)
            (question,) = kernel.interrupts.pending()
            kernel.interrupts.resolve(question.id, {"text": "1"})
            await pending
            return question

    question = run(shown())
    assert question.question == "The agent asks:\n> Allow Bash?\n> ls⟨U+001B⟩[2J⟨U+202E⟩"
    assert question.message == "1. ⟨U+001B⟩[31mallow⟨U+202E⟩\n2. x⏎ 3. deny⟨U+000D⟩4. y"


def test_a_model_cannot_answer_its_own_question():
    """There is no argument for it."""
    (tool,) = ask_tools()
    assert set(tool.schema["properties"]) == {"question", "options"}
    assert tool.schema["additionalProperties"] is False


def test_without_a_person_the_model_is_told(tmp_path: Path):
    """At once, by the permissions' own word or by the caller's."""
    alone = permissions_of([Layer("user", {})], workspace=str(tmp_path), attended=False)
    for tools in (gathered(tmp_path, attended=False), gathered(tmp_path, permissions=alone)):
        ask = tools["AskUser"].run
        assert ask is not None
        with pytest.raises(ToolError, match="no person is there"):
            asyncio.run(ask(question="Which?", ctx=None))


@pytest.mark.parametrize(
    "wrong", [{"question": ""}, {"question": "x" * 5_000}, {"question": "x", "options": ["a"] * 11}, {"options": [""]}]
)
def test_what_is_no_question_is_refused(wrong: dict[str, Any]):
    (tool,) = ask_tools()
    assert tool.run is not None
    with pytest.raises(ToolError) as caught:
        asyncio.run(tool.run(**{"question": "x", **wrong}, ctx=None))
    assert caught.value.reason == "invalid_arguments"


def test_searches_pass_over_what_the_rules_hide(tmp_path: Path):
    (tmp_path / "a.txt").write_text("needle")
    (tmp_path / "b.txt").write_text("needle")
    rules = permissions_of([Layer("user", {"deny": ["Read(b.txt)"]})], workspace=str(tmp_path))
    grep = gathered(tmp_path, permissions=rules)["Grep"].run
    assert grep is not None
    assert asyncio.run(grep(pattern="needle")) == "a.txt"
