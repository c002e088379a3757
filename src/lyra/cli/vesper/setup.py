"""The runtime of a command: its store, database, providers and rights."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.provider_addresses import provider_addresses
from lyra.core.clock import SystemClock
from lyra.core.data_folder import data_folder
from lyra.core.own_files import make_folder
from lyra.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lyra.cli.app import Invocation
    from lyra.vesper.repository.folders import Repository
    from lyra.vesper.runtime.runtime import Runtime


STORE_WAIT_S = 30.0  # for another command that has the store
_PAUSE_S = 0.1


def runtime_options(function: Any) -> Any:
    """`--database`, `--provider`, `--grant`."""
    function = click.option("--database", metavar="URL", help="sqlite:///FILE or postgresql://…")(function)
    function = click.option(
        "--provider", "providers", metavar="NAME=URL", multiple=True, help="The address behind a provider's name."
    )(function)
    return click.option(
        "--grant", "grants", metavar="CAPABILITY", multiple=True, help="A right that the node may use."
    )(function)


def store_of(invocation: Invocation) -> str:
    """Where modes and evidence are kept: the project's store, or a file in the user's data folder."""
    target = invocation.config.store_target()
    if target != "memory":
        return target
    folder = data_folder()
    make_folder(folder, private=True)
    return str(folder / "vesper.db")


def runtime_of(
    invocation: Invocation, database: str | None, providers: Iterable[str], grants: Iterable[str], **more: Any
) -> Runtime:
    from lyra.vesper.runtime.runtime import Runtime

    return Runtime(
        store_of(invocation),
        database=database,
        providers=provider_addresses(providers),
        grant=list(grants) or None,
        results=invocation.config.vesper.results.reveal(),
        **more,
    )


def runtime_when_free(invocation: Invocation) -> Runtime:
    """A runtime of the store; where another command has it, as soon as that has ended."""
    deadline = SystemClock.monotonic() + STORE_WAIT_S
    while True:
        try:
            return runtime_of(invocation, None, (), ())
        except Conflict:
            if SystemClock.monotonic() > deadline:
                raise
            Event().wait(_PAUSE_S)


def stored_nodes(invocation: Invocation) -> Repository:
    """The nodes that the store keeps."""
    with runtime_of(invocation, None, (), ()) as runtime:
        return runtime.stored_nodes()
