"""`lyra cluster`: run a host of a cluster, say what is wrong with it, drain a host, keep a copy of the whole.

`start` runs in the foreground, one on each machine, and tells on stdout when it has joined and which shards it has.
SIGTERM and Ctrl-C drain: the shards go to the other hosts, effects in flight end, and the exit code is 0. The other
commands read the directory in PostgreSQL and ask the hosts; they need no host on this machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CommandGroup, Invocation, json_option
from lyra.cli.arguments import setup_of
from lyra.cli.process_io import on_stop_signal
from lyra.cli.render import document, moment, note, printable, show_progress, table
from lyra.core.address import Address
from lyra.errors import ConfigError, Conflict, LyraError

if TYPE_CHECKING:
    from lyra.cluster.directory import View
    from lyra.cluster.host import Host
    from lyra.cluster.report import ClusterReport
    from lyra.config import Config

_FILE: Final = click.Path(exists=True, dir_okay=False)
_ANYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, never listened on
_LOOK_S: Final = 0.2


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Run and look after a cluster: many machines that share one PostgreSQL database."""


def store_option(function: Callable[..., Any]) -> Callable[..., Any]:
    text = "The database of the cluster: postgresql://… (else the setting cluster.store)."
    return click.option("--store", metavar="URL", help=text)(function)


def find_cluster_url(invocation: Invocation, store: str | None) -> str:
    """Return the URL of the cluster that a command means; ConfigError where none is named."""
    if store is not None:
        invocation.flags.append(f"cluster.store={store}")
    configured = invocation.config.cluster.store
    if configured is None:
        raise ConfigError(
            "no cluster is named",
            hint="give --store postgresql://…, or set LYRA_CLUSTER_STORE or cluster.store in your lyra.toml",
            key="cluster.store",
        )
    return configured.reveal()


# ---------------------------------------------------------------- start


@cluster.command(uses_trust=True)
@store_option
@click.option("--name", metavar="HOST", help="The name of this host; by default that of the machine.")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen for the other hosts; port 0 chooses a free one.")
@click.option("--advertise", metavar="HOST:PORT", help="The address by which the other hosts reach this one.")
@click.option(
    "--load", multiple=True, type=_FILE, metavar="FILE.py", help="Run setup(kernel) of this file for each shard."
)
@click.option("--shards", type=int, metavar="N", help="How many shards a new cluster has (8); it never changes.")
@click.option("--lease", type=click.FloatRange(0.5, 3600), metavar="S", help="The lease of a new cluster, in seconds.")
@click.option("--resources", metavar="NAME=N,…", help="What this machine has besides: gpu=1,mem=64.")
@click.option("--drain", type=click.FloatRange(0), metavar="S", help="Seconds that effects in flight get to end.")
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="The certificate chain of this host (PEM).")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The key of that certificate (PEM).")
@click.option("--tls-ca", type=_FILE, metavar="FILE", help="The authority that has signed those of all hosts (PEM).")
@click.option("--plaintext", is_flag=True, help="Listen without TLS where other machines can reach it.")
@click.option(
    "--ray",
    metavar="ADDRESS",
    is_flag=False,
    flag_value="",
    help="Start a host on each node of this Ray cluster, and end; without ADDRESS of the one on this machine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print each line as one JSON object.")
@click.pass_obj
def start(
    invocation: Invocation,
    /,
    *,
    store: str | None,
    load: tuple[str, ...],
    shards: int | None,
    lease: float | None,
    resources: str | None,
    plaintext: bool,
    ray: str | None,
    as_json: bool,
    **named: Any,
) -> None:
    """Run a host of the cluster on this machine; the first one makes the cluster."""
    if ray is not None:
        _start_on_ray(invocation, store, ray, load, (shards, lease), {**named, "resources": resources}, as_json=as_json)
        return
    flags = {"drain_s": named.pop("drain"), "plaintext": "true" if plaintext else None, **named}
    invocation.flags += [f"cluster.{name}={value}" for name, value in flags.items() if value is not None]
    from lyra.cluster.joining import read_resources

    url = find_cluster_url(invocation, store)
    check_reachable(invocation.config)
    given = read_resources(resources)
    setup = join_setups([(file, setup_of(file, "kernel")) for file in load])
    asyncio.run(_run_host(invocation.config, url, given, setup, made_with=(shards, lease), as_json=as_json))


