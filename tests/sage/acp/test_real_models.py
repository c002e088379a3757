"""`sage acp` on real models: the figures, thoughts, pictures and calls that an editor sees, over the protocol's SDK."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import acp
import pytest
from acp import helpers, schema

from lyra.agents.acp.editor_agent import EditorAgent
from lyra.agents.headless.options import HeadlessOptions
from lyra.sage.acp import SageSessions
from tests.real_models import PIXEL, VENDORS, Answer, Call, FakeVendor, Vendor
from tests.sage.acp.test_client import Editor, text
from tests.silent_server import silent_server

__all__ = ["silent_server"]


@asynccontextmanager
async def editing(folder: Path, model: str, **options: Any) -> AsyncIterator[tuple[Editor, Any, str]]:
    """An editor, its connection to Sage in this process, and a session in `folder`."""
    editor = Editor()
    ours, theirs = socket.socketpair()
    sage = EditorAgent(SageSessions(HeadlessOptions(model=model, **options)))
    agent_reader, agent_writer = await asyncio.open_connection(sock=ours)
    reader, writer = await asyncio.open_connection(sock=theirs)
    serving = asyncio.ensure_future(acp.run_agent(cast("Any", sage), agent_writer, agent_reader))
    connection = acp.connect_to_agent(cast("Any", editor), writer, reader)
    try:
        await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = await connection.new_session(cwd=str(folder), mcp_servers=[])
        yield editor, connection, session.session_id
    finally:
        await connection.close()
        writer.close()
        await asyncio.wait([serving], timeout=10)
        await sage.close()
        agent_writer.close()


async def test_an_editor_gets_the_answer_and_its_figures(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """The text, the thought, the tokens that fill the published window, and the dollars of the published price."""
    provider.say(answer := Answer("It is 4.", thinking="Two and two."))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        ended = await agent.prompt(session_id=session, prompt=text("What is 2 + 2?"))
        assert ended.stop_reason == "end_turn"
        await editor.until(lambda: editor.of("usage_update"))
        assert editor.text() == "It is 4."
        thoughts = [update.content.text for update in editor.of("agent_thought_chunk")]
        assert thoughts == (["Two and two."] if vendor.thinks_aloud else [])
        (figures,) = editor.of("usage_update")
        assert figures.size == vendor.window
        assert figures.used == answer.input_tokens + answer.output_tokens
        assert (figures.cost.amount, figures.cost.currency) == (vendor.cost_usd(answer), "USD")


async def test_a_picture_and_a_call_reach_the_model(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """The picture arrives as it was; the call is made with its arguments, and its result goes back with the signature
    of the thought before it. The figures of both calls add up."""
    (tmp_path / "a.txt").write_text("secret word: heron\n")
    call = Call("Read", {"file_path": str(tmp_path / "a.txt")})
    answers = (Answer(thinking="Look.", calls=(call,)), Answer("A heron.", written_tokens=100))
    provider.say(*answers)
    picture: Any = helpers.image_block(PIXEL, "image/png")
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        await agent.prompt(session_id=session, prompt=[*text("Which bird?"), picture])
        await editor.until(lambda: editor.of("usage_update"))
        first, second = provider.requests
        assert first.images == second.images == [("image/png", PIXEL)]
        assert "Which bird?" in first.texts[-1]
        assert second.calls == [call]
        assert "heron" in second.results[0]
        assert second.signatures == ([answers[0].signature] if vendor.thinks_aloud else [])
        assert [update.status for update in editor.of("tool_call_update")][-1] == "completed"
        assert editor.of("usage_update")[-1].cost.amount == vendor.cost_usd(*answers)


async def test_commands_show_the_window_and_the_cost(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """/context, /cost and /status are answered too."""
    provider.say(answer := Answer("Hello."))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        await agent.prompt(session_id=session, prompt=text("Hi"))
        shown = {}
        for command in ("/context", "/cost", "/status"):
            editor.take()
            ended: schema.PromptResponse = await agent.prompt(session_id=session, prompt=text(command))
            assert ended.stop_reason == "end_turn"
            await editor.until(lambda: editor.of("usage_update"))
            shown[command] = editor.text()
        window = f"{vendor.window:,}".replace(",", " ")
        assert f"1 200 of {window} tokens" in shown["/context"]
        assert f"${vendor.cost_usd(answer):.4f}" in shown["/cost"]
        assert f"of {window}" in shown["/status"]
        assert "60 %" in shown["/cost"], "the share of the input that came from the cache"


async def test_a_cut_answer_is_told(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """By the protocol's own stop reason, where it went on and was cut each time; it stays in the conversation, once."""
    provider.say(*[Answer("Once upon", is_cut=True)] * 9, Answer("a time."))
    async with editing(tmp_path, vendor.model) as (_, agent, session):
        ended = await agent.prompt(session_id=session, prompt=text("A story"))
        assert ended.stop_reason == "max_tokens"
        ended = await agent.prompt(session_id=session, prompt=text("Go on"))
        assert ended.stop_reason == "end_turn"
    assert provider.requests[-1].said == ["Once upon"] * 9


