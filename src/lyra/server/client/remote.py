"""A kernel in another program: its methods over gRPC, with the kernel's values and errors.

    async with lyra.connect("127.0.0.1:8420", user_id="ada") as kernel:
        process = await kernel.submit("job-1")
        async for event in kernel.execute_pipeline(config, "the input"):
            print(event.type, event.stage)

Every row of `calls.CALLS` is a method; all are awaited, and streams are iterated. `within(seconds)` gives the same
connection with another deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from lyra.errors import ConfigError
from lyra.server.client.calls import CALLS, RemoteCall
from lyra.server.client.connection import ConnectionSettings, ServerConnection, TlsChoice

__all__ = ["RemoteKernel", "connect"]


def connect(
    address: str,
    *,
    token: str | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
    tls: TlsChoice = None,
    plaintext: bool = False,
    **limits: float | None,
) -> RemoteKernel:
    """A connection to the server at HOST:PORT; an async context manager.

    Without a token the variable LYRA_TOKEN or the user's own token file has it. `tls` is True for the authorities of
    the system, the file of one, or a mapping of files `ca`, `cert`, `key`. `timeout_s` bounds each call, `reconnect_s`
    how long a call that may be repeated waits for a server that cannot be reached.
    """
    unknown = [name for name in limits if name not in ("timeout_s", "reconnect_s")]
    if unknown:
        raise ConfigError(f"connect has no option {unknown[0]!r}", hint="timeout_s, reconnect_s", key=unknown[0])
    return RemoteKernel(
        ServerConnection(
            ConnectionSettings.of(
                address,
                token=token,
                user_id=user_id or "",
                session_id=session_id or "",
                tls=tls,
                plaintext=plaintext,
                **limits,
            )
        )
    )


class RemoteKernel:
    """See the module."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection

    async def __aenter__(self) -> RemoteKernel:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls in flight are cancelled."""
        await self.connection.close()

    def within(self, timeout_s: float | None) -> RemoteKernel:
        """The same connection; each call has this deadline (None: no deadline)."""
        return RemoteKernel(self.connection.with_timeout(timeout_s))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...


def _method(name: str, call: RemoteCall) -> Callable[..., Any]:
    """The method of one row."""
    from lyra.server.client.wire import answer_class, message_of, request_class, value_of

    async def ask(self: RemoteKernel, *args: Any, **options: Any) -> Any:
        request = message_of(request_class(call.rpc).DESCRIPTOR, call.request_fields(args, options))
        try:
            answer = await self.connection.call(
                call.rpc, request, answer_class(call.rpc), may_repeat=call.may_repeat, is_long=call.is_long
            )
        except Exception as error:
            if call.none_for is not None and isinstance(error, call.none_for):
                return None
            raise
        return call.value_in(value_of(answer))

    async def read(self: RemoteKernel, *args: Any, **options: Any) -> AsyncIterator[Any]:
        request = message_of(request_class(call.rpc).DESCRIPTOR, call.request_fields(args, options))
        async for answer in self.connection.stream(call.rpc, request, answer_class(call.rpc)):
            yield value_of(answer)

    method = read if call.is_stream else ask
    method.__name__ = name
    method.__qualname__ = f"RemoteKernel.{name}"
    method.__doc__ = f"`Kernel.{name}` over gRPC ({call.rpc})."
    return method


class _Lazy:
    """A method that is made at its first use: the messages are not imported before."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: RemoteKernel | None, owner: type[RemoteKernel]) -> Any:
        method = _method(self._name, CALLS[self._name])
        setattr(owner, self._name, method)
        return getattr(owner if instance is None else instance, self._name)


for _name in CALLS:
    setattr(RemoteKernel, _name, _Lazy(_name))
