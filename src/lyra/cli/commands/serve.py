"""`lyra serve`, `lyra worker` and `lyra mock`: what runs until it is told to stop.

`serve` runs the kernel for other programs, over gRPC and HTTP; `worker` runs agents and services for the kernel of a
server; `mock` stands in for the model providers. `serve` prints one line of JSON when it is ready, and nothing else on
stdout. SIGTERM and Ctrl-C drain: what is in flight finishes, nothing that was acknowledged is lost, and the exit code
is 0. A server whose store is taken over by another one, or fails, ends by itself, with an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, CommandGroup, Invocation, json_option
from lyra.cli.arguments import setup_of
from lyra.cli.process_io import on_stop_signal
from lyra.cli.render import document, note, printable
from lyra.errors import ConfigError, Conflict, LyraError

if TYPE_CHECKING:
    from lyra.server.client.worker import Worker
    from lyra.server.settings import ServeSettings
    from lyra.testing.mock.server import HttpRequest


_log: Final = logging.getLogger("lyra.server")
_OTHER_FILES: Final = 256  # besides the connections of two faces: the store, models, tools
_FILE: Final = click.Path(exists=True, dir_okay=False)


@click.command(cls=CliCommand, uses_trust=True)
@click.option(
    "--grpc", metavar="HOST:PORT", help="Where to listen for gRPC; port 0 chooses a free one, `none`: nowhere."
)
@click.option(
    "--http", metavar="HOST:PORT", help="Where to listen for HTTP; port 0 chooses a free one, `none`: nowhere."
)
@click.option("--db", metavar="FILE|URL", help="The store: a file, `memory`, or postgresql://…")
@click.option(
    "--token-file", type=_FILE, metavar="FILE", help="The tokens that are known: a line each, TOKEN [USER] [role=ROLE]."
)
@click.option(
    "--load", type=_FILE, metavar="FILE.py", help="Run setup(kernel) of this file: agents, services, programs."
)
@click.option(
    "--gateway", is_flag=True, default=False, help="Let clients with a key of `lyra keys` call the model providers."
)
@click.option("--cluster", is_flag=True, default=False, help="Be a host of a cluster, which answers as one server.")
@click.option("--store", metavar="URL", help="The database of the cluster: postgresql://… (the setting cluster.store).")
@click.option("--name", metavar="HOST", help="The name of this host; by default that of the machine.")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen for the other hosts; port 0 chooses a free one.")
@click.option("--advertise", metavar="HOST:PORT", help="The address by which the other hosts reach this one.")
@click.option("--shards", type=int, metavar="N", help="How many shards a new cluster has (8); it never changes.")
@click.option("--lease", type=click.FloatRange(0.5, 3600), metavar="S", help="The lease of a new cluster, in seconds.")
@click.option("--resources", metavar="NAME=N,…", help="What this machine has besides: gpu=1,mem=64.")
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="The certificate chain of the server (PEM).")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The key of that certificate (PEM).")
@click.option(
    "--tls-client-ca", type=_FILE, metavar="FILE", help="Take only clients with a certificate signed by these."
)
@click.pass_obj
def serve(
    invocation: Invocation,
    /,
    *,
    grpc: str | None,
    http: str | None,
    db: str | None,
    token_file: str | None,
    load: str | None,
    gateway: bool,
    cluster: bool,
    store: str | None,
    shards: int | None,
    lease: float | None,
    resources: str | None,
    **named: str | None,
) -> None:
    """Serve the kernel over gRPC and HTTP to other programs and people.

    With --cluster it is served by all hosts of a cluster together: start one on each machine, and a load balancer in
    front of them sends any request to any of them."""
    host = {name: named.pop(name) for name in ("name", "listen", "advertise")}
    flags = {"server.grpc": grpc, "server.http": http, "kernel.store": db, "server.token_file": token_file}
    flags |= {"server.gateway": "true" if gateway else None, "server.cluster": "true" if cluster else None}
    flags |= {f"server.{name}": path for name, path in named.items()}
    flags |= {f"cluster.{name}": value for name, value in {"store": store, **host}.items()}
    invocation.flags += [f"{name}={value}" for name, value in flags.items() if value is not None]
    from lyra.server.settings import ServeSettings

    of_cluster = {"store": store, "shards": shards, "lease": lease, "resources": resources, **host}
    if not invocation.config.server.cluster:
        _refuse_without_cluster(of_cluster)
    settings = ServeSettings.from_config(invocation.config)
    for warning in settings.tokens.warnings:
        _tell(invocation, warning, logging.WARNING)
    if not allow_open_files(2 * settings.connections_max + _OTHER_FILES):
        text = f"this process may not open enough files for [server] connections_max = {settings.connections_max}"
        _tell(invocation, text, logging.WARNING)
    setup = setup_of(load, "kernel") if load else None
    if settings.cluster:
        made_with = {"shards": shards, "lease_s": lease}
        asyncio.run(_serve_cluster(invocation, settings, setup, resources=resources, **made_with))
    else:
        asyncio.run(_serve(invocation, settings, setup))


def _refuse_without_cluster(flags: dict[str, Any]) -> None:
    """Refuse flags that say something of a cluster where none is served."""
    given = [name for name, value in flags.items() if value is not None]
    if given:
        raise ConfigError(
            f"--{given[0]} is for a host of a cluster", hint="add --cluster, or leave it out", key=f"--{given[0]}"
        )


def _tell(invocation: Invocation, text: str, level: int = logging.INFO) -> None:
    """Print a sentence for the person who starts the server; where logs are JSON, a record of the log like all
    others."""
    if invocation.config.log.format == "json":
        _log.log(level, "%s", text)
    else:
        note(f"warning: {text}" if level >= logging.WARNING else text)


def _explain_loss(failure: LyraError) -> LyraError:
    """Return why the server ended by itself, for the person who started it."""
    if not isinstance(failure, Conflict):
        return failure
    return Conflict(
        "another server has taken over the store: this one did not renew its lease in time, so it has stopped",
        hint="it was paused, or could not reach the store; calls in flight are charged by the other server",
    )


async def _serve(invocation: Invocation, settings: ServeSettings, setup: Callable[[Any], Any] | None) -> None:
    from lyra.kernel.kernel import Kernel
    from lyra.server.serve import Server

    stopped = asyncio.Event()
    on_stop_signal(stopped.set)
    async with Server(Kernel.from_config(invocation.config), settings, setup=setup) as server:
        _tell(invocation, f"tokens: {settings.token_source}")
        click.echo(json.dumps(server.ready_line()))
        sys.stdout.flush()
        server.when_lost(stopped.set)
        await stopped.wait()
        if server.kernel.failure is not None:
            raise _explain_loss(server.kernel.failure)
        _tell(invocation, "stopping: requests in flight are finished first")


async def _serve_cluster(
    invocation: Invocation,
    settings: ServeSettings,
    setup: Callable[[Any], Any] | None,
    *,
    resources: str | None,
    **made_with: Any,
) -> None:
    from lyra.cli.commands.cluster import check_reachable, find_cluster_url, warn_of_lease
    from lyra.cluster.joining import read_resources
    from lyra.server.serve import check_libraries

    url = find_cluster_url(invocation, None)
    check_reachable(invocation.config)
    check_libraries(settings, "cluster")
    from lyra.server.cluster.front import ClusterServer

    stopped = asyncio.Event()
    on_stop_signal(stopped.set)
    given = read_resources(resources)
    server = ClusterServer(invocation.config, settings, url, setup=setup, resources=given, **made_with)
    async with server:
        warn_of_lease(server.host, made_with["lease_s"])
        _tell(invocation, f"tokens: {settings.token_source}")
        click.echo(json.dumps(server.ready_line()))
        sys.stdout.flush()
        await stopped.wait()
        _tell(invocation, "stopping: requests in flight are finished first, then the other hosts take the shards")


def allow_open_files(count: int) -> bool:
    """Raise the limit so that so many files can be open; whether it now allows that."""
    try:
        import resource
    except ImportError:  # no such limit on this system
        return True
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return True
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted >= count


# ---------------------------------------------------------------- worker


@click.command(cls=CliCommand, uses_trust=True)
@click.option("--server", metavar="HOST:PORT", help="The gRPC address of the server; by default that of `lyra serve`.")
@click.option(
    "--load", type=_FILE, metavar="FILE.py", required=True, help="Run setup(worker) of this file: agents, services."
)
@click.option("--concurrency", type=int, default=1, metavar="N", help="How many pieces of work to do at once.")
@click.option("--lease", type=float, metavar="S", help="Seconds after which a silent worker has lost its work.")
@click.option("--name", metavar="ID", help="The id of this worker; by default made of host and process.")
@click.option("--token-file", type=_FILE, metavar="FILE", help="The file of the token: its first line counts.")
@click.option("--user", metavar="USER", help="Do work of this user alone.")
@click.option("--tls", is_flag=True, help="Use TLS, with the authorities of the system.")
@click.option("--tls-ca", type=_FILE, metavar="FILE", help="Use TLS, with this authority (PEM).")
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="The certificate of this worker (PEM).")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="The key of that certificate (PEM).")
@click.option("--plaintext", is_flag=True, help="Send the token to another machine without TLS: a proxy does it.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON when the server knows the worker.")
@click.pass_obj
def worker(invocation: Invocation, /, *, load: str, as_json: bool, **options: Any) -> None:
    """Run agents and services for the kernel of a server."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    asyncio.run(_work(invocation, setup_of(load, "worker"), options, as_json=as_json))


