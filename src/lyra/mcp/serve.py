"""`lyra mcp serve`: an `Offer` as an MCP server, over stdio or over HTTP on this machine.

Over stdio only the SDK uses stdout: other output goes to stderr. Over HTTP
every request has to bring the token, the Host has to be this machine's, and a page of another origin is refused.

An `Offer` is a kernel with agents whose model is the client: it names the tool to call, the agent calls it, and the
result goes back. So the Grant, the rules, the sandbox, the journal and the audit log hold for a client as for any
model. No person can be asked: what no rule allows is denied. A client's process counts as tainted, since it is not
known what the client has read; rules with a pattern then do not allow consequential calls. The file tools share one
process, since an edit needs an earlier read; so do the tools that run commands. Calls of one process wait for each
other. Every other call gets its own process.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import mcp_types as types
import msgspec
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from lyra._version import __version__
from lyra.agents.agent import Agent
from lyra.agents.declaration.output import text_of
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.headless.setup import setup_of
from lyra.agents.helpers.task import ask_child, delegate
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.events import ToolEnded, ToolProgress
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.core.checking.check import did_you_mean
from lyra.core.tool import Tool, ToolCall
from lyra.errors import ConfigError, LyraError
from lyra.kernel.kernel import Kernel
from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider, Request
from lyra.models.stream import Finished, Started, StreamEvent, TextDelta, ToolEnd, ToolStart
from lyra.tools.function import tool, tool_of
from lyra.tools.permissions.subjects import facts_of

_TOLD_MAX: Final = 100  # progress messages that may wait for a slow client
_PROGRESS_MAX: Final = 0.999  # of a call that has not answered yet


def server_of(offer: Offer) -> Server[Any]:
    """Return the MCP server of an offer."""

    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema)
                for tool in offer.tools.values()
            ]
        )

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        async with progress_of(ctx) as tell:
            result = await offer.call(params.name, params.arguments or {}, tell)
            parts = result.output if isinstance(result.output, list) else [{"type": "text", "text": result.output}]
            return types.CallToolResult(content=[_part(part) for part in parts], is_error=result.is_error)

    return Server("lyra", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


@contextlib.asynccontextmanager
async def progress_of(ctx: Any) -> AsyncIterator[Any]:
    """Provide a function that sends progress in order; at the end the queue is drained."""
    waiting: asyncio.Queue[tuple[str, float | None] | None] = asyncio.Queue(_TOLD_MAX)

    def tell(text: str, fraction: float | None) -> None:
        with contextlib.suppress(asyncio.QueueFull):  # a slow client misses some
            waiting.put_nowait((text, fraction))

    async def pass_on() -> None:
        done = 0.0
        while (told := await waiting.get()) is not None:
            text, fraction = told
            # The protocol wants progress to grow with each message, so one without a larger fraction moves it by a
            # thousandth of what is left. Only the result ends a call, so it stays below 1.
            done = max(done + (1.0 - done) / 1000, min(fraction or 0.0, _PROGRESS_MAX))
            await ctx.session.report_progress(done, 1.0, text)

    async with asyncio.TaskGroup() as group:
        group.create_task(pass_on())
        try:
            yield tell
        finally:
            await waiting.put(None)


def _part(part: Any) -> Any:
    if part.get("type") == "image" and part.get("data"):
        return types.ImageContent(type="image", data=part["data"], mime_type=part["media_type"])
    if part.get("type") == "image":
        return types.TextContent(type="text", text=f"[image {part.get('url', '')}]")
    return types.TextContent(type="text", text=str(part.get("text", "")))


async def serve_stdio(offer: Offer) -> None:
    """Serve until the client closes stdin."""
    server = server_of(offer)
    async with stdio_server() as (reading, writing):
        # The SDK uses the descriptor; Python's buffered output would be written to it at the end.
        sys.stdout = sys.stderr
        await server.run(reading, writing, server.create_initialization_options())


# ---------------------------------------------------------------- HTTP
def http_app(offer: Offer, token: str) -> Any:
    """Return the ASGI application: MCP at `/mcp`, for requests with the token."""
    return _Guard(server_of(offer).streamable_http_app(host="127.0.0.1"), token)


async def serve_http(offer: Offer, port: int, token: str) -> None:
    """Serve on this machine only, until interrupted."""
    import uvicorn

    settings = uvicorn.Config(
        http_app(offer, token), host="127.0.0.1", port=port, log_level="warning", access_log=False, lifespan="on"
    )
    await uvicorn.Server(settings).serve()


class _Guard:
    """Refuses requests without the token."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not self._is_authorized(scope):
            body = b'{"error": "unauthorized"}'
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await self._app(scope, receive, send)

    def _is_authorized(self, scope: Any) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, self._wanted)


_CALLS_MAX: Final = 50  # of one process; then a new one starts, since the transcript grows
# Tools that need a conversation with a user, which an MCP client does not have.
_FOR_CONVERSATIONS: Final = frozenset({"AskUser", "TodoWrite", "ToolSearch", "Task", "Remember", "Recall"})
_COMMANDS: Final = frozenset({"Bash", "BashOutput", "KillShell", "Git"})
_KEY_IN_CALL: Final = "a key of a model provider, or a part of one, is in its arguments, and keys are given to no tool"
_ID: Final = "call"
_FREE: Final = Price.per_mtok(0, 0)

Tell = Callable[[str, float | None], None]


class OfferOptions(NamedTuple):
    """`names` are built-in tools to offer (by default all); `own` are further Tools, functions or Agents."""

    folder: str = "."
    names: tuple[str, ...] = ()
    own: tuple[Any, ...] = ()
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    mode: str | None = None
    store: str = "memory"


