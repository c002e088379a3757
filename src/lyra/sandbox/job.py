"""A running command. Only this module of Lyra starts subprocesses for commands.

A `Job` is started by `Sandbox.start` and ends by itself, by `kill`, or at its limit of time or output. It never
polls and owns no task: a process descriptor tells when the command has ended, pipes are read as they fill. The end is
always the same: every process of its group (and of its control group) is killed before the leader is reaped, so that
its process id cannot belong to another process yet, then the rest of the pipes is read, and everything that was made
for the run is removed. `wait` gives the `Result` as often as it is called.

`Pipes`, by `Sandbox.pipes`, is a job whose stdin and stdout the caller uses as streams; the beginning and the end of
its stderr are kept. It also ends when `close` has closed its stdin and the grace period is over. Output that it wrote
before can still be read.

The output of a command: its beginning and end in memory, all of it in a file when it is long.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final, Self

from lyra.core.clock import SystemClock
from lyra.errors import LyraError, SandboxUnavailable
from lyra.sandbox.cgroup import ControlGroup
from lyra.sandbox.pre_exec import PreExec
from lyra.sandbox.profile import Limits
from lyra.sandbox.protected import News


@dataclass(frozen=True, slots=True)
class Output:
    """The printed bytes: `head` and `tail` (empty when nothing was left out), how many there were, and where."""

    head: bytes
    tail: bytes = b""
    total_bytes: int = 0
    file: str | None = None

    @property
    def left_out_bytes(self) -> int:
        return self.total_bytes - len(self.head) - len(self.tail)

    @property
    def text(self) -> str:
        """The output as text for a person or a model, with a note where something was left out."""
        head = self.head.decode("utf-8", "replace")
        if not self.left_out_bytes:
            return head + self.tail.decode("utf-8", "replace")
        where = f"; all of it is in {self.file}" if self.file else " and lost"
        note = f"\n… {self.left_out_bytes} bytes left out{where} …\n"
        return head + note + self.tail.decode("utf-8", "replace")


class Capture:
    """Collects the output of one stream."""

    def __init__(
        self,
        *,
        kept_bytes: int,
        most_bytes: int,
        folder: str | None = None,
        has_file: bool = True,
        copy: str | None = None,
    ) -> None:
        self._half = max(1, kept_bytes // 2)
        self._most = most_bytes
        self._folder = folder
        self._held = bytearray()  # everything, until there is a file; then the tail
        self._head = b""
        self._file: BinaryIO | None = None
        self._name: str | None = None
        self._lost = not has_file  # no file: only head and tail are kept
        self._copy = None if copy is None else _new_file(copy)
        self.total_bytes = 0

    def feed(self, data: bytes) -> bool:
        """Take output; False when that exceeded `most_bytes` (the part that fits is kept)."""
        room = self._most - self.total_bytes
        fits = len(data) <= room
        if not fits:
            data = data[: max(0, room)]
        self.total_bytes += len(data)
        if self._copy is not None:
            # Write it to the copy; where that fails the copy ends there.
            assert self._copy is not None
            try:
                _write_all(self._copy, data)
            except OSError:
                with contextlib.suppress(OSError):
                    self._copy.close()
                self._copy = None
        self._held += data
        if self._head:
            self._write(data)
            if len(self._held) > 4 * self._half:
                del self._held[: -self._half]
        elif len(self._held) > 2 * self._half:
            self._spill()
        return fits

    def _spill(self) -> None:
        self._head = bytes(self._held[: self._half])
        try:
            if self._lost:
                return
            fd, self._name = tempfile.mkstemp(prefix="lyra-output-", suffix=".txt", dir=self._folder)
            self._file = os.fdopen(fd, "wb", buffering=0)
            self._write(self._held)
        except OSError:
            self._lose()
        finally:
            del self._held[: -self._half]

    def _write(self, data: bytes | bytearray) -> None:
        """Write all of it; where that fails the file is removed, because it would be incomplete."""
        if self._file is None:
            return
        try:
            _write_all(self._file, data)
        except OSError:
            self._lose()

    def _lose(self) -> None:
        self._lost = True
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
        with contextlib.suppress(OSError):
            if self._name is not None:
                os.unlink(self._name)
        self._file = self._name = None

    def since(self, start: int, *, most_bytes: int) -> bytes:
        """Return the bytes from `start` on, at most `most_bytes`, read from the file where memory no longer has
        them."""
        if self._lost:
            begin = self.total_bytes - len(self._held)  # only the end is kept
            return bytes(self._held[max(0, start - begin) :][:most_bytes])
        if self._name is None:
            return bytes(self._held[start : start + most_bytes])
        with open(self._name, "rb") as file:
            file.seek(start)
            return file.read(most_bytes)

    def now(self) -> Output:
        """Return the output so far."""
        if not self._head:
            return Output(bytes(self._held), b"", self.total_bytes)
        return Output(self._head, bytes(self._held[-self._half :]), self.total_bytes, self._name)

    def close(self) -> Output:
        output = self.now()
        for file in (self._file, self._copy):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        return output


def _new_file(path: str) -> BinaryIO | None:
    """Return a new file for its owner alone; None where there is one already, or it cannot be made."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        return os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)
    return None


