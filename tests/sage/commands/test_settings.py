"""Commands that show and change settings: config, model, output, permissions, plan."""

from __future__ import annotations

import pytest

from lyra.errors import ConfigError
from lyra.sage.commands.result import SlashResult
from lyra.tools.permissions.answers import Answers
from tests.sage.commands.shown import rows, run, words
from tests.sage.open_session import Project, call, say


def _marks(result: SlashResult) -> dict[str, str]:
    """The last column by the first."""
    return {row[0]: row[2] for row in rows(result)}


async def test_the_settings_and_where_they_come_from(project: Project) -> None:
    """Those that are set; a section or a key shows its defaults, too."""
    project.patience = ()
    async with project.open(flags=("budget.usd=$5",)) as session:
        assert rows(await run(session, "/config")) == [["budget.usd", "$5.00", "flag", "--set budget.usd"]]
        assert [row[0] for row in rows(await run(session, "/config budget"))] == [
            *("budget.usd", "budget.seconds", "budget.on_exceed")
        ]
        assert rows(await run(session, "/config kernel.lease_s"))[0][:3] == ["kernel.lease_s", "3.0", "default"]
        with pytest.raises(ConfigError, match="no setting"):
            await run(session, "/config kernel.leese_s")


# ---------------------------------------------------------------- model
async def test_the_model_is_switched(project: Project) -> None:
    """From the next turn on, with the same conversation; a provider without a key is refused, and nothing changes."""
    other = project.script({"text": "from the other"})
    async with project.open() as session:
        await say(session, "one")
        await run(session, f"/model {other}")
        assert (await say(session, "two"))[-1]["text"] == "from the other"
        assert len(session.messages) == 4
        with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
            await run(session, "/model anthropic/claude-sonnet-4-5")
        with pytest.raises(ConfigError):
            await run(session, "/model nowhere/x")
        assert session.model == other


