"""Real `lyra cluster start` processes on a real PostgreSQL, to be stopped, held and killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.source import KEPT, PYTHONPATH
from verify.servers import PostgresServer, postgres_missing

_schemas = count(1)


class StartedHost:
    """A host of a cluster as a process of its own."""

    def __init__(self, folder: Path, url: str, name: str, *flags: str, **env: str) -> None:
        kept = {variable: os.environ[variable] for variable in KEPT if variable in os.environ}
        home = folder / "hosts"
        home.mkdir(exist_ok=True)
        own = {"HOME": str(home), "PYTHONPATH": PYTHONPATH, "LC_ALL": "C.UTF-8", "LYRA_CLUSTER_STORE": url}
        words = ["cluster", "start", "--name", name, "--json", *flags]
        self.name = name
        self.process = warm.Started("lyra.cli.main:main", words, cwd=folder, env={**kept, **own, **env})
        self.joined: dict[str, Any] = {}

    def read_line(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        assert line, self.process.told()
        told: dict[str, Any] = json.loads(line)
        return told

    def until_joined(self) -> StartedHost:
        self.joined = self.read_line()
        assert self.joined["joined"] == self.name
        return self

    def until_shards(self, number: int) -> list[str]:
        """Return the shards once the host has so many."""
        if not self.joined:
            self.until_joined()
        while True:
            shards: list[str] = self.read_line()["shards"]
            if len(shards) == number:
                return shards

    def hold(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> tuple[int, str]:
        """SIGTERM; gives the exit code and the error output."""
        self.process.send_signal(signal.SIGTERM)
        _, told = self.process.communicate(60)
        assert self.process.returncode is not None
        return self.process.returncode, told

    def close(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate(10)


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresServer]:
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def cluster_url(database: PostgresServer) -> str:
    return f"{database.url}&schema=test_{next(_schemas)}"


StartHost = Callable[..., StartedHost]


@pytest.fixture
def start_host(tmp_path: Path, cluster_url: str) -> Iterator[StartHost]:
    hosts: list[StartedHost] = []

    def start(name: str, *flags: str, **env: str) -> StartedHost:
        hosts.append(StartedHost(tmp_path, cluster_url, name, *flags, **env))
        return hosts[-1]

    yield start
    for host in hosts:
        host.close()