async def _work(invocation: Invocation, setup: Callable[[Any], Any], options: dict[str, Any], *, as_json: bool) -> None:
    runner = _worker_of(invocation, options)
    prepared = setup(runner)
    if hasattr(prepared, "__await__"):
        await prepared

    def stop() -> None:
        note("stopping: work in progress is finished first")
        runner.stop()

    on_stop_signal(stop)

    def ready() -> None:
        line = {"worker": runner.id, "server": runner.address, "agents": runner.agents, "services": runner.services}
        if as_json:
            click.echo(json.dumps(line))
        else:
            click.echo(f"worker {runner.id} serves {', '.join(runner.agents + runner.services)} for {runner.address}")
        sys.stdout.flush()

    await runner.run(ready)


def _worker_of(invocation: Invocation, options: dict[str, Any]) -> Worker:
    from lyra.kernel.kernel import Kernel
    from lyra.server.client.worker import Worker

    config = invocation.config
    files = {key: options[f"tls_{key}"] for key in ("ca", "cert", "key") if options[f"tls_{key}"]}
    lease = {} if options["lease"] is None else {"lease_s": options["lease"]}
    return Worker(
        options["server"] or str(config.server.grpc or ""),
        worker_id=options["name"],
        concurrency=options["concurrency"],
        kernel=Kernel.from_config(config, store="memory"),
        token=_token(options["token_file"]),
        user_id=options["user"] or "",
        tls=files or options["tls"] or None,
        plaintext=options["plaintext"],
        **lease,
    )


