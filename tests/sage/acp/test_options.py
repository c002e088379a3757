"""The options of `sage acp` hold for the sessions of its editor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import acp
import pytest

from lyra.cli.commands.acp import sage_acp as acp_command
from lyra.cli.main import sage
from tests.real_models import FakeVendor, Vendor, write_settings
from tests.sage.acp.test_client import Desk, call, text

WRITE = call("Write", file_path="a.txt", content="new")
DONE = {"text": "done"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def ask(desk: Desk, *replies: dict[str, Any], words: tuple[str, ...]) -> tuple[Any, Any, str]:
    """The editor, the session's modes and why the turn of one prompt ended."""
    async with desk.editor(*replies, words=words) as (editor, agent):
        new = await agent.new_session(cwd=str(desk.work), mcp_servers=[])
        done = await agent.prompt(session_id=new.session_id, prompt=text("go"))
        return editor, new.modes, done.stop_reason


@pytest.mark.slow
async def test_rules_and_modes(desk: Desk) -> None:
    editor, modes, _ = await ask(
        desk, WRITE, DONE, words=("--permission-mode", "bypass", "--disallowed-tools", "Write")
    )
    assert modes.current_mode_id == "bypass"
    assert not (desk.work / "a.txt").exists()
    editor, _, _ = await ask(desk, WRITE, DONE, words=("--allowed-tools", "Write"))
    assert not editor.asked
    assert (desk.work / "a.txt").exists()


@pytest.mark.slow
async def test_limits(desk: Desk) -> None:
    looped = call("Read", file_path="x")
    for flag in ("--max-turns", "--max-steps"):
        _, _, reason = await ask(desk, looped, DONE, words=(flag, "1"))
        assert reason == "max_turn_requests"
    with pytest.raises(acp.RequestError):
        await ask(desk, DONE, words=("--max-budget-usd", "0"))


@pytest.mark.slow
async def test_answers(vendor: Vendor, provider: FakeVendor, desk: Desk) -> None:
    """How long one may be, and how much the model thinks before it."""
    write_settings(vendor, desk.folder / "home")
    words = ("--model", vendor.model, "--max-tokens", "700", "--effort", "high")
    variables: dict[str, Any] = vendor.variables(provider.url)
    async with desk.editor(model="", words=words, **variables) as (_, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=text("go"))
    assert provider.requests[-1].asks_to_think
    assert "700" in str(provider.requests[-1].body)


@pytest.mark.slow
async def test_files_and_folders(desk: Desk) -> None:
    """A system prompt, an audit log, a further folder, and the trust of the project's own files."""
    more = desk.folder / "more"
    more.mkdir()
    (more / "b.txt").write_text("text of b")
    system = desk.folder / "system.txt"
    system.write_text("Be a parrot.")
    log = desk.folder / "audit.jsonl"
    (desk.work / ".lyra").mkdir()
    (desk.work / ".lyra" / "permissions.toml").write_text('allow = ["Write"]\n')
    words = ("--system", str(system), "--audit", str(log), "--audit-level", "detailed", "--add-dir", str(more))
    read = call("Read", file_path=str(more / "b.txt"))
    editor, _, _ = await ask(desk, read, WRITE, DONE, words=(*words, "--trust-folder"))
    assert not editor.asked
    assert "text of b" in str([update.content for update in editor.of("tool_call_update")])
    assert "Write" in log.read_text()


def test_only_options_that_mean_something_in_an_editor_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    """None about printing, a single task or a terminal: one of those is a mistake that is told."""
    offered = {name for parameter in acp_command.params for name in parameter.opts}
    assert offered == {
        *("--model", "--system", "--permission-mode", "--allowed-tools", "--disallowed-tools", "--max-budget-usd"),
        *("--max-turns", "--max-steps", "--max-tokens", "--effort", "--add-dir", "--audit", "--audit-level"),
        *("--trust-folder", "--trust-project", "--set", "--debug", "--log-level", "--log-format"),
    }
    for flag in ("-p", "--print", "--output-format", "--json-schema", "--input-format", "--output-mode", "-c", "-r"):
        assert sage(["acp", flag, "x"]) == 2
        assert f"No such option '{flag}'" in capsys.readouterr().err


@pytest.mark.slow
async def test_settings_of_the_command_line_count(desk: Desk) -> None:
    async with desk.editor(model="", words=("--set", "agent.model=sim/echo")) as (editor, agent):
        session = (await agent.new_session(cwd=str(desk.work), mcp_servers=[])).session_id
        await agent.prompt(session_id=session, prompt=text("hi"))
        assert editor.text() == "hi"