def _write_all(file: BinaryIO, data: bytes | bytearray) -> None:
    with memoryview(data) as left:
        written = 0
        while written < len(left):
            written += file.write(left[written:])


_READ_BYTES: Final = 1 << 18
_AT_ONCE_MAX: Final = 5_000  # entries of a workspace that are searched after a command without a thread
_DRAIN_S: Final = 1.0  # to read the pipes after the end; only a process outside the group could still hold them open
_REMOVE_TRIES: Final = 50
_REMOVE_AFTER_S: Final = 0.01
_CHILD: Final = re.compile(rb'"child-pid": (\d+)[^\d]')
_log: Final = logging.getLogger("lyra.sandbox")
_SIGNALS: Final = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "file_size"}


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended. `exit_code` is 128 plus the signal's number when a signal ended it."""

    exit_code: int
    output: Output
    errors: Output  # empty unless stderr was captured apart
    tier: str
    holes: tuple[str, ...]
    limits_hit: tuple[str, ...]
    duration_s: float
    appeared: tuple[str, ...] = ()  # new protected paths
    set_aside: tuple[str, ...] = ()  # the new names of those that programs act on
    put_back: tuple[str, ...] = ()  # protected links that the command removed or changed, and that were restored
    reopened: tuple[str, ...] = ()  # folders whose permissions it removed, and that were opened again
    unread: tuple[str, ...] = ()  # folders that could not be searched before it; the command saw them empty
    egress: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.limits_hit


@dataclass(slots=True)
class LaunchPlan:
    """Everything that is needed to start a command: made by a tier, used once. `undo` runs at the end, last first."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    tier: str
    entry: PreExec | None = None  # None: a shell sets the limits before the command
    holes: tuple[str, ...] = ()
    pass_fds: tuple[int, ...] = ()
    group: ControlGroup | None = None
    info_fd: int | None = None  # where bubblewrap writes the pid of the first process inside
    verdict_fd: int | None = None  # where the reaper writes how the command ended, before it dies with the group
    started: list[Callable[[], None]] = field(default_factory=list)  # right after the fork
    undo: list[Callable[[], None]] = field(default_factory=list)
    news: Callable[[int | None], News] = lambda _most: News()  # what appeared; searches at most so many entries
    entries: int = 0  # of the workspace before the command
    copy: str | None = None  # a new file that gets all output as it comes
    egress: Callable[[], tuple[str, ...]] = tuple


def _open_end(pid: int) -> int:
    """Return a descriptor that is readable once a process has ended; the process is not reaped. Where the system has no
    descriptors of processes (macOS), a thread waits for the end."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(pid)
    readable, told = os.pipe()
    system: Any = select  # what it has depends on the system

    def wait() -> None:
        with contextlib.suppress(OSError):  # it has ended already
            if hasattr(system, "kqueue"):
                event = system.kevent(pid, system.KQ_FILTER_PROC, system.KQ_EV_ADD, system.KQ_NOTE_EXIT)
                system.kqueue().control([event], 1)
            else:
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.close(told)

    threading.Thread(target=wait, name="lyra-job-end", daemon=True).start()
    return readable


