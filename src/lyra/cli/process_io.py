"""The standard streams, Ctrl-C and the garbage collector of a command that runs an event loop.

`stdin_lines` reads lines in a thread, so that waiting blocks neither the event loop nor the end of the run. The thread
is a daemon: it may wait in `os.read` when the interpreter ends. It never touches `sys.stdin`, whose lock the
interpreter takes at its end. `StdoutThread` writes lines in a thread, so that a slow reader of the pipe does not block
the loop. `serve_editor` joins both to a connection to an editor. `run_with_ctrl_c` is `asyncio.run` with a Ctrl-C that
is noticed in the middle of a long step; `on_stop_signal` is for what runs until it is told to stop. `CollectorPause`
rests the garbage collector while a session is opened.
"""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from lyra.cli.render import note
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.agents.acp.editor_agent import EditorSessions

LINE_BYTES_MAX: Final = 10 * 1024 * 1024
_PENDING_MAX: Final = 100
_READ_BYTES: Final = 65_536


async def stdin_lines(fd: int = 0, *, cut_to_bytes: int | None = None) -> AsyncIterator[bytes]:
    """Yield every line, without its end, as it comes. With `cut_to_bytes` a line may be that long, and of a longer one
    come its first `cut_to_bytes + 1` bytes."""
    lines: asyncio.Queue[bytes | ConfigError | None] = asyncio.Queue()
    room = threading.Semaphore(_PENDING_MAX)
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(RuntimeError):  # The loop is closed: the command is over.
            try:
                for line in _lines_of(fd, cut_to_bytes):
                    room.acquire()
                    loop.call_soon_threadsafe(lines.put_nowait, line)
                loop.call_soon_threadsafe(lines.put_nowait, None)
            except ConfigError as error:
                loop.call_soon_threadsafe(lines.put_nowait, error)

    threading.Thread(target=read, name="lyra-stdin", daemon=True).start()
    while True:
        line = await lines.get()
        if line is None:
            return
        if isinstance(line, ConfigError):
            raise line
        room.release()
        yield line


def _lines_of(fd: int, cut_to_bytes: int | None) -> Iterator[bytes]:
    """Yield the lines of a descriptor; the last one may have no end."""
    buffer = bytearray()  # the line that has begun
    while True:
        try:
            data = os.read(fd, _READ_BYTES)
        except OSError as error:
            raise ConfigError(f"stdin cannot be read: {error.strerror}", key="stdin") from None
        *ends, rest = data.split(b"\n")
        for end in ends:
            _extend(buffer, end, cut_to_bytes)
            yield bytes(buffer).rstrip(b"\r")
            buffer.clear()
        _extend(buffer, rest, cut_to_bytes)
        if not data:
            if buffer:
                yield bytes(buffer)
            return


def _extend(buffer: bytearray, data: bytes, cut_to_bytes: int | None) -> None:
    if cut_to_bytes is not None:
        buffer += data[: max(0, cut_to_bytes + 1 - len(buffer))]
        return
    buffer += data
    if len(buffer) > LINE_BYTES_MAX:
        raise ConfigError(f"a line on stdin is longer than {LINE_BYTES_MAX} bytes", key="stdin")


_PENDING_BYTES_MAX: Final = 1 << 20


