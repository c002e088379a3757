"""`lyra store`: look at a store, check it, make it smaller, write it out, sign it, move it.

Opens a store that exists and never makes a file: a misspelt path must not become an empty store. (A PostgreSQL
store makes its tables when first opened, from here too.) `info`, `check` and `export` only read, beside a running
kernel too; `compact` and `adopt` take the lease first, so they are refused while a kernel owns the store. All of them
see the durable runs of Vega programs in the same file, each its own journal. `export` writes rows as they stand,
without their signatures. What a store is, is in `lyra.store.protocol`; this
module only asks it.
"""

from __future__ import annotations

import base64
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.render import document, note, printable, table
from lyra.core.secrets.secret import is_reference
from lyra.core.secrets.visible import visible
from lyra.errors import ApprovalRefused, ConfigError, Conflict, Corrupt, NoCluster, StoreError
from lyra.store import open_store
from lyra.store.ended import load_all
from lyra.store.protocol import MOVED_TO, Record, Store

if TYPE_CHECKING:
    from lyra.store.signing import SigningStore
    from lyra.store.space import Space


# Counting processes reads the journal from end to end; beyond this many rows `info` would no longer be quick.
_COUNTED_ROWS_MAX: Final = 200_000
_PROGRAMS: Final = ("programs_to_register", "programs_unknown")


@click.group(cls=CommandGroup)
def store() -> None:
    """Inspect, compact, sign and move a store: info, check, compact, export, adopt, move.

    PATH_OR_URL is the configured store (kernel.store) when it is left out.
    """


