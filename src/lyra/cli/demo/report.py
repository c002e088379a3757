"""The demo's last words: what the journal says, held against what the service performed.

`Evidence` is what was found right after the kill. `report` reads the whole journal and the service's ledger when all is
over and counts: effects by key, money, restarts by supervisor. Nothing is remembered from the showing but the calls at
the service. `lines` tells the same to a person.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lyra.cli.demo.board import plan_of, strategy_of
from lyra.core.budgets.money import Money


class Fact(NamedTuple):
    """One row of the journal, decoded."""

    seq: int
    pid: str
    kind: str
    data: dict[str, Any]


@dataclass(slots=True)
class Evidence:
    """What was left by the kernel that was killed."""

    signal: int
    seq: int  # the last row in the journal
    finished: set[str]  # the keys of effects that were finished
    performed: list[str]  # the keys in the ledger


def facts(path: str) -> list[Fact]:
    """The whole journal; a store that is not sound is a StoreError."""
    from lyra.core.codec import decode
    from lyra.errors import StoreError
    from lyra.store import open_store

    store = open_store(path)
    try:
        problems = store.check()
        if problems:
            raise StoreError("; ".join(problems))
        return [Fact(row.seq, row.pid, row.kind, decode(row.data)) for row in store.read()]
    finally:
        store.close()


def finished(journal: list[Fact]) -> set[str]:
    """The keys of the effects that came to a good end."""
    return {
        f"{fact.pid}:{fact.data['key']}"
        for fact in journal
        if fact.kind == "effect.finished" and fact.data.get("form", "do") == "do" and fact.data.get("error") is None
    }


def ledger(path: str) -> list[str]:
    """The keys that the service performed, in order."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["key"] for line in file]


# ---------------------------------------------------------------- counting
def report(
    evidence: Evidence, journal: list[Fact], keys: list[str], calls: Counter[str], *, result: Any, limit: Money
) -> dict[str, Any]:
    money = _money(journal)
    spent = Money(sum(money.values()))
    effects = _effects(evidence, keys, calls)
    tree = _Tree(journal)
    supervision = tree.counted(evidence.seq)
    problems = [*_broken_promises(effects, supervision), *tree.broken_limits()]
    if spent > limit:
        problems.append(f"{spent} was spent of {limit}")
    return {
        "result": result,
        "effects": effects,
        "supervision": supervision,
        "service": {
            "calls": calls["calling"],
            "429": calls["429"],
            "503": calls["503"],
            "no_answer": calls["silent"],
        },
        "money": {
            "spent": str(spent),
            "limit": str(limit),
            "by_process": {name: str(Money(usd)) for name, usd in money.items()},
        },
        "kill": {"signal": evidence.signal, "journal_rows": evidence.seq},
        "journal_rows": journal[-1].seq,
        "problems": problems,
    }


def _effects(evidence: Evidence, keys: list[str], calls: Counter[str]) -> dict[str, int]:
    times = Counter(keys)
    after = set(keys[len(evidence.performed) :])
    return {
        "performed_once": sum(count == 1 for count in times.values()),
        "performed_twice": sum(count > 1 for count in times.values()),
        "finished_before_the_kill": len(evidence.finished),
        "finished_and_performed_again": len(after & evidence.finished),
        "asked_again_with_the_same_key": calls["known"],
    }


def _money(journal: list[Fact]) -> Counter[str]:
    """Micro-dollars by name, of the processes that have a budget or spent something."""
    names = {fact.pid: fact.data.get("name") or fact.pid for fact in journal if fact.kind == "process.created"}
    spent: Counter[str] = Counter()
    for fact in journal:
        if fact.kind == "process.created" and fact.data.get("budget"):
            spent[names[fact.pid]] += 0
        elif fact.kind == "effect.finished" and fact.data.get("usage"):
            spent[names[fact.pid]] += fact.data["usage"].get("usd", 0)
    return spent


def _broken_promises(effects: dict[str, int], supervision: dict[str, Any]) -> Iterator[str]:
    if effects["finished_and_performed_again"] or effects["performed_twice"]:
        yield f"{effects['finished_and_performed_again'] or effects['performed_twice']} effects were performed again"
    for when in ("before", "after"):
        if not sum(supervisor[f"restarts_{when}_the_kill"] for supervisor in supervision["supervisors"].values()):
            yield f"nothing was restarted {when} the kill"


# ---------------------------------------------------------------- supervision
@dataclass(slots=True)
class _KernelRun:
    """One process of the tree, from its first row to its last."""

    pid: str
    name: str
    parent: str
    seq: int
    plan: dict[str, Any] | None
    reason: str = ""
    stopped: bool = False  # told to end: it did not end by itself
    restarts: list[int] = field(default_factory=list)  # of a supervisor: the rows in which a child started again


