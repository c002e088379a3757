"""Starts commands as processes forked from an interpreter that has already imported what they need.

Most of the CPU time of a short command is the import of its modules. `run` asks a server process, one for all
workers of the tests, to fork for each command. A command is a process of its own, with its own pid, folder,
environment, standard streams and exit code. At its end it tells the server which modules of Lyra and of installed
packages it imported; the server imports them before the next fork, and they are all that commands share. What a file
imports at its top is imported before its first fork: one that is killed tells nothing.
Tests of the start of an interpreter start a fresh one instead, and with `LYRA_TESTS_FRESH=1` in the environment every
command does.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import gc
import importlib
import importlib.util
import io
import json
import os
import runpy
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests import warm_client
from tests.source import PYTHONPATH, SOURCE
from tests.warm_client import call, exit_code

FRESH = "LYRA_TESTS_FRESH"
_ROOT = Path(__file__).parents[1]
_IMPORTED_FROM = (str(SOURCE), sys.prefix, sys.base_prefix)


def fresh(target: str) -> list[str]:
    """The command that calls `module:function`, or runs a file, in a fresh interpreter."""
    if target.endswith(".py"):
        return [sys.executable, target]
    module, function = target.split(":")
    return [sys.executable, "-c", f"import sys; from {module} import {function}; sys.exit({function}())"]


def command(target: str) -> list[str]:
    """The same for a program that starts commands by itself; its end ends the forked process."""
    if os.environ.get(FRESH) == "1":
        return fresh(target)
    return [sys.executable, "-IS", warm_client.__file__, place(), target]


def run(
    target: str,
    args: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    given: str | None = None,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Call `module:function`, or run a file, to its end. `given` is its standard input; None: there is none."""
    if os.environ.get(FRESH) == "1":
        stdin: dict[str, Any] = {"stdin": subprocess.DEVNULL} if given is None else {"input": given}
        return subprocess.run(
            [*fresh(target), *args],
            cwd=cwd,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            **stdin,
        )
    request = _request(target, args, cwd, env)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, contextlib.ExitStack() as stack:
        stdin_fd = os.open(os.devnull, os.O_RDONLY)
        if given is not None:
            os.close(stdin_fd)
            stdin_fd, feed = os.pipe()
            threading.Thread(target=_feed, args=(feed, given.encode()), daemon=True).start()
        stack.callback(os.close, stdin_fd)
        connection = call(place(), request, [stdin_fd, out.fileno(), err.fileno()])
        connection.settimeout(timeout_s)
        try:
            code = exit_code(connection)  # a connection that is closed early kills the process
        except TimeoutError:
            raise subprocess.TimeoutExpired([target, *args], timeout_s) from None
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess([target, *args], code, *texts)


class Process:
    """A command that goes on beside the test; used as a `subprocess.Popen`, and started by `start`."""

    def __init__(self, request: dict[str, Any], stdout: Any, stderr: Any) -> None:
        self.returncode: int | None = None
        self._reading = threading.Lock()
        self.stdout, out = _output(stdout, 1)
        self.stderr, err = _output(stderr, 2)
        with open(os.devnull) as nothing:
            self._connection = call(place(), request, [nothing.fileno(), out, err])
        for fd in {out, err} - {1, 2}:
            os.close(fd)
        line = b""
        while not line.endswith(b"\n"):
            line += self._connection.recv(1)
        self.pid = int(line)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._reading.acquire(timeout=-1 if timeout is None else timeout):  # another thread waits for it
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        try:
            if self.returncode is None:
                if not select.select([self._connection], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
                with self._connection, self._connection.makefile() as answer:
                    self.returncode = int(answer.read())
            return self.returncode
        finally:
            self._reading.release()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self) -> tuple[bytes, bytes]:
        """What it writes until its end; of two pipes one after the other, so that neither may hold much."""
        texts = [b"", b""]
        for at, pipe in enumerate((self.stdout, self.stderr)):
            if pipe is not None:
                with pipe:
                    texts[at] = pipe.read()
        self.wait()
        return texts[0], texts[1]


