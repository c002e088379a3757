"""One answer out of those of all shards, for each endpoint that is asked of all: pure functions of what they answered.

`MERGES` is the table, by the names of endpoints. `begin` says what each shard is asked, with its part of a place to go
on from (`after`, `since`, `pageToken`, `Last-Event-ID`); `join` puts the answers together: rows in the order in which
one server lists them, bounded as the caller asked, and with a place to go on from that has a part for each shard.
Processes are named by their addresses. A shard that did not answer is named, keeps its part of the place, and is read
on when it answers again.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from lyra.core.ids import to_address
from lyra.core.limits import SERVER_PAGE_ITEMS
from lyra.errors import ConfigError

Query = dict[str, str]
Answers = Mapping[str, Any]  # by shard: the JSON of its answer, or its text where that is none
_HISTORY_ROWS: Final = 1_000  # as `/api/history` gives without a limit
_TASKS: Final = 50  # as A2A's ListTasks gives without a page size
_LAST: Final = "\U0010ffff"  # behind every pid


class ListMerge(NamedTuple):
    """How the answers of an endpoint become one. `begin` gives what each shard is asked in place of the query; `again`
    whether all have to be asked once more, from the beginning."""

    join: Callable[[Query, Answers], Any]
    begin: Callable[[Query, Sequence[str]], Mapping[str, Query]] = lambda query, shards: dict.fromkeys(shards, query)
    again: Callable[[Query, Answers], bool] = lambda _query, _answers: False


# ---------------------------------------------------------------- places and addresses


def read_place(text: str) -> dict[str, str]:
    """Return the parts of a place, by shard; ConfigError for text that no answer gave."""
    parts: dict[str, str] = {}
    for part in text.split(","):
        shard, equals, value = part.partition("=")
        if not equals or not shard or shard in parts:
            raise ConfigError("the place to go on from is none that an earlier answer gave", key="after")
        parts[shard] = unquote(value)
    return parts


def write_place(parts: Mapping[str, Any]) -> str:
    return ",".join(f"{shard}={quote(str(value), safe='')}" for shard, value in sorted(parts.items()))


def _name_processes(shard: str, row: Any, *fields: str) -> Any:
    """Put addresses in place of the pids that a row has."""
    for field in fields:
        value = row.get(field)
        if isinstance(value, list):
            row[field] = [to_address(shard, pid) for pid in value]
        elif isinstance(value, str):
            row[field] = to_address(shard, value)
    return row


def _rows(answers: Answers, name: str, *pids: str) -> Iterable[tuple[str, dict[str, Any]]]:
    for shard, answer in answers.items():
        for row in answer[name]:
            yield shard, _name_processes(shard, row, *pids)


def _limit(query: Query, usual: int, name: str = "limit") -> int:
    text = query.get(name, "")
    return int(text) if text.isdigit() else usual


# ---------------------------------------------------------------- lists


def _merge_list(name: str, key: Callable[[dict[str, Any]], Any], *pids: str) -> ListMerge:
    """Return the merge of a list that is given whole: sorted by a key."""

    def join(_query: Query, answers: Answers) -> Any:
        return {name: sorted((row for _, row in _rows(answers, name, *pids)), key=key)}

    return ListMerge(join)


def _began(row: dict[str, Any]) -> tuple[float, str]:
    return float(row["created_at"] or 0.0), str(row.get("pid") or row.get("id") or "")


def _begin_processes(query: Query, shards: Sequence[str]) -> Mapping[str, Query]:
    after = query.get("after", "")
    if not after:
        return dict.fromkeys(shards, query)
    time, _, address = after.partition(":")
    shard, slash, pid = address.partition("/")
    if not slash:
        raise ConfigError("`after` takes the value of `next` from the page before", key="after")
    # Of processes that began at one time those of the shards before this one were given, and none of those behind it.
    places = {name: pid if name == shard else _LAST if f"{name}/" < f"{shard}/" else "" for name in shards}
    return {name: {**query, "after": f"{time}:{place}"} for name, place in places.items()}


def _join_processes(query: Query, answers: Answers) -> Any:
    rows = sorted(
        ((row["created_at"] or 0.0, shard, row) for shard, row in _rows(answers, "processes")),
        key=lambda entry: (entry[0], f"{entry[1]}/", entry[2]["pid"]),
    )
    limit = _limit(query, SERVER_PAGE_ITEMS)
    more = len(rows) > limit or any(answer["next"] for answer in answers.values())
    page = [_name_processes(shard, row, "pid", "parent_pid", "child_pids") for _, shard, row in rows[:limit]]
    return {
        "processes": page,
        "total": sum(answer["total"] for answer in answers.values()),
        "next": f"{page[-1]['created_at'] or 0.0!r}:{page[-1]['pid']}" if more and page else None,
    }


def _join_traces(query: Query, answers: Answers) -> Any:
    """Newest first; the parts of one trace that several shards have are one line."""
    traces: dict[str, dict[str, Any]] = {}
    for _, row in _rows(answers, "traces"):
        known = traces.setdefault(row["trace_id"], row)
        if known is not row:
            ended = max(_trace_end(known), _trace_end(row))
            first = min(known, row, key=lambda part: float(part["started_at"]))
            sums = {name: known[name] + row[name] for name in ("span_count", "cost_usd")}
            status = next((part["status"] for part in (known, row) if part["status"] != "ok"), "ok")
            latency_ms = round((ended - first["started_at"]) * 1000)
            traces[row["trace_id"]] = {**first, **sums, "status": status, "latency_ms": latency_ms}
    newest = sorted(traces.values(), key=lambda row: -_trace_end(row))
    return {"traces": newest[: _limit(query, SERVER_PAGE_ITEMS)]}


def _trace_end(row: dict[str, Any]) -> float:
    return float(row["started_at"] + row["latency_ms"] / 1000)


def _join_services(_query: Query, answers: Answers) -> Any:
    """Each service once, with the shard that has it: a shard also lists those that others have told it of."""
    services: dict[tuple[str, str], Any] = {}
    for shard, row in _rows(answers, "services"):
        home = row.get("shard") or shard
        if home == shard or (row["name"], home) not in services:  # it knows best itself
            services[row["name"], home] = {**row, "shard": home}
    return {"services": [services[key] for key in sorted(services)]}


def _join_webhooks(_query: Query, answers: Answers) -> Any:
    """Each webhook once: every shard has it, and posts its own events."""
    webhooks: dict[str, dict[str, Any]] = {}
    for _, row in _rows(answers, "webhooks"):
        known = webhooks.setdefault(row["webhook_id"], row)
        if known is not row:
            sums = {name: known[name] + row[name] for name in ("delivered", "failed", "dropped")}
            last_error = known["last_error"] or row["last_error"]
            webhooks[row["webhook_id"]] = {**known, **sums, "last_error": last_error}
    return {"webhooks": [webhooks[key] for key in sorted(webhooks)]}


def _join_nodes(_query: Query, answers: Answers) -> Any:
    """Each node once. What was counted is added up, unless each shard counts for all; of mode and confidence the least
    is told, and what one shard has reached is reached."""
    nodes: dict[str, dict[str, Any]] = {}
    for _, row in _rows(answers, "nodes"):
        known = nodes.setdefault(row["node_id"], row)
        if known is row:
            continue
        least = min(known, row, key=lambda part: (float(part["confidence"]), float(part["direct_share"])))
        reached = list(dict.fromkeys([*known["reached"], *row["reached"]]))
        nodes[row["node_id"]] = {
            **least,
            **{
                name: max(known[name], row[name]) if row["shared"] else known[name] + row[name]
                for name in ("compared", "divergences")
            },
            **{name: max(known[name], row[name]) for name in ("distinct", "accepted", "successes")},
            "errors": known["errors"] + row["errors"],
            "executions": _add(known["executions"], row["executions"]),
            "reached": reached,
            "unreached": [place for place in least["unreached"] if place not in reached],
            "blocked": known["blocked"] or row["blocked"],
        }
    return {"nodes": list(nodes.values())}


# ---------------------------------------------------------------- sums


def _add(first: Any, second: Any) -> Any:
    """Return the sum of two numbers, or of the numbers at the same places of two objects; else the first."""
    if isinstance(first, dict) and isinstance(second, dict):
        whole = {**second, **first}
        return {
            name: _add(value, second[name]) if name in first and name in second else value
            for name, value in whole.items()
        }
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (first, second))
    return first + second if is_number else first


def _join_status(_query: Query, answers: Answers) -> Any:
    total: Any = None
    for answer in answers.values():
        total = answer if total is None else _add(total, answer)
    longest = max(answer["uptime_seconds"] for answer in answers.values())
    return {**total, "uptime_seconds": longest}


def _join_costs(_query: Query, answers: Answers) -> Any:
    groups: dict[str, Any] = {}
    for _, row in _rows(answers, "groups"):
        groups[row["key"]] = _add(groups[row["key"]], row) | {"key": row["key"]} if row["key"] in groups else row
    by = next(iter(answers.values()))["by"]
    total_usd = sum(answer["total_usd"] for answer in answers.values())
    return {"by": by, "groups": [groups[key] for key in sorted(groups)], "total_usd": total_usd}


_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?( .*)\Z")
_FAMILY: Final = re.compile(r"# (?:HELP|TYPE) (\S+) ")


def _join_metrics(_query: Query, answers: Answers) -> str:
    """Return the samples of all shards, each family once, with the label `shard`."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for shard, text in answers.items():
        heads, samples = families.setdefault("", ([], []))
        for line in str(text).splitlines():
            family = _FAMILY.match(line)
            if family is not None:
                heads, samples = families.setdefault(family[1], ([], []))
                if line.partition(" ")[2].partition(" ")[0] not in {head.split(" ")[1] for head in heads}:
                    heads.append(line)
            elif (sample := _SAMPLE.match(line)) is not None:
                labels = f'shard="{shard}"' + (f",{sample[2]}" if sample[2] else "")
                samples.append(f"{sample[1]}{{{labels}}}{sample[3]}")
    return "".join(f"{line}\n" for heads, samples in families.values() for line in (*heads, *samples))