async def test_a_wait_for_the_provider_is_told(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """As a thought, with the seconds and the tries; a cancelled prompt ends the wait."""
    provider.say(Answer("slow down", status=429), Answer("Hello."))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        ended = await agent.prompt(session_id=session, prompt=text("Hi"))
        assert (ended.stop_reason, editor.text()) == ("end_turn", "Hello.")
        thoughts = [update.content.text for update in editor.of("agent_thought_chunk")]
        assert thoughts == ["(rate limited, again in 1 s (2 of 10))\n"]
        provider.say(Answer("slow down", status=429, retry_after="60"), Answer("Hello."))
        asked = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text("Again")))
        await editor.until(lambda: len(editor.of("agent_thought_chunk")) == 2)
        await agent.cancel(session_id=session)
        assert (await asyncio.wait_for(asked, 10)).stop_reason == "cancelled"


async def test_a_call_that_cannot_be_read_does_not_end_the_prompt(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path
) -> None:
    provider.say(Answer(calls=(Call("Read", {}),), raw='{"file_path": "a.txt",,}'), Answer("I see."))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        ended = await agent.prompt(session_id=session, prompt=text("Hi"))
        assert (ended.stop_reason, editor.text()) == ("end_turn", "I see.")


async def test_polling_does_not_end_the_prompt(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    poll = Answer(calls=(Call("BashOutput", {"bash_id": "bash_7"}),))
    provider.say(*[poll] * 8, Answer("It is done."))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        ended = await agent.prompt(session_id=session, prompt=text("Wait"))
        assert (ended.stop_reason, editor.text()) == ("end_turn", "It is done.")


SLEEP = Call("Bash", {"command": "sleep 1"})


async def begin_prompt(agent: Any, editor: Editor, session: str, words: str) -> asyncio.Future[Any]:
    """A prompt whose first call is under way."""
    prompt: asyncio.Future[Any] = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text(words)))
    await editor.until(lambda: editor.of("tool_call"))
    return prompt


async def test_a_prompt_beside_another_reaches_the_model_after_its_calls(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path
) -> None:
    """In the same turn, with what it names; the editor is shown that the model has it, and both prompts end together.
    A command that only reads is answered at once, another one is refused."""
    (tmp_path / "style.txt").write_text("tabs, never blanks\n")
    provider.say(Answer(calls=(SLEEP,)), Answer("With tabs."))
    async with editing(tmp_path, vendor.model, allow=("Bash",)) as (editor, agent, session):
        first = await begin_prompt(agent, editor, session, "Indent it")
        await agent.prompt(session_id=session, prompt=text("/status"))
        assert not first.done()
        with pytest.raises(acp.RequestError, match="a prompt is under way"):
            await agent.prompt(session_id=session, prompt=text("/undo"))
        second = await agent.prompt(session_id=session, prompt=text("Look into @style.txt first"))
        assert (second.stop_reason, (await first).stop_reason) == ("end_turn", "end_turn")
        assert "> Notice: Look into @style.txt first" in editor.text()
    assert len(provider.requests) == 2
    assert any("tabs, never blanks" in words for words in provider.requests[1].texts)


