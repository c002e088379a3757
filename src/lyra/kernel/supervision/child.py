"""What a supervisor is told to look after: `Child`, and the plan made from a list of them.

    Child("db", connect, args=("main",), restart="permanent", shutdown_s=5, name="db")
    Child.supervisor("pool", [Child("w1", work), Child("w2", work)], strategy="one_for_all")

A `Child` is what a person writes, with functions in it. A `Spec` is the same as plain data, with programs by name: it
goes into the journal, so a supervisor finds its children again. `plan` turns one into the other and refuses what
Erlang/OTP refuses: two children of one id, a significant child that is permanent or whose supervisor never shuts down
by itself. Nothing here starts or stops anything; `supervisor` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from lyra.core.budgets.budget import Budget
from lyra.core.checking.check import check_integer, check_keys, one_of, real
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.core.naming import old_names
from lyra.core.policies.policy import OTP, STRATEGIES, Supervision
from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError, NameTaken
from lyra.kernel.process.links import ExitSignal, Ready, Started, register_signal

if TYPE_CHECKING:
    from lyra.kernel.programs.registry import Programs, Spawnable


RESTART: Final[dict[str, str]] = {
    "permanent": "always started again",
    "transient": "started again unless it ended normally or was shut down",
    "temporary": "never started again; forgotten when it ends",
}
AUTO_SHUTDOWN: Final[dict[str, str]] = {
    "never": "a supervisor outlives its children",
    "any_significant": "it ends when one significant child has ended by itself",
    "all_significant": "it ends when the last significant child has ended by itself",
}
DYNAMIC: Final = "simple_one_for_one"  # a strategy, too: any number of children of one kind, started on demand
KILL: Final = "kill"
Program = Callable[..., Any]
INFINITY: Final = "infinity"
_CHILD_FLAGS: Final = (
    "restart",
    "significant",
    "name",
    "budget",
    "grant",
    "priority",
    "recovery_attempts",
    "shutdown_s",
    "shard",
    "near",
    "resources",
)
_FLAGS: Final = ("strategy", "max_restarts", "window_s", "auto_shutdown", "backoff")


class Spec(msgspec.Struct):
    """One child as plain data."""

    id: str
    program: str
    args: list[Any] = []
    restart: str = "permanent"
    shutdown_s: float | str = 5.0  # seconds, or "kill" (at once), or "infinity"
    significant: bool = False
    name: str | None = None
    wait_ready: bool = False
    kind: str = "worker"  # or supervisor
    budget: dict[str, Any] | None = None
    grant: dict[str, Any] | None = None
    priority: str | None = None
    # Left out of the row where they are not given: earlier versions compare it.
    recovery_attempts: int | msgspec.UnsetType = msgspec.UNSET
    needs: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET  # where in a cluster it begins: see `Context.spawn`

    def under_old_names(self) -> Spec:
        """As an earlier version had it, before Lyra's own programs had fixed names."""
        args = [arg.under_old_names() if isinstance(arg, Plan) else arg for arg in self.args]
        return msgspec.structs.replace(self, program=(*old_names(self.program), self.program)[0], args=args)


class Plan(msgspec.Struct):
    """A supervisor as plain data."""

    children: list[Spec] = []
    strategy: str = "restart"
    max_restarts: int = 3
    window_s: float = 60.0
    auto_shutdown: str = "never"
    backoff: dict[str, Any] | None = None
    tells: bool = False  # its parent is told when it gives up
    nested: bool = False  # a supervisor waits until this one's children are started
    template: Spec | None = None  # of a dynamic supervisor: every child is one of these
    guards: bool = False  # one child, for which this process stands: it passes messages on and ends as the child does

    def under_old_names(self) -> Plan:
        """Return the plan as an earlier version journaled it."""
        children = [spec.under_old_names() for spec in self.children]
        template = None if self.template is None else self.template.under_old_names()
        return msgspec.structs.replace(self, children=children, template=template)