# ---------------------------------------------------------------- the tree


def _begin_tree(query: Query, shards: Sequence[str]) -> Mapping[str, Query]:
    since = query.get("since", "")
    marks = read_place(since) if since else {}
    if any(shard not in marks for shard in shards):  # one that was missing: its rows are not known
        marks = dict.fromkeys(shards, "")
    return {shard: {**query, "since": marks[shard]} for shard in shards}


def _join_tree(query: Query, answers: Answers) -> Any:
    """Return the rows of all, or what changed. A shard that is missing now keeps its rows and its mark."""
    columns: list[str] = next(iter(answers.values()))["columns"]
    pid, parent = columns.index("pid"), columns.index("parent")
    rows = []
    for shard, answer in answers.items():
        for row in answer["rows"]:
            row[pid], row[parent] = to_address(shard, row[pid]), to_address(shard, row[parent])
            rows.append(row)
    whole = all(answer["whole"] for answer in answers.values())
    before = {} if whole or not query.get("since") else read_place(query["since"])
    return {
        "mark": write_place({**before, **{shard: answer["mark"] for shard, answer in answers.items()}}),
        "whole": whole,
        "columns": columns,
        "rows": _parents_first(rows, pid, parent) if whole else rows,
        "gone": [to_address(shard, gone) for shard, answer in answers.items() for gone in answer["gone"]],
    }