async def test_a_prompt_that_comes_too_late_for_a_turn_is_the_next_one(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path
) -> None:
    """So is one with a picture; each gets its own answer."""
    provider.say(Answer("One.", delay_s=1), Answer("Two.", delay_s=0.5), Answer("Three."))
    picture: Any = helpers.image_block(PIXEL, "image/png")
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        prompts = [text("First"), text("Second"), [*text("Third"), picture]]
        asked = []
        for prompt in prompts:
            asked.append(asyncio.ensure_future(agent.prompt(session_id=session, prompt=prompt)))
            await asyncio.sleep(0.2)
        assert [(await answer).stop_reason for answer in asked] == ["end_turn"] * 3
        assert editor.text() == "One.Two.Three."
    assert provider.requests[-1].said == ["One.", "Two."]
    assert provider.requests[-1].images == [("image/png", PIXEL)]


async def test_a_cancelled_turn_cancels_the_prompts_beside_it(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path
) -> None:
    provider.say(Answer(calls=(Call("Bash", {"command": "sleep 20"}),)), Answer("Again."))
    async with editing(tmp_path, vendor.model, allow=("Bash",)) as (editor, agent, session):
        first = await begin_prompt(agent, editor, session, "Go")
        second = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text("Faster")))
        await asyncio.sleep(0.1)
        await agent.cancel(session_id=session)
        assert [(await asked).stop_reason for asked in (first, second)] == ["cancelled", "cancelled"]
        assert (await agent.prompt(session_id=session, prompt=text("Now"))).stop_reason == "end_turn"
    assert not any("Faster" in words for words in provider.requests[-1].texts)


async def test_effort_and_mode_are_settings_of_the_session(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path
) -> None:
    """With the protocol's categories; a command changes them, too, and the editor is told."""
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        changed = await agent.set_config_option(session_id=session, config_id="effort", value="high")
        options = {option.id: option for option in changed.config_options}
        assert [option.category for option in options.values()] == ["model", "thought_level", "mode"]
        assert [choice.value for choice in options["effort"].options] == ["usual", "none", "low", "medium", "high"]
        assert options["effort"].current_value == "high"
        await agent.prompt(session_id=session, prompt=text("Hi"))
        await agent.set_config_option(session_id=session, config_id="effort", value="usual")
        await agent.prompt(session_id=session, prompt=text("Hi"))
        assert [request.asks_to_think for request in provider.requests] == [True, False]
        editor.take()
        await agent.prompt(session_id=session, prompt=text("/effort low"))
        (told,) = editor.of("config_option_update")
        assert {option.id: option.current_value for option in told.config_options}["effort"] == "low"
        changed = await agent.set_config_option(session_id=session, config_id="mode", value="plan")
        assert changed.config_options[2].current_value == "plan"
        for name, value in (("mode", "bypass"), ("effort", "huge"), ("effort", True)):
            with pytest.raises(acp.RequestError):
                await agent.set_config_option(session_id=session, config_id=name, value=value)