def _target(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.argument("target", required=False, metavar="[PATH_OR_URL]")(function)


@store.command()
@_target
@json_option
@click.pass_obj
def info(invocation: Invocation, target: str | None, *, as_json: bool) -> None:
    """Show what a store holds: rows, processes and their programs, size, owner."""
    with open_existing(invocation, target) as opened:
        facts = _facts(opened)
    if as_json:
        document(facts)
    else:
        from lyra.store.standing import STANDINGS

        facts["standing"] = STANDINGS[facts["standing"]]
        table(("what", "value"), [(name, _show(value)) for name, value in facts.items()])


@store.command()
@_target
@json_option
@click.pass_context
def check(ctx: click.Context, target: str | None, *, as_json: bool) -> None:
    """Read a whole store and report every fault in it, and what is not as you signed it."""
    with open_existing(ctx.ensure_object(Invocation), target) as opened:
        location, problems, signer = opened.location, _faults(opened), _signer_words(opened)
        signers = [signer] if signer else []
        for name, run in _runs(opened):
            sentences = [run.message] if isinstance(run, Corrupt) else _faults(run)
            problems += [f"run {name}: {sentence}" for sentence in sentences]
            words = "" if isinstance(run, Corrupt) else _signer_words(run)
            signers += [f"run {name}: {words}"] if words not in ("", signer) else []
    if as_json:
        document(
            {
                "location": location,
                "sound": not problems,
                "problems": problems,
                **({"signer": signer} if signer else {}),
            }
        )
    elif problems:
        for sentence in problems:
            click.echo(printable(sentence))
    else:
        click.echo(f"{printable(location)} is sound")
    for line in () if as_json else signers:
        click.echo(line)
    if problems:
        raise Corrupt(f"{location} has {len(problems)} faults", hint="stop using it and restore it from a backup")


def _signer_words(opened: Store) -> str:
    """Say who signed a store, with the id of the key, or that it should be signed and is not; "" for an empty one."""
    from lyra.store.standing import standing_of

    standing = standing_of(opened)
    if standing.name == "unsigned":
        return standing.words
    return printable(f"{standing.words}: {standing.signed_by}") if standing.signed_by else ""


def _faults(opened: Store) -> list[str]:
    """Everything wrong with a store; its signatures are checked where they are of this user's key."""
    from lyra.store.signing import SigningStore
    from lyra.store.standing import standing_of

    standing = standing_of(opened)
    if isinstance(opened, SigningStore) and standing.is_signed:
        opened.sign_with(standing.signer)
    return [*opened.check(), *([f"it is {standing.words}"] if standing.is_refused else [])]


def _runs(opened: Store) -> Iterator[tuple[str, Store | Corrupt]]:
    """Yield the durable runs of Vega programs in the same file, oldest first; of one that is damaged, what is wrong."""
    from lyra.store.space import spaces
    from lyra.store.sqlite import SqliteStore

    if not isinstance(opened, SqliteStore):
        return
    for name in spaces(opened):
        try:
            space = _run(opened, name)
        except Corrupt as error:
            yield name, error
            continue
        try:
            yield name, space
        finally:
            space.close()


def _run(opened: Store, name: str) -> Space:
    from lyra.store.space import Space

    return Space(opened.location, name, make=False, writes=False)


@store.command()
@_target
@json_option
@click.pass_obj
def compact(invocation: Invocation, target: str | None, *, as_json: bool) -> None:
    """Drop journal rows that a snapshot covers and that are past kernel.retention_s."""
    from lyra.core.clock import SystemClock

    settings = invocation.config.kernel
    retention = (SystemClock().now(), settings.retention_s, settings.lease_s)
    refused: list[StoreError] = []
    with open_existing(invocation, target) as opened:
        dropped, of_runs = _compact(opened, *retention), {}
        for name, run in _runs(opened):
            try:
                of_runs[name] = _compact(_sound(run), *retention)
            except (Conflict, Corrupt) as error:
                refused.append(type(error)(f"run {name}: {error.message}", hint=error.hint, **error.fields))
        location = opened.location
    if as_json:
        document({"location": location, "dropped": dropped, "runs": of_runs})
    else:
        click.echo(f"dropped {dropped} rows older than {settings.retention_s:g} s from {printable(location)}")
        for name, count in of_runs.items():
            click.echo(f"dropped {count} rows from run {name}")
    if refused:
        refused[0].fields["also"] = [error.message for error in refused[1:]]
        raise refused[0]


def _compact(opened: Store, now: float, retention_s: float, lease_s: float) -> int:
    from lyra.kernel.journal.lease import acquire_at_once

    lease = acquire_at_once(opened, "lyra store compact", lease_s)
    try:
        return opened.compact(before=now - retention_s, epoch=lease.epoch)
    finally:
        opened.release(lease)


def _sound(run: Store | Corrupt) -> Store:
    if isinstance(run, Corrupt):
        raise run
    return run


@store.command(name="adopt")
@_target
@click.option("--yes", is_flag=True, help="Sign without a question.")
@click.option("--keep-keys", is_flag=True, help="Keep its gateway keys, hooks and webhooks, which are revoked else.")
@json_option
@click.pass_obj
def adopt_command(invocation: Invocation, target: str | None, *, yes: bool, keep_keys: bool, as_json: bool) -> None:
    """List the rights in a store of before or from elsewhere, and sign them with your key."""
    from lyra.cli.commands.adopt import adopt_listed, agree, list_store, show
    from lyra.store.signing import SigningStore

    lease_s = invocation.config.kernel.lease_s
    with open_existing(invocation, target) as opened:
        assert isinstance(opened, SigningStore)  # there is no other kind that lasts
        stores = [list_store(opened, keep_keys=keep_keys)]
        stores += [list_store(_signable(run), name, keep_keys=keep_keys) for name, run in _runs(opened)]
        if not as_json:
            show(opened.location, stores)
        try:
            agree(opened.location, yes=yes, can_ask=not as_json)
        except ApprovalRefused:
            if as_json:
                show(opened.location, stores, signed=False)
            raise
        for shown in stores[1:]:
            with closing(_run(opened, shown.run)) as run:
                adopt_listed(run, shown, lease_s)
        adopt_listed(opened, stores[0], lease_s)
        if as_json:
            show(opened.location, stores, signed=True)
        else:
            revoked = [pid for shown in stores for pid in shown.revoked]
            if revoked:
                click.echo(visible(f"revoked {', '.join(revoked)}"))
            click.echo(printable(f"signed {opened.location}"))


def _signable(run: Store | Corrupt) -> SigningStore:
    from lyra.store.signing import SigningStore

    sound = _sound(run)
    assert isinstance(sound, SigningStore)
    return sound


@store.command(name="move")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--shard", metavar="NAME", help="TO is a cluster: become this shard of it, which no host has opened yet.")
@click.option("--leave-runs", is_flag=True, help="Leave durable Vega runs in the file: they stay usable there.")
@json_option
@click.pass_obj
def move_command(
    invocation: Invocation, /, *, source: str, target: str, shard: str | None, leave_runs: bool, as_json: bool
) -> None:
    """Move a store into a schema of PostgreSQL, with its identity; the old one then says where it went."""
    from lyra.cli.render import show_progress
    from lyra.kernel.journal.lease import acquire_to_move
    from lyra.store.moving import LEASE_OF_MOVE_S, move
    from lyra.store.signing import SigningStore

    url = _find_target_url(target, shard)
    with open_existing(invocation, source) as old:
        runs = [name for name, _ in _runs(old)]
        if runs and not leave_runs:
            raise ConfigError(
                f"{old.location} has durable Vega runs, which cannot be moved: {', '.join(runs)}",
                hint="finish them first, or leave them where they are: --leave-runs",
            )
        from lyra.store.postgres import PostgresStore

        assert isinstance(old, SigningStore)  # there is no other kind that lasts
        with closing(PostgresStore(url)) as new, show_progress(f"rows of {old.location} are copied") as show:
            moved = move(old, new, lambda store: acquire_to_move(store, LEASE_OF_MOVE_S), show)
            facts = {"from": old.location, "to": new.location, "rows": moved.rows, "before": moved.was_moved_before}
    if as_json:
        document(facts)
    elif moved.was_moved_before:
        click.echo(printable(f"{facts['from']} was moved to {facts['to']} before"))
    else:
        click.echo(printable(f"moved {facts['from']} to {facts['to']}: {moved.rows} rows, read back and compared"))


def _find_target_url(target: str, shard: str | None) -> str:
    """Return the URL of the schema that a store is moved to."""
    if is_reference(target):
        from lyra.core.secrets.secret import Secret

        target = Secret.parse(target).reveal()
    if not target.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            "a store is moved to PostgreSQL", hint="write TO as postgresql://user@host/database?schema=NAME", key="TO"
        )
    if shard is None:
        return target
    if not re.fullmatch(r"s[1-9][0-9]{0,3}", shard):
        raise ConfigError(f"{shard!r} is no name of a shard", hint="such as s1", key="--shard")
    from lyra.store.postgres import split_schema

    plain, named = split_schema(target)
    _raise_if_no_shard(target, shard)
    return f"{plain}{'&' if '?' in plain else '?'}schema={named or 'lyra'}_{shard}"


