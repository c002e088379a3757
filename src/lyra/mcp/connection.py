"""One server, from the first start to its last restart.

Only its own task opens and closes the connection. When a server dies every call that waits for it fails at once,
and the task starts it again, after a pause that grows, as often as its `Supervision`
allows within the window. Then the server is `connection_error`, until `start` is called again. A call finds the
connection that is there, or an error that says why there is none; it never waits for a start.

The descriptions of the server's tools are compared with the approved ones (`approvals`). A tool that changed is
withheld: it is not offered, and a call of it fails. A call that begins after the server has announced a change waits
until its tools are listed again, so that no call uses an outdated description.

`open_client` makes the SDK's client, with the automatic behaviour of the SDK that Lyra does not want turned off. It is
the one place that imports the SDK, so that a program without servers does not load it.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra._version import __version__
from lyra.config.tables import UNSPOKEN
from lyra.core.policies.policy import Backoff, RestartWindow
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import without_invisible
from lyra.core.tool import report
from lyra.errors import ConfigError, ToolError
from lyra.mcp.callback_routes import CallbackRoutes, SharedContext
from lyra.mcp.settings import ServerSettings, tool_names
from lyra.mcp.state import Failure, ServerFailed, ServerState, failure_of
from lyra.mcp.tools import Offered, ToolListing, list_tools

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.session import MessageHandlerFnT


# ---------------------------------------------------------------- sdk client
class ConnectionListeners:
    """The functions that are called for events of a connection, and the routes of its callbacks."""

    def __init__(
        self,
        ended: Callable[[ServerFailed], None],
        answered: Callable[[int], None],
        heard: MessageHandlerFnT,
        callbacks: CallbackRoutes,
    ) -> None:
        self.ended = ended
        self.answered = answered
        self.heard = heard
        self.callbacks = callbacks


async def open_client(settings: ServerSettings, shared: SharedContext, listeners: ConnectionListeners) -> Client:
    try:
        # Importing takes about a second, so it runs in a thread.
        await asyncio.get_running_loop().run_in_executor(None, import_module, "lyra.mcp.sdk")
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise ConfigError("MCP servers need the mcp extra", hint="pip install 'lyra-agents[mcp]'") from None
    from lyra.mcp import sdk

    logging.getLogger("mcp").addHandler(logging.NullHandler())  # its errors are in the server's state
    return sdk.Client(
        _transport(settings, shared, listeners),
        client_info=sdk.Implementation(name="lyra", version=__version__),
        read_timeout_seconds=max(settings.timeout_s, settings.start_s or shared.start_s),
        message_handler=listeners.heard,
        elicitation_callback=sdk.elicitation(listeners.callbacks.elicit),
        sampling_callback=sdk.sampling(listeners.callbacks.sample),
    )


@asynccontextmanager
async def _transport(
    settings: ServerSettings, shared: SharedContext, listeners: ConnectionListeners
) -> AsyncIterator[Any]:
    from lyra.mcp import sdk

    if settings.transport == "stdio":
        async with sdk.stdio(
            settings, sandbox=shared.sandbox, workspace=shared.workspace, ended=listeners.ended, denied=shared.denied
        ) as streams:
            yield streams
        return
    tokens = sdk.TokenStore(shared.folder, settings.fingerprint(shared.workspace), sdk.client_of(settings))
    login = sdk.Login(settings, tokens, shared.authorize)
    try:
        auth = await login.provider() if settings.auth_kind == "oauth" else None
        async with sdk.web(settings, login=auth, answered=listeners.answered, ended=listeners.ended) as streams:
            yield streams
    finally:
        login.close()


def skip_result_check(client: Client) -> Client:
    """Turn off the SDK's check of results against the server's schema: one of its patterns may take for ever."""

    async def no_check(name: str, result: Any) -> None:
        del name, result

    setattr(client.session, "validate_tool_result", no_check)  # noqa: B010 - a method, for this session alone
    return client


_RELIST_PAUSE_S: Final = 0.1  # limits how often the tools of a server are listed
_NO_LIMIT_S: Final = (
    365 * 24 * 3600.0
)  # disables the SDK's limit: `ask` has its own, which is suspended during callbacks
_PROGRESS_MAX: Final = 1_000  # progress messages of one call
_REFUSED: Final = (401, 403)
_CLOSED: Final = "Session terminated"


class Connection:
    """A handle on one server; `key` represents it in the names of its tools."""

    def __init__(self, settings: ServerSettings, key: str, shared: SharedContext) -> None:
        self.settings = settings
        self.key = key
        self.offered: dict[str, Offered] = {}  # tools that can be called
        self.withheld: dict[str, Offered] = {}
        self.has: set[str] = set()  # resources, prompts
        self.callbacks = CallbackRoutes(settings.name, key, shared)
        self._shared = shared
        self._start_s = shared.start_s if settings.start_s is None else settings.start_s
        self._fingerprint = settings.fingerprint(shared.workspace)
        self._state = "disconnected" if settings.enabled else "disabled"
        self._failure: Failure | None = None
        self._skipped: tuple[str, ...] = ()
        self._protocol = ""
        self._restarts = 0
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._woken = asyncio.Event()
        self._lost: ServerFailed | None = None
        self._heard = 0  # announced changes of its tools
        self._listed = 0  # the number of changes that `offered` includes
        self._renewed = asyncio.Event()  # set after the next listing, or when the connection ends
        self._refused = 0

    # ------------------------------------------------------------ how it is
    @property
    def state(self) -> ServerState:
        settings, names = self.settings, self.names()
        return ServerState(
            name=settings.name,
            state=self._state,
            transport=settings.transport,
            origin=settings.origin,
            line=redact(settings.line()),
            failure=self._failure,
            tools=tuple(names[name] for name in self.offered),
            withheld=tuple(names[name] for name in self.withheld),
            skipped=self._skipped,
            protocol=self._protocol,
            restarts=self._restarts,
        )

    def names(self) -> dict[str, str]:
        """Return the name of each of its tools in Lyra."""
        return tool_names(self.key, sorted({*self.offered, *self.withheld}))

    # ------------------------------------------------------------ starting and stopping
    def begin(self) -> None:
        """Begin to connect in the background, unless it is connected."""
        if self._task is None and self._state != "disabled":
            self._settled.clear()
            self._state = "connecting"
            self._task = self._shared.tasks.start(self._run(), name=f"mcp {self.settings.name}")

    async def start(self) -> None:
        """Connect, unless it is connected; returns when that is done or has failed once. `state` has the outcome: with
        a failure it may still be `connecting`, for another try."""
        self.begin()
        if self._task is not None:
            await self._settled.wait()

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if self._state in ("connecting", "connected"):
            self._put("disconnected")

    def _put(self, state: str, failure: Failure | None = None) -> None:
        self._state = state
        self._failure = self._redact_failure(failure) if failure is not None else None
        if state != "connecting":
            self._settled.set()

    def _redact_failure(self, failure: Failure) -> Failure:
        """Return the failure with keys redacted: the last output of a server may contain them."""
        message = without_invisible(redact(failure.message, self.settings.secrets()))
        return msgspec.structs.replace(failure, message=message)

    async def _run(self) -> None:
        """Connect, keep the connection, and restart while that may help."""
        window = RestartWindow(self._shared.supervision)
        tries = 0
        self._put("connecting")
        try:
            while True:
                was_connected, failed = await self._attempt()
                self._client = None
                once_more = failed.failure.recoverable and (was_connected or failed.failure.kind != "timeout")
                if not once_more or not window.record(self._shared.clock.monotonic()):
                    self._put(failed.state, failed.failure)
                    return
                tries = 1 if was_connected and len(window.times) == 1 else tries + 1
                self._restarts += 1
                if was_connected:
                    self._settled.clear()
                self._put("connecting", failed.failure)
                if not was_connected:
                    self._settled.set()  # `start` tells the failure at once; the next try continues without a waiter
                backoff = self._shared.supervision.backoff or Backoff(initial_s=0.0)
                await asyncio.sleep(backoff.delay(tries, lambda: self._shared.entropy.bits(32) / 2**32))
        finally:
            self._client = None
            self._task = None
            self._settled.set()

    async def _attempt(self) -> tuple[bool, ServerFailed]:
        """One connection, until it ends: whether it was established, and why it ended."""
        self._lost, self._refused = None, 0
        self._woken.clear()
        connected = False
        try:
            await self._check()
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._start_s):
                    listeners = ConnectionListeners(self._wake, self._on_status, self._hear, self.callbacks)
                    sdk_client = await open_client(self.settings, self._shared, listeners)
                    client = skip_result_check(await stack.enter_async_context(sdk_client))
                    heard, listing = self._heard, await list_tools(client)
                await self._take(listing, heard)
                connected = True
                self._client = client
                self._protocol = client.protocol_version
                offers = client.server_capabilities
                self.has = {kind for kind in ("resources", "prompts") if getattr(offers, kind) is not None}
                self._put("connected")
                await self._keep(client)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # Lyra ends the connection
            return connected, self._over(failure_of(error))
        finally:
            self._client = None
        return connected, self._over(ServerFailed(Failure("crash", "closed", "it hung up", recoverable=True)))

    def _over(self, otherwise: ServerFailed) -> ServerFailed:
        """Return why the connection ended: the first cause, if it was reported, else `otherwise`."""
        if self._lost is None and self._refused:
            return self._auth_failure()
        return self._lost or otherwise

    async def _check(self) -> None:
        """Raise unless the server may be started; asks for consent if there is a callback for that."""
        failed = self.unready()
        if failed is None:
            return
        shared = self._shared
        if failed.state != "consent_required" or shared.consent is None or not await shared.consent(self.settings):
            raise failed
        shared.approvals.consent(self._fingerprint, self.settings.name)

    def unready(self) -> ServerFailed | None:
        """Return why the server may not be started, as far as the settings and approvals show; None if it may."""
        settings = self.settings
        if settings.broken:
            return ServerFailed(Failure("config", "config_error", settings.broken), "schema_error")
        if settings.transport in UNSPOKEN:
            message = f"it wants {settings.transport}, which is not spoken; there are stdio and http"
            return ServerFailed(Failure("transport", settings.transport, message), "unsupported_transport")
        consented = settings.trusted or settings.folder_trusted
        if consented or self._shared.approvals.consented(self._fingerprint):
            return None
        where = settings.place or settings.origin
        message = f"{where} names it, and no person agreed: lyra mcp approve {settings.name}, or lyra trust add"
        return ServerFailed(Failure("consent", "no_consent", message), "consent_required")

    async def _keep(self, client: Client) -> None:
        """Wait until the connection is lost; lists the tools again when the server announces a change."""
        listening = self._shared.tasks.start(self._listen(client), name=f"mcp {self.settings.name} changes")
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                if self._lost is not None:
                    return
                if self._listed < self._heard:
                    async with asyncio.timeout(self._start_s):
                        heard, listing = self._heard, await list_tools(client)
                    await self._take(listing, heard)
                    await asyncio.sleep(_RELIST_PAUSE_S)
        finally:
            self._client = None
            if self._state == "connected":
                self._settled.clear()
                self._put("connecting", self._lost.failure if self._lost is not None else None)
            self._announce()
            listening.cancel()
            await asyncio.wait([listening])

    def _wake(self, lost: ServerFailed | None = None) -> None:
        if lost is not None and self._lost is None:
            self._lost = lost
            if self._state == "connected":
                self._settled.clear()
                self._put("connecting" if lost.failure.recoverable else lost.state, lost.failure)
            self._announce()
        self._woken.set()

    def _announce(self) -> None:
        """Wake the calls that wait for a new listing."""
        renewed, self._renewed = self._renewed, asyncio.Event()
        renewed.set()

    # ------------------------------------------------------------ what it tells
    def _on_status(self, status: int) -> None:
        """Note the HTTP status of an answer; one that refuses the credentials ends the connection."""
        self._refused = status if status in _REFUSED else 0
        if self._refused and self.settings.auth_kind != "oauth":  # the OAuth flow handles it
            self._wake(self._auth_failure())

    def _auth_failure(self) -> ServerFailed:
        oauth = self.settings.auth_kind == "oauth"
        message = "the login was not accepted" if oauth else "it needs credentials: set auth, or headers"
        return ServerFailed(Failure("auth", str(self._refused), message), "auth_required")

    async def _hear(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self._on_change()

    def _on_change(self) -> None:
        self._heard += 1
        self._wake()

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the tools; older servers announce them without a subscription."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        with suppress(Exception):  # without the subscription the tools stay as they are
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._on_change()

    # ------------------------------------------------------------ what it offers
    async def _take(self, listing: ToolListing, heard: int) -> None:
        """Offer the unchanged tools at once; then ask for approval of each changed one."""
        approvals, pins = self._shared.approvals, {name: tool.pin for name, tool in listing.offered.items()}
        names = tool_names(self.key, sorted(pins))
        changed = approvals.changed(self._fingerprint, pins, names)
        self._skipped = listing.skipped
        self._offer(listing, changed)
        self._listed = heard
        self._announce()
        for name in sorted(changed):
            if self._shared.reapprove is not None and await self._shared.reapprove(
                self.settings.name, listing.offered[name]
            ):
                approvals.accept(self._fingerprint, {name: pins[name]}, names)
                changed.discard(name)
                self._offer(listing, changed)

    def _offer(self, listing: ToolListing, changed: Collection[str]) -> None:
        self.offered = {name: tool for name, tool in listing.offered.items() if name not in changed}
        self.withheld = {name: tool for name, tool in listing.offered.items() if name in changed}

    def accept(self) -> None:
        """Accept the new descriptions of the withheld tools: a person agreed to them."""
        pins = {name: tool.pin for name, tool in self.withheld.items()}
        self._shared.approvals.accept(self._fingerprint, pins, self.names())
        self.offered, self.withheld = {**self.offered, **self.withheld}, {}

    # ------------------------------------------------------------ calls
    def client(self) -> Client:
        """Return the connected client; a ToolError with the reason if there is none."""
        if self._client is None or self._lost is not None:
            why = f": {self._failure.message}" if self._failure is not None else ""
            again = "; it is being started again" if self._state == "connecting" else ""
            raise ToolError(
                f"MCP server {self.settings.name} is {self._state}{why}{again}", reason="io_error", state=self._state
            )
        return self._client

    async def call(self, tool: Offered, arguments: Mapping[str, Any]) -> Any:
        """Return the result of one tool, as the SDK gives it."""
        self.client()  # fail at once without a connection
        inside = contextvars.copy_context()
        left = _PROGRESS_MAX

        async def report_progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                return
            part = progress / total if total and total > 0 else None
            text = redact(without_invisible(str(message or f"{progress:g}")), self.settings.secrets())[:200]
            inside.run(report, text, None if part is None else min(max(part, 0.0), 1.0))

        async def call_tool() -> Any:
            # Wait until the changes announced before this call are listed; later changes concern later calls.
            heard = self._heard
            while self._listed < heard and self._client is not None and self._lost is None:
                await self._renewed.wait()
            client = self.client()
            if tool.name in self.withheld:
                raise ToolError(
                    f"{tool.name} of MCP server {self.settings.name} changed its description; approve it again",
                    hint=f"look at it, then: lyra mcp approve {self.settings.name}",
                    reason="permission_denied",
                )
            now = self.offered.get(tool.name)
            if now is None or now.pin != tool.pin:
                raise ToolError(f"MCP server {self.settings.name} no longer offers {tool.name} so", reason="not_found")
            return await client.call_tool(tool.name, dict(arguments), _NO_LIMIT_S, progress_callback=report_progress)

        return await self.ask(call_tool())

    async def ask(self, work: Awaitable[Any]) -> Any:
        """Wait for an answer within the time limit of the settings; every failure is a ToolError."""
        name = self.settings.name
        try:
            async with self.callbacks.call(self.settings.timeout_s):
                return await work
        except TimeoutError:
            limit = f"{self.settings.timeout_s:g} s"
            raise ToolError(f"MCP server {name} did not answer within {limit}", reason="timeout") from None
        except (ToolError, ConfigError):
            raise
        except Exception as error:  # noqa: BLE001 - the SDK and a server may raise anything
            raise self._tool_error(error) from None

    def _tool_error(self, error: Exception) -> ToolError:
        failed = self._lost or failure_of(error)
        message, code = failed.failure.message, failed.failure.code
        if message == _CLOSED:
            self._wake(ServerFailed(Failure("crash", code, "it forgot the session", recoverable=True)))
        message_text = self._redact_failure(failed.failure).message
        return ToolError(f"MCP server {self.settings.name}: {message_text}", reason="io_error", mcp_code=code)
