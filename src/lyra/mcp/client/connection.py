"""One server, from the first start to its last restart.

A task of its own opens the connection, keeps it and closes it again; nobody else does. When a server dies every call
that waits for it fails at once, and the task starts it anew, after a pause that grows, as often as its `Supervision`
allows within the window. Then the server is `connection_error`, until somebody asks for it again. A call finds the
connection that is there, or an error that says why there is none; it never waits for a start.

What the server says of its tools is compared with what it said before (`approvals`). A tool that changed is withheld:
it is not offered, and whoever holds it from before is told. A call that begins after the server has told of a change
waits until its tools are read anew, so that none goes by words that no longer hold.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Collection, Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.policies.policy import Backoff, RestartWindow
from lyra.core.secrets.redact import redact
from lyra.core.tool import report
from lyra.errors import ConfigError, ToolError
from lyra.mcp.client.callback_routes import Askers
from lyra.mcp.client.listing import Listing, list_tools
from lyra.mcp.client.sdk_client import Ears, open_client, unchecked
from lyra.mcp.client.shared import Host
from lyra.mcp.client.tool import Offered
from lyra.mcp.names import tool_names
from lyra.mcp.settings import ServerSettings
from lyra.mcp.state import Failed, Failure, ServerState, failure_of

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["Connection"]

_RELIST_PAUSE_S: Final = 0.1  # a server that changes its tools all the time is not followed all the time
_NO_LIMIT_S: Final = 365 * 24 * 3600.0  # of the SDK's own: `ask` has one, which stands still while a person thinks
_PROGRESS_MAX: Final = 1_000  # pieces of it that one call may tell
_UNSUPPORTED: Final = ("sse", "websocket")
_REFUSED: Final = (401, 403)
_CLOSED: Final = "Session terminated"


class Connection:
    """A handle on one server; `key` stands for it in the names of its tools."""

    def __init__(self, settings: ServerSettings, key: str, host: Host) -> None:
        self.settings = settings
        self.key = key
        self.offered: dict[str, Offered] = {}  # those that can be called
        self.withheld: dict[str, Offered] = {}
        self.has: set[str] = set()  # what it offers besides tools
        self.askers = Askers(settings.name, key, host)
        self._host = host
        self._fingerprint = settings.fingerprint(host.workspace)
        self._state = "disconnected" if settings.enabled else "disabled"
        self._failure: Failure | None = None
        self._skipped: tuple[str, ...] = ()
        self._protocol = ""
        self._restarts = 0
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._woken = asyncio.Event()
        self._lost: Failed | None = None
        self._heard = 0  # changes of its tools that it told of
        self._listed = 0  # how many of them the tools here know
        self._renewed = asyncio.Event()  # the next time that there is anything to know
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
        """What each of its tools is called here."""
        return tool_names(self.key, sorted({*self.offered, *self.withheld}))

    # ------------------------------------------------------------ starting and stopping
    async def start(self) -> None:
        """Connect, unless it is; gives back when that is done or given up. Says nothing: `state` does."""
        if self._task is None and self._state != "disabled":
            self._settled.clear()
            self._task = self._host.tasks.start(self._own(), name=f"mcp {self.settings.name}")
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
        self._failure = self._cleaned(failure) if failure is not None else None
        if state != "connecting":
            self._settled.set()

    def _cleaned(self, failure: Failure) -> Failure:
        """A server may say anything in its last words, its own keys too."""
        return msgspec.structs.replace(failure, message=redact(failure.message, self.settings.secrets()))

    async def _own(self) -> None:
        """Connect, keep, and start again while that may help."""
        window = RestartWindow(self._host.supervision)
        tries = 0
        self._put("connecting")
        try:
            while True:
                was_connected, failed = await self._attempt()
                self._client = None
                once_more = failed.failure.recoverable and (was_connected or failed.failure.kind != "timeout")
                if not once_more or not window.record(self._host.clock.monotonic()):
                    self._put(failed.state, failed.failure)
                    return
                tries = 1 if was_connected and len(window.times) == 1 else tries + 1
                self._restarts += 1
                self._settled.clear()
                self._put("connecting", failed.failure)
                backoff = self._host.supervision.backoff or Backoff(initial_s=0.0)
                await asyncio.sleep(backoff.delay(tries, lambda: self._host.entropy.bits(32) / 2**32))
        finally:
            self._client = None
            self._task = None
            self._settled.set()

    async def _attempt(self) -> tuple[bool, Failed]:
        """One connection, until it is over: whether it ever stood, and why it is over."""
        self._lost, self._refused = None, 0
        self._woken.clear()
        connected = False
        try:
            await self._check()
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._host.start_s):
                    ears = Ears(self._wake, self._answered, self._hear, self.askers)
                    made = await open_client(self.settings, self._host, ears)
                    client = unchecked(await stack.enter_async_context(made))
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
                raise  # it is we who end it
            return connected, self._over(failure_of(error))
        finally:
            self._client = None
        return connected, self._over(Failed(Failure("crash", "closed", "it hung up", recoverable=True)))

    def _over(self, otherwise: Failed) -> Failed:
        """Why the connection is over: what was told of it, before what followed from that."""
        if self._lost is None and self._refused:
            return self._no_entry()
        return self._lost or otherwise

    async def _check(self) -> None:
        """What must be so before anything is run or sent."""
        failed = self.unready()
        if failed is None:
            return
        host = self._host
        if failed.state != "consent_required" or host.consent is None or not await host.consent(self.settings):
            raise failed
        host.approvals.consent(self._fingerprint, self.settings.name)

    def unready(self) -> Failed | None:
        """Why it may not be started, as far as that is known before."""
        settings = self.settings
        if settings.broken:
            return Failed(Failure("config", "config_error", settings.broken), "schema_error")
        if settings.transport in _UNSUPPORTED:
            message = f"it wants {settings.transport}, which is not spoken; there are stdio and http"
            return Failed(Failure("transport", settings.transport, message), "unsupported_transport")
        if settings.trusted or self._host.approvals.consented(self._fingerprint):
            return None
        where = settings.place or settings.origin
        message = f"{where} names it, and nobody agreed: lyra mcp approve {settings.name}"
        return Failed(Failure("consent", "no_consent", message), "consent_required")

    async def _keep(self, client: Client) -> None:
        """Until it is lost; reads the tools again when it says that they changed."""
        listening = self._host.tasks.start(self._listen(client), name=f"mcp {self.settings.name} changes")
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                if self._lost is not None:
                    return
                if self._listed < self._heard:
                    async with asyncio.timeout(self._host.start_s):
                        heard, listing = self._heard, await list_tools(client)
                    await self._take(listing, heard)
                    await asyncio.sleep(_RELIST_PAUSE_S)
        finally:
            self._client = None
            if self._state == "connected":
                self._settled.clear()
                self._put("connecting", self._lost.failure if self._lost is not None else None)
            self._tell()
            listening.cancel()
            await asyncio.wait([listening])

    def _wake(self, lost: Failed | None = None) -> None:
        if lost is not None and self._lost is None:
            self._lost = lost
            if self._state == "connected":
                self._settled.clear()
                self._put("connecting" if lost.failure.recoverable else lost.state, lost.failure)
            self._tell()
        self._woken.set()

    def _tell(self) -> None:
        """Let calls that wait for its tools look again."""
        told, self._renewed = self._renewed, asyncio.Event()
        told.set()

    # ------------------------------------------------------------ what it tells
    def _answered(self, status: int) -> None:
        """What a server at a URL said last; one that wants to know who asks is asked no more."""
        self._refused = status if status in _REFUSED else 0
        if self._refused and self.settings.auth_kind != "oauth":  # a login answers it itself
            self._wake(self._no_entry())

    def _no_entry(self) -> Failed:
        oauth = self.settings.auth_kind == "oauth"
        message = "the login does not do" if oauth else "it wants to know who asks: set auth, or headers"
        return Failed(Failure("auth", str(self._refused), message), "auth_required")

    async def _hear(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self._changed()

    def _changed(self) -> None:
        self._heard += 1
        self._wake()

    async def _listen(self, client: Client) -> None:
        """Newer servers tell of changes to those who asked to hear them; older ones tell everybody."""
        tools = client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            return
        with suppress(Exception):  # without it the tools are those of the start
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._changed()

    # ------------------------------------------------------------ what it offers
    async def _take(self, listing: Listing, heard: int) -> None:
        """Offer those that say what they said before, and at once no others; then those that somebody agrees to."""
        approvals, pins = self._host.approvals, {name: tool.pin for name, tool in listing.offered.items()}
        names = tool_names(self.key, sorted(pins))
        changed = approvals.changed(self._fingerprint, pins, names)
        self._skipped = listing.skipped
        self._offer(listing, changed)
        self._listed = heard
        self._tell()
        for name in sorted(changed):
            if self._host.reapprove is not None and await self._host.reapprove(
                self.settings.name, listing.offered[name]
            ):
                approvals.accept(self._fingerprint, {name: pins[name]}, names)
                changed.discard(name)
                self._offer(listing, changed)

    def _offer(self, listing: Listing, changed: Collection[str]) -> None:
        self.offered = {name: tool for name, tool in listing.offered.items() if name not in changed}
        self.withheld = {name: tool for name, tool in listing.offered.items() if name in changed}

    def accept(self) -> None:
        """Somebody agreed to what the withheld tools say now."""
        pins = {name: tool.pin for name, tool in self.withheld.items()}
        self._host.approvals.accept(self._fingerprint, pins, self.names())
        self.offered, self.withheld = {**self.offered, **self.withheld}, {}

    # ------------------------------------------------------------ calls
    def client(self) -> Client:
        """The connection that is there; a ToolError that says why there is none."""
        if self._client is None or self._lost is not None:
            why = f": {self._failure.message}" if self._failure is not None else ""
            again = "; it is being started again" if self._state == "connecting" else ""
            raise ToolError(
                f"MCP server {self.settings.name} is {self._state}{why}{again}", reason="io_error", state=self._state
            )
        return self._client

    async def call(self, tool: Offered, arguments: Mapping[str, Any]) -> Any:
        """The result of one tool, as the SDK gives it."""
        self.client()  # why there is none is said at once
        inside = contextvars.copy_context()
        left = _PROGRESS_MAX

        async def told(progress: float, total: float | None, message: str | None) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                return
            part = progress / total if total and total > 0 else None
            inside.run(
                report, str(message or f"{progress:g}")[:200], None if part is None else min(max(part, 0.0), 1.0)
            )

        async def made() -> Any:
            await self._caught_up()
            client = self.client()
            self._still(tool)
            return await client.call_tool(tool.name, dict(arguments), _NO_LIMIT_S, progress_callback=told)

        return await self.ask(made())

    async def _caught_up(self) -> None:
        """Until the tools are known as they were when this was asked; those of later changes are the next call's."""
        heard = self._heard
        while self._listed < heard and self._client is not None and self._lost is None:
            await self._renewed.wait()

    def _still(self, tool: Offered) -> None:
        if tool.name in self.withheld:
            raise ToolError(
                f"{tool.name} of MCP server {self.settings.name} has changed what it says of itself",
                hint=f"look at it and agree: lyra mcp approve {self.settings.name}",
                reason="permission_denied",
            )
        now = self.offered.get(tool.name)
        if now is None or now.pin != tool.pin:
            raise ToolError(f"MCP server {self.settings.name} no longer offers {tool.name} so", reason="not_found")

    async def ask(self, work: Awaitable[Any]) -> Any:
        """Wait for an answer, no longer than the settings allow; what goes wrong is a ToolError."""
        name = self.settings.name
        try:
            async with self.askers.call(self.settings.timeout_s):
                return await work
        except TimeoutError:
            limit = f"{self.settings.timeout_s:g} s"
            raise ToolError(f"MCP server {name} did not answer within {limit}", reason="timeout") from None
        except (ToolError, ConfigError):
            raise
        except Exception as error:  # noqa: BLE001 - the SDK and a server may raise anything
            raise self._told(error) from None

    def _told(self, error: Exception) -> ToolError:
        failed = self._lost or failure_of(error)
        message, code = failed.failure.message, failed.failure.code
        if message == _CLOSED:
            self._wake(Failed(Failure("crash", code, "it forgot the session", recoverable=True)))
        said = self._cleaned(failed.failure).message
        return ToolError(f"MCP server {self.settings.name}: {said}", reason="io_error", mcp_code=code)
