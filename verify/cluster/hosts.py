"""Starts the hosts of a test cluster as processes, kills, stops and wakes them, and hears what they report.

    with TestCluster(url, folder, shards=4, lease_s=1.0) as cluster:
        cluster.start("a", "b")
        cluster.hosts["a"].kill()
        cluster.wait(lambda: cluster.opened_by("b") == 4)

A thread for each host reads its reports; `wait` returns as soon as a report makes its condition true. The directory of
the cluster is made here, so that hosts only join. Each host has a home of its own, as on a machine of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from lyra.cluster.directory import PostgresDirectory
from lyra.kernel.journal.rows import Finished
from lyra.store import Record, open_keyed

__all__ = ["HostProcess", "Report", "TestCluster"]

T = TypeVar("T")

_SOURCE: Final = Path(__file__).parents[2]
_START_S: Final = 60.0


class Report(NamedTuple):
    """A line of a host: what happened, when by CLOCK_MONOTONIC, and words about it."""

    host: str
    kind: str
    at_s: float
    words: tuple[str, ...]


class HostProcess:
    """One start of a host."""

    def __init__(self, cluster: TestCluster, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.address = ""
        self.killed_s = 0.0  # when it was killed or stopped
        home = cluster.folder / "homes" / name
        home.mkdir(parents=True, exist_ok=True)
        env = {
            **os.environ,
            "HOME": str(home),
            "PYTHONPATH": os.pathsep.join((str(_SOURCE / "src"), str(_SOURCE))),
            "GRPC_VERBOSITY": "NONE",
        }
        env.pop("XDG_CONFIG_HOME", None)
        self.log = cluster.folder / f"{name}.log"
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "verify.cluster.host_process", json.dumps({"name": name, **settings})],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self._reader = threading.Thread(target=self._read, args=(cluster,), daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def _read(self, cluster: TestCluster) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, at_s, *words = line.decode().split()
            if kind == "ready":
                self.address = words[0]
            cluster._heard(Report(self.name, kind, float(at_s), tuple(words)))
        cluster._heard(Report(self.name, "gone", time.monotonic(), ()))

    def kill(self) -> None:
        """SIGKILL; returns when all that it reported is heard."""
        self.killed_s = time.monotonic()
        self._process.kill()
        self.join()

    def stop(self) -> None:
        """SIGSTOP: the process is frozen."""
        self.killed_s = time.monotonic()
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM: it leaves the cluster in order."""
        self._process.send_signal(signal.SIGTERM)

    def join(self, timeout_s: float = 60.0) -> int:
        """Wait for its end; gives the exit code."""
        code = self._process.wait(timeout_s)
        self._reader.join(timeout_s)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def close(self) -> None:
        if self.is_running:
            self._process.kill()
            self._process.send_signal(signal.SIGCONT)
        self.join()

    def cpu_s(self) -> float:
        """Return the CPU seconds that its process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Return the memory that is this process's alone, in MB."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in rollup if line.startswith("Private_")) / 1024


class TestCluster:
    """See the module."""

    __test__ = False  # no class of tests

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        shards: int = 4,
        lease_s: float = 1.0,
        programs: str = "verify.cluster.programs",
    ) -> None:
        self.url = url
        self.folder = folder
        self.programs = programs
        self.hosts: dict[str, HostProcess] = {}
        self.reports: list[Report] = []
        self._all: list[HostProcess] = []
        self._changed = threading.Condition()
        self.directory = PostgresDirectory(url, shards=shards, lease_s=lease_s)
        self.lease_s = lease_s
        self.shards = shards

    def __enter__(self) -> TestCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for host in self._all:
            host.close()
        self.directory.close()

    # ------------------------------------------------------------------ hosts

    def begin(self, *names: str, **settings: Any) -> None:
        """Start hosts, and do not wait for them."""
        for name in names:
            given = {"url": self.url, "programs": self.programs, "machine": name, **settings}
            self.hosts[name] = HostProcess(self, name, given)
            self._all.append(self.hosts[name])

    def start(self, *names: str, is_balanced: bool = True, **settings: Any) -> None:
        """Start hosts; returns when all shards are open on the hosts that live, each with its share."""
        self.begin(*names, **settings)
        self.wait(lambda: all(self.hosts[name].address for name in names))
        if is_balanced:
            self.wait_balanced()

    def wait_balanced(self, timeout_s: float = _START_S) -> None:
        """Return when every shard is open, and every living host has its share of them."""
        live = [name for name, host in self.hosts.items() if host.is_running]
        least = self.shards // len(live)

        def is_balanced() -> bool:
            held = self.owners()
            counts = [sum(owner == name for owner in held.values()) for name in live]
            return sum(counts) == self.shards and min(counts) >= least

        self.wait(is_balanced, timeout_s)

    def owners(self) -> dict[str, str]:
        """Return the host that opened each shard last, of the hosts that run."""
        held: dict[str, str] = {}
        for report in list(self.reports):
            if report.kind == "open":
                held[report.words[0]] = report.host
            elif report.kind == "closed" and held.get(report.words[0]) == report.host:
                del held[report.words[0]]
            elif report.kind == "gone":
                held = {shard: host for shard, host in held.items() if host != report.host}
        return held

    def rows(self, shard: str, kind: str | None = None) -> list[Record]:
        """Return the rows in the journal of a shard."""
        store = open_keyed(self.directory.store_of(shard))
        try:
            return list(store.read(kind=kind))
        finally:
            store.close()

    def finished(self) -> dict[str, list[tuple[str, str]]]:
        """Return for each shard the process and the call of each `finished` row, but those of effects that a crash cut
        off."""
        calls: dict[str, list[tuple[str, str]]] = {}
        for shard in (f"s{number}" for number in range(1, self.shards + 1)):
            rows = [
                (row.pid, msgspec.msgpack.decode(row.data, type=Finished))
                for row in self.rows(shard, "effect.finished")
            ]
            calls[shard] = [(pid, str(row.key)) for pid, row in rows if not (row.error or {}).get("crash")]
        return calls

    def shards_of(self, name: str) -> list[str]:
        return sorted(shard for shard, host in self.owners().items() if host == name)

    # ------------------------------------------------------------------ what they report

    def _heard(self, report: Report) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], T], timeout_s: float = _START_S) -> T:
        """Return what the condition gives as soon as that is true; it is looked at after each report."""
        until_s = time.monotonic() + timeout_s
        with self._changed:
            while not (value := condition()):
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    raise AssertionError(f"not within {timeout_s:g} s\n{self.describe()}")
                self._changed.wait(left_s)
            return value

    def of_kind(self, kind: str, *, host: str | None = None, after_s: float = 0.0) -> list[Report]:
        return [
            report
            for report in list(self.reports)
            if report.kind == kind and host in (None, report.host) and report.at_s > after_s
        ]

    def describe(self) -> str:
        """Return what the hosts logged last and where the shards are, for a test that fails."""
        logs = [f"{host.name}: {host.log.read_text(errors='replace')[-1500:]}" for host in self.hosts.values()]
        return "\n".join([f"shards: {self.owners()}", *logs])
