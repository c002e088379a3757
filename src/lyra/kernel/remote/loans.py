"""Budgets across shards: what a shard lends to others, and what it has borrowed.

The home of a scope is the shard of the process that has it, or for a budget of the whole cluster the home shard of its
name. A process that the home spawns elsewhere has a loan on that scope:

    home        lends portions: each is a reservation in its own scope, and its row the post that carries it
    borrower    spends them; its scope (`BorrowedBudget`) has room for what was lent and no more
    budget.ask  an effect of the borrower found no room: more is needed. Tells what was used since the last post
    budget.lent a portion, or a refusal
    budget.call the home needs what is unused elsewhere
    budget.back the answer: what was used and what was not. Also sent when the last process of a loan has ended

What was used becomes a row of the process that lent it, in the batch that takes the post: from there on it is spending
like any other. So at each moment, and after any crash of either, used at home + lent ≤ limit, and used at the borrower
≤ lent. Who waits for room, and in which order it is looked for, is in `room`.

A borrower lends on in its turn: for those it is the home.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core.budgets import borrowed as amounts
from lyra.core.budgets.borrowed import BorrowedBudget, find_borrowed, take_part
from lyra.core.budgets.budget import Budget, Excess, Reservation, Usage
from lyra.core.limits import BUDGET_UNUSED_S, BUDGETS_SHARED_MAX
from lyra.core.naming import PORTION
from lyra.errors import ConfigError, Overloaded
from lyra.kernel.journal import rows
from lyra.kernel.process.process import Process
from lyra.kernel.remote.part import CLIENT, RemotePart
from lyra.kernel.remote.room import BudgetRoom

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote

_SHARES: Final = 2  # a portion is at most this part of what is free, for each loan of the scope
_FIRST_SHARES: Final = 16  # the same of the portion that a spawn takes along, of which is not known what it needs
_SETTLE_LOOK_S: Final = 0.05  # until effects that ended with their process have been settled; twice as long each time
_SETTLE_LOOK_MOST_S: Final = 5.0


class Lent(msgspec.Struct):
    """A loan as its home has it."""

    pid: str  # whose scope it is; "" for a budget of the cluster
    to: str  # the shard that has it
    shared: str = ""  # the name of a budget of the cluster
    held: dict[str, int] = {}  # lent, and not told to be used or given back
    asked: list[dict[str, int]] | None = None  # what the borrower needs and what it would like
    called: bool = False  # unused portions are called back
    done: bool = False  # the borrower's processes have ended


class Borrowed(msgspec.Struct):
    """A loan as its borrower has it."""

    pid: str  # the process that began with it
    home: str
    limits: dict[str, int]  # those that block, at the home
    own_limits: dict[str, Any] = {}
    shared: str = ""
    granted: dict[str, int] = {}  # lent altogether, and not given back
    reported: dict[str, int] = {}  # told to be used
    left: dict[str, int] | None = None  # at the home, when it lent last
    asking: bool = False
    called: bool = False


class Shared(msgspec.Struct):
    """A budget of the cluster, at its home."""

    limits: dict[str, Any]
    spent: dict[str, int] = {}
    closed: bool = False
    used_at: float = 0.0  # when it was made, or lent a portion last


class Loans(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "loans"
    SENDS: ClassVar[frozenset[str]] = frozenset({"budget.ask", "budget.lent", "budget.call", "budget.back"})
    KEEPS: ClassVar[frozenset[str]] = SENDS

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._core = parts.core
        self._remote = remote
        self.room = BudgetRoom(self, parts.core)
        self.lent: dict[str, Lent] = {}
        self.borrowed: dict[str, Borrowed] = {}
        self.shared: dict[str, Shared] = {}
        # Live objects, which no journal has:
        self._holds: dict[str, Reservation] = {}  # loan → what is set aside for it
        self._scopes: dict[str, BorrowedBudget] = {}  # loan → the scope of its processes
        self._lenders: dict[str, Process] = {}  # loan → the process whose scope it is
        self._shared_scopes: dict[str, Budget] = {}
        self._by_pid: dict[str, str] = {}  # pid that began with a loan → the loan

    # ------------------------------------------------------------------ what it remembers

    def apply_posted(self, pid: str, shard: str, what: str, data: dict[str, Any]) -> None:  # noqa: ARG002
        if what == "budget.lent":
            lent = self.lent[data["loan"]]
            lent.asked = None
            lent.held = amounts.add(lent.held, data["portion"])
            if lent.shared in self.shared:
                self.shared[lent.shared].used_at = data.get("at", 0.0)
        elif what == "budget.call":
            self.lent[data["loan"]].called = True
        elif data["loan"] in self.borrowed:
            self._apply_report(self.borrowed[data["loan"]], what, data)

    def _apply_report(self, loan: Borrowed, what: str, data: dict[str, Any]) -> None:
        loan.reported = amounts.add(loan.reported, data["used"])
        loan.granted = amounts.subtract(loan.granted, data["unused"])
        if what == "budget.ask":
            loan.asking = True
        else:
            loan.called = False
        if data.get("done"):
            del self.borrowed[data["loan"]]
            if self._by_pid.get(loan.pid) == data["loan"]:
                del self._by_pid[loan.pid]

    def apply_taken(self, shard: str, what: str, data: dict[str, Any]) -> None:
        if what in ("budget.ask", "budget.back"):
            self._apply_told(shard, what, data)
        elif data["loan"] in self.borrowed:
            loan = self.borrowed[data["loan"]]
            if what == "budget.call":
                loan.called = True
            else:
                loan.asking = False
                loan.granted = amounts.add(loan.granted, data["portion"])
                loan.left = data["left"]

    def _apply_told(self, shard: str, what: str, data: dict[str, Any]) -> None:
        lent = self.lent.get(data["loan"])
        if lent is None:
            if not data.get("shared"):  # over
                return
            lent = self.lent[data["loan"]] = Lent("", shard, data.get("shared", ""))
        lent.held = amounts.subtract(lent.held, amounts.add(data["used"], data["unused"]))
        shared = self.shared.get(lent.shared) if lent.shared else None
        if shared is not None:
            shared.spent = amounts.add(shared.spent, data["used"])
        if what == "budget.ask":
            lent.asked = [data["need"], data["wanted"]]
        else:
            lent.called = False
            lent.done = lent.done or data.get("done") is True
        if lent.done and not lent.held:
            del self.lent[data["loan"]]

    def apply_noted(self, pid: str, time: float, data: dict[str, Any]) -> None:
        if "lend" in data:
            self.lent[data["lend"]] = Lent(pid, data["to"], held=data["portion"])
        elif "borrow" in data:
            fields = {name: data[name] for name in ("home", "limits", "own_limits", "shared", "granted", "left")}
            self.borrowed[data["borrow"]] = Borrowed(pid, **fields)
            self._by_pid[pid] = data["borrow"]
        elif "share" in data:
            if data["drop"]:
                del self.shared[data["drop"]]
            self.shared[data["share"]] = Shared(data["limits"], used_at=time)
        else:
            self.shared[data["close"]].closed = True

    def dump(self) -> Any:
        return msgspec.to_builtins({"lent": self.lent, "borrowed": self.borrowed, "shared": self.shared})

    def load(self, data: Any) -> None:
        self.lent = msgspec.convert(data["lent"], dict[str, Lent])
        self.borrowed = msgspec.convert(data["borrowed"], dict[str, Borrowed])
        self.shared = msgspec.convert(data["shared"], dict[str, Shared])
        self._by_pid = {loan.pid: name for name, loan in self.borrowed.items()}

    def list_needed(self) -> Iterable[str]:
        """Return the processes whose spending a loan that is not over counts on: a snapshot has to keep them."""
        return [lent.pid for lent in self.lent.values() if lent.pid] + list(self._by_pid)

    # ------------------------------------------------------------------ the home lends

    def lend(self, process: Process, shard: str, own_limits: dict[str, Any]) -> dict[str, Any] | None:
        """Return what a spawn takes along of the budget of its parent; None where that has no limit."""
        scope = process.budget
        if not scope.limits_anything:
            return None
        remote = self._remote
        loan = f"{remote.shard}:{shard}:{remote.next_number(shard)}"
        limits = {dimension: min(most, own_limits.get(dimension, most)) for dimension, most in scope.blocking().items()}
        free = self._free(scope)
        count = 1 + sum(scope in hold.scope._chain for hold in self._holds.values())
        shares = {name: min(free[name], most) // (_FIRST_SHARES * count) for name, most in limits.items()}
        portion = {name: amount for name, amount in shares.items() if amount > 0}
        hold = self._reserve(process, scope, portion)
        remote.note(self, {"lend": loan, "to": shard, "portion": portion}, pid=process.pid)
        self._holds[loan], self._lenders[loan] = hold, process
        return {"loan": loan, "limits": limits, "portion": portion, "left": self._free(scope)}

    def _reserve(self, lender: Process | None, scope: Budget, portion: dict[str, int]) -> Reservation:
        hold = scope.reserve(Usage.from_data(portion))
        self._warn(lender, hold.over)
        return hold

    def _warn(self, lender: Process | None, over: Iterable[Excess]) -> None:
        told = [excess.to_data() for excess in over]
        if told and lender is not None:
            self._core.publish(lender.pid, "budget.warning", {"effect": PORTION, "over": told})

    def _free(self, scope: Budget) -> dict[str, int]:
        """Return what the limits of a scope and those above leave."""
        return {name: scope.spendable(name) or 0 for name in scope.blocking()}

    def scope_of_loan(self, name: str) -> Budget | None:
        """Return the scope at home that a loan spends from; None where it is gone."""
        hold = self._holds.get(name)
        if hold is not None:
            return hold.scope
        lent = self.lent[name]
        return self._shared_scopes.get(lent.shared) if lent.shared else None

    def lend_more(self, name: str, scope: Budget, need: dict[str, int], wanted: dict[str, int]) -> bool:
        """Lend what a borrower needs, with more of it far from the limits; False where there is no room for that."""
        loans = max(1, sum(scope in hold.scope._chain for hold in self._holds.values()))
        free = self._free(scope)
        for dimension, amount in need.items():
            if amount > free.get(dimension, amount):
                return False
        if not need:  # a loan begins
            wanted, loans = free, loans * (_FIRST_SHARES // _SHARES)
        portion = {}
        for dimension in wanted.keys() | need.keys():
            most = free.get(dimension, 0) // (_SHARES * loans)
            portion[dimension] = max(need.get(dimension, 0), min(wanted.get(dimension, 0), most))
        self._send_portion(name, scope, portion)
        return True

    def _send_portion(self, name: str, scope: Budget, portion: dict[str, int]) -> None:
        portion = {dimension: amount for dimension, amount in portion.items() if amount > 0}
        hold = self._reserve(self._lenders.get(name), scope, portion)
        before = self._holds.get(name)
        if before is None:
            self._holds[name] = hold
        else:
            before.packed += hold.packed
        left = self._free(scope)
        for other, held in self._holds.items():  # unused portions of others can be called back
            if other != name and scope in held.scope._chain:
                left = {key: amount + amounts.to_amounts(held.packed).get(key, 0) for key, amount in left.items()}
        self._answer(name, portion, left)

    def refuse(self, name: str, scope: Budget | None) -> None:
        """Tell a borrower that there is no room for what it needs."""
        self._answer(name, {}, {} if scope is None else self._free(scope), refused=True)

    def _answer(self, name: str, portion: dict[str, int], left: dict[str, int], *, refused: bool = False) -> None:
        lent = self.lent[name]
        data: dict[str, Any] = {"loan": name, "portion": portion, "left": left}
        if lent.shared:
            data["at"] = self._core.now()
        if refused:
            data["refused"] = True
        self._remote.post(lent.to, "budget.lent", data, pid=lent.pid, refusable=False)

    def call_back(self, name: str) -> None:
        """Call back what a borrower does not use."""
        lent = self.lent[name]
        if not lent.called:
            self._remote.post(lent.to, "budget.call", {"loan": name}, pid=lent.pid, refusable=False)

    def list_lent(self, scope: Budget, but: str) -> list[str]:
        """Return the loans that hold something of a scope."""
        return [
            name
            for name, hold in self._holds.items()
            if name != but and hold.packed and name in self.lent and scope in hold.scope._chain
        ]

    def _take_told(self, name: str, what: str, data: dict[str, Any]) -> None:
        """Charge what a borrower has used, and set free what it has not."""
        hold = self._holds.get(name)
        scope = self._shared_scopes.get(data.get("shared", "")) if hold is None else hold.scope
        if scope is not None:
            self._charge(name, scope, hold, data["used"])
            if hold is not None:
                part = take_part(hold, data["unused"])
                part.scope.release(part)
        if name not in self.lent:
            self._holds.pop(name, None)
            self._lenders.pop(name, None)
        above = None if scope is None else find_borrowed(scope)
        if above is not None and name not in self.lent:
            self._settle(above.loan)
        self.room.loan_told(name, what)

    def _charge(self, name: str, scope: Budget, hold: Reservation | None, used: dict[str, int]) -> None:
        if not used:
            return
        usage = Usage.from_data(used)
        part = Reservation(scope, 0) if hold is None else take_part(hold, used)
        over = scope._excesses(usage + -part.usage, "warn") if scope._warns else ()
        scope.settle(part, usage)
        lender = self._lenders.get(name)
        if lender is None:
            return
        lender.count_spent(usage)
        self._warn(lender, over)
        journal = self._core.journal
        if journal is not None:
            row = rows.Finished(f"{rows.ASIDE}loan:{name}", usage=used, name=PORTION)
            journal.write(lender.pid, "effect.finished", rows.encode(row))

    # ------------------------------------------------------------------ budgets of the cluster

    def share(self, name: str, limits: dict[str, Any]) -> None:
        """Make a budget that several shards spend from, of which this shard is the home; the same again changes
        nothing."""
        shared = self.shared.get(name)
        limits = Budget.of(limits).to_data()["limits"]
        if shared is not None and shared.limits != limits:
            raise ConfigError(
                f"there is a budget {name!r} with other limits: {shared.limits}",
                hint="take another name, or the same limits",
                key="name",
            )
        if shared is None:
            drop = "" if len(self.shared) < BUDGETS_SHARED_MAX else self._find_over()
            self._remote.note(self, {"share": name, "limits": limits, "drop": drop})
            self._shared_scopes.pop(drop, None)
            self._shared_scopes[name] = self._core.budget.child(limits)

    def _find_over(self) -> str:
        """Return the oldest budget of the cluster that no process has a loan on and that is closed, or was of a
        connection that nothing was spawned over for long."""
        used = {lent.shared for lent in self.lent.values()}
        unused_since = self._core.now() - BUDGET_UNUSED_S
        for name, shared in self.shared.items():
            is_left = name.startswith(CLIENT) and shared.used_at < unused_since
            if (shared.closed or is_left) and name not in used:
                return name
        raise Overloaded(
            f"{BUDGETS_SHARED_MAX} budgets of the cluster are open on shard {self._remote.shard}",
            hint="close those that are not needed any more",
        )

    def close_shared(self, name: str) -> None:
        """Note that a budget of the cluster is given to no new process. Those that have it spend on."""
        if not self.shared[name].closed:
            self._remote.note(self, {"close": name})

    def read_shared(self, name: str) -> dict[str, Any]:
        """Return the limits of a budget of the cluster, what was used, and what is lent."""
        scope = self._shared_scopes.get(name)
        if scope is None:
            raise ConfigError(f"there is no budget {name!r} on shard {self._remote.shard}", key="name")
        reserved = amounts.to_amounts(scope._taken - scope._used)
        return {"limits": scope._limit_data(), "used": scope.usage.to_data(), "reserved": reserved}

    # ------------------------------------------------------------------ the borrower

    def borrow(self, pid: str, home: str, terms: dict[str, Any], own_limits: dict[str, Any]) -> BorrowedBudget:
        """Begin with a loan that came with a spawn, or (`shared`) on a budget of the cluster; gives its scope."""
        journal = self._core.journal
        name = terms.get("loan") or f"{self._remote.shard}/{pid}~{0 if journal is None else journal.seq}"
        data = {
            "borrow": name,
            "home": home,
            "limits": terms.get("limits", {}),
            "own_limits": own_limits,
            "shared": terms.get("shared", ""),
            "granted": terms.get("portion", {}),
            "left": terms.get("left"),
        }
        self._remote.note(self, data, pid=pid)
        scope = self._open(name)
        if terms.get("shared"):  # so that the home knows of it, and lends something before it is needed
            self.ask(scope, {}, {})
        return scope

    def _open(self, name: str) -> BorrowedBudget:
        loan = self.borrowed[name]
        above = self._core.budget
        scope = self._scopes[name] = BorrowedBudget(name, loan.limits, parent=above, own_limits=loan.own_limits)
        scope.set_terms(loan.granted, loan.left)
        return scope

    def give_up(self, scope: BorrowedBudget) -> None:
        """Give a loan back whose process did not begin."""
        self._settle(scope.loan)

    def find_scope(self, name: str) -> BorrowedBudget | None:
        """Return the scope that the processes of a loan spend from; None where it is over."""
        return self._scopes.get(name)

    def decline(self, home: str, terms: dict[str, Any]) -> None:
        """Give a loan back that came for a process that is there already."""
        data = {"loan": terms["loan"], "used": {}, "unused": terms["portion"], "done": True}
        self._remote.post(home, "budget.back", data, refusable=False)

    def scope_of(self, pid: str) -> BorrowedBudget | None:
        """Return the scope that a process came back with, of those that began with a loan."""
        name = self._by_pid.get(pid)
        return None if name is None else self._open(name)

    def ask(self, scope: BorrowedBudget, need: dict[str, int], wanted: dict[str, int]) -> None:
        """Ask the home for a portion with room for `need`. All that is unused goes back with it: two borrowers that
        each need what the other has left would call it back from one another for ever."""
        loan = self.borrowed[scope.loan]
        data: dict[str, Any] = {**self._report(scope), "need": need, "wanted": wanted, "unused": scope.find_unused()}
        self._remote.post(loan.home, "budget.ask", data, pid=loan.pid)
        scope.set_terms(loan.granted, None)

    def _report(self, scope: BorrowedBudget) -> dict[str, Any]:
        """Return what was used and not told yet."""
        loan = self.borrowed[scope.loan]
        used = amounts.subtract(scope.usage.to_data(), loan.reported)
        return {"loan": scope.loan, "used": used, **({"shared": loan.shared} if loan.shared else {})}

    def give_back(self, name: str) -> None:
        """Give back all that is not used, as the home asked."""
        loan, scope = self.borrowed.get(name), self._scopes.get(name)
        if loan is None or scope is None or not loan.called:
            return
        data = {**self._report(scope), "unused": scope.find_unused()}
        self._remote.post(loan.home, "budget.back", data, pid=loan.pid, refusable=False)
        scope.set_terms(loan.granted, None)

    def is_borrower(self, process: Process) -> bool:
        """Return whether a process spends what another shard lends."""
        return find_borrowed(process.budget) is not None

    def _settle(self, name: str, look_s: float = _SETTLE_LOOK_S) -> None:
        """Give a loan back that no process spends from any more, once all its effects are settled."""
        loan, scope = self.borrowed.get(name), self._scopes.get(name)
        core = self._core
        if loan is None or scope is None or scope.members or core.stopping or core.failure is not None:
            return
        if any(scope in hold.scope._chain for hold in self._holds.values()):
            return  # it is lent on: `_take_told` comes back when that loan is over, even if nothing is lent of it yet
        if not scope.is_settled:  # an effect ends with its process
            again = min(2 * look_s, _SETTLE_LOOK_MOST_S)
            core.clock.call_at(core.clock.monotonic() + look_s, lambda: self._settle(name, again))
            return
        data = {**self._report(scope), "unused": scope.find_unused(), "done": True}
        del self._scopes[name]
        self._remote.post(loan.home, "budget.back", data, pid=loan.pid, refusable=False)
        scope.set_terms(scope.usage.to_data(), None)
        self.room.loan_told(name, "budget.lent")

    def _take_lent(self, sender: str, data: dict[str, Any]) -> None:
        loan, scope = self.borrowed.get(data["loan"]), self._scopes.get(data["loan"])
        if loan is None or scope is None:  # it ended while the portion was on its way
            if data["portion"]:
                back = {"loan": data["loan"], "used": {}, "unused": data["portion"], "done": True}
                self._remote.post(sender, "budget.back", back, refusable=False)
            return
        scope.last = data["portion"]
        scope.set_terms(loan.granted, loan.left)
        self.room.loan_told(data["loan"], "budget.lent", refused=bool(data.get("refused")))

    # ------------------------------------------------------------------ moments

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002 (one signature)
        name = data["loan"]
        if what == "budget.lent":
            self._take_lent(sender, data)
        elif what == "budget.call":
            if name in self.borrowed:
                self.room.begin_return(name)
        else:
            self._take_told(name, what, data)
            if what == "budget.ask":
                self.room.begin_lending(name)

    def process_started(self, process: Process) -> None:
        """Count a process that spends from a loan."""
        scope = find_borrowed(process.budget)
        if scope is not None:
            scope.members.add(process.pid)

    def process_ended(self, process: Process, how: Any) -> None:  # noqa: ARG002 (one signature)
        scope = find_borrowed(process.budget)
        if scope is not None:
            scope.members.discard(process.pid)
            if not scope.members:
                self._settle(scope.loan)

    def restore(self, process: Process) -> None:
        """Restore what a process that came back has lent, and count it where it spends from a loan."""
        for name, lent in self.lent.items():
            if lent.pid == process.pid:
                self._lenders[name] = process
                self._holds[name] = process.budget.hold(Usage.from_data(lent.held))
        if process.exit is None:
            self.process_started(process)

    def on_restored(self) -> None:
        for name, shared in self.shared.items():
            scope = self._shared_scopes[name] = self._core.budget.child(shared.limits)
            scope.charge(Usage.from_data(shared.spent))
        for name, lent in self.lent.items():
            if lent.shared in self._shared_scopes:
                self._holds[name] = self._shared_scopes[lent.shared].hold(Usage.from_data(lent.held))
        for name in list(self.borrowed):
            loan = self.borrowed[name]
            if name not in self._scopes:  # its process never began
                self._open(name)
            if loan.called:
                self.room.begin_return(name)
            self._settle(name)
        for name, lent in self.lent.items():
            if lent.asked is not None:
                self.room.begin_lending(name)