def _start_on_ray(
    invocation: Invocation,
    store: str | None,
    address: str,
    load: Sequence[str],
    made_with: tuple[int | None, float | None],
    of_one_host: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Start the hosts of a Ray cluster; exit code 1 where a node gave none."""
    given = [name for name, value in of_one_host.items() if value is not None]
    if given:
        raise ConfigError(f"--{given[0]} is for one host, and --ray starts one on each node", key=f"--{given[0]}")
    from lyra.cluster import ray_hosts

    shards, lease_s = made_with
    url = find_cluster_url(invocation, store)
    settings = [flag for flag in invocation.flags if not flag.startswith("cluster.")]
    started = ray_hosts.start(url, address or None, load=load, settings=settings, shards=shards, lease_s=lease_s)
    for host in started:
        if as_json:
            _print_line({"host": host.name, "node": host.node, "address": host.address, "problem": host.problem})
        else:
            click.echo(printable(host.problem or f"host {host.name} runs on node {host.node}: {host.address}"))
    if any(host.problem for host in started):
        click.get_current_context().exit(1)


@cluster.command(name="stop-ray")
@store_option
@click.option("--ray", "address", metavar="ADDRESS", help="The Ray cluster; by default the one on this machine.")
@click.pass_obj
def stop_ray(invocation: Invocation, /, *, store: str | None, address: str | None) -> None:
    """Have the hosts that `start --ray` started leave in order, and end them."""
    from lyra.cluster import ray_hosts

    for name in ray_hosts.stop(find_cluster_url(invocation, store), address):
        click.echo(f"host {name} has left")


def check_reachable(config: Config) -> None:
    """Refuse an address that other machines reach unless the network is said to be private, and one that names none."""
    settings = config.cluster
    listen = Address.parse(settings.listen)
    if not listen.is_loopback and not settings.plaintext and settings.tls_cert is None:
        raise ConfigError(
            f"{listen} can be reached from other machines, and what hosts tell each other would travel as plain text",
            hint="give --tls-cert, --tls-key and --tls-ca; in a private network --plaintext does",
            key="cluster.listen",
        )
    if settings.advertise is None and listen.host in _ANYWHERE:
        raise ConfigError(
            f"{listen.host} is no address by which other hosts reach this one",
            hint="give it with --advertise HOST:PORT, or listen on that address",
            key="cluster.advertise",
        )
    if settings.advertise is not None and Address.parse(settings.advertise).port == 0:
        raise ConfigError(
            "--advertise names no port", hint="give --listen and --advertise one", key="cluster.advertise"
        )


def join_setups(setups: Sequence[tuple[str, Callable[[Any], Any]]]) -> Callable[[Any], Awaitable[None]]:
    """Return a function that runs all of them on a kernel, which workers serve then; what one raises is told with its
    file."""

    async def run(kernel: Any) -> None:
        from lyra.server.grpc.shared_work import open_desk

        open_desk(kernel)
        for file, setup in setups:
            try:
                prepared = setup(kernel)
                if hasattr(prepared, "__await__"):
                    await prepared
            except LyraError:
                raise
            except Exception as error:
                text = f"{file}: setup(kernel) failed: {type(error).__name__}: {error}"
                raise ConfigError(text, key="--load") from error

    return run


async def _run_host(
    config: Config,
    url: str,
    resources: dict[str, float],
    setup: Callable[[Any], Awaitable[None]],
    *,
    made_with: tuple[int | None, float | None],
    as_json: bool,
) -> None:
    from lyra.cluster.joining import ShardHooks, join
    from lyra.kernel.base.tasks import Tasks

    stopped = asyncio.Event()
    on_stop_signal(stopped.set)
    shards, lease_s = made_with
    tasks = Tasks()
    async with join(config, url, ShardHooks(setup), resources=resources, shards=shards, lease_s=lease_s) as host:
        warn_of_lease(host, lease_s)
        _tell_joined(host, host.directory.location, as_json=as_json)
        tasks.start(_tell_shards(host, as_json=as_json), name="lyra-cluster-lines")
        try:
            await stopped.wait()
            note("stopping: the shards go to the other hosts, effects in flight end first")
            await host.leave()
        finally:
            await tasks.close()


def warn_of_lease(host: Host, lease_s: float | None) -> None:
    """Say so where the cluster was made with another lease than the one that is asked for."""
    if lease_s not in (None, host.view.lease_s):
        note(f"warning: the lease of this cluster is and stays {host.view.lease_s:g} s: it was made with it")


def _tell_joined(host: Host, location: str, *, as_json: bool) -> None:
    if as_json:
        _print_line({"joined": host.name, "address": host.row.address, "store": location})
    else:
        click.echo(
            printable(f"host {host.name} has joined the cluster in {location}; others reach it at {host.row.address}")
        )
    sys.stdout.flush()


async def _tell_shards(host: Host, *, as_json: bool) -> None:
    """Print which shards the host has, each time that changes."""
    told: list[str] = []
    while True:
        await host.until_beaten()
        shards = [name for name in host.view.shards if name in host.kernels]
        if shards == told or host.is_busy:
            continue
        told = shards
        if as_json:
            _print_line({"host": host.name, "shards": shards, "of": len(host.view.shards)})
        else:
            has = (
                f"has {len(shards)} of {len(host.view.shards)} shards: {', '.join(shards)}"
                if shards
                else "has no shard"
            )
            click.echo(f"host {host.name} {has}")
        sys.stdout.flush()


def _print_line(data: dict[str, Any]) -> None:
    click.echo(json.dumps(data))


# ---------------------------------------------------------------- status and drain


@cluster.command()
@store_option
@json_option
@click.pass_obj
def status(invocation: Invocation, /, *, store: str | None, as_json: bool) -> None:
    """Say in sentences what is wrong, and show hosts and shards; exit code 1 where something is wrong."""
    import msgspec

    report = asyncio.run(_read_report(invocation, find_cluster_url(invocation, store)))
    if as_json:
        document({"well": report.is_well, **msgspec.to_builtins(report)})
    else:
        _show_report(report)
    if not report.is_well:
        click.get_current_context().exit(1)


async def _read_report(invocation: Invocation, url: str) -> ClusterReport:
    from lyra.cluster.peers import PeerTls
    from lyra.cluster.report import ClusterObserver, read_report

    async with ClusterObserver(url, PeerTls.from_config(invocation.config)) as observer:
        return await read_report(observer)


def _show_report(report: ClusterReport) -> None:
    for sentence in report.problems or ["all is well"]:
        click.echo(printable(sentence))
    for sentence in report.remarks:
        click.echo(printable(sentence))
    click.echo()
    table(
        ("host", "state", "address", "version", "processes", "resources", "shards"),
        [
            (
                row.name,
                row.state,
                row.address,
                row.version,
                "-" if row.processes is None else str(row.processes),
                ", ".join(f"{name} {amount:g}" for name, amount in row.resources.items()),
                ", ".join(row.shards),
            )
            for row in report.hosts
        ],
    )
    click.echo()
    table(
        ("shard", "host", "open", "processes", "posts that wait", "note"),
        [
            (
                row.name,
                row.host or "-",
                {None: "not known", True: "yes", False: "no"}[row.open],
                "-" if row.processes is None else str(row.processes),
                ", ".join(f"{count} for {to}" for to, count in row.waiting_posts.items()),
                row.note,
            )
            for row in report.shards
        ],
    )


@cluster.command()
@click.argument("host")
@store_option
@click.option("--undo", is_flag=True, help="Let the host take shards again.")
@json_option
@click.pass_obj
def drain(invocation: Invocation, /, *, host: str, store: str | None, undo: bool, as_json: bool) -> None:
    """Have a host give its shards to the others, and wait until it has none; it goes on running without any."""
    try:
        shards = asyncio.run(_drain(find_cluster_url(invocation, store), host, undo=undo, as_json=as_json))
    except KeyboardInterrupt:
        note(f"host {host} goes on draining; lyra cluster drain {host} --undo takes that back")
        raise
    if as_json:
        document({"host": host, "draining": not undo, "shards": shards})
    elif undo:
        click.echo(f"host {host} takes shards again")
    else:
        click.echo(f"host {host} has no shard any more: it can be stopped")


async def _drain(url: str, host: str, *, undo: bool, as_json: bool) -> list[str]:
    """Set the state of a host, and wait until it has no shard; gives the shards that it has then."""
    from lyra.cluster.directory import DRAINING, UP
    from lyra.cluster.report import ClusterObserver

    async with ClusterObserver(url) as observer:
        _check_drain(observer.view, host, undo=undo)
        observer.directory.set_state(host, UP if undo else DRAINING)
        told: list[str] | None = None
        while True:
            view = observer.refresh()
            left = [shard.name for shard in view.shards.values() if shard.host == host]
            if undo or not left:
                return left
            if not view.is_alive(host):
                raise Conflict(f"host {host} has ended before it gave {', '.join(left)} away: the others take them")
            if view.hosts[host].state != DRAINING:
                raise Conflict(f"host {host} does not drain any more: it was started again, or told to go on")
            if left != told and not as_json:
                click.echo(f"host {host} has {len(left)} shards left: {', '.join(left)}")
            told = left
            await asyncio.sleep(_LOOK_S)


def _check_drain(view: View, host: str, *, undo: bool) -> None:
    from lyra.cluster.directory import UP
    from lyra.core.checking.check import did_you_mean

    if host not in view.hosts:
        near = did_you_mean(host, view.hosts)
        hint = f"did you mean {near!r}?" if near else f"hosts: {', '.join(view.hosts) or 'none'}"
        raise ConfigError(f"the cluster has no host {host!r}", hint=hint, key="HOST")
    if undo:
        return
    if not view.is_alive(host):
        raise Conflict(f"host {host} does not run", hint="the others have taken its shards, or will in a moment")
    if not any(row.state == UP and row.name != host for row in view.alive()):
        raise Conflict(
            f"no other host takes the shards of {host}", hint="start one first: lyra cluster start on another machine"
        )


# ---------------------------------------------------------------- backup and restore


@cluster.command()
@click.argument("file", metavar="FILE|FOLDER", type=click.Path(path_type=Path))
@store_option
@json_option
@click.pass_obj
def backup(invocation: Invocation, /, *, file: Path, store: str | None, as_json: bool) -> None:
    """Copy the whole cluster, as it is at one moment, to a file; hosts go on meanwhile."""
    from lyra.cluster.backup import back_up
    from lyra.core.clock import SystemClock

    path = file
    if file.is_dir():
        path = file / f"lyra-cluster-{moment(SystemClock().now()).replace(' ', '-').replace(':', '')}.backup"
    elif not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent}", hint="is the path right? Then make it first", key="FILE")
    with show_progress("rows are copied") as show:
        copied = back_up(find_cluster_url(invocation, store), path, show)
    facts = {"file": str(path), "shards": copied.shards, "rows": copied.rows, "at": copied.at}
    if as_json:
        document({**facts, "size_bytes": path.stat().st_size})
    else:
        click.echo(
            printable(
                f"wrote {path}: {copied.shards} shards, {copied.rows} rows, {path.stat().st_size} bytes,"
                f" as of {moment(copied.at)}"
            )
        )


@cluster.command(name="restore")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@store_option
@json_option
@click.pass_obj
def restore_command(invocation: Invocation, /, *, file: Path, store: str | None, as_json: bool) -> None:
    """Make the cluster of a backup in a database that has none; start its hosts afterwards."""
    from lyra.cluster.backup import restore

    with show_progress("rows are restored") as show:
        copied = restore(find_cluster_url(invocation, store), file, show)
    if as_json:
        document({"file": str(file), "shards": copied.shards, "rows": copied.rows, "at": copied.at})
    else:
        click.echo(
            f"restored {copied.shards} shards with {copied.rows} rows as of {moment(copied.at)}, read back and compared"
        )
