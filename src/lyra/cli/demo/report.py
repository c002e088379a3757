"""The report of `lyra demo`: what the journal says, held against what the service performed.

`Evidence` is what was found right after the kill. `report` counts in the whole journal and the service's ledger:
effects by key, money, restarts by supervisor. Only the calls at the service are remembered from the showing. `lines` is
the report for a person.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lyra.core.budgets.money import Money
from lyra.core.event import Event
from lyra.errors import StoreError

_ERLANG: Final = {"restart": "one_for_one", "restart_all": "one_for_all"}  # which more people know


@dataclass(slots=True)
class Evidence:
    """What was left by the kernel that was killed."""

    signal: int
    seq: int  # the last row in the journal
    finished: set[str]  # the keys of effects that were finished
    performed: list[str]  # the keys in the ledger


def read_journal(path: str) -> list[Event]:
    """Return the whole journal; raise StoreError for a store that is not sound."""
    from lyra.cli.views.rows import StoreRows
    from lyra.store import open_store

    store = open_store(path)
    try:
        problems = store.check()
        if problems:
            raise StoreError("; ".join(problems))
        return list(StoreRows(store).rows())
    finally:
        store.close()


def find_finished(journal: list[Event]) -> set[str]:
    """Return the keys of the effects that came to a good end."""
    return {
        f"{event.pid}:{event.data['key']}"
        for event in journal
        if event.kind == "effect.finished" and event.data.get("form", "do") == "do" and event.data.get("error") is None
    }


def ledger(path: str) -> list[str]:
    """Return the keys that the service performed, in order."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["key"] for line in file]


def report(
    evidence: Evidence, journal: list[Event], keys: list[str], calls: Counter[str], *, result: Any, limit: Money
) -> dict[str, Any]:
    money = _money(journal)
    spent = Money(sum(money.values()))
    times = Counter(keys)
    after = set(keys[len(evidence.performed) :])
    effects = {
        "performed_once": sum(count == 1 for count in times.values()),
        "performed_twice": sum(count > 1 for count in times.values()),
        "finished_before_the_kill": len(evidence.finished),
        "finished_and_performed_again": len(after & evidence.finished),
        "asked_again_with_the_same_key": calls["known"],
    }
    lives = _lives(journal)
    supervision = _supervision(lives, evidence.seq)
    problems = [*_find_broken_promises(effects, supervision)]
    problems += [
        f"{life.name} restarted {len(life.restarts)} times, of {life.plan['max_restarts']}"
        for life in lives.values()  # the demo is shorter than any window in it, so all restarts of one life count
        if life.plan and len(life.restarts) > life.plan["max_restarts"]
    ]
    if spent > limit:
        problems.append(f"{spent} was spent of {limit}")
    return {
        "result": result,
        "effects": effects,
        "supervision": supervision,
        "service": {"calls": calls["calling"], "429": calls["429"], "503": calls["503"], "no_answer": calls["silent"]},
        "money": {
            "spent": str(spent),
            "limit": str(limit),
            "by_process": {name: str(Money(usd)) for name, usd in money.items()},
        },
        "kill": {"signal": evidence.signal, "journal_rows": evidence.seq},
        "journal_rows": journal[-1].seq,
        "problems": problems,
    }


def _money(journal: list[Event]) -> Counter[str]:
    """Micro-dollars by name, of the processes that have a budget or spent something."""
    names = {event.pid: event.data.get("name") or event.pid for event in journal if event.kind == "process.created"}
    spent: Counter[str] = Counter()
    for event in journal:
        if event.kind == "process.created" and event.data.get("budget"):
            spent[names[event.pid]] += 0
        elif event.kind == "effect.finished" and event.data.get("usage"):
            spent[names[event.pid]] += event.data["usage"].get("usd", 0)
    return spent


def _find_broken_promises(effects: dict[str, int], supervision: dict[str, Any]) -> Iterator[str]:
    if effects["finished_and_performed_again"] or effects["performed_twice"]:
        yield f"{effects['finished_and_performed_again'] or effects['performed_twice']} effects were performed again"
    for when in ("before", "after"):
        if not sum(supervisor[f"restarts_{when}_the_kill"] for supervisor in supervision["supervisors"].values()):
            yield f"nothing was restarted {when} the kill"


@dataclass(slots=True)
class _ProcessHistory:
    """One process of the tree, from its first row to its last."""

    name: str
    parent: str
    plan: dict[str, Any]  # of a supervisor; else empty
    reason: str = ""
    stopped: bool = False  # told to end: it did not end by itself
    restarts: list[int] = field(default_factory=list)  # of a supervisor: the rows in which a child started again
    ended: dict[str, str] = field(default_factory=dict)  # of a supervisor: children not started again, with their ends


def _lives(journal: list[Event]) -> dict[str, _ProcessHistory]:
    """Return supervisors and other processes by pid, from the journal alone."""
    lives: dict[str, _ProcessHistory] = {}
    for event in journal:
        data = event.data
        if event.kind == "process.created":
            life = lives[event.pid] = _ProcessHistory(
                data.get("name") or event.pid, data.get("parent", ""), _plan(data)
            )
            above = lives.get(life.parent)
            if above is not None and above.ended.pop(life.name, None) is not None:
                above.restarts.append(event.seq)
        elif event.kind == "process.stopping":
            lives[event.pid].stopped = True
        elif event.kind == "process.terminated":
            life = lives[event.pid]
            life.reason = data["reason"]
            above = lives.get(life.parent)
            if above is not None and not life.stopped:
                above.ended[life.name] = life.reason
    return lives


def _plan(created: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a supervisor was told, from the arguments it was started with; empty for other programs."""
    args = created.get("args")
    first = args[0] if isinstance(args, list) and args else None
    return first if isinstance(first, dict) and "max_restarts" in first else {}


def _supervision(lives: dict[str, _ProcessHistory], killed_at: int) -> dict[str, Any]:
    supervisors: dict[str, Any] = {}
    children: dict[str, Any] = {}
    for life in lives.values():
        if life.plan:
            plan = life.plan
            counts = supervisors.setdefault(
                life.name,
                {
                    "strategy": _ERLANG.get(plan["strategy"], str(plan["strategy"])),
                    "max_restarts": plan["max_restarts"],
                    "window_s": plan["window_s"],
                    "restarts_before_the_kill": 0,
                    "restarts_after_the_kill": 0,
                    "gave_up": 0,
                },
            )
            before = sum(seq <= killed_at for seq in life.restarts)
            counts["restarts_before_the_kill"] += before
            counts["restarts_after_the_kill"] += len(life.restarts) - before
            # It ended by itself, with a crashed child that it should have started again.
            counts["gave_up"] += bool(life.reason) and not life.stopped and "error" in life.ended.values()
        above = lives.get(life.parent)
        if above is not None and above.plan:
            restart = next(spec["restart"] for spec in above.plan["children"] if spec["id"] == life.name)
            child = children.setdefault(life.name, {"restart": restart, "starts": 0, "crashes": 0})
            child["starts"] += 1
            child["crashes"] += life.reason == "error"
    return {"supervisors": supervisors, "children": children}


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
    supervision = report["supervision"]
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
    yield "money", f"{money['spent']} of {money['limit']}"
    yield "journal", f"{report['journal_rows']} rows"
    yield "time", f"{report['seconds']:.1f} s, seed {report['seed']}"
    if "store" in report:
        yield "store", f"{report['store']} (look at it with `lyra store export`)"


def _times(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
