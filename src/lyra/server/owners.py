"""To which user a process belongs.

An entry of the process table and a pipeline name their user. A process that the server starts for a user carries the
user in its pid (`make_owned_pid`), so that the owner is known after a restart and needs no table. Any other process
belongs to the user of the process that started it; one without such a process is the operator's (`""`).

`OwnedProcesses` are those of one kind that the server started for users, by the id under which clients know them: an id
belongs to the user that first used it, and does not exist for another.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lyra.core.envelope import ANONYMOUS
from lyra.errors import Denied, LyraError, NoSuchProcess
from lyra.kernel.interrupts.service import unknown_interrupt
from lyra.kernel.programs.handle import Handle
from lyra.kernel.programs.registry import program_of

if TYPE_CHECKING:
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.server.identity import Caller


GATEWAY_KEYS: Final = "gateway.keys"  # the part of the kernel that knows the keys of the gateway
_READABLE_BYTES_MAX: Final = 72  # a longer user is in the pid as a hash
_OWNED: Final = re.compile(r"(?P<kind>[a-z]+)-(?P<user>[0-9A-Za-z_]*)\.(?P<rest>.+)\Z", re.DOTALL)


class OwnedPid:
    """A pid that carries its user: KIND-USER.REST."""

    __slots__ = ("_user", "kind", "rest")

    def __init__(self, kind: str, user: str, rest: str) -> None:
        self.kind = kind
        self._user = user
        self.rest = rest

    @staticmethod
    @lru_cache(maxsize=10_000)  # each listing asks for those of all processes
    def read(pid: str) -> OwnedPid | None:
        """Return the parts of a pid that `make_owned_pid` gave; None for any other."""
        match = _OWNED.match(pid)
        if match is None or match["kind"] not in KINDS:
            return None
        return OwnedPid(match["kind"], match["user"], match["rest"])

    @property
    def user_id(self) -> str:
        """The user; of a very long one, a text that stands for it."""
        if not self._user.startswith("b"):
            return self._user
        try:
            data = base64.b32hexdecode(self._user[1:].upper() + "=" * (-(len(self._user) - 1) % 8))
            return data.decode()
        except ValueError:
            return self._user

    def belongs_to(self, user_id: str) -> bool:
        return self._user == _encode_user(user_id)


KINDS: Final = frozenset({"agui", "chat", "call", "run", "webhook", "hook", "key", "task", "push"})
# Kinds of processes that represent something the server keeps once: a second one of them would represent the same.
SINGLE_KINDS: Final = frozenset({"webhook", "hook", "key", "task", "push"})


def make_owned_pid(kind: str, user_id: str, rest: str) -> str:
    """Return a pid for a process that is started for a user."""
    assert kind in KINDS, kind
    return f"{kind}-{_encode_user(user_id)}.{rest}"


def _encode_user(user_id: str) -> str:
    data = user_id.encode("utf-8", "surrogatepass")
    if not data:
        return ""
    if len(data) > _READABLE_BYTES_MAX:
        return f"h{hashlib.sha256(data).hexdigest()}"
    return "b" + base64.b32hexencode(data).decode().rstrip("=").lower()


def draw_id(kernel: Kernel, length: int, prefix: str = "") -> str:
    """Return a new id; in a shard of a cluster one whose home it is."""
    remote = kernel.core.remote
    return prefix + kernel.entropy.text(length) if remote is None else remote.draw_id(length, prefix)


def spawn_for(
    kernel: Kernel,
    user_id: str,
    program: Any,
    *args: Any,
    pid: str,
    budget: Any = None,
    parent: Process | None = None,
) -> Any:
    """Start a process for a user, or give the one of that pid; the kernel, too, lists and counts it as the user's. With
    a `parent`, what it spends counts in that one's budget, and it ends with it."""
    if parent is None:
        handle: Any = kernel.spawn(program, *args, pid=pid, budget=budget)
    else:
        handle = _spawn_below(kernel, parent, program, args, pid)
    if user_id and handle.alive:
        kernel.lifecycle.set_owner(pid, user_id)
    return handle


def _spawn_below(kernel: Kernel, parent: Process, program: Any, args: tuple[Any, ...], pid: str) -> Any:
    """Start a process below another that does not start it itself."""
    supervision, budget = getattr(program, "supervision", None), getattr(program, "budget", None)
    handle_of = getattr(program, "__lyra_handle__", Handle)
    if supervision is not None:
        program, args = kernel.supervisors.guard(program, args, supervision)
    process = kernel.lifetimes.start(program_of(program), args, parent=parent, pid=pid, budget=budget)
    return handle_of(kernel, process)


