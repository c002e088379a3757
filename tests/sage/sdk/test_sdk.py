"""Sage from Python: runs, events, permissions, tools, sessions, and what a result keeps."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import lyra
from lyra.errors import ConfigError, LyraError
from lyra.sage.sdk import (
    ExecutionResult,
    PermissionAnswer,
    PermissionRequest,
    RunOptions,
    SageAgentSDK,
    UnifiedRunOptions,
    query,
    query_sync,
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def script(place: Path, *replies: dict[str, Any]) -> str:
    path = place.parent / "script.json"
    path.write_text(json.dumps({"sequence": replies}))
    return f"sim/script:{path}"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


WRITE = call("Write", file_path="a.txt", content="new")
DONE = {"text": "done"}


def sdk(place: Path, *replies: dict[str, Any], **settings: Any) -> SageAgentSDK:
    return SageAgentSDK(model=script(place, *replies), **settings)


async def test_a_run_gives_the_answer_and_the_whole_trace(place: Path) -> None:
    (place / "b.txt").write_text("text of b")
    result = await sdk(place, call("Read", file_path="b.txt"), call("Read", file_path="missing"), DONE).run("look")
    assert result.is_success
    assert not result.is_failed
    assert not result.is_interrupted
    assert result.outcome == "success"
    assert result.final_result == "done"
    assert [used.name for used in result.tool_calls] == ["Read", "Read"]
    assert "text of b" in str(result.tool_results[0].output)
    assert len(result.error_steps) == 1
    assert result.statistics["steps"] == 3
    assert result.statistics["tool_errors"] == 1
    assert "success: 3 steps, 2 tool calls" in result.summary
    assert result.execution is not None
    assert [event.type for event in result.events][-1] == "result"
    assert result.messages[0].text == "look"
    assert result.require() is result


@pytest.mark.parametrize(
    ("key", "is_known"),
    [("sk-ant-api03-" + "Qw7eRt5yUi9oPa3sDf1gHj6k", False), ("Zt9mQ4xWv7LrPa2KdN8sYh3BjUc6Ge5TfX1o", True)],
)
async def test_a_key_in_an_error_is_masked_in_events_and_in_the_error(
    place: Path, monkeypatch: pytest.MonkeyPatch, key: str, is_known: bool
) -> None:
    """A provider may repeat a key that it refuses: one in a well-known form, or one that this process knows."""
    if is_known:
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", key)
    refused = {"error": {"kind": "auth", "message": f"the key {key} is not valid"}}
    result = await sdk(place, refused).run("look")
    (told,) = [event for event in result.events if event.type == "error"]
    assert "the key *** is not valid" in told.message
    assert isinstance(result.error, LyraError)
    shown = f"{result.events} {result.error!r} {result.error.render()} {result.error.fields} {result.final_result}"
    assert key not in shown


async def test_a_failed_run_is_a_result(place: Path) -> None:
    result = await sdk(place, call("Read", file_path="x"), DONE, max_steps=1).run("look")
    assert result.outcome == "max_steps_reached"
    assert result.is_failed
    assert result.tool_calls
    assert isinstance(result.error, LyraError)
    with pytest.raises(LyraError, match="1 turn"):
        result.require()


async def test_a_sync_call_in_a_loop_is_refused(place: Path) -> None:
    with pytest.raises(LyraError, match="running loop"):
        query_sync("hi", model="sim/echo")


def test_the_sync_wrappers(place: Path) -> None:
    assert query_sync("hi", model="sim/echo").final_result == "hi"
    assert SageAgentSDK(model="sim/echo").run_sync("ho").final_result == "ho"


async def test_query_is_awaited_or_iterated(place: Path) -> None:
    result = await query("hello", model="sim/echo")
    assert isinstance(result, ExecutionResult)
    assert result.final_result == "hello"
    events = [event async for event in query("hello", model="sim/echo")]
    assert "".join(event.delta for event in events if event.type == "text_delta") == "hello"
    assert events[-1].status == "success"
    with pytest.raises(AttributeError, match="no nothing"):
        _ = events[-1].nothing


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        (True, "new"),
        ("always", "new"),
        (False, None),
        ("no, do it by hand", None),
        (PermissionAnswer("allow", arguments={"file_path": "a.txt", "content": "changed"}), "changed"),
        (object(), None),
    ],
)
async def test_the_permission_callback_decides(place: Path, answer: Any, written: str | None) -> None:
    """A yes writes, everything else does not; edited arguments are the ones that are carried out."""
    asked: list[PermissionRequest] = []

    async def ask(request: PermissionRequest) -> Any:
        asked.append(request)
        return answer

    result = await sdk(place, WRITE, DONE, permission_callback=ask).run("write")
    assert result.is_success
    assert asked[0].tool == "Write"
    assert asked[0].arguments["content"] == "new"
    assert "+new" in asked[0].diff
    assert asked[0].always
    path = place / "a.txt"
    assert (path.read_text() if path.exists() else None) == written
    if isinstance(answer, PermissionAnswer):
        assert "changed before it ran" in str(result.tool_results[0].output)


async def test_a_callback_that_fails_denies(place: Path) -> None:
    def ask(_request: PermissionRequest) -> bool:
        raise RuntimeError("boom")

    await sdk(place, WRITE, DONE, permission_callback=ask).run("write")
    assert not (place / "a.txt").exists()


async def test_without_a_callback_what_no_rule_allows_is_denied(place: Path) -> None:
    assert (await sdk(place, WRITE, DONE).run("write")).error_steps
    asking = sdk(place, WRITE, DONE, permission_callback=lambda _request: True)
    assert (await asking.execute_non_interactive("write")).error_steps
    options = UnifiedRunOptions(interactive=False)
    asking = sdk(place, WRITE, DONE, permission_callback=lambda _request: True)
    assert (await asking.execute_unified("write", options)).error_steps
    asking = sdk(place, WRITE, DONE, permission_callback=lambda _request: True)
    assert not (await asking.execute_unified("write")).error_steps


async def test_rules_and_modes_hold(place: Path) -> None:
    assert not (await sdk(place, WRITE, DONE, allowed_tools=["Write"]).run("write")).error_steps
    (place / "a.txt").unlink()
    assert not (await sdk(place, WRITE, DONE, permission_mode="accept-edits").run("write")).error_steps
    (place / "a.txt").unlink()
    refused = await sdk(place, WRITE, DONE, permission_mode="bypass", disallowed_tools=["Write"]).run("write")
    assert refused.error_steps


async def test_own_tools_and_sub_agents(place: Path) -> None:
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    helper = lyra.Agent("helper", model="sim/echo")
    made = sdk(
        place, call("double", number=21), call("helper", task="say hi"), DONE, allowed_tools=["double", "helper"]
    )
    result = await made.with_tools(double, helper).run("double")
    assert str(result.tool_results[0].output) == "42"
    assert "say hi" in str(result.tool_results[1].output)


async def test_runs_inside_async_with_are_one_session(place: Path) -> None:
    async with SageAgentSDK(model="sim/echo") as open_sdk:
        first = await open_sdk.run("one")
        second = await open_sdk.run("two")
        assert open_sdk.session is not None
        assert len(open_sdk.session.turns) == 2
    assert first.session_id == second.session_id
    third = await SageAgentSDK(model="sim/echo").with_session(first.session_id).run("three")
    assert third.session_id == first.session_id
    other = await SageAgentSDK(model="sim/echo").run("four")
    assert other.session_id != first.session_id
    again = await SageAgentSDK(model="sim/echo").run_with_options("five", RunOptions(session=first.session_id))
    assert again.session_id == first.session_id


async def test_a_run_can_be_interrupted(place: Path) -> None:
    slow = {"text": "one two three four five six", "chunks": 4, "chunk_s": 0.2}
    async with sdk(place, slow) as open_sdk:
        asyncio.get_running_loop().call_later(0.5, lambda: asyncio.ensure_future(open_sdk.interrupt()))
        result = await open_sdk.run("talk")
    assert result.is_interrupted
    assert result.final_result.startswith("one")


async def test_settings_are_chained(place: Path) -> None:
    (place / "sub").mkdir()
    made = SageAgentSDK().with_provider_and_model("sim", "echo").with_working_directory("sub").with_max_steps(7)
    assert made._options.model == "sim/echo"
    assert made._options.max_turns == 7
    assert made.with_step_limit(None)._options.max_turns == 100
    async with made.with_budget("$1") as open_sdk:
        assert open_sdk.session is not None
        assert open_sdk.session.folder == str(place / "sub")
        assert open_sdk.session.options.budget == "$1"
    with pytest.raises(ConfigError):
        made.with_max_steps(0)


async def test_the_configuration(place: Path) -> None:
    file = place.parent / "own.toml"
    file.write_text('[agent]\nmodel = "sim/echo"\n')
    made = SageAgentSDK().with_config_file(file)
    assert made.config.agent.model == "sim/echo"
    made.validate_config()
    assert (await made.run("hi")).final_result == "hi"
    with pytest.raises(ConfigError, match="no model"):
        SageAgentSDK().validate_config()
    with pytest.raises(ConfigError, match="no configuration file"):
        SageAgentSDK().with_config_file("missing.toml")
    assert SageAgentSDK().with_config({"agent.model": "sim/echo"}).config.agent.model == "sim/echo"


async def test_the_configuration_is_that_of_the_folder_of_the_run(place: Path) -> None:
    """Also where the folder is changed later, or for one run; a file that was named counts in every folder."""
    for name, model in (("one", "anthropic/one"), ("two", "anthropic/two")):
        (place / name).mkdir()
        (place / name / "lyra.toml").write_text(f'[agent]\nmodel = "{model}"\n')
    made = SageAgentSDK(trusted=True).with_working_directory("one")
    assert made.config.agent.model == "anthropic/one"
    assert made.with_working_directory("two").config.agent.model == "anthropic/two"
    file = place.parent / "own.toml"
    file.write_text('[agent]\nmodel = "sim/echo"\n')
    (place / "sub").mkdir()
    named = SageAgentSDK().with_config_file(file)
    assert (await named.run_with_options("hi", RunOptions(working_directory="sub"))).final_result == "hi"


def test_versions() -> None:
    made = SageAgentSDK(model="sim/echo")
    assert made.api_version == "1.0"
    assert made.version_info() == {"lyra": lyra.__version__, "api": "1.0"}
    assert made.is_compatible_with("1.0")
    assert not made.is_compatible_with("1.9")
    assert not made.is_compatible_with("2.0")
    with pytest.raises(ConfigError):
        made.is_compatible_with("new")


async def test_the_answer_in_a_wanted_type(place: Path) -> None:
    result = await sdk(place, {"text": '{"n": 3}'}).run_with_options("count", RunOptions(output=dict[str, int]))
    assert result.output == {"n": 3}


async def test_what_the_constructor_is_given_counts(place: Path) -> None:
    """The configuration, the folder, the system prompt, tools, a budget, and where sessions are kept."""
    other = place.parent / "other"
    other.mkdir()
    config = SageAgentSDK().with_config({"agent.model": "sim/echo"}).config
    kept = place.parent / "kept"
    result = await SageAgentSDK(config, working_directory=other, sessions_folder=kept).run("hi")
    assert result.final_result == "hi"
    assert [path.name for path in kept.iterdir() if path.is_dir()] == [result.session_id]
    async with SageAgentSDK(model="sim/echo", working_directory=other, system="Be brief.") as open_sdk:
        assert open_sdk.session is not None
        assert open_sdk.session.folder == str(other)
        assert open_sdk.session.headless.agent.system == "Be brief."

    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    made = sdk(place, call("double", number=4), DONE, tools=[double], allowed_tools=["double"])
    assert str((await made.run("double")).tool_results[0].output) == "8"


async def test_a_budget_ends_a_run(place: Path) -> None:
    path = place.parent / "priced.json"
    price = {"input_usd_per_mtok": 100_000, "output_usd_per_mtok": 100_000}
    path.write_text(json.dumps({"sequence": [{"text": "dear"}], "price": price}))
    result = await SageAgentSDK(model=f"sim/script:{path}", budget="$0.01").run("hi")
    assert result.status == "budget_exceeded"


async def test_a_trusted_folder_has_its_own_rules(place: Path) -> None:
    """Until the folder is trusted, what its files allow does not count."""
    (place / ".lyra").mkdir()
    (place / ".lyra" / "permissions.toml").write_text('allow = ["Write"]\n')
    assert (await sdk(place, WRITE, DONE).run("write")).error_steps
    assert not (await sdk(place, WRITE, DONE, trusted=True).run("write")).error_steps


async def test_options_of_single_runs(place: Path) -> None:
    """Also of the sync wrapper and of the stream; the callback can be set later, and the limit of steps by number."""
    (place / "sub").mkdir()
    options = RunOptions(max_steps=1)
    looped = call("Read", file_path="x")
    events = [event async for event in sdk(place, looped, DONE).stream("look", options)]
    assert events[-1].status == "max_turns"
    done = await asyncio.to_thread(lambda: sdk(place, looped, DONE).run_sync("look", options))
    assert done.outcome == "max_steps_reached"
    limited = await sdk(place, looped, DONE).with_step_limit(1).run("look")
    assert limited.outcome == "max_steps_reached"
    asking = sdk(place, WRITE, DONE).with_permission_callback(lambda _request: True)
    assert not (await asking.run("write")).error_steps
