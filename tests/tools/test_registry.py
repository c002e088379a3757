"""ToolRegistry: tools by name, handed to agents in parts."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from lyra import Agent, ToolRegistry, run, tool
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import Tool, ToolCall, ToolResult, rights
from lyra.errors import ConfigError
from lyra.models.sim import SimProvider
from lyra.tools import wrapped


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
    assert registry.filter(lambda tool: "file" in tool.name, without=["write_*"]).names == ("read_file",)


def test_an_agent_takes_one():
    """`tools=registry`, or a part of it."""
    script = [{"tool_calls": [{"name": "read_page", "arguments": {"url": "a"}}]}, {"text": "{result}"}]
    registry = ToolRegistry([read_page, read_file])
    agent = Agent("reader", model=SimProvider(script), tools=registry.filter("*_page"))
    assert set(agent.tools) == {"read_page"}
    assert run(agent, "go") == "page a"


# ---------------------------------------------------------------- calls without an agent


def called(registry: ToolRegistry, name: str, **arguments: object) -> ToolResult:
    return asyncio.run(registry.call(name, arguments))


def test_a_call_gives_a_typed_result():
    """What the tool gave, under the call's id."""
    result = asyncio.run(ToolRegistry([read_page]).call("read_page", {"url": "a"}, call_id="c1"))
    assert result == ToolResult("c1", "read_page", "page a")


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("read_page", {"link": "a"}, "invalid_arguments", "bad arguments"),
        ("read_page", {"url": ["a"]}, "invalid_arguments", "bad arguments"),
        ("read_pgae", {}, "not_found", "did you mean 'read_page'"),
        ("no such name!", {}, "not_found", "there is no tool"),
        ("broken", {}, "exec_failed", "ZeroDivisionError"),
        ("missing", {}, "not_found", "nowhere"),
        ("slow", {}, "timeout", "longer than 0.02 s"),
        ("slow_sync", {}, "timeout", "longer than 0.02 s"),
        ("stops", {}, "cancelled", "CancelledError"),
        ("exits", {}, "exec_failed", "SystemExit"),
        ("inside", {}, "invalid_arguments", "takes ctx"),
    ],
)
def test_every_failure_is_a_result_with_a_code(name, arguments, code, message):
    """Nothing is raised but a cancellation of the caller."""
    release = threading.Event()

    def broken() -> int:
        return 1 // 0

    def missing() -> None:
        raise FileNotFoundError("nowhere")

    async def slow() -> None:
        await asyncio.Event().wait()

    def slow_sync() -> None:
        release.wait(5)

    async def stops() -> None:
        raise asyncio.CancelledError

    def exits() -> None:
        raise SystemExit(3)

    async def inside(ctx: Any) -> None:
        """Never called."""

    registry = ToolRegistry([read_page, broken, missing, stops, exits, inside])
    registry.register(slow, timeout_s=0.02)
    registry.register(slow_sync, timeout_s=0.02)

    async def main() -> ToolResult:
        result = await registry.call(name, arguments)
        release.set()
        return result

    result = asyncio.run(main())
    assert (result.is_error, result.error_code) == (True, code)
    assert message in result.output


def test_a_time_out_cancels_the_work():
    """It does not go on behind the caller's back."""
    seen: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    assert called(ToolRegistry([tool(slow, timeout_s=0.01)]), "slow").error_code == "timeout"
    assert seen == ["cancelled"]


def test_a_cancelled_caller_is_cancelled():
    """A cancellation from outside is raised and becomes no result."""

    async def main() -> None:
        async def slow() -> None:
            await asyncio.Event().wait()

        task = asyncio.ensure_future(ToolRegistry([slow]).call("slow"))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_functions_that_block_run_off_the_loop():
    """Eight that wait for each other all come to their end, and the loop goes on."""
    all_here = threading.Barrier(8)
    wrapped._get_threads.cache_clear()  # a pool that other tests have used may count a busy thread of theirs as idle

    def nap() -> str:
        all_here.wait(timeout=10)
        return threading.current_thread().name

    async def main() -> list[ToolResult]:
        async def layer(call: Any, inner: Any) -> Any:
            return await inner(call)

        registry = ToolRegistry([nap], middleware=[layer])
        async with asyncio.timeout(20):
            return await asyncio.gather(*(registry.call("nap") for _ in range(8)))

    names = {result.output for result in asyncio.run(main())}
    assert threading.current_thread().name not in names
    assert len(names) == 8


