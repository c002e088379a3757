"""`sage plugins list|install|enable|disable|show|rm`: plugins, and what each asks for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CommandGroup, json_option
from lyra.cli.render import note, printable

if TYPE_CHECKING:
    from lyra.sage.extensions.plugins.plugin import Plugin
    from lyra.sage.extensions.plugins.store import InstalledPlugin, PluginStore


@click.group("plugins", cls=CommandGroup)
def plugins() -> None:
    """Install, enable and remove plugins of Sage."""


@plugins.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the installed plugins, and whether each counts."""
    installed = _store().list_installed()
    if as_json:
        click.echo(json.dumps([_data(entry) for entry in installed], indent=2))
        return
    if not installed:
        note("no plugins; install one: sage plugins install FOLDER")
    for entry in installed:
        about = f"{entry.plugin.manifest.version}  {entry.plugin.manifest.description}" if entry.plugin else ""
        click.echo(printable(f"{entry.id}  {_state(entry)}  {about}".rstrip()))
        if entry.problem:
            click.echo(printable(f"  {entry.problem}"))


@plugins.command("install")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--replace", is_flag=True, help="Put it in the place of an installed one.")
def install(folder: str, replace: bool) -> None:
    """Copy the plugin in FOLDER. It does nothing until it is enabled."""
    plugin = _store().install(folder, replace=replace)
    note(f"installed {plugin.id} {plugin.manifest.version}; it counts after sage plugins enable {plugin.id}")
    _show_asks(plugin)


@plugins.command("enable")
@click.argument("plugin_id", metavar="ID")
@click.option("-y", "--yes", is_flag=True, help="Agree to what it asks for without being asked.")
def enable(plugin_id: str, yes: bool) -> None:
    """Let a plugin count, after showing what it asks for."""
    store = _store()
    entry = store.get(plugin_id)
    if entry.plugin is not None:
        _show_asks(entry.plugin)
    if not yes:
        click.confirm(f"Enable {plugin_id}?", abort=True, err=True)
    plugin = store.enable(plugin_id)
    note(f"enabled {plugin.id} {plugin.manifest.version}")


@plugins.command("disable")
@click.argument("plugin_id", metavar="ID")
def disable(plugin_id: str) -> None:
    """Let a plugin count no more; it stays installed."""
    store = _store()
    store.get(plugin_id)
    note(f"disabled {plugin_id}" if store.disable(plugin_id) else f"{plugin_id} was not enabled")


@plugins.command("show")
@click.argument("plugin_id", metavar="ID")
@json_option
def show(plugin_id: str, as_json: bool) -> None:
    """Show the parts of a plugin, what it asks for, and what is wrong with it."""
    entry = _store().get(plugin_id)
    if as_json:
        click.echo(json.dumps(_data(entry), indent=2))
        return
    click.echo(printable(f"{entry.id}  {_state(entry)}"))
    if entry.problem:
        click.echo(printable(f"  {entry.problem}"))
    if entry.plugin is None:
        return
    manifest = entry.plugin.manifest
    click.echo(printable(f"  {manifest.name} {manifest.version}: {manifest.description}"))
    for kind, paths in manifest.assets.items():
        click.echo(printable(f"  {kind}: {', '.join(paths)}"))
    if manifest.passed_over:
        note(f"passed over, as it means nothing any more: {', '.join(manifest.passed_over)}")
    _show_asks(entry.plugin)


@plugins.command("rm")
@click.argument("plugin_id", metavar="ID")
def remove(plugin_id: str) -> None:
    """Remove a plugin with all its files."""
    _store().remove(plugin_id)
    note(f"removed {plugin_id}")


def _store() -> PluginStore:
    from lyra.sage.extensions.plugins.store import PluginStore

    return PluginStore()


def _state(entry: InstalledPlugin) -> str:
    if not entry.enabled:
        return "disabled"
    return "does not count" if entry.problem else "enabled"


def _show_asks(plugin: Plugin) -> None:
    lines = plugin.asks()
    click.echo("  asks for:" if lines else "  asks for nothing: its texts are all that it adds")
    for line in lines:
        click.echo(printable(f"    {line}"))


def _data(entry: InstalledPlugin) -> dict[str, Any]:
    data: dict[str, Any] = {"id": entry.id, "enabled": entry.enabled, "problem": entry.problem}
    if entry.plugin is not None:
        manifest = entry.plugin.manifest
        data |= {
            "name": manifest.name,
            "version": manifest.version,
            "description": manifest.description,
            "assets": {kind: list(paths) for kind, paths in manifest.assets.items()},
            "asks": list(entry.plugin.asks()),
            "passed_over": list(manifest.passed_over),
        }
    return data