def _output(given: Any, standard: int) -> tuple[Any, int]:
    """The end of a pipe to read, if one is wanted, and the stream for the process."""
    if given == subprocess.PIPE:
        reading, writing = os.pipe()
        return open(reading, "rb"), writing
    if given == subprocess.DEVNULL:
        return None, os.open(os.devnull, os.O_WRONLY)
    return None, standard if given is None else os.dup(given.fileno())


def _request(target: str, args: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None) -> dict[str, Any]:
    return {"target": target, "args": [*args], "cwd": str(cwd or Path.cwd()), "env": dict(env or os.environ)}


def start(
    target: str,
    args: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdout: Any = None,
    stderr: Any = None,
) -> subprocess.Popen[bytes] | Process:
    """Call `module:function`, or run a file, as a command that goes on beside the test, without standard input."""
    if os.environ.get(FRESH) == "1":
        command = [*fresh(target), *args]
        return subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
    return Process(_request(target, args, cwd, env), stdout, stderr)


def start_lyra(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes] | Process:
    """Start `lyra` with a pipe for its output."""
    return start("lyra.cli.main:main", words, stdout=subprocess.PIPE, **options)


def close(process: subprocess.Popen[bytes] | Process) -> None:
    """Kill it if it goes on, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


class Started:
    """As `start`, with its output as text."""

    def __init__(self, target: str, args: Sequence[str], *, cwd: Path, env: dict[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `communicate`
        self._process = start(target, args, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=self._stderr)
        assert self._process.stdout is not None
        self.stdout = io.TextIOWrapper(self._process.stdout, encoding="utf-8")
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def told(self) -> str:
        """Its error output so far."""
        return os.pread(self._stderr.fileno(), 1 << 20, 0).decode()

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for its end; the rest of its output, and all of its error output."""
        ending = threading.Timer(timeout, self.send_signal, (signal.SIGKILL,))
        ending.start()
        with self.stdout, self._stderr:
            rest = self.stdout.read()
            self._process.wait()
            expired = ending.finished.is_set()
            ending.cancel()
            told = self.told()
        if expired:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return rest, told


def _feed(end: int, text: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(end, "wb") as file:
        file.write(text)


@functools.cache
def place() -> str:
    """The socket of the server, which is started by the first call and ends with the process that made it."""
    folder = tempfile.mkdtemp(prefix="lyra-warm-")
    path = f"{folder}/socket"
    ours, theirs = socket.socketpair()
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", path],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "LC_ALL": "C.UTF-8"},
        stdin=theirs.fileno(),
        stdout=subprocess.DEVNULL,
    )
    theirs.close()

    owner = os.getpid()

    def stop() -> None:
        if os.getpid() != owner:  # a worker that was forked: others go on
            return
        ours.close()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    ours.recv(1)  # it listens
    return path


# ---------------------------------------------------------------- the server