def _parents_first(rows: list[Any], pid: int, parent: int) -> list[Any]:
    """Return the rows with each parent before its children, which may be on other shards."""
    below: dict[str, list[Any]] = {}
    known = {row[pid] for row in rows}
    roots = []
    for row in rows:
        if row[parent] in known and row[parent] != row[pid]:
            below.setdefault(row[parent], []).append(row)
        else:
            roots.append(row)
    ordered = roots
    for row in ordered:  # grows while it is read: a level after the other
        ordered += below.pop(row[pid], ())
    return ordered + [row for left in below.values() for row in left]


def _is_tree_mixed(_query: Query, answers: Answers) -> bool:
    """Return whether some shards told what changed and others all: what is gone of those is not known."""
    return len({answer["whole"] for answer in answers.values()}) > 1


# ---------------------------------------------------------------- the journal

# Fields of rows of the journal that name a process, by the kind; others are told as they stand.
_NAMED: Final[dict[str, tuple[str, ...]]] = {
    "process.created": ("parent",),
    "message.sent": ("to",),
    "pcb.submitted": ("parent_pid",),
    "pcb.noted": ("parent_pid",),
    "child.restarting": ("pid",),
}


def _begin_history(query: Query, shards: Sequence[str]) -> Mapping[str, Query]:
    after = query.get("after", "")
    places = {} if after in ("", "0") else read_place(after)
    return {shard: {**query, "after": places.get(shard, "0")} for shard in shards}


def _join_history(query: Query, answers: Answers) -> Any:
    """Return the rows of all shards by their time, those of one shard in its own order."""
    after = query.get("after", "")
    places: dict[str, Any] = {} if after in ("", "0") else read_place(after)
    ordered = [[(row["time"], shard, row) for row in answer["events"]] for shard, answer in answers.items()]
    merged = list(heapq.merge(*ordered, key=lambda entry: entry[0]))
    limit = _limit(query, _HISTORY_ROWS)
    for shard, answer in answers.items():
        places[shard] = answer["last_seq"]
    for _, shard, row in reversed(merged[limit:]):
        places[shard] = row["seq"] - 1  # the first row of it that was not given
    events = []
    for _, shard, row in merged[:limit]:
        data = row["data"]
        if isinstance(data, dict) and row["kind"] in _NAMED:
            _name_processes(shard, data, *(name for name in _NAMED[row["kind"]] if name in data))
        events.append({**row, "pid": to_address(shard, row["pid"])})
    more = len(merged) > limit or any(answer["more"] for answer in answers.values())
    return {"events": events, "last_seq": write_place(places), "more": more}