class _Tree:
    """Supervisors and their children, from the journal alone."""

    def __init__(self, journal: list[Fact]) -> None:
        self.lives: dict[str, _KernelRun] = {}
        self._ended: dict[tuple[str, str], _KernelRun] = {}  # by parent and name: not restarted yet
        for fact in journal:
            if fact.kind == "process.created":
                self._created(fact)
            elif fact.kind == "process.stopping":
                self.lives[fact.pid].stopped = True
            elif fact.kind == "process.terminated":
                self._terminated(fact)

    def _created(self, fact: Fact) -> None:
        data = fact.data
        plan = plan_of(data)
        name, parent = data.get("name") or fact.pid, data.get("parent", "")
        self.lives[fact.pid] = _KernelRun(fact.pid, name, parent, fact.seq, None if plan is None else dict(plan))
        if self._ended.pop((parent, name), None) is not None:
            self.lives[parent].restarts.append(fact.seq)

    def _terminated(self, fact: Fact) -> None:
        life = self.lives[fact.pid]
        life.reason = fact.data["reason"]
        above = self.lives.get(life.parent)
        if above is not None and above.plan is not None and not life.stopped:
            self._ended[life.parent, life.name] = life

    def counted(self, killed_at: int) -> dict[str, Any]:
        supervisors: dict[str, Any] = {}
        children: dict[str, Any] = {}
        for life in self.lives.values():
            if life.plan is not None:
                self._count_supervisor(supervisors, life, killed_at)
            above = self.lives.get(life.parent)
            if above is not None and above.plan is not None:
                restart = next(spec["restart"] for spec in above.plan["children"] if spec["id"] == life.name)
                child = children.setdefault(life.name, {"restart": restart, "starts": 0, "crashes": 0})
                child["starts"] += 1
                child["crashes"] += life.reason == "error"
        return {"supervisors": supervisors, "children": children}

    def _count_supervisor(self, supervisors: dict[str, Any], life: _KernelRun, killed_at: int) -> None:
        plan = life.plan or {}
        counts = supervisors.setdefault(
            life.name,
            {
                "strategy": strategy_of(plan),
                "max_restarts": plan["max_restarts"],
                "window_s": plan["window_s"],
                "restarts_before_the_kill": 0,
                "restarts_after_the_kill": 0,
                "gave_up": 0,
            },
        )
        counts["restarts_before_the_kill"] += sum(seq <= killed_at for seq in life.restarts)
        counts["restarts_after_the_kill"] += sum(seq > killed_at for seq in life.restarts)
        counts["gave_up"] += self._gave_up(life)

    def _gave_up(self, life: _KernelRun) -> bool:
        """It ended by itself while a child lay there that it should have started again."""
        left = [child for (parent, _), child in self._ended.items() if parent == life.pid and child.reason == "error"]
        return bool(life.reason) and not life.stopped and bool(left)

    def broken_limits(self) -> Iterator[str]:
        """The demo is shorter than any window in it, so all restarts of one execution count."""
        for life in self.lives.values():
            if life.plan is not None and len(life.restarts) > life.plan["max_restarts"]:
                yield f"{life.name} restarted {len(life.restarts)} times, of {life.plan['max_restarts']}"


# ---------------------------------------------------------------- the last lines
def lines(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    result, effects, service, money = (report[part] for part in ("result", "effects", "service", "money"))
    published = "published" if result["published"] else "not published"
    refused = f"{service['429']} × 429, {service['503']} × 503, {service['no_answer']} without answer"
    again = effects["finished_and_performed_again"] or "none"
    yield "result", f"{result['findings']} findings {published}, {result['skipped']} pages not paid for"
    yield "service", f"{service['calls']} calls: {refused}"
    yield "effects", f"{effects['performed_once']} performed once, {effects['performed_twice']} twice"
    yield "kill -9", f"{effects['finished_before_the_kill']} were finished before it, {again} performed again"
    yield "", f"{effects['asked_again_with_the_same_key']} of those in flight were performed; the service knew the keys"
    yield from _supervision_lines(report["supervision"])
    yield "money", f"{money['spent']} of {money['limit']}"
    yield "journal", f"{report['journal_rows']} rows"
    yield "time", f"{report['seconds']:.1f} s, seed {report['seed']}"
    if "store" in report:
        yield "store", f"{report['store']} (look at it with `lyra store export`)"


def _supervision_lines(supervision: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, supervisor in supervision["supervisors"].items():
        before, after = supervisor["restarts_before_the_kill"], supervisor["restarts_after_the_kill"]
        yield name, f"{supervisor['strategy']}: {_times(before, 'restart')} before the kill, {after} after it"
        if supervisor["gave_up"]:
            most = _times(supervisor["max_restarts"], "restart")
            yield "", f"then gave up: {most} in {supervisor['window_s']:g} s is its limit, kill or no kill"
    for name, child in supervision["children"].items():
        if child["starts"] > 1 and name not in supervision["supervisors"]:
            crashed = f"crashed {_times(child['crashes'], 'time')}" if child["crashes"] else "never crashed itself"
            yield name, f"{child['restart']}: {crashed}, {child['starts']} starts under one name"


def _times(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
