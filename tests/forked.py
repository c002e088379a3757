"""Runs the tests in processes that are forked from the one that collected them: a plugin, `pytest --forks N`.

Reading twenty thousand tests takes longer than most folders of them take to run: it is done once, and every worker has
what was read. Each worker begins with its own part of the list, so that neighbours share what their fixtures started;
one that has done its part takes over half of the longest part that is left, whole files where there are several. The
tests that take the longest, which are marked `first`, are given out file by file before anything else.
The plan of who runs what is a table in shared memory. A worker tells how each test ended, and not that it began, was
set up and was tidied up, unless durations, names or a file of all reports are asked for. A test during which a worker
dies has failed, and a new worker goes on with the rest.
"""

from __future__ import annotations

import atexit
import fcntl
import mmap
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final

import pytest

from tests import warm

__all__ = ["Plan"]

_DEAD_AFTER_S: Final = 1.0  # how often it is looked whether a silent worker still lives
_NONE: Final = -1


def _count(text: str) -> int:
    """Return a number of workers. `auto`: three for each processor, since many tests wait for a server or a clock."""
    return (os.cpu_count() or 1) * 3 if text == "auto" else int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=_count, default=0, metavar="N", help="run the tests in N forked workers, or auto")


class Plan:
    """Says which worker runs which test next; shared by all workers, and guarded by a lock that ends with its holder.

    The first tests are given out file by file, the others from the part of each worker: `[start, end)`.
    """

    _NEXT_FILE, _IS_STOPPED, _PARTS = range(3)  # the cells
    _OF_A_WORKER = 6  # its part, its file of first tests, what it runs and what it has taken to run next

    def __init__(self, files: Sequence[object], firsts: int, workers: int) -> None:
        self._files, self._firsts, self._workers = files, firsts, workers
        self._cells = memoryview(mmap.mmap(-1, (self._PARTS + self._OF_A_WORKER * workers) * 8)).cast("q")
        self._lock = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process is
        rest = len(files) - firsts
        for worker in range(workers):
            at = self._at(worker)
            self._cells[at] = firsts + rest * worker // workers
            self._cells[at + 1] = firsts + rest * (worker + 1) // workers
            self._cells[at + 4] = self._cells[at + 5] = _NONE

    def _at(self, worker: int) -> int:
        return self._PARTS + self._OF_A_WORKER * worker

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def take(self, worker: int) -> int | None:
        """Return the number of a test that no worker has taken; None: there is none."""
        cells, at = self._cells, self._at(worker)
        with self._locked():
            if cells[self._IS_STOPPED]:
                return None
            if cells[at + 2] == cells[at + 3] and cells[self._NEXT_FILE] < self._firsts:
                end = start = cells[self._NEXT_FILE]
                while end < self._firsts and self._files[end] == self._files[start]:
                    end += 1
                cells[at + 2], cells[at + 3], cells[self._NEXT_FILE] = start, end, end
            if cells[at + 2] < cells[at + 3]:
                at += 2
            elif cells[at] == cells[at + 1] and not self._take_over(worker):
                return None
            cells[at] += 1
            return cells[at] - 1

    def _take_over(self, worker: int) -> bool:
        """Take the second half of the longest part; False: nothing is left."""
        cells = self._cells
        other = max(map(self._at, range(self._workers)), key=lambda at: cells[at + 1] - cells[at])
        start, end = cells[other], cells[other + 1]
        if start == end:
            return False
        middle = split = start + (end - start) // 2
        while split < end and self._files[split] == self._files[split - 1] and split > start:
            split += 1  # to the next file
        if split == end:
            split = middle
        at = self._at(worker)
        cells[other + 1], cells[at], cells[at + 1] = split, split, end
        return True

    def set_running(self, worker: int, test: int | None, following: int | None) -> None:
        at = self._at(worker) + 4
        self._cells[at], self._cells[at + 1] = (_NONE if number is None else number for number in (test, following))

    def running(self, worker: int) -> tuple[int | None, int | None]:
        """Return the test that a worker runs, and the one that it has taken to run next."""
        at = self._at(worker) + 4
        test, following = (None if number == _NONE else number for number in self._cells[at : at + 2])
        return test, following

    def stop(self) -> None:
        self._cells[self._IS_STOPPED] = 1

    def close(self) -> None:
        self._lock.close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    if not options.forks or options.collectonly or session.testsfailed or not session.items:
        return None
    _Workers(session).run()
    return True


