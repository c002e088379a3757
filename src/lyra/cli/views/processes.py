"""`lyra ps`, `lyra tree` and `lyra top`: the processes of a store or a server, as a list, as a tree, and live.

The rows that the views show come from a store, beside a kernel that may run on it, or from a server.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.commands.store import open_existing
from lyra.cli.render import document, moment, note, printable, table
from lyra.cli.views.rows import Folded, RowSource, ServerRows, StoreRows
from lyra.core.clock import SystemClock
from lyra.core.secrets.secret import Secret, is_reference
from lyra.errors import ConfigError
from lyra.observe.history.processes import ENDED, ProcessRecord, ProcessTable
from lyra.store.protocol import Store

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lyra.cli.views.shards import ClusterFold, ClusterRows


def target_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("target", required=False, metavar="[STORE|URL]")(function)


def store_option(function: Callable[..., Any]) -> Callable[..., Any]:
    text = "The store, server or cluster (postgresql://…) to look at; else the configured one."
    return click.option("--store", metavar="URL", help=text)(function)


def run_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--run", metavar="RUN", help="Show this durable Vega run of the store.")(function)


@contextmanager
def source(
    invocation: Invocation, target: str | None, *, run: str | None = None, store: str | None = None
) -> Iterator[RowSource]:
    """Provide the source that the argument or `--store` names, else the configured cluster or store."""
    if store is not None and target is not None:
        raise ConfigError(f"both {target} and --store {store} are named", hint="name one", key="--store")
    target = target if store is None else store
    with ExitStack() as stack:
        cluster = _find_cluster(invocation, target)
        if cluster is not None:
            stack.callback(cluster.close)
            yield cluster if run is None else cluster.open_run(run)
            return
        if target is not None and target.startswith(("http://", "https://")):
            if run is not None:
                raise ConfigError("a server has no durable Vega runs", hint="name their store instead", key="--run")
            yield ServerRows(target.rstrip("/"))
            return
        opened = stack.enter_context(open_existing(invocation, target))
        yield StoreRows(opened if run is None else stack.enter_context(_open_run(opened, run)))


def _find_cluster(invocation: Invocation, target: str | None) -> ClusterRows | None:
    """Open the cluster at a URL of PostgreSQL, or the configured one; None where the target is something else."""
    url = target
    if target is None and (configured := invocation.config.cluster.store) is not None:
        url = configured.reveal()
    elif target is not None and is_reference(target):
        url = Secret.parse(target).reveal()
    if url is None or not url.startswith(("postgresql://", "postgres://")):
        return None
    from lyra.cli.views.shards import open_cluster
    from lyra.cluster.peers import PeerTls

    return open_cluster(url, PeerTls.from_config(invocation.config))


@contextmanager
def _open_run(store: Store, run: str) -> Iterator[Store]:
    from lyra.store.space import Space, spaces
    from lyra.store.sqlite import SqliteStore

    if not isinstance(store, SqliteStore) or run not in spaces(store):
        raise ConfigError(f"there is no run {run!r} in {store.location}", hint="`vega runs` lists them", key="--run")
    space = Space(store.location, run, make=False, writes=False)
    try:
        yield space
    finally:
        space.close()


def fold(source: RowSource, *, live: bool = False) -> Folded | ClusterFold:
    """Fold what a source has: processes and calls. `live`: only processes that live, which a cluster tells quickly."""
    if isinstance(source, (StoreRows, ServerRows)):
        return Folded(source)
    from lyra.cli.views.shards import ClusterFold, ClusterRows

    return ClusterFold(source, live=live) if isinstance(source, ClusterRows) else Folded(source)


@click.command(cls=CliCommand)
@target_argument
@click.option("-a", "--all", "every", is_flag=True, help="Those that ended, too.")
@click.option("--state", metavar="STATE", help="Only those in this state: running, waiting, terminated …")
@click.option("--user", metavar="USER", help="Only those of this user.")
@store_option
@run_option
@json_option
@click.pass_obj
def ps(
    invocation: Invocation,
    /,
    *,
    target: str | None,
    every: bool,
    state: str | None,
    user: str | None,
    store: str | None,
    run: str | None,
    as_json: bool,
) -> None:
    """List processes: state, age, spending, what each waits for."""
    with source(invocation, target, run=run, store=store) as rows:
        folded = fold(rows, live=not every and state not in ENDED)
        records = list(folded.processes.records.values())
    chosen = [
        record
        for record in records
        if (record.state == state if state else every or record.is_live) and (user is None or record.user_id == user)
    ]
    if as_json:
        document([record.to_data() | folded.describe_place(record) for record in chosen])
        return
    if not chosen:
        note(f"no process{'' if every or state else ' is alive; -a shows those that ended'}")
        return
    table(
        ("pid", "name", "program", "state", "began", "calls", "tokens", "cost", "what"),
        [
            (
                record.pid,
                record.name,
                record.program or "(worker)",
                state_words(record),
                moment(record.created_at),
                str(record.calls),
                str(record.tokens),
                dollars(record.micro_usd),
                _what(record),
            )
            for record in chosen
        ],
    )


def state_words(record: ProcessRecord) -> str:
    """Its state, and how it ended."""
    return f"{record.state}: {record.reason}" if not record.is_live and record.reason else record.state


def dollars(micro_usd: int) -> str:
    return f"${micro_usd / 1_000_000:.4f}" if micro_usd else "-"


def _what(record: ProcessRecord) -> str:
    """Return what a person would want to know next: an open question, a call that crashes cut off, an error, a
    stage."""
    attempts = max(record.attempts.values(), default=0)
    cut_off = f"a call was cut off by a crash, attempt {attempts + 1}" if attempts else ""
    if record.questions:
        question = f"asks: {next(iter(record.questions.values()))}"
        return f"{question} ({cut_off})" if attempts > 1 else question
    return record.error or cut_off or record.stage


# ---------------------------------------------------------------- tree

Walked = Sequence[tuple[int, ProcessRecord]]  # each with its depth, parents before their children


@click.command(cls=CliCommand)
@target_argument
@click.option("-a", "--all", "every", is_flag=True, help="Those that ended, too.")
@store_option
@run_option
@json_option
@click.pass_obj
def tree(
    invocation: Invocation,
    /,
    *,
    target: str | None,
    every: bool,
    store: str | None,
    run: str | None,
    as_json: bool,
) -> None:
    """Draw who started whom, with states, restarts and spending."""
    with source(invocation, target, run=run, store=store) as rows:
        folded = fold(rows, live=not every)
    processes = folded.processes
    shown = None if every else _with_live_below(processes)
    walked = [(depth, record) for depth, record in processes.walk() if shown is None or record.pid in shown]
    if as_json:
        document([{"depth": depth, **record.to_data(), **folded.describe_place(record)} for depth, record in walked])
        return
    if not walked:
        note("no process" if every else "no process is alive; -a shows those that ended")
    for line in tree_lines(walked):
        click.echo(printable(line))


def _with_live_below(processes: ProcessTable) -> set[str]:
    """Return the pids of live processes and of all above them."""
    shown: set[str] = set()
    for record in processes.records.values():
        above: ProcessRecord | None = record if record.is_live else None
        while above is not None and above.pid not in shown:
            shown.add(above.pid)
            above = processes.records.get(above.parent)
    return shown


def tree_lines(walked: Walked) -> list[str]:
    """Return a line a process, with the branches of a tree before it."""
    lines: list[str] = []
    goes_on: set[int] = set()  # levels at which another process follows below
    for depth, record in reversed(walked):
        stem = "".join(
            ("├─ " if level in goes_on else "└─ ") if level == depth else ("│  " if level in goes_on else "   ")
            for level in range(1, depth + 1)
        )
        lines.append(stem + _words(record))
        goes_on = {level for level in goes_on if level <= depth} | {depth}
    lines.reverse()
    return lines


def _words(record: ProcessRecord) -> str:
    words = [record.name or record.program or "(worker)", record.pid, state_words(record)]
    if record.restarts:
        words.append(f"{record.restarts} restarts" if record.restarts > 1 else "1 restart")
    if record.micro_usd:
        words.append(dollars(record.micro_usd))
    return "  ".join(words)


# ---------------------------------------------------------------- top

_WINDOW_S: Final = 60.0  # over which rates are taken


@click.command(cls=CliCommand)
@target_argument
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print one picture as JSON and leave.")
@store_option
@run_option
@click.pass_obj
def top(
    invocation: Invocation, /, *, target: str | None, every: float, once: bool, store: str | None, run: str | None
) -> None:
    """Watch the processes live: state, calls, spending; the busiest first."""
    with source(invocation, target, run=run, store=store) as rows:
        folded = fold(rows)
        if once or not sys.stdout.isatty():
            shown = [record.to_data() | folded.describe_place(record) for record in _busiest(folded)]
            document(_figures(folded) | {"processes": shown})
            return
        _watch(folded, rows.location, every)


def _watch(folded: Folded | ClusterFold, location: str, every: float) -> None:
    from rich.live import Live

    with Live(_picture(folded, location), screen=True, auto_refresh=False) as live:
        pause = threading.Event()
        while not pause.wait(every):
            folded.refresh()
            live.update(_picture(folded, location), refresh=True)


def _figures(folded: Folded | ClusterFold) -> dict[str, float | int]:
    """Return the sums of a picture: how many are alive and wait, and what the last minute brought."""
    now = SystemClock().now()
    records = folded.processes.records.values()
    recent = [call for call in folded.calls.records.values() if call.started_at > now - _WINDOW_S]
    return {
        "alive": sum(record.is_live for record in records),
        "waiting": sum(record.state == "waiting" for record in records),
        "ended": sum(not record.is_live for record in records),
        "calls_a_minute": len(recent),
        "running_calls": sum(call.status == "running" for call in recent),
        "errors_a_minute": sum(call.status not in ("ok", "running") for call in recent),
        "cost_usd_a_minute": sum(call.micro_usd for call in recent) / 1_000_000,
        # What a process lent counts where it was spent: with the processes of the other shards.
        "cost_usd": sum(record.micro_usd - record.lent.get("usd", 0) for record in records) / 1_000_000,
    }


def _busiest(folded: Folded | ClusterFold) -> list[ProcessRecord]:
    """Live processes: those that wait for a person first, then by what they spent and called."""
    live = [record for record in folded.processes.records.values() if record.is_live]
    return sorted(live, key=lambda record: (not record.questions, -record.micro_usd, -record.calls, record.pid))


def _picture(folded: Folded | ClusterFold, location: str) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    figures = _figures(folded)
    head = Text(
        f"{printable(location)}   {moment(SystemClock().now())}\n"
        f"{figures['alive']} alive, {figures['waiting']} waiting, {figures['ended']} ended   "
        f"last minute: {figures['calls_a_minute']} calls, {figures['errors_a_minute']} errors, "
        f"${figures['cost_usd_a_minute']:.4f}   in all ${figures['cost_usd']:.4f}\n"
        + "".join(f"{printable(sentence)}\n" for sentence in folded.late)
    )
    view = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for title in ("pid", "name", "state", "calls", "tokens", "cost", "asks"):
        view.add_column(title, no_wrap=True)
    for record in _busiest(folded)[:200]:
        view.add_row(
            *(
                Text(printable(cell))
                for cell in (
                    record.pid,
                    record.name or record.program,
                    state_words(record),
                    str(record.calls),
                    str(record.tokens),
                    dollars(record.micro_usd),
                    next(iter(record.questions.values()), ""),
                )
            )
        )
    return Group(head, view)