def _raise_if_no_shard(url: str, shard: str) -> None:
    """Refuse a shard that the cluster at a URL has not: no host would ever open it. There may be no cluster yet."""
    from lyra.cluster.directory import PostgresDirectory

    try:
        directory = PostgresDirectory(url, make=False)
    except NoCluster:
        return
    with closing(directory):
        shards = directory.view().shards
    if shard not in shards:
        raise ConfigError(
            f"the cluster in {directory.location} has no shard {shard!r}, and their number never changes",
            hint=f"it has s1 to s{len(shards)}",
            key="--shard",
        )


@store.command()
@_target
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Begin after this row.")
@click.option("--pid", metavar="PID", help="Only the rows of this process.")
@click.option("--kind", metavar="KIND", help="Only rows of this kind, such as process.created.")
@click.option("--run", "run_id", metavar="RUN", help="Only the rows of this durable Vega run.")
@click.pass_obj
def export(
    invocation: Invocation, target: str | None, *, after: int, pid: str | None, kind: str | None, run_id: str | None
) -> None:
    """Write the journal to stdout, one JSON object a line; then the rows of durable Vega runs, each with its `run`."""
    if kind is not None:
        must_be_a_kind(kind)
    damaged: list[Corrupt] = []
    with open_existing(invocation, target) as opened:
        if run_id is None:
            _write_rows(opened.read(after=after, pid=pid, kind=kind), {})
        names = []
        for name, run in _runs(opened):
            names.append(name)
            if run_id in (None, name):
                try:
                    _write_rows(_sound(run).read(after=after, pid=pid, kind=kind), {"run": name})
                except Corrupt as error:
                    damaged.append(Corrupt(f"run {name}: {error.message}", hint=error.hint, **error.fields))
        if run_id is not None and run_id not in names:
            raise ConfigError(f"there is no run {run_id!r} in {opened.location}", hint="`vega runs` lists them")
    if damaged:
        raise damaged[0]


def _write_rows(rows: Iterable[Record], marks: dict[str, str]) -> None:
    import json

    from lyra.core.codec import decode

    for row in rows:
        event = {
            **marks,
            "seq": row.seq,
            "time": row.time,
            "pid": row.pid,
            "kind": row.kind,
            "data": jsonable(decode(row.data)),
        }
        sys.stdout.write(json.dumps(event, allow_nan=False) + "\n")


def must_be_a_kind(kind: str) -> None:
    """Refuse a misspelt kind: it has no rows, and that must not look like an empty journal."""
    from lyra.core.checking.check import did_you_mean
    from lyra.core.event import KINDS

    if kind not in KINDS:
        near = did_you_mean(kind, KINDS)
        hint = f"did you mean {near!r}?" if near else "the kinds are listed in docs/reference/events.md"
        raise ConfigError(f"there is no kind of row {kind!r}", hint=hint, key="--kind")