class CallResult(NamedTuple):
    """The result of one call: text, or parts of text and images."""

    output: Any
    is_error: bool = False


class Offer:
    """The offered tools by name; `call` works inside `async with`."""

    def __init__(self, options: OfferOptions, config: Config | None = None) -> None:
        own = [_asking(given) if isinstance(given, Agent) else tool_of(given) for given in options.own]
        outfit = setup_of(
            HeadlessOptions(
                folder=options.folder,
                mode=options.mode,
                allow=(*options.allow, *(tool.name for tool in own)),  # offering a tool allows it
                deny=options.deny,
                tools=tuple(own),
            )
        )
        built_in = {tool.name: tool for tool in outfit.tools if isinstance(tool, Tool) and tool not in own}
        chosen = _choose_tools(built_in, options, own)
        self.tools: dict[str, Tool] = {tool.name: tool for tool in (*chosen, *own)}
        self._agent = Agent("mcp", model=_Client(), tools=self.tools.values(), permissions=outfit.permissions)
        self._grant = outfit.grant
        self._kernel = Kernel.from_config(config or Config.load(), store=options.store, programs=[self._agent])
        self._serial = {"files": _SerialProcess(self), "commands": _SerialProcess(self)}

    async def __aenter__(self) -> Self:
        await self._kernel.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._kernel.__aexit__(kind, error, trace)

    async def call(self, name: str, arguments: Mapping[str, Any], tell: Tell | None = None) -> CallResult:
        """Make one call; a cancelled one is stopped. Errors that a model should see are in the result."""
        if name not in self.tools:
            near = did_you_mean(name, self.tools)
            return CallResult(
                f"there is no tool {name!r}" + (f"; did you mean {near!r}?" if near else ""), is_error=True
            )
        line = self._serial.get(_family(name))
        if line is not None:
            async with line.lock:
                return await self._ask(await line.process(), name, arguments, tell)
        process = await self.spawn()
        try:
            return await self._ask(process, name, arguments, tell)
        finally:
            await process.stop()

    async def spawn(self) -> AgentProcess:
        process: AgentProcess = await self._kernel.spawn(self._agent, grant=self._grant)
        self._kernel.taint.mark(process.pid, "an MCP client")
        return process

    async def _ask(
        self, process: AgentProcess, name: str, arguments: Mapping[str, Any], tell: Tell | None
    ) -> CallResult:
        task = msgspec.json.encode({"name": name, "arguments": dict(arguments)}).decode()
        if runtime_of(self._kernel).clean(task) != task:  # the process would be told, and make, another call
            return CallResult(f"{name} was not run: {_KEY_IN_CALL}", is_error=True)
        result = CallResult("the call came to nothing", is_error=True)
        stream = process.stream(task, events=True)
        try:
            async with contextlib.aclosing(aiter(stream)) as events:  # type: ignore[type-var]  # it is a generator
                async for event in events:
                    if isinstance(event, ToolEnded):
                        result = CallResult(event.output, event.is_error)
                    elif isinstance(event, ToolProgress) and tell is not None:
                        tell(event.text, event.fraction)
        except LyraError as error:
            return CallResult(f"{error.message}. {error.hint}" if error.hint else error.message, is_error=True)
        return result


def _asking(agent: Agent) -> Tool:
    """Return an agent as a tool for an MCP client: the agent gets the task, without data of the caller."""

    async def ask(ctx: Any, task: str) -> str:
        """Args:
        task: what is to be done, complete in itself
        """
        return text_of(await ask_child(ctx, agent, task))

    helper = delegate(agent)
    return tool(ask, name=helper.name, description=helper.description)


class _SerialProcess:
    """A process that runs one call at a time; replaced after `_CALLS_MAX` calls."""

    def __init__(self, offer: Offer) -> None:
        self.lock = asyncio.Lock()
        self._offer = offer
        self._process: AgentProcess | None = None
        self._calls = 0

    async def process(self) -> AgentProcess:
        if self._process is None or not self._process.alive or self._calls >= _CALLS_MAX:
            old, self._process, self._calls = self._process, None, 0
            if old is not None and old.alive:
                await old.stop()
            self._process = await self._offer.spawn()
        self._calls += 1
        return self._process


def _family(name: str) -> str:
    kind = facts_of(name).kind
    if kind == "path":
        return "files"
    return "commands" if name in _COMMANDS else ""


def _choose_tools(built_in: Mapping[str, Tool], options: OfferOptions, own: Iterable[Tool]) -> list[Tool]:
    if not options.names:
        if own:
            return []  # own tools alone, if there are any
        return [tool for tool in built_in.values() if tool.name not in _FOR_CONVERSATIONS]
    for name in options.names:
        if name not in built_in:
            near = did_you_mean(name, built_in)
            hint = f"did you mean {near}?" if near else f"there are: {', '.join(built_in)}"
            raise ConfigError(f"there is no built-in tool {name!r}", hint=hint, key="--tools")
    return [built_in[name] for name in dict.fromkeys(options.names)]


class _Client(LLMProvider):
    """The provider that represents the MCP client: it requests the call in the user message, then ends the turn."""

    name = "mcp"
    images = True

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        yield Started()
        last = request.messages[-1]
        if last.role == "user":
            wanted = msgspec.json.decode(last.text)
            yield ToolStart(0, _ID, wanted["name"])
            yield ToolEnd(0, ToolCall(_ID, wanted["name"], wanted["arguments"]))
            yield Finished("tool_calls")
        else:
            yield TextDelta("done")
            yield Finished()

    def price(self, model: str) -> Price | None:
        del model
        return _FREE
