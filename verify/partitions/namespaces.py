"""A network of this machine alone: a bridge with the database on it, and a namespace for each host.

A cut is a route to nowhere, in one namespace or in both: packets that way are lost, those on their way arrive. Nothing
but these namespaces is touched, and all of it is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess  # noqa: TID251 - the command `ip` makes namespaces
from types import TracebackType

from verify.servers import postgres_missing

DATABASE = "database"


def partitions_missing() -> str | None:
    """Why hosts cannot be parted here; None when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "the command ip is not installed: apt-get install iproute2"
    name = f"lyra-try-{os.getpid()}"
    if _try("netns", "add", name):
        return "this machine lets nobody make network namespaces"
    _try("netns", "del", name)
    return postgres_missing()


def _try(*words: str) -> int:
    command = ["ip", *words]
    return subprocess.run(command, capture_output=True, check=False).returncode  # noqa: S603 - our own words, no shell


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, check=True)  # noqa: S603, S607 - our own words, no shell


class Namespaces:
    """`with Namespaces("h1", "h2") as net: net.cut("h1", "database")`."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts
        self._tag = f"ly{os.getpid() % 100_000}"
        self._net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.cuts: set[tuple[str, str]] = set()

    @property
    def bridge(self) -> str:
        return f"{self._tag}b"

    def address(self, end: str) -> str:
        """Return the address of a host, or of the database."""
        return f"{self._net}.{1 if end == DATABASE else 10 + self.hosts.index(end)}"

    def namespace(self, host: str) -> str:
        return f"{self._tag}-{host}"

    def command(self, host: str, *words: str) -> list[str]:
        """Return the words that run a command inside the namespace of a host."""
        return ["ip", "netns", "exec", self.namespace(host), *words]

    def __enter__(self) -> Namespaces:
        try:
            _ip("link", "add", self.bridge, "type", "bridge")
            _ip("addr", "add", f"{self._net}.1/24", "dev", self.bridge)
            _ip("link", "set", self.bridge, "up")
            for number, host in enumerate(self.hosts):
                space, outer = self.namespace(host), f"{self._tag}v{number}"
                _ip("netns", "add", space)
                _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
                _ip("link", "set", outer, "master", self.bridge, "up")
                _ip("-n", space, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
                _ip("-n", space, "link", "set", "eth0", "up")
                _ip("-n", space, "link", "set", "lo", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for number, host in enumerate(self.hosts):
            _try("netns", "del", self.namespace(host))
            _try("link", "del", f"{self._tag}v{number}")
        _try("link", "del", self.bridge)

    def cut(self, host: str, other: str, *, both: bool = True) -> None:
        """Lose what a host sends to another, or to the database; with `both` also what comes back."""
        ways = [(host, other)]
        if (
            both and other != DATABASE
        ):  # the database itself is in no namespace; without acknowledgements it hears nothing
            ways.append((other, host))
        for left, right in ways:
            if (left, right) not in self.cuts:
                _ip("-n", self.namespace(left), "route", "add", "blackhole", f"{self.address(right)}/32")
                self.cuts.add((left, right))

    def heal(self) -> None:
        """Join all ends again."""
        for left, right in self.cuts:
            _ip("-n", self.namespace(left), "route", "del", "blackhole", f"{self.address(right)}/32")
        self.cuts.clear()