class _Server:
    """Forks for each connection; a connection that is closed before its process ends kills the process."""

    def __init__(self, path: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, socket.socket] = {}
        self._read: set[str] = set()  # files whose imports are known
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        self._woken, self._wake = socket.socketpair()
        for end in (self._woken, self._wake):
            end.setblocking(False)
        self._learned, self._teach = socket.socketpair(type=socket.SOCK_DGRAM)
        self._owner = socket.socket(fileno=os.dup(0))  # at its end the tests are over

    def serve(self) -> dict[str, Any] | None:
        """Serve until the tests end (None); in a forked process, return what it is to run."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for end in (self._learned, self._listener, self._woken, self._owner):
            self._selector.register(end, selectors.EVENT_READ)
        self._owner.send(b"+")
        while True:
            for key, _ in self._selector.select():
                ready: Any = key.fileobj
                if ready is self._owner:
                    self._end()
                    return None
                if ready is self._woken:
                    self._reap()
                elif ready is self._learned:
                    self._learn()
                elif ready is self._listener:
                    request = self._accept()
                    if request is not None:
                        return request
                elif ready in self._running.values():
                    os.kill(next(pid for pid, running in self._running.items() if running is ready), signal.SIGKILL)
                    self._selector.unregister(ready)

    def _accept(self) -> dict[str, Any] | None:
        connection, _ = self._listener.accept()
        header, streams, _, _ = socket.recv_fds(connection, 4, 3)
        with connection.makefile("rb") as file:
            request: dict[str, Any] = json.loads(file.read(int.from_bytes(header, "big")))
        self._read_imports(request["target"])
        gc.freeze()
        pid = os.fork()
        if pid == 0:
            self._become(connection, streams)
            atexit.register(self._tell, set(sys.modules))
            return request
        for stream in streams:
            os.close(stream)
        connection.send(f"{pid}\n".encode())
        self._running[pid] = connection
        self._selector.register(connection, selectors.EVENT_READ)
        return None

    def _become(self, connection: socket.socket, streams: list[int]) -> None:
        """In the forked process: nothing of the server is left open, and its signals are as at a start."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for end in (
            connection,
            self._listener,
            self._learned,
            self._woken,
            self._wake,
            self._owner,
            *self._running.values(),
        ):
            end.close()
        self._selector.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)

    def _tell(self, known: set[str]) -> None:
        """At the end of a forked process: name the modules that it imported, but not those of a test's own files."""
        names = []
        for name, module in sys.modules.items():
            origin = getattr(getattr(module, "__spec__", None), "origin", None) or ""
            if name not in known and origin.startswith(_IMPORTED_FROM):
                names.append(name)
        with self._teach, contextlib.suppress(OSError):
            self._teach.send(json.dumps(names).encode())

    def _read_imports(self, target: str) -> None:
        """Import what a file imports at its top, but no test's own files."""
        if not target.endswith(".py") or target in self._read:
            return
        self._read.add(target)
        with contextlib.suppress(OSError, SyntaxError):
            for node in ast.parse(Path(target).read_text(encoding="utf-8")).body:
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                for name in names:
                    with contextlib.suppress(Exception):  # a command that needs it says what is wrong with it
                        spec = importlib.util.find_spec(name)
                        if spec is not None and (spec.origin or "").startswith(_IMPORTED_FROM):
                            importlib.import_module(name)

    def _learn(self) -> None:
        for name in json.loads(self._learned.recv(1 << 20)):
            with contextlib.suppress(Exception):  # a command that needs it says what is wrong with it
                importlib.import_module(name)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                connection = self._running.pop(pid, None)
                if connection is not None:
                    with contextlib.suppress(KeyError):
                        self._selector.unregister(connection)
                    with contextlib.suppress(OSError):
                        connection.send(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                    connection.close()

    def _end(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
        for pid in self._running:
            os.waitpid(pid, 0)


def _run(request: dict[str, Any]) -> NoReturn:
    """In the forked process: what the interpreter does from its start to its end."""
    os.environ.clear()
    os.environ.update(request["env"])
    if os.environ.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    time.tzset()
    os.chdir(request["cwd"])
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as the process is
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    try:
        code = _code(request)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        raise
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit(code)


def _code(request: dict[str, Any]) -> int:
    try:
        target = request["target"]
        if target.endswith(".py"):
            sys.argv = [target, *request["args"]]
            sys.path[0] = str(Path(target).parent)
            runpy.run_path(target, run_name="__main__")
            return 0
        module, function = target.split(":")
        sys.argv = ["-c", *request["args"]]
        sys.path[0] = ""
        sys.exit(getattr(importlib.import_module(module), function)())
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
        return 1
    except Exception:
        sys.excepthook(*sys.exc_info())
        return 1


if __name__ == "__main__":
    request = _Server(sys.argv[1]).serve()
    if request is not None:
        _run(request)
