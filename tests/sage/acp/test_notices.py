"""What an editor is told beside answers: notices, questions of background tasks, changed extensions, choices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sage.acp.test_client import Desk, call, text

START = call("Task", description="tidy up", prompt="tidy", run_in_background=True)
REPLIES = (
    {"user": "go", **START},
    {"user": "tidy", **call("Bash", command="touch tidied"), "first_s": 0.3},
    {"tool": "Bash", "text": "It is tidy."},
    {"text": "I started it."},
)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.slow
async def test_a_task_in_the_background_asks_and_its_end_is_told(desk: Desk) -> None:
    """Although no prompt is under way: a permission request with the rule of `always`, and a notice in the end."""
    async with desk.editor(*REPLIES) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=text("go"))
        await editor.until(lambda: ": done" in editor.text())
        asked, options = editor.asked[0]
        assert "touch tidied" in asked.title
        assert {option.kind for option in options} == {"allow_once", "allow_always", "reject_once", "reject_always"}
        assert any("Bash(" in option.name for option in options)
        assert (desk.work / "tidied").exists()
        assert "\n> Notice: " in editor.text()
        assert "tidy up" in editor.text()


@pytest.mark.slow
async def test_a_question_that_the_editor_leaves_open_stays_open(desk: Desk) -> None:
    """`/tasks answer` answers it; a session that is loaded again asks anew."""
    async with desk.editor(*REPLIES) as (editor, agent):
        editor.answer = "cancel"
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=text("go"))
        await editor.until(lambda: "/tasks answer" in editor.text())
        assert not (desk.work / "tidied").exists()
    async with desk.editor(*REPLIES) as (editor, agent):
        editor.answer = "cancel"
        await agent.load_session(cwd=str(desk.work), session_id=session, mcp_servers=[])
        await editor.until(lambda: "/tasks answer" in editor.text())
        assert "touch tidied" in editor.asked[0][0].title
        task = editor.text().rpartition("/tasks answer ")[2].split()[0]
        await agent.prompt(session_id=session, prompt=text(f"/tasks answer {task} allow"))
        await editor.until(lambda: ": done" in editor.text())
    assert (desk.work / "tidied").exists()


@pytest.mark.slow
async def test_words_of_a_hook_and_changed_files_are_told(desk: Desk) -> None:
    """A new command is told with the list of commands; a file that cannot be used, by its name."""
    settings = desk.folder / "home" / ".config" / "lyra"
    (settings / "commands").mkdir(parents=True)
    hook = 'printf \'{"message": "mind the gap"}\''
    (settings / "lyra.toml").write_text(f"[[hooks.UserPromptSubmit]]\ncommand = {json.dumps(hook)}\n")
    async with desk.editor({"text": "One."}, {"text": "Two."}, {"text": "Three."}) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=text("one"))
        assert "mind the gap" in editor.text()
        notices = [update for update in editor.of("agent_message_chunk") if update.field_meta]
        assert notices[0].field_meta == {"lyra/notice": "info"}
        (settings / "commands" / "deploy.md").write_text("---\nargument_hint: WHERE\n---\nDeploy it to $ARGUMENTS.\n")
        (settings / "commands" / "broken.md").write_text("---\nmodel: [\n---\nx\n")
        editor.take()
        await agent.prompt(session_id=session, prompt=text("two"))
        (update,) = editor.of("available_commands_update")
        deploy = next(command for command in update.available_commands if command.name == "deploy")
        assert deploy.input.root.hint == "WHERE"
        assert "new: /deploy" in editor.text()
        assert "broken.md" in editor.text()
        editor.take()
        await agent.prompt(session_id=session, prompt=text("/deploy north"))
        assert "Three." in editor.text()
        assert "broken.md" not in editor.text()  # it was told before


@pytest.mark.slow
async def test_choices_of_a_question_are_the_options_of_the_editor(desk: Desk) -> None:
    """The agent gets the option that was chosen; a question without choices can be put off to the next prompt."""
    ask = call("AskUser", question="Which one?", options=["apples", "pears"])
    free = call("AskUser", question="What is its name?")
    replies = ({"user": "go", **ask}, {"user": "name", **free}, {"tool": "AskUser", "text": "You say {result}"})
    async with desk.editor(*replies) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        editor.answer = "2"
        await agent.prompt(session_id=session, prompt=text("go"))
        assert [option.name for option in editor.asked[0][1]][:2] == ["apples", "pears"]
        assert editor.text() == "You say pears"
        editor.take()
        editor.answer = "later"
        await agent.prompt(session_id=session, prompt=text("name"))
        assert "answers in the next message" in editor.text()
        editor.take()
        editor.answer = "cancel"
        await agent.prompt(session_id=session, prompt=text("name"))
        assert "gave no answer" in editor.text()
