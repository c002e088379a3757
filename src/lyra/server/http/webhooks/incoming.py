"""Incoming hooks: a URL at which another server says something to a process or to an agent.

A hook is a durable process of its user that does nothing but represent the registration. The sender needs no token: it
signs the body with the hook's secret. What it says is text from outside: the process or the conversation that gets it
is marked as having read such text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.naming import INCOMING_HOOK, give_name
from lyra.errors import Unauthenticated
from lyra.server.http.problems import HttpRefusal
from lyra.server.http.webhooks.deliveries import Deliveries, is_signed, secret_of
from lyra.server.identity import Caller
from lyra.server.owners import OwnedPid, OwnedProcesses, draw_id, spawn_for

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.context import Context
    from lyra.server.http.chats import Chats


_PART: Final = "incoming_hooks"
_SOURCE: Final = "a webhook"


class HookTarget(msgspec.Struct, frozen=True):
    """Who is told: a process, or an agent in a session of the hook's own."""

    pid: str = ""
    agent: str = ""


@give_name(INCOMING_HOOK)
async def incoming_hook(ctx: Context, pid: str, agent: str) -> None:
    """Run the program of a hook: it stands for the registration until it is ended."""
    hooks: IncomingHooks = ctx.own_process.kernel.parts[_PART]
    hooks.enter(ctx.pid, HookTarget(pid, agent))
    while True:
        await ctx.receive()


class IncomingHooks:
    """The hooks of one kernel."""

    __slots__ = ("_chats", "_deliveries", "_kernel", "_targets", "hooks")

    def __init__(self, kernel: Kernel, chats: Chats, deliveries: Deliveries) -> None:
        self._kernel = kernel
        self._chats = chats
        self._deliveries = deliveries  # which has the key
        self.hooks = OwnedProcesses(kernel, "hook", "hook")
        self._targets: dict[str, HookTarget] = {}  # by pid

    def open(self) -> None:
        self._kernel.parts[_PART] = self
        self._kernel.register(incoming_hook)
        self.hooks.restore()

    async def close(self) -> None:
        """Called with the kernel."""
        self._targets.clear()

    def enter(self, pid: str, target: HookTarget) -> None:
        self._targets[pid] = target

    def target(self, pid: str) -> HookTarget:
        return self._targets.get(pid, HookTarget())

    async def add(self, caller: Caller, target: HookTarget) -> tuple[str, str]:
        """Begin to take what is sent; the id of the hook and its secret."""
        hook_id = draw_id(self._kernel, 24)
        pid = self.hooks.claim(hook_id, caller)
        await spawn_for(self._kernel, caller.user_id, incoming_hook, target.pid, target.agent, pid=pid)
        return hook_id, secret_of(self._deliveries.key, hook_id)

    async def remove(self, hook_id: str, caller: Caller) -> None:
        process = self.hooks.get(hook_id, caller)
        self._targets.pop(process.pid, None)
        await self._kernel.kill(process.pid, "removed")

    async def take(self, hook_id: str, headers: Mapping[str, str], body: bytes) -> str:
        """Pass on what was sent, if it is signed; the session of an agent's, else ""."""
        known = self.hooks.find(hook_id)
        secret = secret_of(self._deliveries.key, hook_id)
        signed = is_signed(secret, headers, body, self._kernel.clock.now())
        if known is None or not known.alive or not signed:  # one answer for all: it tells nothing of which hooks exist
            raise Unauthenticated("no such hook, or its signature is wrong", hint="sign the body with its secret")
        target = self._targets.get(known.pid)
        if target is None:
            raise HttpRefusal(503, "the hook is not ready")
        if target.pid:
            await self._tell_process(target.pid, hook_id, body)
            return ""
        return await self._tell_agent(target.agent, known.pid, hook_id, body)

    async def _tell_process(self, pid: str, hook_id: str, body: bytes) -> None:
        process = self._kernel.processes[pid]
        self._kernel.taint.mark(process.pid, _SOURCE)
        await self._kernel.send(pid, {"hook": hook_id, "body": _read(body)})

    async def _tell_agent(self, agent: str, hook_pid: str, hook_id: str, body: bytes) -> str:
        owned = OwnedPid.read(hook_pid)
        caller = Caller("" if owned is None else owned.user_id)
        session_id, process = await self._chats.open(agent, caller, f"hook-{hook_id}")
        self._kernel.taint.mark(process.pid, _SOURCE)
        await self._chats.begin(session_id, caller, process, body.decode("utf-8", "replace") or "(empty)")
        return session_id


def _read(body: bytes) -> Any:
    """Return the body as JSON where it is that, else as text."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode("utf-8", "replace")