# ---------------------------------------------------------------- opening without making
@contextmanager
def open_existing(invocation: Invocation, target: str | None) -> Iterator[Store]:
    """Open the store that the argument names, or the configured one; it has to exist."""
    if target is None:
        target = invocation.config.store_target()
    elif is_reference(target):
        from lyra.core.secrets.secret import Secret

        target = Secret.parse(target).reveal()
    must_exist(target)
    opened = open_store(target, durability=invocation.config.kernel.durability)
    try:
        owner = opened.holder()
        if owner is not None and owner.owner.startswith(MOVED_TO):
            note(f"{opened.location} was {owner.owner}")
        yield opened
    finally:
        opened.close()


def must_exist(target: str) -> None:
    if target == "memory":
        raise ConfigError(
            "a memory store ends with its kernel; there is nothing to look at",
            hint="name a file or a postgresql:// URL",
        )
    path = target.removeprefix("sqlite://")
    if "://" in path or os.path.exists(path):
        return
    raise StoreError(
        f"there is no store at {path or repr(path)}", hint="a kernel makes it when it first opens; is the path right?"
    )


# ---------------------------------------------------------------- what `info` says
def _facts(opened: Store) -> dict[str, Any]:
    from lyra.store.standing import standing_of

    first, last = opened.first_seq(), opened.last_seq()
    rows = last - first + 1
    return {
        "location": opened.location,
        "rows": rows,
        "first_seq": first,
        "last_seq": last,
        "processes": _processes(opened) if rows <= _COUNTED_ROWS_MAX else None,
        **(_programs(opened) if rows <= _COUNTED_ROWS_MAX else dict.fromkeys(_PROGRAMS)),
        "size_bytes": _size_bytes(opened.location),
        "standing": standing_of(opened).name,
        "lease": _lease(opened),
        "runs": {name: _run_words(run) for name, run in _runs(opened)},
    }


def _run_words(run: Store | Corrupt) -> str:
    """Return a durable Vega run in a few words; `vega runs` tells more."""
    if isinstance(run, Corrupt):
        return "damaged"
    lease = _lease(run)
    return f"{run.last_seq() - run.first_seq() + 1} rows{'' if lease is None or lease['expired'] else ', owned'}"


def _processes(opened: Store) -> dict[str, int]:
    """Return what the kept rows tell; a compaction takes the rows of older processes with it."""
    kinds = Counter(row.kind for row in opened.read() if row.kind in ("process.created", "process.terminated"))
    return {"created": kinds["process.created"], "terminated": kinds["process.terminated"]}


def _programs(opened: Store) -> dict[str, dict[str, int] | None]:
    """Return the programs of live processes, with how many each: those that a kernel has to be given, and names of
    Lyra's own that this version does not know. A process whose program is missing stays dormant."""
    from lyra.core.naming import OLD_NAMES, is_own_name
    from lyra.kernel.journal.history import Fold

    snapshot = load_all(opened)
    states = {pid: state for pid, state in snapshot.states.items() if pid[:1] != "~"}  # not those of subsystems
    try:
        fold = Fold.load(snapshot.seq, states)
        fold.add_all(opened.read(after=snapshot.seq))
    except Corrupt:  # `lyra store check` says what is wrong
        return dict.fromkeys(_PROGRAMS)
    live = Counter(state.created.program for state in fold.processes.values() if state.exit is None)
    to_register = {name: count for name, count in sorted(live.items()) if not is_own_name(name)}
    unknown = {name: count for name, count in sorted(live.items()) if is_own_name(name) and name not in OLD_NAMES}
    return dict(zip(_PROGRAMS, (to_register, unknown), strict=True))


def _size_bytes(location: str) -> int | None:
    """Return the file and the log beside it; a database on a server keeps its own count."""
    if not os.path.isfile(location):
        return None
    log = f"{location}-wal"
    return os.path.getsize(location) + (os.path.getsize(log) if os.path.exists(log) else 0)


def _lease(opened: Store) -> dict[str, Any] | None:
    lease = opened.holder()
    if lease is None:
        return None
    from lyra.core.clock import SystemClock
    from lyra.kernel.journal.lease import owner_is_dead

    now = opened.clock_s() if opened.has_clock else SystemClock().now()
    return {**lease._asdict(), "expired": lease.expires_at <= now or owner_is_dead(lease.owner)}


def _show(value: Any) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return str(value)


def jsonable(value: Any) -> Any:
    """Return a journal value as JSON can hold it; bytes as base64, what JSON has no word for as its text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in value]
    return str(value)