class Child:
    """The specification of one child; a mapping of the same keys does as well.

    In a cluster it begins where `shard`, `near` (the address of another process) or `resources` say, as with
    `ctx.spawn`; without them on the shard of its supervisor.
    """

    __slots__ = (
        "args",
        "budget",
        "children",
        "flags",
        "grant",
        "id",
        "name",
        "near",
        "priority",
        "program",
        "recovery_attempts",
        "resources",
        "restart",
        "shard",
        "shutdown_s",
        "significant",
        "wait_ready",
    )

    def __init__(
        self,
        id: str,  # noqa: A002 - the word of the published interface
        program: Callable[..., Any] | Spawnable[Any] | None,
        args: Iterable[Any] = (),
        restart: str = "permanent",
        shutdown_s: float | str | None = 5.0,
        significant: bool = False,
        name: str | None = None,
        wait_ready: bool = False,
        *,
        budget: Any = None,
        grant: Any = None,
        priority: str | None = None,
        recovery_attempts: int | None = None,
        shard: str | None = None,
        near: str | None = None,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        given: object = id  # what was written may be anything
        if not (isinstance(given, str) and 0 < len(given) <= NAME_LENGTH_MAX and given.isprintable()):
            raise ConfigError(f"a child's id is {id!r}", hint=f"use 1 to {NAME_LENGTH_MAX} printable characters")
        if isinstance(args, (str, bytes, Mapping)):
            raise ConfigError(f"the arguments of child {id!r} are {args!r}", hint="write a tuple: args=(value,)")
        self.id = id
        self.program = program
        self.args = tuple(args)
        self.restart = one_of(restart, RESTART, "restart")
        self.shutdown_s = _shutdown(shutdown_s)
        self.significant = bool(significant)
        self.name = name
        self.wait_ready = bool(wait_ready)
        self.budget = None if budget is None else Budget.of(budget)
        self.grant = None if grant is None else Grant.of(grant)
        self.priority = priority
        self.recovery_attempts = (
            None if recovery_attempts is None else check_integer(recovery_attempts, "recovery_attempts")
        )
        self.shard = shard
        self.near = near
        self.resources = None if resources is None else dict(resources)
        self.children: tuple[Child, ...] | None = None  # a supervisor's
        self.flags: dict[str, Any] = {}

    @classmethod
    def supervisor(
        cls,
        id: str,  # noqa: A002 - as above
        children: Iterable[Child | Mapping[str, Any]],
        **flags: Any,
    ) -> Self:
        """Return a supervisor as a child: it gets all the time it needs to stop, and counts as started when its own
        are."""
        settings: dict[str, Any] = {key: flags.pop(key) for key in _FLAGS if key in flags}
        check_keys(flags, _CHILD_FLAGS, "supervisor")
        child = cls(id, None, shutdown_s=flags.pop("shutdown_s", INFINITY), wait_ready=True, **flags)
        child.children = tuple(cls.of(child_spec) for child_spec in children)
        child.flags = settings
        return child

    @classmethod
    def of(cls, value: Any) -> Child:
        if isinstance(value, Child):
            return value
        if not isinstance(value, Mapping):
            raise ConfigError(f"a child is a Child or a mapping, not {value!r}", hint="Child(id, program)")
        check_keys(value, (slot for slot in cls.__slots__ if slot not in ("children", "flags")), "a child")
        missing = [key for key in ("id", "program") if key not in value]
        if missing:
            raise ConfigError(f"a child needs {missing[0]!r}", key=missing[0])
        return cls(**value)

    def __repr__(self) -> str:
        return f"<Child {self.id!r} {self.restart}>"


def make_plan(
    programs: Programs, supervise: Program, children: Iterable[Any], *, nested: bool = False, **flags: Any
) -> Plan:
    """Check a supervisor's settings and children, and make plain data of them; programs become known by name."""
    check_keys(flags, _FLAGS, "a supervisor")
    strategy = flags.get("strategy", "restart")
    one_of(strategy, (*STRATEGIES, *OTP, DYNAMIC), "strategy")
    if strategy == DYNAMIC:
        return _dynamic_plan(programs, supervise, list(children), nested, {**flags, "strategy": "one_for_one"})
    auto_shutdown = one_of(flags.pop("auto_shutdown", "never"), AUTO_SHUTDOWN, "auto_shutdown")
    policy = Supervision.of({key: value for key, value in flags.items() if key != "backoff" or value is not None})
    plan = Plan(
        strategy=policy.strategy,
        max_restarts=policy.max_restarts,
        window_s=policy.window_s,
        auto_shutdown=auto_shutdown,
        backoff=None if policy.backoff is None else policy.backoff.to_data(),
        nested=nested,
    )
    seen: set[str] = set()
    for child in children:
        spec = make_spec(programs, supervise, Child.of(child))
        if spec.id in seen:
            raise NameTaken(f"two children are called {spec.id!r}", id=spec.id)
        seen.add(spec.id)
        check_significant(spec, auto_shutdown)
        plan.children.append(spec)
    return plan


def _dynamic_plan(
    programs: Programs, supervise: Program, children: list[Any], nested: bool, flags: dict[str, Any]
) -> Plan:
    """No child yet, and a template for all to come."""
    if len(children) != 1:
        raise ConfigError(f"a {DYNAMIC} supervisor has one child to make others from, not {len(children)}")
    plan = make_plan(programs, supervise, children, nested=nested, **flags)
    plan.template = plan.children.pop()
    if plan.template.name is not None:
        raise ConfigError(f"the children of a {DYNAMIC} supervisor cannot share a name", name=plan.template.name)
    return plan


def make_spec(programs: Programs, supervise: Program, child: Child) -> Spec:
    """Return a child as plain data. `supervise` is the program of supervisors, for a child that is one."""
    program: Any
    args: list[Any]
    if child.children is None:
        program, args, kind = child.program, list(child.args), "worker"
    else:
        inner = make_plan(programs, supervise, child.children, nested=True, **child.flags)
        program, args, kind = supervise, [inner], "supervisor"
    needs = {key: getattr(child, key) for key in ("shard", "near", "resources") if getattr(child, key) is not None}
    return Spec(
        id=child.id,
        program=programs.name(program),  # what is no program is refused there
        args=args,
        restart=child.restart,
        shutdown_s=child.shutdown_s,
        significant=child.significant,
        name=child.name,
        wait_ready=child.wait_ready,
        kind=kind,
        budget=None if child.budget is None else child.budget.to_data()["limits"],
        grant=None if child.grant is None else child.grant.to_data(),
        priority=child.priority,
        recovery_attempts=msgspec.UNSET if child.recovery_attempts is None else child.recovery_attempts,
        needs=needs or msgspec.UNSET,
    )


def check_significant(spec: Spec, auto_shutdown: str) -> None:
    if spec.significant and auto_shutdown == "never":
        hint = "set auto_shutdown of its supervisor to any_significant or all_significant"
        raise ConfigError(f"child {spec.id!r} is significant and its supervisor never shuts down", hint=hint)
    if spec.significant and spec.restart == "permanent":
        hint = "make it transient or temporary"
        raise ConfigError(f"child {spec.id!r} is significant and permanent: it never ends", hint=hint)


def _shutdown(value: Any) -> float | str:
    if value is None or value == INFINITY or (isinstance(value, float) and value == math.inf):
        return INFINITY
    if isinstance(value, str):
        return one_of(value, (KILL, INFINITY), "shutdown_s")
    return real(value, "shutdown_s")


# ---------------------------------------------------------------- children
# What a supervisor knows: its children in a table, and what happens to them as plain data that can be kept with it.

START: Final = "start_child"
START_MARKED: Final = "start_marked_child"  # the same, asked by a process that has read text from outside


class Order(msgspec.Struct, frozen=True):
    """What a supervisor is asked to do, as it travels through its mailbox."""

    verb: str
    token: str = ""  # of the caller that waits for the answer; empty if none does
    id: str = ""
    spec: Spec | None = None
    args: list[Any] = []


register_signal("supervisor", Order)


class ChildRow(msgspec.Struct, eq=False):
    """One child in the table."""

    spec: Spec
    pid: str | None = None
    state: str = "stopped"  # running | stopped | restarting
    starts: int = 0
    failures: int = 0  # crashes in a row, for the back-off
    crashed_at: float = 0.0
    due: float | None = None  # when a back-off is over
    tainted: bool = False  # its id and arguments are a marked process's: each process that it is started as is marked


class ChildTable(msgspec.Struct):
    """All that a supervisor knows."""

    rows: list[ChildRow]
    parent: str | None = None
    made: int = 0  # children of a dynamic supervisor so far, for their ids
    times: list[float] = []  # restarts that still count
    pending: list[Any] = []  # events set aside while it waited for one of its own
    held: list[Any] = []  # a guard's messages for a child that is not running


def event_of(message: Any) -> dict[str, Any]:
    """Return a message as plain data, so that it can be kept with the table."""
    if isinstance(message, ExitSignal):
        return {"is": "exit", "pid": message.pid, "reason": message.reason}
    if isinstance(message, Ready):
        return {"is": "ready", "pid": message.pid}
    if isinstance(message, Started):
        return {"is": "started", "pid": message.pid, "error": message.error}
    if isinstance(message, Order):
        if message.verb == "again":
            return {"is": "again", "id": message.id}
        return {
            "is": "command",
            "do": message.verb,
            "token": message.token,
            "id": message.id,
            "spec": message.spec,
            "args": message.args,
        }
    return {"is": "message", "message": message}


_TEXTS: Final[dict[str, tuple[str, ...]]] = {  # what each kind of event has to say
    "exit": ("pid", "reason"),
    "ready": ("pid",),
    "started": ("pid",),
    "again": ("id",),
    "command": ("do", "token", "id"),
    "message": (),
}


def event_fault(event: Any) -> str | None:
    """Return what is wrong with an event that was kept, if something is: another kernel's rows may be anything."""
    kind = event.get("is") if isinstance(event, dict) else None
    texts = _TEXTS.get(kind) if isinstance(kind, str) else None
    if texts is None:
        return "is of no known kind"
    missing = [name for name in texts if not isinstance(event.get(name), str)]
    if kind == "command" and ("spec" not in event or not isinstance(event.get("args"), list)):
        missing.append("spec or args")
    if kind == "message" and "message" not in event:
        missing.append("message")
    return f"does not say its {missing[0]}" if missing else None