async def test_effort_is_a_command_of_the_editor_too(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        await agent.prompt(session_id=session, prompt=text("/effort high"))
        assert "effort: high" in editor.text()
        await agent.prompt(session_id=session, prompt=text("Hi"))
    assert provider.requests[-1].asks_to_think


async def test_a_silent_server_does_not_hold_up_the_session(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path, silent_server: str
) -> None:
    """The session opens at once; the first prompt goes on after a few seconds and says which server is left out."""
    settings = Path(os.environ["HOME"]) / ".config" / "lyra" / "lyra.toml"
    settings.write_text(f'{vendor.settings}\n[mcp.servers.slow]\nurl = "{silent_server}"\ntransport = "http"\n')
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        ended = await asyncio.wait_for(agent.prompt(session_id=session, prompt=text("Hi")), 25)
        assert ended.stop_reason == "end_turn"
        assert "MCP servers that do not answer yet: slow" in editor.text()
        assert editor.text().endswith("Hello.")


# ---------------------------------------------------------------- what does not depend on the vendor

one_vendor = pytest.mark.parametrize("vendor", VENDORS[:1], ids=["anthropic"])


@one_vendor
async def test_a_commit_is_asked_about_and_undone(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    git("config", "user.name", "Me")
    git("config", "user.email", "me@example.com")
    git("commit", "-q", "--allow-empty", "-m", "first")
    commit = Call("Git", {"command": "commit --allow-empty -m second"})
    provider.say(Answer(calls=(commit,)), Answer("Committed."))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        await agent.prompt(session_id=session, prompt=text("Commit"))
        assert "commit --allow-empty -m second" in str(editor.asked)
        assert git("log", "-1", "--format=%s") == "second"
        await agent.prompt(session_id=session, prompt=text("/undo"))
        assert "its commit was" in editor.text()
    assert git("log", "-1", "--format=%s") == "first"


@one_vendor
async def test_a_no_about_one_new_file_refuses_that_file_alone(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path
) -> None:
    writes = [Call("Write", {"file_path": name, "content": "x\n"}) for name in ("a.txt", "b.txt")]
    provider.say(*(Answer(calls=(write,)) for write in writes), Answer("One of them."))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        editor.answer = "deny"
        prompt = asyncio.ensure_future(agent.prompt(session_id=session, prompt=text("Go")))
        await editor.until(lambda: editor.asked)
        editor.answer = "allow"
        await prompt
        assert len(editor.asked) == 2
    assert sorted(os.listdir(tmp_path)) == ["b.txt"]


@one_vendor
async def test_a_read_outside_is_asked_about_and_a_folder_can_be_added(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path
) -> None:
    work, more = tmp_path / "work", tmp_path / "more"
    for folder in (work, more):
        folder.mkdir()
    (more / "a.txt").write_text("secret word: heron\n")
    read = Answer(calls=(Call("Read", {"file_path": str(more / "a.txt")}),))
    provider.say(read, Answer("I see."), read, Answer("Again."))
    async with editing(work, vendor.model) as (editor, agent, session):
        await agent.prompt(session_id=session, prompt=text("Look"))
        assert len(editor.asked) == 1
        await agent.prompt(session_id=session, prompt=text(f"/add-dir {more}"))
        await agent.prompt(session_id=session, prompt=text("Look again"))
        assert len(editor.asked) == 1
    assert ["heron" in output for output in provider.requests[-1].results] == [True, True]


@one_vendor
async def test_a_wait_of_compact_is_told(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    settings = Path(os.environ["HOME"]) / ".config" / "lyra" / "lyra.toml"
    settings.write_text("[retry]\nmax_attempts = 2\ninitial_s = 0.05\n")
    provider.say(Answer("One."), Answer("Two."), Answer("no room", status=529), Answer("They said one."))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        for words in ("a", "b", "/compact"):
            await agent.prompt(session_id=session, prompt=text(words))
        await editor.until(lambda: "overloaded, again in" in editor.text())
        assert "(2 of 2)" in editor.text()


@one_vendor
async def test_compact_tells_why_it_failed(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    settings = Path(os.environ["HOME"]) / ".config" / "lyra" / "lyra.toml"
    settings.write_text("[retry]\nmax_attempts = 2\ninitial_s = 0.05\n")
    provider.say(Answer("One."), Answer("Two."), Answer("no room", status=529))
    async with editing(tmp_path, vendor.model) as (editor, agent, session):
        for words in ("a", "b"):
            await agent.prompt(session_id=session, prompt=text(words))
        assert editor.text() == "One.Two."
        with pytest.raises(acp.RequestError, match=r"(?s)the conversation was not shortened.*no room.*status 529"):
            await agent.prompt(session_id=session, prompt=text("/compact"))
