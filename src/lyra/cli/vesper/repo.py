"""`vesper repo`: the nodes of folders or of the store, by id and version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, CommandGroup, Invocation, json_option
from lyra.cli.render import document, note, printable, table
from lyra.cli.vesper.node_files import load_stored_nodes, runtime_of
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.vesper.nodes import Node
    from lyra.vesper.repository.folders import Repository


repo = CommandGroup("repo", help="List, add and compare the nodes of folders, or of the store.")

folder_option = click.option(
    "-d",
    "--folder",
    "folders",
    multiple=True,
    metavar="FOLDER",
    help="A folder of nodes; may be repeated. By default this folder and `nodes/`.",
)
store_option = click.option(
    "--store", "in_store", is_flag=True, help="The nodes of the project's store, not of folders."
)


def _refuse_both(folders: Any, in_store: bool) -> None:
    if folders and in_store:
        raise ConfigError("--folder and --store exclude each other", key="--store")


def _repository(ctx: click.Context, folders: tuple[str, ...], in_store: bool) -> Repository:
    from lyra.vesper.repository.folders import NODES_FOLDER, Repository

    _refuse_both(folders, in_store)
    if in_store:
        return load_stored_nodes(ctx.ensure_object(Invocation))
    for folder in folders:
        if not Path(folder).is_dir():
            raise ConfigError(f"there is no folder {folder!r}", key="--folder")
    return Repository(folders or (".", NODES_FOLDER))


def _node(name: str, repository: Repository) -> Node:
    """Return a node by its file or its id."""
    from lyra.vesper.nodes import load

    path = Path(name)
    if path.suffix != ".vsp" and not path.is_file():
        return repository.resolve(name)
    return load(path)


@repo.command(cls=CliCommand, name="list")
@folder_option
@store_option
@json_option
@click.pass_context
def list_(ctx: click.Context, /, *, folders: tuple[str, ...], in_store: bool, as_json: bool) -> None:
    """List all nodes with their versions. Files that are no nodes are named on stderr."""
    from lyra.vesper.values.names import bare_id

    repository = _repository(ctx, folders, in_store)
    rows: list[dict[str, Any]] = [
        {
            "node_id": node.node_id,
            "name": bare_id(node.node_id),
            "type": node.kind,
            "intent": node.intent,
            "file": node.file,
            "is_highest": repository.versions(node.node_id)[-1] == node.node_id,
        }
        for node in repository.nodes.values()
    ]
    broken = [{"file": entry.file, "reason": entry.reason} for entry in repository.broken]
    if as_json:
        document({"nodes": rows, "broken": broken})
        return
    for entry in broken:
        note(printable(f"{entry['file']} is no node: {entry['reason']}"))
    if rows:
        table(("node", "type", "intent"), [[row["node_id"], row["type"], row["intent"]] for row in rows])
    else:
        click.echo("no nodes here")


@repo.command(cls=CliCommand, name="add")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-d", "--folder", metavar="FOLDER", help="The repository's folder.  [default: nodes]")
@store_option
@json_option
@click.pass_context
def add(ctx: click.Context, /, *, files: tuple[str, ...], folder: str | None, in_store: bool, as_json: bool) -> None:
    """Copy FILEs into the repository; refuses a node that is not valid or breaks a version that is there."""
    _refuse_both(folder, in_store)
    rows = _add_to_store(ctx, files) if in_store else _add_to_folder(files, folder)
    if as_json:
        document({"added": rows})
        return
    for row in rows:
        click.echo(printable(f"{row['node_id']}: {row['file']}"))


def _add_to_folder(files: tuple[str, ...], folder: str | None) -> list[dict[str, str]]:
    from lyra.vesper.nodes import load
    from lyra.vesper.repository.folders import NODES_FOLDER
    from lyra.vesper.repository.versions import add as add_node

    nodes = [load(Path(file)) for file in files]
    return [{"node_id": node.node_id, "file": str(add_node(node, folder or NODES_FOLDER))} for node in nodes]


def _add_to_store(ctx: click.Context, files: tuple[str, ...]) -> list[dict[str, str]]:
    from lyra.vesper.nodes import load

    nodes = [load(Path(file)) for file in files]
    with runtime_of(ctx.ensure_object(Invocation), None, (), ()) as runtime:
        for node in nodes:
            runtime.add_node(node)
    return [{"node_id": node.node_id, "file": "<store>"} for node in nodes]


@repo.command(cls=CliCommand, name="deps")
@click.argument("name", metavar="NODE")
@folder_option
@store_option
@json_option
@click.pass_context
def deps(ctx: click.Context, /, *, name: str, folders: tuple[str, ...], in_store: bool, as_json: bool) -> None:
    """Show the nodes that NODE (a file or an id) needs; exit 1 if one is missing or they need each other."""
    from lyra.vesper.repository.folders import dependencies_of, repository_around

    path = Path(name)
    around = path.suffix == ".vsp" and not folders and not in_store
    repository = repository_around(path) if around else _repository(ctx, folders, in_store)
    needs = dependencies_of(_node(name, repository), repository)
    if as_json:
        document(
            {
                "node": needs.node,
                "dependencies": [
                    {"node": row.node, "needs": row.needs, "target": row.target, "called": row.called}
                    for row in needs.all
                ],
                "missing": list(needs.missing),
                "cycles": [list(circle) for circle in needs.cycles],
            }
        )
    else:
        click.echo(needs.node)
        for row in needs.all:
            how = "calls" if row.called else "declares"
            click.echo(printable(f"  {row.node} {how} {row.needs}: {row.target or 'not known'}"))
        for circle in needs.cycles:
            click.echo(printable(f"  a circle: {' → '.join(circle)}"))
    ctx.exit(1 if needs.missing or needs.cycles else 0)


@repo.command(cls=CliCommand, name="diff")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@folder_option
@store_option
@json_option
@click.pass_context
def diff(ctx: click.Context, /, *, old: str, new: str, folders: tuple[str, ...], in_store: bool, as_json: bool) -> None:
    """Show what NEW changes for callers of OLD (files or ids); exit 1 if its version does not allow that."""
    from lyra.vesper.repository.versions import difference

    repository = _repository(ctx, folders, in_store)
    result = difference(_node(old, repository), _node(new, repository))
    if as_json:
        names = ("severity", "code", "message", "path", "line", "column")
        issues = [{name: getattr(issue, name) for name in names} for issue in result.issues]
        document(
            {
                "old": result.old,
                "new": result.new,
                "needed": result.needed,
                "raised": result.raised,
                "allowed": result.is_allowed,
                "changes": issues,
            }
        )
    else:
        click.echo(printable(f"{result.old} → {result.new}: needs {result.needed}, raises {result.raised}"))
        for issue in result.issues:
            click.echo(printable(f"  {issue.severity}[{issue.code}]: {issue.message}"))
    ctx.exit(0 if result.is_allowed else 1)


@repo.command(cls=CliCommand, name="capabilities")
@folder_option
@store_option
@json_option
@click.pass_context
def capabilities(ctx: click.Context, /, *, folders: tuple[str, ...], in_store: bool, as_json: bool) -> None:
    """Show which rights the nodes need, and which node needs each."""
    from lyra.vesper.repository.folders import capabilities_of

    needs = capabilities_of(_repository(ctx, folders, in_store))
    if as_json:
        document({"capabilities": {capability: list(nodes) for capability, nodes in needs.items()}})
    elif needs:
        table(("capability", "nodes"), [[capability, ", ".join(nodes)] for capability, nodes in needs.items()])
    else:
        click.echo("no node needs a right")