def test_a_grant_is_kept_to():
    """Where one is given, what the tool needs must be in it; the tool sees it too."""

    def look(path: str) -> str:
        return str(rights.get())

    registry = ToolRegistry([tool(look, needs_of=lambda given: [Capability("fs.read", given["path"])])])
    grant = Grant(["fs.read:/a/**"])
    assert asyncio.run(registry.call("look", {"path": "/b"}, grant=grant)).error_code == "permission_denied"
    assert asyncio.run(registry.call("look", {"path": "/a/x"}, grant=grant)).output == str(grant)
    assert rights.get() is None


def test_a_caller_outside_needs_no_right_to_use_the_tool():
    """The grant bounds what the tool may do; only a deny of the tool itself refuses the call."""
    registry = ToolRegistry([tool(lambda: "done", name="act")])
    assert asyncio.run(registry.call("act", grant=Grant.none())).output == "done"
    for rule in ("tool.use", "tool.use:act", "tool.*"):
        denied = asyncio.run(registry.call("act", grant=Grant(["*"], [rule])))
        assert (denied.error_code, "tool.use:act is denied" in str(denied.output)) == ("permission_denied", True)


def test_without_a_grant_the_bounds_of_the_tool_hold(tmp_path):
    """`allowed_paths` and `allowed_commands` are the tool's own."""
    ran: list[str] = []

    def look(path: str) -> str:
        ran.append(path)
        return path

    def act(command: str) -> str:
        ran.append(command)
        return command

    registry = ToolRegistry(
        [
            tool(look, needs="fs.read", allowed_paths=[f"{tmp_path}/**"]),
            tool(act, needs="process.exec", allowed_commands=["git status"]),
        ]
    )
    for name, given in (("look", {"path": "/etc/passwd"}), ("act", {"command": "git push"})):
        assert asyncio.run(registry.call(name, given)).error_code == "permission_denied"
        assert asyncio.run(registry.call(name, given, grant=Grant.all())).error_code == "permission_denied"
    assert asyncio.run(registry.call("look", {"path": f"{tmp_path}/a"})).output == f"{tmp_path}/a"
    assert asyncio.run(registry.call("act", {"command": "git status"})).output == "git status"
    assert ran == [f"{tmp_path}/a", "git status"]


# ---------------------------------------------------------------- middleware


def noting(seen: list[str], word: str) -> Any:
    async def layer(call: ToolCall, inner: Any) -> Any:
        seen.append(f"{word}>")
        output = await inner(call)
        seen.append(f"<{word}")
        return output

    return layer


def test_the_first_layer_is_the_outermost():
    """Those of `use` are inside of those there are."""
    seen: list[str] = []
    registry = ToolRegistry([read_page], middleware=[noting(seen, "a"), noting(seen, "b")])
    registry.use(noting(seen, "c"))
    assert called(registry, "read_page", url="x").output == "page x"
    assert seen == ["a>", "b>", "c>", "<c", "<b", "<a"]


def test_a_part_of_a_registry_keeps_its_layers():
    """And an agent that takes it runs through them; the id of the model's call is in the call."""
    seen: list[ToolCall] = []

    async def layer(call: ToolCall, inner: Any) -> Any:
        seen.append(call)
        return f"<{await inner(call)}>"

    registry = ToolRegistry([read_page, read_file], middleware=[layer]).filter("read_page")
    script = [{"tool_calls": [{"name": "read_page", "arguments": {"url": "a"}}]}, {"text": "{result}"}]
    assert run(Agent("reader", model=SimProvider(script), tools=registry), "go") == "<page a>"
    assert [(call.name, call.arguments, bool(call.id)) for call in seen] == [("read_page", {"url": "a"}, True)]


def test_a_layer_may_answer_itself_or_change_the_call():
    """The tool is not run, or run with other arguments."""

    async def instead(call: ToolCall, inner: Any) -> Any:
        return "instead" if call.arguments["url"] == "secret" else await inner(call)

    async def lower(call: ToolCall, inner: Any) -> Any:
        return await inner(ToolCall(call.id, call.name, {"url": call.arguments["url"].lower()}))

    registry = ToolRegistry([read_page], middleware=[instead, lower])
    assert called(registry, "read_page", url="secret").output == "instead"
    assert called(registry, "read_page", url="ABC").output == "page abc"