class StdoutThread:
    """Writes lines to one file descriptor, in the order in which they were put.

    After the reader has closed the pipe, the next `put` or `drain` raises the OSError. Lines that are not written when
    the interpreter ends are lost, so a caller that needs them calls `drain` first."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._pending_bytes = 0
        self._progress = asyncio.Event()
        self._error: OSError | None = None
        threading.Thread(target=self._write, name="lyra-stdout", daemon=True).start()

    async def put(self, line: bytes) -> None:
        """Queue a line for writing; wait while too many bytes are pending."""
        self._pending_bytes += len(line)
        self._lines.put(line)
        await self._wait_until_pending(_PENDING_BYTES_MAX)

    async def drain(self) -> None:
        """Wait until all lines are written."""
        await self._wait_until_pending(0)

    async def _wait_until_pending(self, pending_bytes_max: int) -> None:
        while self._pending_bytes > pending_bytes_max and self._error is None:
            self._progress.clear()
            await self._progress.wait()
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        with suppress(RuntimeError):  # The loop is closed: the command is over and ignores what is still pending.
            while True:
                line = self._lines.get()
                try:
                    unwritten = memoryview(line)
                    while unwritten:
                        unwritten = unwritten[os.write(self._fd, unwritten) :]
                except OSError as error:
                    self._loop.call_soon_threadsafe(self._line_written, len(line), error)
                    return
                self._loop.call_soon_threadsafe(self._line_written, len(line))

    def _line_written(self, size_bytes: int, error: OSError | None = None) -> None:
        self._pending_bytes -= size_bytes
        self._error = error
        self._progress.set()


def check_editor(command: str) -> None:
    """Refuse where the protocol cannot be spoken, and tell a person who started the command by hand."""
    try:
        import acp as _protocol  # noqa: F401
    except ModuleNotFoundError as missing:
        raise ConfigError(
            "the Agent Client Protocol needs a package that is not installed",
            hint="pip install 'lyra-agents[acp]'",
            key="acp",
        ) from missing
    if sys.stdin is None or sys.stdout is None:
        raise ConfigError("stdin or stdout is closed: an editor speaks on them", key="acp")
    if sys.stdin.isatty():
        note(f"{command} is started by an editor, and waits for its JSON lines; Ctrl-D ends it")


async def serve_editor(sessions: EditorSessions) -> None:
    """Serve sessions to the editor until it closes stdin; they are closed at the end."""
    from acp import run_agent

    from lyra.agents.acp.editor_agent import EditorAgent
    from lyra.agents.acp.json_rpc_lines import LINE_BYTES_MAX, JsonRpcLines

    agent = EditorAgent(sessions)
    lines = stdin_lines(sys.stdin.fileno(), cut_to_bytes=LINE_BYTES_MAX)
    try:
        # A descriptor of stdout for the protocol alone; what others write to stdout goes to stderr.
        sys.stdout.flush()
        descriptor = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        await run_agent(agent, JsonRpcLines(lines, StdoutThread(descriptor)), use_unstable_protocol=True)
    finally:
        await agent.close()


PATIENCE_S: Final = 1.0


def run_with_ctrl_c(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine as `asyncio.run` does; where the loop has no turn for a while after a Ctrl-C, interrupt it again.

    The first Ctrl-C only cancels the main task, which needs a turn of the loop for that; the second ends whatever is
    going on."""
    heard = _with_second_ctrl_c(work)
    try:
        return asyncio.run(heard)
    finally:  # a Ctrl-C before the loop started leaves both unstarted
        heard.close()
        work.close()


async def _with_second_ctrl_c(work: Coroutine[Any, Any, Any]) -> Any:
    usual = signal.getsignal(signal.SIGINT)
    main, loop = threading.main_thread(), asyncio.get_running_loop()
    if threading.current_thread() is not main or not callable(usual):
        return await work

    def again_unless(heard: threading.Event, number: int) -> None:
        if not heard.wait(PATIENCE_S) and main.ident is not None:
            signal.pthread_kill(main.ident, number)

    def came(number: int, frame: Any) -> None:
        heard = threading.Event()
        loop.call_soon_threadsafe(heard.set)
        threading.Thread(target=again_unless, args=(heard, number), daemon=True).start()
        usual(number, frame)

    signal.signal(signal.SIGINT, came)
    try:
        return await work
    finally:
        signal.signal(signal.SIGINT, usual)


def on_stop_signal(stop: Callable[[], None]) -> None:
    """Call `stop` at the first SIGINT or SIGTERM; a second one ends the program at once. Ends with the running loop."""
    loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def stop_once() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
        stop()

    for number in numbers:
        loop.add_signal_handler(number, stop_once)


class CollectorPause:
    """From the start of the block to `end`, or to the end of the block. A collector that was off stays off."""

    def __init__(self) -> None:
        self._was_enabled = False

    def __enter__(self) -> Self:
        self._was_enabled = gc.isenabled()
        gc.disable()
        return self

    def end(self) -> None:
        """Collect what comes from now on: the session is open."""
        if self._was_enabled and not gc.isenabled():
            gc.freeze()
            gc.enable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._was_enabled:
            gc.unfreeze()
            gc.enable()