async def test_models_are_listed_and_searched(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one in use, the configured one and those used before; a word searches those of providers with a key."""
    async with project.open(flags=("agent.model=sim/echo",), model=project.script({"text": "x"})) as session:
        await say(session, "one")
        first = session.model
    async with project.open(flags=("agent.model=sim/echo",)) as session:
        result = await run(session, "/model")
        listed = {row[0]: row[3] for row in rows(result)}
        assert {row[0]: row[2] for row in rows(result)} == {"sim/echo": "$0 in, $0 out", first: "?"}
        assert listed == {"sim/echo": "in use", first: "used before"}
        assert "no published name" in words(await run(session, "/model sonnet"))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-" + "x" * 20)
        result = await run(session, "/model sonnet-4")
        names = [row[0] for row in rows(result)]
        assert "anthropic/claude-sonnet-4-5" in names
        (row,) = [row for row in rows(result) if row[0] == "anthropic/claude-sonnet-4-5"]
        assert row[2] == "$3 in, $15 out"
        (choice,) = [choice for choice in result.choices.rows if choice.label == row[0]]
        assert choice.command == "/model anthropic/claude-sonnet-4-5"
        assert "$3 in, $15 out" in choice.about
        assert all("sonnet-4" in name for name in names)


# ---------------------------------------------------------------- output
async def test_the_output_is_a_setting_of_the_session(project: Project) -> None:
    async with project.open() as session:
        assert _marks(await run(session, "/output"))["text"] == "in use"
        await run(session, "/output verbose")
        await say(session, "hello")
    async with project.open(resume="") as session:
        assert session.facts.settings["output"] == "verbose"
        assert _marks(await run(session, "/output"))["verbose"] == "in use"


# ---------------------------------------------------------------- permissions
async def test_a_rule_for_this_session(project: Project) -> None:
    """It counts at once, also after a change of the model, and is gone with the session; the answer says so."""
    write = call("Write", file_path="a.txt", content="x")
    async with project.open(write, {"text": "no"}, write, {"text": "yes"}) as session:
        lines = await say(session, "one")
        assert next(line for line in lines if line["type"] == "tool_end")["is_error"]
        assert "in this session" in words(await run(session, '/permissions allow "Write(*.txt)"'))
        assert rows(await run(session, "/permissions")) == [["allow", "Write(*.txt)", "session"]]
        await say(session, "two")
        assert (project.folder / "a.txt").read_text() == "x"
        await run(session, "/model sim/echo")
        assert [row[:2] for row in rows(await run(session, "/permissions"))] == [["allow", "Write(*.txt)"]]
    assert Answers(str(project.folder)).rules() == []
    async with project.open() as session:
        assert "no rules" in words(await run(session, "/permissions"))


async def test_a_rule_gives_the_right_that_it_needs(project: Project) -> None:
    """A host that a rule names can be reached from then on, and no other."""
    async with project.open() as session:
        process = session.kernel.processes["sage"]
        assert not process.grant.allows("net.http:example.com")
        await run(session, "/permissions allow WebFetch(example.com)")
        assert process.grant.allows("net.http:example.com")
        assert not process.grant.allows("net.http:example.org")


async def test_a_rule_that_is_kept(project: Project) -> None:
    """With --keep it is an answer for this folder; the opposite one takes its place."""
    async with project.open() as session:
        assert "in this folder from now on" in words(await run(session, "/permissions allow Bash --keep"))
        assert [rule.text for rule in Answers(str(project.folder)).rules()] == ["Bash"]
        await run(session, "/permissions deny Bash --keep")
        listed = rows(await run(session, "/permissions"))
        assert [(row[0], row[1]) for row in listed] == [("deny", "Bash")]
    async with project.open() as session:
        ((effect, text, source),) = rows(await run(session, "/permissions"))
        assert (effect, text) == ("deny", "Bash")
        assert source.startswith("answers: ")


async def test_a_deny_beats_what_is_allowed_here(project: Project) -> None:
    """A rule of a file stays above: an allow of the session does not lift a deny."""
    project.write(".lyra/permissions.toml", 'deny = ["Write"]\n')
    write = call("Write", file_path="a.txt", content="x")
    async with project.open(write, {"text": "no"}) as session:
        await run(session, "/permissions allow Write")
        await say(session, "one")
        assert not (project.folder / "a.txt").exists()
        assert [row[0] for row in rows(await run(session, "/permissions"))] == ["deny", "allow"]


async def test_a_rule_that_is_none_is_refused(project: Project) -> None:
    async with project.open() as session:
        with pytest.raises(ConfigError, match="is not a rule"):
            await run(session, "/permissions allow '('")
        assert "no rules" in words(await run(session, "/permissions"))


async def test_the_mode_of_permissions(project: Project) -> None:
    async with project.open() as session:
        assert _marks(await run(session, "/permissions mode"))["default"] == "in use"
        await run(session, "/permissions mode accept-edits")
        assert session.mode == "accept-edits"
        with pytest.raises(ConfigError, match="is none of"):
            await run(session, "/permissions mode all")


# ---------------------------------------------------------------- plan
async def test_plan_mode_is_entered_and_left(project: Project) -> None:
    """A task is sent in plan mode; the plan is kept and shown; leaving brings back the mode before."""
    write = call("Write", file_path="a.txt", content="x")
    async with project.open(write, {"text": "1. read\n2. write"}, options={"mode": "accept-edits"}) as session:
        assert "no plan yet" in words(await run(session, "/plan open"))
        result = await run(session, "/plan add a flag")
        assert (session.mode, result.prompt) == ("plan", "add a flag")
        lines = await say(session, result.prompt)
        assert next(line for line in lines if line["type"] == "tool_end")["is_error"]
        shown = await run(session, "/plan open")
        assert shown.blocks == [{"type": "text", "text": "1. read\n2. write"}]
        assert (await run(session, "/plan")).prompt is None
        await run(session, "/plan off")
        assert session.mode == "accept-edits"
        assert "not plan" in words(await run(session, "/plan off"))
        await run(session, "/plan clear")
        assert "no plan yet" in words(await run(session, "/plan open"))
