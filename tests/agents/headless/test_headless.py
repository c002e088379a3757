"""Headless runs as a library: what the agent is fitted out with, and how a run is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lyra.agents.headless.headless import Headless, error_line, status_of
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.headless.setup import OFFERED_MAX, _hosts, all_tools, setup_of, unknown_tools
from lyra.agents.session.events import AnyLine
from lyra.config import Config
from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool
from lyra.errors import AgentFailed, BudgetExceeded, ConfigError, LimitExceeded, ModelError, StoreError
from lyra.observe.audit import AuditLog
from lyra.tools.function import tool
from lyra.tools.permissions import Layer, permissions_of
from tests import trusting


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace, and a home with nothing in it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def options(folder: Path, **more: Any) -> HeadlessOptions:
    return HeadlessOptions(**{"model": "sim/echo", "folder": str(folder), **more})


# ---------------------------------------------------------------- the setup
def test_the_grant_is_the_folder_and_the_hosts_of_rules(folder):
    """Read and write here, run commands, and reach what a rule names; nothing else."""
    grant = setup_of(options(folder, allow=("WebFetch(docs.python.org)", "WebFetch(https://a.test:8443/x/*)"))).grant
    for right in (
        f"fs.read:{folder}/a/b",
        f"fs.write:{folder}/a",
        "process.exec:ls -l",
        "net.http:docs.python.org:443",
        "net.http:a.test:8443",
    ):
        assert grant.allows(right), right
    for right in (
        f"fs.read:{folder.parent}",
        f"fs.write:{folder}2/a",
        "fs.read:/etc/passwd",
        "net.http:example.com",
        "net.http:a.test:443",
        "secrets.read:x",
    ):
        assert not grant.allows(right), right


@pytest.mark.parametrize(
    ("given", "reached", "refused"),
    [
        ({}, [], ["a.test"]),
        ({"allow": ("WebFetch",)}, ["a.test", "b.test"], []),
        ({"allow": ("WebFetch", "Bash"), "deny": ("WebFetch(a.test)",)}, ["b.test"], ["a.test"]),
        ({"allow": ("WebFetch(*.a.test)",)}, ["x.a.test"], ["a.test", "b.test"]),
        ({"mode": "bypass", "deny": ("WebFetch(domain:a.test)",)}, ["b.test"], ["a.test"]),
        ({"mode": "bypass", "deny": ("WebFetch(https://a.test/x/*)",)}, ["a.test"], []),
        ({"allow": ("WebFetch",), "deny": ("WebFetch",)}, [], ["a.test"]),
    ],
)
def test_the_network_by_rules(folder, given, reached, refused):
    grant = setup_of(options(folder, **given)).grant
    assert all(grant.allows(f"net.http:{host}") for host in reached)
    assert not any(grant.allows(f"net.http:{host}") for host in refused)


@pytest.mark.parametrize(
    ("rule", "host", "named"),
    [
        ("a.test", "a.test", True),
        ("domain:a.test", "a.test", True),
        ("*.a.test", "x.a.test", True),
        ("a.test:8443", "a.test:8443", True),
        ("domain:*", "a.test", False),
        ("*.*", "a.test", False),
        ("*.test", "a.test", False),
        ("*", "a.test", False),
        ("https://a.test/docs/*", "a.test", False),
    ],
)
@pytest.mark.parametrize("mode", ["default", "bypass"])
def test_commands_reach_the_hosts_that_a_rule_names_in_every_mode(folder, rule, host, named, mode):
    """A pattern without a name names no host, and neither does a mode."""
    permissions = setup_of(options(folder, mode=mode, allow=(f"WebFetch({rule})",))).permissions
    reached = Grant([*_hosts(permissions, whole=True), "fs.read:/x"])
    assert reached.allows(f"net.http:{host}") == named
    assert not reached.allows("net.http:other.example")


def test_what_a_tool_says_that_it_needs_is_granted(folder):
    """Its calls are still asked about by the rules."""

    def look(city: str) -> str:
        """Look."""
        return city

    look_tool = tool(look, needs=["net.http:weather.test"])
    assert isinstance(look_tool, Tool)
    assert setup_of(options(folder, tools=(look_tool,))).grant.allows("net.http:weather.test")


def test_the_host_of_a_tool_from_a_file_is_granted_once_a_rule_allows_the_tool(folder):
    """So a file in the right place opens nothing by itself."""
    pytest.importorskip("yaml")
    tools = folder.parent / "home" / ".config" / "lyra" / "tools"
    tools.mkdir(parents=True)
    (tools / "weather.yaml").write_text(
        """
        name: weather
        description: The weather.
        params: [{name: city, type: string, required: true}]
        implementation: {type: http, url: "https://weather.test/{{city}}"}
        """
    )
    assert "weather" in [tool.name for tool in all_tools(setup_of(options(folder)).tools)]
    assert not setup_of(options(folder, allow=("Bash",))).grant.allows("net.http:weather.test:443")
    grant = setup_of(options(folder, allow=("weather",))).grant
    assert grant.allows("net.http:weather.test:443")
    assert not grant.allows("net.http:other.test:443")


def test_a_file_that_changes_during_a_run_has_the_rights_of_one_that_was_there(folder, tmp_path):
    """Its new host is granted where a rule allows the tool, the old one no longer; a tool without a rule has none."""
    pytest.importorskip("yaml")
    tools = folder.parent / "home" / ".config" / "lyra" / "tools"
    tools.mkdir(parents=True)

    def write(name: str, host: str) -> None:
        text = f"name: {name}\ndescription: x\nimplementation: {{type: http, url: 'https://{host}/'}}\n"
        (tools / f"{name}.yaml").write_text(text)

    write("weather", "old.test")
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"sequence": [{"tool_calls": [{"name": "change"}]}, {"text": "done"}]}))

    def change() -> str:
        """Change the files."""
        write("weather", "new.test")
        write("news", "news.test")
        return "changed"

    async def main() -> None:
        more = {"tools": (tool(change),), "allow": ("weather", "change"), "model": f"sim/script:{script}"}
        async with Headless(options(folder, **more), Config.load(str(folder), {})) as run:
            assert run.process is not None
            before = run.process.grant
            assert (await run.ask("go")).error is None
            hosts = ("old.test:443", "new.test:443", "news.test:443")
            assert [before.allows(f"net.http:{host}") for host in hosts] == [True, False, False]
            assert [run.process.grant.allows(f"net.http:{host}") for host in hosts] == [False, True, False]

    asyncio.run(main())


def test_more_folders_count_as_inside(folder):
    other = folder.parent / "other"
    other.mkdir()
    setup = setup_of(options(folder, also=(str(other), str(other))))
    assert setup.also == (str(other),)
    assert setup.grant.allows(f"fs.write:{other}/a")
    assert setup.permissions.extra_folders == (str(other),)


@pytest.mark.parametrize("name", ["a*b", "a?b"])
def test_a_folder_that_reads_as_a_pattern_is_refused(folder, name):
    """Its rights would be those to others."""
    (folder / name).mkdir()
    with pytest.raises(ConfigError, match="as a pattern"):
        setup_of(options(folder / name))


def test_a_managed_policy_holds(folder):
    """A mode it forbids is no mode of a run, whatever the flag says."""
    with pytest.raises(ConfigError, match="forbids the mode 'bypass'"):
        permissions_of([Layer("managed", {"forbid_modes": ["bypass"]})], mode="bypass", attended=False)


def test_rules_that_mean_no_tool():
    unknown = unknown_tools(("Bash(ls)", "Edit", "Bsah", "mcp__*", "*", "nothing"), ("Bash", "Write", "mcp__a__b"))
    assert unknown == [("Bsah", "Bash"), ("nothing", "")]


class Source:
    def __init__(self, count: int) -> None:
        self.tools = tuple(Tool(f"tool_{number}", run=print) for number in range(count))

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        return self.tools


def test_many_tools_of_a_source_are_told_when_they_are_looked_for(folder):
    """A few are all told; of many the model is told what ToolSearch finds. A tool that stays is the same object."""
    few = setup_of(options(folder, tools=(Source(OFFERED_MAX),)))
    assert not any(tool.deferred for tool in all_tools(few.tools))
    many = setup_of(options(folder, tools=(Source(OFFERED_MAX + 1),)))
    once, again = ([tool for tool in all_tools(many.tools) if tool.deferred] for _ in range(2))
    assert len(once) == OFFERED_MAX + 1
    assert all(first is second for first, second in zip(once, again, strict=True))


# ---------------------------------------------------------------- a run
def asked(options: HeadlessOptions, task: str = "go") -> tuple[Any, list[Any]]:
    lines: list[Any] = []

    async def main() -> Any:
        async with Headless(options, Config.load()) as run:
            return await run.ask(task, lines.append)

    return asyncio.run(main()), lines


def test_a_run_in_python(folder):
    outcome, lines = asked(options(folder))
    assert [line["type"] for line in lines] == ["system", "text_delta", "usage", "result"]
    assert outcome.result is lines[-1]
    assert outcome.error is None
    assert outcome.result["text"] == "go"


def test_a_question_without_a_person_is_cancelled(folder):
    """A tool that asks is told so at once, and the run goes on."""

    async def confirm(ctx: Any) -> str:
        """Ask."""
        answer = await ctx.ask("Really?", kind="confirmation")
        return "yes" if answer.approved else "no"

    script = {"sequence": [{"tool_calls": [{"name": "confirm", "arguments": {}}]}, {"text": "Told: {result}"}]}
    (folder / "s.json").write_text(json.dumps(script))
    given = options(folder, model="sim/script:s.json", tools=(tool(confirm),), allow=("confirm",))
    outcome, lines = asked(given)
    assert "interrupt" in [line["type"] for line in lines]
    assert "no person is there to be asked" in outcome.result["text"]


def test_a_person_who_is_there_is_asked(folder):
    """With `attended` the terminal built on it answers."""

    async def main() -> None:
        script = {
            "sequence": [
                {"tool_calls": [{"name": "Write", "arguments": {"file_path": "made", "content": "x"}}]},
                {"text": "{result}"},
            ]
        }
        (folder / "s.json").write_text(json.dumps(script))
        async with Headless(options(folder, model="sim/script:s.json", attended=True), Config.load()) as run:

            def tell(line: AnyLine) -> None:
                if line["type"] == "interrupt":
                    run.kernel.loop.call_soon(run.kernel.resolve_interrupt, line["id"], {"approved": True})

            outcome = await run.ask("go", tell)
        assert outcome.result["text"] == "wrote made: new, 1 line"
        assert (folder / "made").read_text() == "x"

    asyncio.run(main())


def test_what_the_listener_raises_ends_the_run(folder):
    """A reader that went away is not kept waiting for."""

    async def main() -> None:

        def tell(line: AnyLine) -> None:
            if line["type"] == "text_delta":
                raise BrokenPipeError

        async with Headless(options(folder), Config.load()) as run:
            with pytest.raises(BrokenPipeError):
                await run.ask("go", tell)
            assert run.process is not None
            assert run.process.agent_state in ("ready", "thinking")
        assert not run.process.alive

    asyncio.run(main())


def test_a_conversation_goes_on(folder):
    """The terminal asks again; each answer has a result of its own."""

    async def main() -> None:
        async with Headless(options(folder), Config.load()) as run:
            first, second = await run.ask("one"), await run.ask("two")
        assert (first.result["text"], second.result["text"]) == ("one", "two")
        assert first.result["session_id"] == second.result["session_id"]

    asyncio.run(main())


# ---------------------------------------------------------------- words
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (AgentFailed("x", status="repetition"), "repetition"),
        (AgentFailed("x"), "agent_failed"),
        (LimitExceeded("x", status="max_turns"), "max_turns"),
        (BudgetExceeded("x"), "budget_exceeded"),
        (ModelError("x", kind="auth", status=401), "model_error"),
        (ConfigError("x"), "config"),
    ],
)
def test_the_word_for_a_failure(error, status):
    assert status_of(error) == status


def test_the_line_of_an_error():
    line = error_line(ModelError("no", hint="try", kind="auth"))
    assert line == {"type": "error", "code": "model_error", "message": "no", "hint": "try", "kind": "auth"}


def test_the_line_of_an_error_has_no_key():
    """In its sentence, hint and place: of a well-known form, or a secret that the caller names."""
    form, own = "sk-ant-api03-" + "Qw7eRt5yUi9oPa3sDf1gHj6k", "Zt9mQ4xWv7LrPa2KdN8sYh3BjUc6Ge5TfX1o"
    for key, secrets in ((form, ()), (own, (own,))):
        line = error_line(ModelError(f"no {key}", hint=f"not {key}", place=f"/x/{key}", kind="auth"), secrets)
        assert (line["message"], line["hint"], line["place"]) == ("no ***", "not ***", "/x/***")


def test_a_run_that_cannot_be_audited_any_more_ends(folder, monkeypatch):
    """A full disk: the run fails with the reason, and does not go on in the dark."""
    calls = [{"tool_calls": [{"name": "Write", "arguments": {"file_path": f"f{n}", "content": "x"}}]} for n in range(8)]
    (folder.parent / "go.json").write_text(json.dumps({"sequence": [*calls, {"text": "done"}]}))
    write = AuditLog.write

    def full(log: AuditLog, time_s: float, pid: str, kind: str, fields: dict[str, Any]) -> None:
        if (folder / "f1").exists():
            raise StoreError("there is no room for the audit log")
        write(log, time_s, pid, kind, fields)

    monkeypatch.setattr(AuditLog, "write", full)

    async def go() -> Any:
        given = {"model": f"sim/script:{folder.parent}/go.json", "mode": "accept-edits", "audit": f"{folder.parent}/a"}
        async with Headless(options(folder, **given)) as run:
            return await run.ask("go")

    outcome = asyncio.run(go())
    assert isinstance(outcome.error, StoreError)
    assert outcome.result["status"] == outcome.error.code
    assert len(list(folder.glob("f*"))) <= 3


def test_a_folder_s_own_files_count_by_the_answer_of_the_user_or_the_word_of_the_options(folder):
    """`trusted=True` is for this run; without it the kept answer counts, for exactly that content."""
    (folder / ".lyra").mkdir()
    (folder / ".lyra" / "permissions.toml").write_text('allow = ["Bash(ls *)"]\n')

    def allowed(**given: Any) -> bool:
        return bool(setup_of(options(folder, **given)).permissions.rules_of("allow", "Bash"))

    assert not allowed()
    assert allowed(trusted=True)
    trusting.answer(folder)
    assert allowed()
    (folder / ".lyra" / "permissions.toml").write_text('allow = ["Bash"]\n')
    assert not allowed()


def test_the_settings_of_a_run_have_the_trust_of_its_options(folder):
    (folder / "lyra.toml").write_text("kernel.lease_s = 9\n")
    assert Headless(options(folder)).config.kernel.lease_s == 3
    assert Headless(options(folder, trusted=True)).config.kernel.lease_s == 9
