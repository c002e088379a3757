"""A server that is a program: started in the sandbox, spoken to line by line over its stdin and stdout.

`stdio` yields the two streams that the SDK's client reads and writes. A few lines that are not messages are skipped; a
line that is too long, or the end of the program, ends the connection, and every waiting call fails at once. A program
with too many open callbacks, or one that does not read its input, is killed. When the connection is closed the
program's stdin is closed first, then everything it started is killed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from lyra.core.rights.capability import Capability, Grant
from lyra.mcp.client.callback_limits import CallbackLimits
from lyra.mcp.client.trim import AnswerTooLarge, check_values, shorten
from lyra.mcp.settings import ServerSettings
from lyra.mcp.state import Failure, ServerFailed
from lyra.sandbox import Limits, Pipes, Profile, Sandbox

LINE_BYTES_MAX: Final = 32 << 20  # one message; an image of 20 MiB is one
_SENDING_S: Final = 5.0  # for a program to read one message
_GARBAGE_LINES_MAX: Final = 100  # lines of a program that are not messages
_GRACE_S: Final = 1.0  # for a program to end by itself
_LAST_WORDS_S: Final = 0.2  # as _GRACE_S, after it has closed its stdout
_ID_WITHIN_BYTES: Final = 1_000
_ID: Final = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})\b|"([!#-\[\]-~]{1,200})")')
_LIFE_S: Final = 365 * 24 * 3600.0  # a server has no time limit
_CPU_S: Final = 24 * 3600
_NOT_FOUND: Final = (126, 127)

Ended = Callable[[ServerFailed], None]


def profile_of(settings: ServerSettings, workspace: str, denied: Sequence[Capability] = ()) -> Profile:
    """What the program may touch: the project read-only, what the settings open, and no network unless they name it.

    Paths that rules deny (`denied`) are closed to it as to any command.
    """
    hosts = [f"net.http:{host}" for host in settings.network]
    inside = [path for path in settings.writable if path == workspace]
    return Profile(
        workspace,
        writable=bool(inside),
        readable=settings.readable,
        writable_also=tuple(path for path in settings.writable if path != workspace),
        env={name: value.reveal() for name, value in settings.env.items()},
        egress=Grant(allow=hosts) if hosts else None,
        limits=Limits(wall_s=_LIFE_S, cpu_s=_CPU_S),
        start=settings.start_folder(workspace) if settings.cwd else "",
        grant=Grant(["*"], denied) if denied else None,
    )


@asynccontextmanager
async def stdio(
    settings: ServerSettings, *, sandbox: Sandbox, workspace: str, ended: Ended, denied: Sequence[Capability] = ()
) -> AsyncIterator[Any]:
    """The streams of a running program; `ended` is called with the reason when it ends."""
    profile = profile_of(settings, workspace, denied)
    pipes = await sandbox.pipes(settings.argv, profile, line_bytes_max=LINE_BYTES_MAX)
    inward, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    sent, outward = anyio.create_memory_object_stream[SessionMessage](0)
    ours = asyncio.Event()  # Lyra closes the connection

    def told(why: ServerFailed) -> None:
        if not ours.is_set():
            ended(why)

    limits = CallbackLimits(lambda: outward.statistics().tasks_waiting_send)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_reading, pipes, inward, told, limits)
            group.start_soon(_writing, pipes, outward, told, limits)
            try:
                yield received, sent
            finally:
                ours.set()
                with anyio.CancelScope(shield=True):
                    received.close()
                    sent.close()
                    await pipes.close(_GRACE_S)
                group.cancel_scope.cancel()
    finally:
        pipes.kill()
        for stream in (inward, received, sent, outward):
            stream.close()


async def _reading(pipes: Pipes, inward: Any, ended: Ended, limits: CallbackLimits) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # Lyra has closed the connection
        async with inward:
            why = await _read(pipes, inward, limits)
            if why is not None:
                pipes.kill()
            ended(why or await _death(pipes))  # before waiting calls fail, so that they get the reason


async def _read(pipes: Pipes, inward: Any, limits: CallbackLimits) -> ServerFailed | None:
    """Read messages until stdout ends; returns the failure if a message breaks a limit."""
    garbage = 0
    while True:
        try:
            line = await pipes.reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return None
        except asyncio.LimitOverrunError:
            message = f"it sent a message of more than {LINE_BYTES_MAX >> 20} MiB"
            return ServerFailed(Failure("protocol", "too_large", message, recoverable=True))
        if not line.strip():
            continue
        try:
            message_in = await _message(line)
        except ValueError:
            garbage += 1
            if garbage > _GARBAGE_LINES_MAX:
                return ServerFailed(Failure("protocol", "garbage", "it prints what is no MCP message on its stdout"))
            message_in = _unread(line)
            if message_in is None:
                continue
        why = limits.heard(message_in)
        if why is not None:
            return why
        if isinstance(message_in, JSONRPCResponse):
            shorten(message_in.result)
        await inward.send(SessionMessage(message_in))


async def _message(line: bytes) -> Any:
    """One message; an answer that would take the loop seconds to read becomes an error of its call."""
    try:
        await check_values(line)
    except AnswerTooLarge as error:
        number = _id_of(line)
        if number is None:
            raise
        return _error(number, f"it sent {error}")
    return jsonrpc_message_adapter.validate_json(line, by_name=False)


def _id_of(line: bytes) -> int | str | None:
    """The id of an answer that is not parsed: it stands before the result, or at the end of the line."""
    for part in (line[:_ID_WITHIN_BYTES], line[-_ID_WITHIN_BYTES:]):
        match = _ID.search(part)
        if match is not None:
            return int(match[1]) if match[1] else match[2].decode()
    return None


def _unread(line: bytes) -> JSONRPCError | None:
    """The error for the call of an answer that cannot be read, for example with half a surrogate pair."""
    head = line[:_ID_WITHIN_BYTES]
    number = _id_of(line) if b'"jsonrpc"' in head and b'"method"' not in head else None
    return _error(number, "its answer cannot be read") if number is not None else None


def _error(number: int | str, text: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=INTERNAL_ERROR, message=text))


async def _death(pipes: Pipes) -> ServerFailed:
    """The failure after stdout has ended: the program has ended, or will be killed."""
    result = await pipes.close(_LAST_WORDS_S)
    lines = result.output.text.strip().splitlines()
    last = f": {lines[-1][:200]}" if lines else ""
    if result.exit_code in _NOT_FOUND:
        message = f"the command cannot be run inside the sandbox{last}; name its folder in `readable`"
        return ServerFailed(Failure("exec", str(result.exit_code), message))
    limits = f" ({', '.join(result.limits_hit)})" if result.limits_hit else ""
    return ServerFailed(
        Failure("crash", str(result.exit_code), f"it ended with {result.exit_code}{limits}{last}", True)
    )


async def _writing(pipes: Pipes, outward: Any, ended: Ended, limits: CallbackLimits) -> None:
    try:
        async with outward:
            async for message in outward:
                limits.answered(message.message)
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                pipes.writer.write(text.encode() + b"\n")
                async with asyncio.timeout(_SENDING_S):
                    await pipes.writer.drain()
    except TimeoutError:
        ended(ServerFailed(Failure("protocol", "not_reading", "it does not read what is sent to it", recoverable=True)))
        pipes.kill()  # its stdout ends with it, and so waiting calls fail
    except OSError:
        with suppress(TimeoutError):
            await asyncio.wait_for(pipes.wait(), _LAST_WORDS_S)
            return  # it has ended; the reader of its stdout reports that
        ended(ServerFailed(Failure("protocol", "closed", "it has closed its stdin", recoverable=True)))
        pipes.kill()
