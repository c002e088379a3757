"""`lyra worker`: run agents and services for the kernel of a server, until it is told to stop.

`setup(worker)` of a Python file registers them. SIGTERM and Ctrl-C finish what the worker holds; a second signal ends
it at once. A server that is restarted is waited for.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.render import note
from lyra.cli.setup_file import setup_of

if TYPE_CHECKING:
    from lyra.server.client.worker import Worker


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_FILE: Final = click.Path(exists=True, dir_okay=False)


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
    loop = asyncio.get_running_loop()

    def stop() -> None:
        note("stopping: work in progress is finished first")
        runner.stop()
        for number in _SIGNALS:  # a second signal ends the program at once
            loop.remove_signal_handler(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)

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
    """The token of a file; None has the variable or the user's own file give it."""
    if file is None:
        return None
    from lyra.errors import ConfigError

    lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    words = next((line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")), [])
    if not words:
        raise ConfigError(f"{file} has no token", key="--token-file")
    return words[0]
