"""A provider's key without a well-known form is kept nowhere: in no session, index, title, memory or history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lyra.errors import ConfigError
from lyra.sage.commands.registry import run_command
from lyra.sage.session.index import SessionIndex
from lyra.sage.terminal.completion import PromptHistory
from tests.agents.support import model_called
from tests.sage.open_session import Project, call, say

FORM_KEY = "sk-ant-api03-" + "Qw7eRt5yUi9oPa3sDf1gHj6kLz8xCv2bNm4Q"
KEY = "Zt9mQ4xWv7LrPa2KdN8sYh3BjUc6Ge5TfX1o"


def kept(folder: Path, key: str = KEY) -> list[str]:
    """The files below a folder that hold the key, copies of the project's files aside."""
    paths = [path for path in folder.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
    return [path.name for path in paths if path.parent.name != "contents"]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)


async def test_a_key_in_a_prompt_is_not_kept(project: Project) -> None:
    async with project.open() as session:
        await say(session, f"use {KEY} for it")
        session_id = session.id
    assert kept(project.data) == []
    with SessionIndex(project.data) as index:
        assert index.get(session_id).first_prompt == "use *** for it"


async def test_a_key_in_a_title_a_checkpoint_or_memory_is_not_kept(project: Project) -> None:
    """The masked name of a checkpoint still leads back to it."""
    async with project.open(title=f"with {KEY}") as session:
        await say(session, "hello")
        assert session.title == "with ***"
        for line in (f"/title {KEY}", f"/memory add my key is {KEY}", f"/checkpoint {KEY}", f"/restore {KEY}"):
            await run_command(session, line)
    assert kept(project.data) == []
    assert kept(project.home) == []
    assert (project.folder / "AGENTS.md").read_text() == "- my key is ***\n"


async def test_a_key_in_what_a_session_remembers_is_not_kept(project: Project) -> None:
    """Every fact is masked when it is written, whichever part of Sage writes it."""
    async with project.open() as session:
        await say(session, "hello")
        session.keep(own={"note": f"with {KEY}"})
        session_id = session.id
    assert kept(project.data) == []
    async with project.open(resume=session_id) as session:
        assert session.facts.settings["own"] == {"note": "with ***"}


async def test_a_key_in_the_diff_of_a_question_is_masked(project: Project) -> None:
    project.write("a.txt", f"key = {KEY}\nx = 1\n")
    replies = (
        call("Read", file_path="a.txt"),
        call("Edit", file_path="a.txt", old_string="x = 1", new_string="x = 2"),
        {"text": "done"},
    )
    diffs = []
    async with project.open(*replies, options={"attended": True}) as session:
        async for line in session.send("edit"):
            if line["type"] == "interrupt":
                diffs.append(line["diff"])
                await session.answer(line["id"], "allow")
    assert "+x = 2" in diffs[0]
    assert KEY not in diffs[0]
    assert (project.folder / "a.txt").read_text() == f"key = {KEY}\nx = 2\n"


async def test_the_history_of_prompts_asks_the_session_for_keys(project: Project, tmp_path: Path) -> None:
    """Also while the session is closed to open another one."""
    session = project.open()
    async with session:
        history = PromptHistory(tmp_path / "history", session.without_keys)
        history.add(f"use {KEY}")
    history.add(f"again {KEY}")
    lines = (tmp_path / "history").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ["use ***", "again ***"]


@pytest.mark.parametrize("name", [f"anthropic/{KEY}", f"anthropic/{FORM_KEY}", FORM_KEY, KEY[:20]])
async def test_a_key_typed_as_the_name_of_a_model_is_refused(project: Project, name: str) -> None:
    """The session goes on with its model. The key is in no file and in no error."""
    async with project.open() as session:
        await say(session, "hello")
        with pytest.raises(ConfigError) as refused:
            await session.set_model(name)
        assert name not in refused.value.render()
        assert session.model == "sim/echo"
        assert (await say(session, "go on"))[-1]["status"] == "success"
    with pytest.raises(ConfigError, match="is a key"):
        await project.open(model=name).__aenter__()
    assert kept(project.data, name.rpartition("/")[2]) == []


async def test_a_key_in_the_names_of_a_model_call_is_masked_in_the_usage(project: Project) -> None:
    """A program's own provider may have any name: the usage log masks it."""
    async with project.open() as session:
        await say(session, "hello")
        record = model_called(agent=f"a {KEY}", model=f"own/{KEY}")
        session.kernel.publish("main", "model.called", record.to_data())
        assert set(session.usage().models) == {"sim/echo", "own/***"}
        assert "a ***" in session.usage().agents
    assert kept(project.data) == []


async def test_a_path_that_looks_like_a_key_may_name_a_script(project: Project) -> None:
    script = project.write(
        "sk-learn-examples-2026/script.json", json.dumps({"sequence": [{"text": "from the script"}]})
    )
    async with project.open(model=f"sim/script:{script}") as session:
        assert (await say(session, "hello"))[-1]["text"] == "from the script"