def _token(file: str | None) -> str | None:
    """Return the token of a file; None has the variable or the user's own file give it."""
    if file is None:
        return None
    lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    words = next((line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")), [])
    if not words:
        raise ConfigError(f"{file} has no token", key="--token-file")
    return words[0]


# ---------------------------------------------------------------- mock


@click.group(cls=CommandGroup)
def mock() -> None:
    """Serve the APIs of Anthropic, OpenAI and Ollama from a script, for tests."""


@mock.command("serve")
@click.option(
    "--script",
    default=None,
    metavar="FILE",
    help="The answers (YAML, TOML or JSON); without it the server repeats each prompt.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 chooses a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--public", is_flag=True, help="Allow a host that other machines can reach.")
@json_option
def serve_mock(*, script: str | None, port: int, host: str, public: bool, as_json: bool) -> None:
    """Answer over HTTP as the providers do, from a script, until interrupted."""
    asyncio.run(_serve_mock(script, host, port, public=public, as_json=as_json))


async def _serve_mock(script: str | None, host: str, port: int, *, public: bool, as_json: bool) -> None:
    from lyra.testing.mock import MockServer

    stopped = asyncio.Event()
    on_stop_signal(stopped.set)
    async with MockServer(script, host=host, port=port, public=public, seen=_tell_request) as server:
        _announce(server.url, server.env, as_json=as_json)
        await stopped.wait()


def _announce(url: str, env: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        document({"url": url, "env": env})
    else:
        click.echo(f"# the mock server listens on {url}; Ctrl-C ends it")
        for name, value in env.items():
            click.echo(f"export {name}={value}")


def _tell_request(asked: HttpRequest, status: int) -> None:
    note(printable(f"{asked.method} {asked.path} {status if status > 0 else 'broken off'}"))
