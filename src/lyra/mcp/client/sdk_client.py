"""Makes the SDK's client for one server, with the automatic behaviour of the SDK that Lyra does not want turned off.

`open_client` gives a client that is not connected yet; entering it starts the program or makes the first request. This
is the one place that imports the SDK, so that a program without servers does not load it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lyra._version import __version__
from lyra.errors import ConfigError
from lyra.mcp.client.callback_routes import CallbackRoutes
from lyra.mcp.client.shared import SharedContext
from lyra.mcp.settings import ServerSettings
from lyra.mcp.state import ServerFailed

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.session import MessageHandlerFnT


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
        await asyncio.get_running_loop().run_in_executor(None, import_module, "lyra.mcp.client.sdk")
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise ConfigError("MCP servers need the mcp extra", hint="pip install 'lyra-agents[mcp]'") from None
    from lyra.mcp.client import sdk

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
    from lyra.mcp.client import sdk

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


def unchecked(client: Client) -> Client:
    """Turn off the SDK's check of results against the server's schema: one of its patterns may take for ever."""

    async def no_check(name: str, result: Any) -> None:
        del name, result

    setattr(client.session, "validate_tool_result", no_check)  # noqa: B010 - a method, for this session alone
    return client