class Job:
    """A handle on a running command."""

    def __init__(
        self, plan: LaunchPlan, limits: Limits, *, stdin: bytes | None, timeout_s: float, apart: bool, spill: str | None
    ) -> None:
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock()
        self._done: asyncio.Future[Result] = self._loop.create_future()
        self._hits: set[str] = set()
        self._ended = False
        self._began = self._clock.monotonic()
        self._process = self._start(stdin, apart=apart)
        self._captures = {
            pipe.fileno(): self._capture(limits, spill, plan.copy if pipe is self._process.stdout else None)
            for pipe in (self._process.stdout, self._process.stderr)
            if pipe is not None
        }
        self._all = list(self._captures.values())
        self._stdin = memoryview(stdin or b"")
        self._watch()
        self._timer = self._loop.call_later(timeout_s, self._hit, "wall")
        self._drain: asyncio.TimerHandle | None = None

    def _capture(self, limits: Limits, spill: str | None, copy: str | None) -> Capture:
        return Capture(kept_bytes=limits.output_kept_bytes, most_bytes=limits.output_bytes, folder=spill, copy=copy)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return not self._done.done()

    @property
    def output(self) -> Output:
        """The output so far."""
        return self._all[0].now()

    def since(self, start: int, *, most_bytes: int) -> bytes:
        """Return the output from that byte on, at most `most_bytes` of it."""
        return self._all[0].since(start, most_bytes=most_bytes)

    @property
    def done(self) -> asyncio.Future[Result]:
        """The future of the result, set when everything has ended; do not cancel it."""
        return self._done

    async def wait(self) -> Result:
        return await asyncio.shield(self._done)

    def kill(self) -> None:
        """Kill the command and everything it started; `wait` returns when that is done."""
        if not self._ended:
            self._kill_all()

    async def end(self) -> Result:
        """Kill it and wait until everything is gone, also where the caller is cancelled again meanwhile."""
        self.kill()
        while not self._done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._done])
        return self._done.result()

    # ------------------------------------------------------------ starting
    def _start(self, stdin: bytes | None, *, apart: bool) -> subprocess.Popen[bytes]:
        plan = self._plan
        try:
            return subprocess.Popen(  # noqa: S603 - argv is a list, and no shell reads it
                list(plan.argv),
                executable=plan.argv[0],
                env=dict(plan.env),
                cwd=plan.cwd,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if apart else subprocess.STDOUT,
                close_fds=True,
                pass_fds=plan.pass_fds,
                bufsize=0,
                start_new_session=plan.entry is None,
                preexec_fn=plan.entry,  # noqa: PLW1509 - it only makes system calls that were prepared before
            )
        except (OSError, subprocess.SubprocessError) as error:
            self._undo()
            if plan.group is not None:
                plan.group.remove()
            for fd in (plan.info_fd, plan.verdict_fd):
                if fd is not None:
                    os.close(fd)
            raise SandboxUnavailable(
                f"the command could not be started in the sandbox: {error}", tier=plan.tier, hint="see `lyra doctor`"
            ) from None
        finally:
            for step in plan.started:
                step()

    def _watch(self) -> None:
        self._inner: int | None = None
        self._told = b""
        if self._plan.info_fd is not None:
            os.set_blocking(self._plan.info_fd, False)
            self._loop.add_reader(self._plan.info_fd, self._learn_inner)
        self._pidfd = _open_end(self._process.pid)
        self._loop.add_reader(self._pidfd, self._over)
        for fd in self._captures:
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._read, fd)
        if self._process.stdin is not None:
            fd = self._process.stdin.fileno()
            os.set_blocking(fd, False)
            self._loop.add_writer(fd, self._write, fd)

    def _learn_inner(self) -> None:
        """Read the pid of the first process inside, which ends only after all others inside have ended."""
        fd = self._plan.info_fd
        if fd is None:
            return
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(fd, 4096)
            self._told += data
            match = _CHILD.search(self._told)
            if match and self._inner is None and not self._ended:
                self._inner = os.pidfd_open(int(match[1]))
        if not data or self._inner is not None:
            self._loop.remove_reader(fd)  # it stays open: bubblewrap writes to it in pieces

    # ------------------------------------------------------------ pipes
    def _read(self, fd: int) -> None:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(fd)
        elif not self._captures[fd].feed(data):
            self._close(fd)
            self._hit("output")

    def _close(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        self._captures.pop(fd, None)
        if self._ended and self._inner is None and not self._captures:
            self._finish()

    def _write(self, fd: int) -> None:
        try:
            self._stdin = self._stdin[os.write(fd, self._stdin[:65_536]) :]
        except BlockingIOError:
            return
        except OSError:
            self._stdin = self._stdin[:0]  # the command has closed its stdin
        if not self._stdin:
            self._close_stdin()

    def _close_stdin(self) -> None:
        pipe = self._process.stdin
        if pipe is not None and not pipe.closed:
            self._loop.remove_writer(pipe.fileno())
            with contextlib.suppress(OSError):
                pipe.close()

    # ------------------------------------------------------------ ending
    def _hit(self, limit: str) -> None:
        if not self._ended:
            self._hits.add(limit)
            self._kill_all()

    def _kill_all(self) -> None:
        """Kill everything in the group: the leader is not reaped yet, so the group id is still its own."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._plan.group is not None:
            self._plan.group.kill()

    def _over(self) -> None:
        """Called when the leader has ended: kill the rest, reap the leader and read the rest of the output."""
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._kill_all()
        if self._inner is None:
            self._learn_inner()
        fd, self._plan.info_fd = self._plan.info_fd, None
        if fd is not None:
            self._loop.remove_reader(fd)
            os.close(fd)
        self._process.wait()
        self._code = self._verdict()
        self._ended = True
        self._timer.cancel()
        self._close_stdin()
        if self._inner is None:
            self._rest()
        else:
            self._loop.add_reader(self._inner, self._rest)
            self._drain = self._loop.call_later(_DRAIN_S, self._rest)

    def _verdict(self) -> int:
        """Return the exit code that the reaper wrote; without one, that of the leader."""
        fd, self._plan.verdict_fd = self._plan.verdict_fd, None
        told = b""
        if fd is not None:
            os.set_blocking(fd, False)
            with contextlib.suppress(BlockingIOError):
                told = os.read(fd, 16)
            os.close(fd)
        code = int(told or self._process.returncode)
        return code if code >= 0 else 128 - code

    def _rest(self) -> None:
        """Read the rest of the pipes, once no process is left."""
        if self._drain is not None:
            self._drain.cancel()
        if self._inner is not None:
            self._loop.remove_reader(self._inner)
            os.close(self._inner)
            self._inner = None
        if self._captures:
            self._drain = self._loop.call_later(_DRAIN_S, self._give_up)
        else:
            self._finish()

    def _give_up(self) -> None:
        for fd in list(self._captures):
            self._loop.remove_reader(fd)
        self._captures.clear()
        self._finish()

    def _finish(self) -> None:
        if self._drain is not None:
            self._drain.cancel()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        news = self._news(_AT_ONCE_MAX) if self._plan.entries <= _AT_ONCE_MAX else None
        if news is not None and news.complete:
            self._tell(news)
        else:
            asked = self._loop.run_in_executor(None, self._news, None)
            asked.add_done_callback(lambda asked: self._tell(asked.result()))

    def _news(self, most: int | None) -> News:
        try:
            return self._plan.news(most)
        except (OSError, LyraError) as error:  # the workspace may be gone; the job ends nevertheless
            _log.warning("the workspace of a command could not be looked through afterwards: %s", error)
        except Exception:  # noqa: BLE001 - the command has ended, and its caller is told of it whatever is found
            _log.exception("the workspace of a command could not be looked through afterwards")
        return News(complete=False)

    def _tell(self, news: News) -> None:
        outputs = [capture.close() for capture in self._all]
        plan, code = self._plan, self._code
        if code > 128 and code - 128 in _SIGNALS:
            self._hits.add(_SIGNALS[signal.Signals(code - 128)])
        if plan.group is not None:
            self._hits |= plan.group.hits()
        if not news.complete:
            self._hits.add("search")
        result = Result(
            exit_code=code,
            output=outputs[0],
            errors=outputs[1] if len(outputs) > 1 else Output(b""),
            tier=plan.tier,
            holes=plan.holes,
            limits_hit=tuple(sorted(self._hits)),
            duration_s=self._clock.monotonic() - self._began,
            appeared=news.appeared,
            set_aside=news.set_aside,
            put_back=news.put_back,
            reopened=news.reopened,
            unread=news.unread,
            egress=plan.egress(),
        )
        self._undo()
        self._remove_group(result, _REMOVE_TRIES)

    def _undo(self) -> None:
        while self._plan.undo:
            self._plan.undo.pop()()

    def _remove_group(self, result: Result, tries: int) -> None:
        """Set the result once the last process, and with it the control group, is gone."""
        group = self._plan.group
        if group is not None and not group.remove() and tries:
            group.kill()
            self._loop.call_later(_REMOVE_AFTER_S, self._remove_group, result, tries - 1)
        elif not self._done.done():
            self._done.set_result(result)


class Pipes(Job):
    """`reader` gives what the command writes on stdout, `writer` takes what it reads on stdin."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _transports: tuple[Any, Any]

    @classmethod
    async def open(cls, plan: LaunchPlan, limits: Limits, *, line_bytes_max: int) -> Self:
        """Start the command. A line of its stdout that is longer than `line_bytes_max` cannot be read as a line."""
        pipes = cls(plan, limits, stdin=None, timeout_s=limits.wall_s, apart=True, spill=None)
        try:
            await pipes._connect(line_bytes_max)
        except BaseException:
            pipes.kill()
            raise
        return pipes

    async def _connect(self, line_bytes_max: int) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=line_bytes_max, loop=loop)
        protocol = asyncio.StreamReaderProtocol(self.reader, loop=loop)
        reading, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(self._reading, "rb", 0))
        writing, flow = await loop.connect_write_pipe(_Flow, os.fdopen(self._writing, "wb", 0))
        self.writer = asyncio.StreamWriter(writing, flow, None, loop)
        self._transports = (reading, writing)

    async def close(self, grace_s: float = 1.0) -> Result:
        """Close its stdin, wait up to `grace_s` for it to end, then kill it. A caller that is cancelled meanwhile is
        held until the command is gone: its protection of the workspace ends with it."""
        self._transports[1].close()
        try:
            async with asyncio.timeout(grace_s):
                await self.wait()
        except TimeoutError:
            pass
        finally:
            result = await self.end()
            self._transports[0].close()
        return result

    def _capture(self, limits: Limits, spill: str | None, copy: str | None) -> Capture:
        """Return a capture of stderr without a file and without a limit: only its beginning and end are kept."""
        del spill, copy
        return Capture(kept_bytes=limits.output_kept_bytes, most_bytes=sys.maxsize, has_file=False)

    def _start(self, stdin: bytes | None, *, apart: bool) -> Any:
        """Return the two pipes are taken from the process before the `Job` would read and write them itself."""
        process = super()._start(stdin or b"-", apart=apart)
        assert process.stdin is not None
        assert process.stdout is not None
        self._reading, self._writing = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdin.close()
        process.stdout.close()
        process.stdin = process.stdout = None
        return process


class _Flow(asyncio.streams.FlowControlMixin):
    """Flow control of the writer: when more may be written, and when the pipe is closed."""

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)  # type: ignore[arg-type]
        if not self._gone.done():
            self._gone.set_result(None)

    def _get_close_waiter(self, _stream: asyncio.StreamWriter) -> asyncio.Future[None]:
        return self._gone