def test_changed_arguments_need_the_rights_for_them():
    """A layer cannot lead a tool past the Grant."""

    async def elsewhere(call: ToolCall, inner: Any) -> Any:
        return await inner(ToolCall(call.id, call.name, {"path": "/etc/passwd"}))

    guarded = tool(read_file, needs_of=lambda given: [Capability("fs.read", given["path"])])
    registry = ToolRegistry([guarded], middleware=[elsewhere])
    result = asyncio.run(registry.call("read_file", {"path": "/a/b"}, grant=Grant(["fs.read:/a/**"])))
    assert result.error_code == "permission_denied"


def test_what_is_no_middleware_is_refused():
    """At once, not at the first call."""
    with pytest.raises(ConfigError, match="not a middleware"):
        ToolRegistry([read_page], middleware=[lambda call, inner: None])  # type: ignore[list-item,return-value]
    with pytest.raises(ConfigError, match="not a middleware"):
        ToolRegistry().use(3)  # type: ignore[arg-type]


def test_a_layer_hands_on_calls_of_its_tool_only():
    """It cannot reach another tool."""

    async def other(call: ToolCall, inner: Any) -> Any:
        return await inner(ToolCall(call.id, "read_file", {"path": "x"}))

    assert "hands on" in called(ToolRegistry([read_page, read_file], middleware=[other]), "read_page", url="a").output


# ---------------------------------------------------------------- sources


class Changing:
    """A source whose tools change."""

    def __init__(self, *tools: Tool) -> None:
        self.tools = tools

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        return self.tools


def test_a_source_is_asked_each_time():
    """What it has now is what there is; a registered tool is not replaced by one of a source."""
    source = Changing(tool(read_file))
    registry = ToolRegistry([read_page, source])
    part = registry.filter("read_*")
    assert registry.names == part.names == ("read_page", "read_file")
    source.tools = (tool(read_file, name="late"), tool(read_file, name="read_page"))
    assert list(registry.names) == ["read_page", "late"]
    assert list(part.names) == ["read_page"]
    assert called(registry, "read_page", url="x").output == "page x"
    assert called(registry, "late", path="x").output == "file x"
    with pytest.raises(ConfigError, match="belongs to a source"):
        registry.unregister("late")


def test_calls_without_an_id_have_keys_of_their_own():
    """A tool that takes an `idempotency_key` gets the id of its call; calls without one never share a key."""
    keys: list[str] = []

    @tool
    async def charge(amount: int, idempotency_key: str) -> str:
        """Charge."""
        keys.append(idempotency_key)
        return str(amount)

    async def main():
        registry = ToolRegistry([charge])
        for amount in (5, 70):
            await registry.call("charge", {"amount": amount})
        await registry.call("charge", {"amount": 1}, call_id="mine")

    asyncio.run(main())
    assert keys[2] == "mine"
    assert len(set(keys)) == 3
    assert all(keys)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "object", "properties": {"x": {"type": "strng"}}}, "properties.x.type"),
        ({"type": "object", "properties": [1]}, "properties"),
        ({"type": "object", "required": "x"}, "required"),
    ],
)
def test_a_schema_of_ones_own_is_checked(schema, place):
    """`Tool(schema=…)` with a mistake in it is refused where it is declared."""
    with pytest.raises(ConfigError, match=f"schema of tool 'count' has a mistake at {place}"):
        Tool("count", schema=schema, run=lambda **_: "")


def test_arguments_are_checked_against_a_schema_of_ones_own():
    """A function behind `Tool(schema=…)` gets only arguments that fit: a model's mistake is told to the model."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    count = Tool("count", schema=schema, run=lambda n: n + 1)
    registry = ToolRegistry([count])
    assert asyncio.run(registry.call("count", {"n": 1})).output == 2
    for arguments in ({"n": "one"}, {}):
        wrong = asyncio.run(registry.call("count", arguments))
        assert (wrong.error_code, "bad arguments for count" in str(wrong.output)) == ("invalid_arguments", True)