def begin_events(event_id: str, shards: Sequence[str]) -> dict[str, str]:
    """Return the `Last-Event-ID` with which the stream of each shard is read on; "" from now on."""
    try:
        known = read_place(event_id) if event_id else {}
    except ConfigError:  # of another server: from now on, as there
        known = {}
    return {shard: known.get(shard, "") for shard in shards}


_ID: Final = b"id: "
_DATA: Final = b"data: "


class EventPlaces:
    """The places in the streams of all shards that one stream is at. `tell` rewrites an event of a shard: its id has
    a part for each shard, and its process is named by its address."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = {shard: place for shard, place in places.items() if place}

    def place_of(self, shard: str) -> str:
        return self._places.get(shard, "")

    def tell(self, shard: str, event: bytes) -> bytes:
        lines = event.split(b"\n")
        for number, line in enumerate(lines):
            if line.startswith(_ID):
                self._places[shard] = line[len(_ID) :].decode()
                lines[number] = _ID + write_place(self._places).encode()
            elif line.startswith(_DATA):
                data = msgspec.json.decode(line[len(_DATA) :])
                if isinstance(data, dict) and data.get("pid"):
                    lines[number] = _DATA + msgspec.json.encode(_name_processes(shard, data, "pid"))
        return b"\n".join(lines)


# ---------------------------------------------------------------- A2A


def _begin_tasks(query: Query, shards: Sequence[str]) -> Mapping[str, Query]:
    token = query.get("pageToken", "")
    if not token:
        return dict.fromkeys(shards, query)
    places = read_place(token)
    return {shard: {**query, "pageToken": places.get(shard, "")} for shard in shards}


def _join_tasks(query: Query, answers: Answers) -> Any:
    """Return the tasks of all shards, those that changed last first, those of one shard in its own order."""
    ordered = [[(task, shard) for task in answer.get("tasks", ())] for shard, answer in answers.items()]
    merged = list(heapq.merge(*ordered, key=lambda entry: _last_change(entry[0]), reverse=True))
    size = _limit(query, _TASKS, "pageSize")
    places = read_place(query["pageToken"]) if query.get("pageToken") else {}
    for task, shard in merged[:size]:
        places[shard] = task["id"]
    more = len(merged) > size or any(answer.get("nextPageToken") for answer in answers.values())
    tasks = [task for task, _ in merged[:size]]
    total = sum(answer.get("totalSize", 0) for answer in answers.values())
    token = write_place(places) if more else ""
    return {"tasks": tasks, "nextPageToken": token, "pageSize": len(tasks), "totalSize": total}


def _last_change(task: dict[str, Any]) -> str:
    status = task.get("status")
    return str(status.get("timestamp", "")) if isinstance(status, dict) else ""


# ---------------------------------------------------------------- the table

MERGES: Final[dict[str, ListMerge]] = {
    "system.status": ListMerge(_join_status),
    "system.metrics": ListMerge(_join_metrics),
    "processes.list": ListMerge(_join_processes, _begin_processes),
    "processes.rows": ListMerge(_join_tree, _begin_tree, _is_tree_mixed),
    "sessions.list": _merge_list("sessions", _began, "pid"),
    "runs.list": _merge_list("runs", lambda row: row["run_id"], "pid"),
    "pipelines.list": _merge_list("runs", _began, "pid"),
    "interrupts.list": _merge_list("interrupts", _began, "pid"),
    "traces.list": ListMerge(_join_traces),
    "costs.get": ListMerge(_join_costs),
    "services.list": ListMerge(_join_services),
    "nodes.list": ListMerge(_join_nodes),
    "history.read": ListMerge(_join_history, _begin_history),
    "webhooks.list": ListMerge(_join_webhooks),
    "hooks.list": _merge_list("hooks", lambda row: row["hook_id"], "pid"),
    "keys.list": _merge_list("keys", lambda row: (row["created_at"], row["id"])),
    "a2a.list_tasks": ListMerge(_join_tasks, _begin_tasks),
}


def begin(name: str, query: Query, shards: Sequence[str]) -> Mapping[str, Query]:
    """Return what each shard is asked."""
    return MERGES[name].begin(query, shards)


def must_ask_again(name: str, query: Query, answers: Answers) -> bool:
    """Return whether the shards have to be asked once more, with `restart(query)`."""
    return MERGES[name].again(query, answers)


def restart(query: Query) -> Query:
    """Return a query that goes on from nowhere."""
    return {**query, "since": ""}


def join(name: str, query: Query, answers: Answers, missing: Sequence[str]) -> Any:
    """Return the answer for all shards; `missing` names those that did not answer. One of them at least answered."""
    joined = MERGES[name].join(query, answers)
    return {**joined, "missing_shards": sorted(missing)} if missing and isinstance(joined, dict) else joined