class _Workers:
    """The workers of a run, seen from the process that collected the tests."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._items = session, session.items
        firsts = sum(1 for item in self._items if item.get_closest_marker("first"))
        count = min(session.config.getoption("forks"), len(self._items))
        self._plan = Plan([item.path for item in self._items], firsts, count)
        self._count = count
        self._running: dict[Connection[Any, Any], tuple[int, int]] = {}  # its number and its pid, by what it tells
        self._base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    def run(self) -> None:
        """Run all tests; what ends a run early is raised as pytest's own loop does."""
        session = self._session
        warm.place()  # one server starts the commands of all workers
        for number in range(self._count):
            self._fork(number, self._plan.take(number))
        try:
            while self._running:
                for connection in self._ready():
                    self._hear(connection)
                if session.shouldfail or session.shouldstop:
                    self._plan.stop()
        except BaseException:
            self._plan.stop()
            for _, pid in self._running.values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            raise
        finally:
            self._plan.close()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _fork(self, number: int, first: int | None) -> None:
        listening, telling = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            telling.close()
            self._running[listening] = (number, pid)
            return
        status = 1
        try:
            for other in (*self._running, listening):
                other.close()
            _work(self._session, self._plan, number, first, telling, self._base / f"worker-{number}")
            status = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _ready(self) -> list[Any]:
        ready = wait([*self._running], _DEAD_AFTER_S)
        if not ready:  # a program that a test left behind may hold the pipe of a dead worker open
            ready = [connection for connection, (_, pid) in self._running.items() if _is_dead(pid)]
            for connection in ready:
                if not connection.poll():
                    connection.close()
        return ready

    def _hear(self, connection: Connection[Any, Any]) -> None:
        config = self._session.config
        try:
            told = connection.recv()
        except (EOFError, OSError):
            self._end(connection)
            return
        report = config.hook.pytest_report_from_serializable(config=config, data=told)
        self._report(report)

    def _report(self, report: Any) -> None:
        hook = self._session.config.hook
        hook.pytest_runtest_logreport(report=report)
        if report.when == "call" or not report.passed:
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    def _end(self, connection: Connection[Any, Any]) -> None:
        """A worker has ended; a test in the middle of which it did so has failed, and another worker goes on."""
        number, pid = self._running.pop(connection)
        connection.close()
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        test, following = self._plan.running(number)
        if test is None:
            return
        item = self._items[test]
        self._report(
            pytest.TestReport(
                item.nodeid, item.location, {}, "failed", "the process of the worker ended during this test", "call"
            )
        )
        self._fork(number, following if following is not None else self._plan.take(number))


def _is_dead(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


# ---------------------------------------------------------------- in a worker


def _work(
    session: pytest.Session, plan: Plan, number: int, following: int | None, telling: Connection[Any, Any], base: Any
) -> None:
    """Run tests until none is left, then end what they share."""
    config, items = session.config, session.items
    manager = config.pluginmanager
    manager.unregister(name="terminalreporter")
    capture: Any = manager.getplugin("capturemanager")
    capture.stop_global_capturing()  # a file that all workers would write to
    capture.start_global_capturing()
    capture.suspend_global_capture()
    base.mkdir(mode=0o700, exist_ok=True)
    config._tmp_path_factory._basetemp = base  # type: ignore[attr-defined]
    manager.register(_Teller(config, telling))
    try:
        while following is not None and not (session.shouldstop or session.shouldfail):
            test, following = following, plan.take(number)
            plan.set_running(number, test, following)
            next_item = items[following] if following is not None else None
            config.hook.pytest_runtest_protocol(item=items[test], nextitem=next_item)
    finally:
        session._setupstate.teardown_exact(None)
    plan.set_running(number, None, None)
    telling.close()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


class _Teller:
    """Tells the process above how tests ended."""

    def __init__(self, config: pytest.Config, telling: Connection[Any, Any]) -> None:
        options = config.option
        self._config, self._telling = config, telling
        self._tells_all = options.verbose > 0 or options.durations is not None or bool(options.xmlpath)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._tells_all or report.when == "call" or not report.passed:
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            self._telling.send(data)