def owner_of(kernel: Kernel, pid: str) -> str:
    """Return the user of a process; "" for one of the operator's. NoSuchProcess where there is none of that pid."""
    owner = kernel.lifecycle.owner(pid)
    if owner.user_id and owner.user_id != ANONYMOUS:
        return owner.user_id
    return find_owner_by_pid(kernel, pid, kernel.processes.get(pid))


def find_owner_by_pid(kernel: Kernel, pid: str, process: Process | None) -> str:
    """Return the user of a process that the kernel knows no user of: the one that its pid, or one above it, names."""
    while True:
        session = kernel.orchestrator.state.sessions.get(pid)
        if session is not None and session.envelope.user_id not in ("", ANONYMOUS):
            return str(session.envelope.user_id)
        owned = OwnedPid.read(pid)
        if owned is not None:
            return owned.user_id
        process = None if process is None else process.parent
        if process is None:
            return ""
        pid = process.pid
        entry = kernel.lifecycle.state.entries.get(pid)
        if entry is not None and entry.user_id:
            return entry.user_id


def owner_if_known(kernel: Kernel, pid: str) -> str:
    """Return the owner of a pid that may be gone: then what the pid itself says."""
    try:
        return owner_of(kernel, pid)
    except NoSuchProcess:
        owned = OwnedPid.read(pid)
        return "" if owned is None else owned.user_id


def interrupt_owner(kernel: Kernel, interrupt: Interrupt) -> str:
    """Return the user of a question: its own, else that of its process or of the pipeline that a worker drives."""
    if interrupt.user_id:
        return interrupt.user_id
    session = kernel.orchestrator.state.sessions.get(interrupt.pid)
    user_id = "" if session is None else str(session.envelope.user_id)
    return owner_if_known(kernel, interrupt.pid) if user_id in ("", ANONYMOUS) else user_id


def require_question(kernel: Kernel, caller: Caller, interrupt_id: str) -> Interrupt:
    """Return a question that the caller may see and answer; NoSuchInterrupt also where it is another user's."""
    interrupt = kernel.interrupts.get_interrupt(interrupt_id)
    caller.require_owner(interrupt_owner(kernel, interrupt), unknown_interrupt, interrupt_id)
    return interrupt


class OwnedProcesses:
    """See the module."""

    __slots__ = ("_kernel", "_kind", "_missing", "_pids", "_word")

    def __init__(self, kernel: Kernel, kind: str, word: str, missing: type[LyraError] = NoSuchProcess) -> None:
        self._kernel = kernel
        self._kind = kind
        self._word = word
        self._missing = missing
        self._pids: dict[str, str] = {}  # by id

    def restore(self) -> None:
        """Find those that the store has."""
        for pid in list(self._kernel.processes):
            owned = OwnedPid.read(pid)
            if owned is not None and owned.kind == self._kind:
                self._pids.setdefault(owned.rest, pid)

    def list_for(self, caller: Caller) -> list[tuple[str, Process]]:
        """Return the ids and processes that are the caller's, the oldest first."""
        rows = []
        for name, pid in list(self._pids.items()):
            process = self._kernel.processes.get(pid)
            if process is None:
                del self._pids[name]
            elif caller.owns(_user(pid)):
                rows.append((name, process))
        return rows

    def get(self, name: str, caller: Caller) -> Process:
        """Return the process of an id of the caller's."""
        pid = self._pids.get(name)
        process = None if pid is None else self._kernel.processes.get(pid)
        if pid is None or process is None:
            raise self._unknown(name)
        caller.require_owner(_user(pid), self._unknown, name)
        return process

    def _unknown(self, name: str) -> LyraError:
        return self._missing(f"no {self._word} {name[:80]!r}")

    def find(self, name: str) -> Process | None:
        """Return the process of an id, of any user."""
        pid = self._pids.get(name)
        return None if pid is None else self._kernel.processes.get(pid)

    def add(self, name: str, pid: str) -> None:
        """Know a process that was started by other means, such as a fork of one."""
        self._pids[name] = pid

    def claim(self, name: str, caller: Caller) -> str:
        """Return the pid for an id: the one that has it, if it is the caller's, or a new one."""
        pid = self._pids.get(name)
        if pid is not None and pid in self._kernel.processes:
            if not caller.owns(_user(pid)):
                raise Denied(f"the {self._word} {name} cannot be chosen", hint="choose another id, or leave it out")
            return pid
        pid = self._pids[name] = make_owned_pid(self._kind, caller.user_id, name)
        return pid


def _user(pid: str) -> str:
    owned = OwnedPid.read(pid)
    return "" if owned is None else owned.user_id
