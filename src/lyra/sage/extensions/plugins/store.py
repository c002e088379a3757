"""PluginStore: the plugins that are installed, and which of them are enabled, with what their user agreed to.

    $XDG_DATA_HOME/lyra/plugins/ID/…        the plugin, as it was copied
    $XDG_DATA_HOME/lyra/plugins/enabled.json

Installing copies a folder and runs nothing of it. Enabling keeps what its hooks and servers ask for now: a plugin that
asks for more later, or was enabled before that was kept, does not count until it is enabled again. Each change happens
as a whole or not at all. Only the user's own files are changed; agents and their commands cannot write there
(`lyra.core.own_files`). Only plain files are copied, within bounds, without links and hidden names.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lyra.config.files import alone, write_private
from lyra.core.checking.check import Mistake, did_you_mean
from lyra.core.checking.watched_files import read_plain_file
from lyra.core.ids import Entropy
from lyra.core.own_files import make_folder
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError
from lyra.sage.extensions.extension_files import one_line
from lyra.sage.extensions.plugins.plugin import MANIFEST, Plugin, read_plugin

if TYPE_CHECKING:
    from lyra.mcp.settings import ServerSettings


_STATE: Final = "enabled.json"
_FOLDER_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,39}\Z")
_STATE_BYTES_MAX: Final = 1 << 20
_MISTAKES_SHOWN: Final = 10
_STAMPS_MAX: Final = 20_000  # bounds the time of a look; plugins beyond it are read at the next start
_GONE: Final = "it is not installed any more"


class EnabledPlugin(msgspec.Struct, frozen=True):
    """What its user agreed to when a plugin was enabled."""

    version: str
    asks: tuple[str, ...] | None = None  # None: by a version that kept something else


class _StateFile(msgspec.Struct):
    enabled: dict[str, EnabledPlugin] = {}


class InstalledPlugin(NamedTuple):
    """One installed plugin. `problem` says what is wrong with it; it `counts` in spite of that where an earlier version
    without mistakes is known."""

    id: str
    plugin: Plugin | None
    enabled: bool
    problem: str = ""
    counts: bool = False


class PluginStore:
    """The plugins in one folder; by default the user's own."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, env: Mapping[str, str] | None = None) -> None:
        self._env = os.environ if env is None else env
        self.folder = Path(folder) if folder is not None else data_folder(self._env) / "plugins"

    # ------------------------------------------------------------ looking
    def list_installed(self, last_good: Mapping[str, Plugin] | None = None) -> list[InstalledPlugin]:
        """Return all plugins by id, with what is wrong with them. One with a mistake counts as it was in
        `last_good`."""
        enabled = self._state().enabled
        plugins, told = self._read_all(last_good or {})
        barred = {name: told.get(name, _GONE) for name in enabled if name not in plugins}
        for name, plugin in plugins.items():
            agreed = enabled[name].asks if name in enabled else ()
            if name in enabled and (agreed is None or not set(plugin.asks()) <= set(agreed)):
                barred[name] = f"it asks for more than you agreed to; look at it, then sage plugins enable {name}"
        return [
            InstalledPlugin(
                name,
                plugins.get(name),
                name in enabled,
                barred.get(name) or told.get(name, ""),
                name in enabled and name not in barred,
            )
            for name in sorted({*plugins, *told, *barred})
        ]

    def _read_all(self, last_good: Mapping[str, Plugin]) -> tuple[dict[str, Plugin], dict[str, str]]:
        """Return the plugins that can be used, and what is wrong with the others."""
        plugins: dict[str, Plugin] = {}
        told: dict[str, str] = {}
        for name in self._names():
            plugin, mistakes = read_plugin(str(self.folder / name), env=self._env)
            if plugin is not None and plugin.id == name:
                plugins[name] = plugin
                continue
            told[name] = _describe_mistakes(mistakes)
            if name in last_good:
                plugins[name] = last_good[name]
                told[name] += "; its last good version is used"
        return plugins, told

    def get(self, plugin_id: str) -> InstalledPlugin:
        installed = {entry.id: entry for entry in self.list_installed()}
        if plugin_id not in installed:
            near = did_you_mean(plugin_id, installed)
            hint = f"did you mean {near!r}?" if near else "sage plugins list"
            raise ConfigError(f"there is no plugin {one_line(plugin_id)[:80]!r}", hint=hint, key="plugin")
        return installed[plugin_id]

    def active(self, last_good: Mapping[str, Plugin] | None = None) -> tuple[list[Plugin], list[str]]:
        """Return the plugins that count, and a sentence for each enabled one that has a problem."""
        installed = [entry for entry in self.list_installed(last_good) if entry.enabled]
        plugins = [entry.plugin for entry in installed if entry.plugin is not None and entry.counts]
        return plugins, [f"plugin {entry.id}: {entry.problem}" for entry in installed if entry.problem]

    def stamp(self) -> tuple[tuple[int, ...], ...]:
        """Return a value that changes when a file of a plugin, or which of them are enabled, changes."""
        stamps = []
        for folder, names, files in os.walk(self.folder):
            names[:] = sorted(name for name in names if not name.startswith("."))
            for name in (os.curdir, *sorted(files)):
                with contextlib.suppress(OSError):
                    state = os.stat(os.path.join(folder, name), follow_symlinks=False)
                    stamps.append((state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino))
            if len(stamps) > _STAMPS_MAX:
                break
        return tuple(stamps)

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.folder) as entries:
                folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []
        return sorted(name for name in folders if _FOLDER_NAME.match(name))

    # ------------------------------------------------------------ changing
    def install(self, source: str | os.PathLike[str], *, replace: bool = False) -> Plugin:
        """Copy a plugin's folder. It does nothing until it is enabled."""
        with self._changing():
            temporary = self.folder / f".new-{Entropy().text(12)}"
            try:
                copy_plugin(os.fspath(source), temporary)
                plugin = self._read(temporary)
                self._put(temporary, plugin.id, replace=replace)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        return self._read(self.folder / plugin.id)

    def _put(self, temporary: Path, plugin_id: str, *, replace: bool) -> None:
        home = self.folder / plugin_id
        if not os.path.lexists(home):
            os.rename(temporary, home)
            return
        if not replace:
            message = f"the plugin {plugin_id} is installed already"
            raise ConfigError(message, hint="--replace puts this one in its place", key="plugin")
        aside = self.folder / f".old-{Entropy().text(12)}"
        os.rename(home, aside)
        try:
            os.rename(temporary, home)
        except OSError:
            os.rename(aside, home)
            raise
        shutil.rmtree(aside, ignore_errors=True)

    def enable(self, plugin_id: str) -> Plugin:
        """Let a plugin count, with what it asks for now."""
        with self._changing() as state:
            entry = self.get(plugin_id)
            if entry.plugin is None:
                raise ConfigError(f"the plugin {plugin_id} cannot be used: {entry.problem}", key="plugin")
            state.enabled[plugin_id] = EnabledPlugin(entry.plugin.manifest.version, entry.plugin.asks())
        return entry.plugin

    def disable(self, plugin_id: str) -> bool:
        """Let a plugin count no more; False if it did not."""
        with self._changing() as state:
            return state.enabled.pop(plugin_id, None) is not None

    def remove(self, plugin_id: str) -> None:
        """Remove a plugin with all its files."""
        with self._changing() as state:
            self.get(plugin_id)
            state.enabled.pop(plugin_id, None)
            shutil.rmtree(self.folder / plugin_id, ignore_errors=True)

    def _read(self, folder: Path) -> Plugin:
        plugin, mistakes = read_plugin(str(folder), env=self._env)
        if plugin is None:
            raise ConfigError(
                f"this is no plugin that can be used: {_describe_mistakes(mistakes, folder)}", key="plugin"
            )
        return plugin

    # ------------------------------------------------------------ the state
    def _state(self) -> _StateFile:
        path = self.folder / _STATE
        try:
            data = read_plain_file(str(path), _STATE_BYTES_MAX, follow_links=False)
            return msgspec.json.decode(data, type=_StateFile)
        except FileNotFoundError:
            return _StateFile()
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"which plugins are enabled cannot be read: {error}", place=str(path)) from None

    @contextlib.contextmanager
    def _changing(self) -> Iterator[_StateFile]:
        """Yield the state, written after the block unless it raises; one process at a time."""
        make_folder(self.folder, private=True)
        path = self.folder / _STATE
        with alone(path):
            state = self._state()
            before = msgspec.json.encode(state)
            yield state
            if msgspec.json.encode(state) != before:
                write_private(path, msgspec.json.format(msgspec.json.encode(state)))


def _describe_mistakes(mistakes: list[Mistake], folder: Path | None = None) -> str:
    """Return the mistakes as one text; paths in a temporary copy are shown relative to it."""
    texts = [one_line(str(mistake)) for mistake in mistakes[:_MISTAKES_SHOWN]]
    if folder is not None:
        texts = [text.replace(f"{os.path.realpath(folder)}/", "") for text in texts]
    return "; ".join(texts) or "its id is not the name of its folder"


_FILES_MAX: Final = 1_000
_BYTES_MAX: Final = 20 << 20
_DEPTH_MAX: Final = 8


def copy_plugin(source: str, target: Path) -> None:
    """Copy a plugin's plain files; ConfigError for links, devices, and more than a plugin may have."""
    if not os.path.isfile(os.path.join(source, MANIFEST)):
        raise ConfigError(f"there is no {MANIFEST} in {one_line(source)}", key="plugin")
    copied = size = 0
    for folder, inside in _folders(source):
        os.mkdir(target / inside, stat.S_IRWXU)
        with os.scandir(folder) as entries:
            files = [entry for entry in entries if not entry.name.startswith(".")]
        for entry in files:
            if entry.is_symlink():
                raise ConfigError(f"{one_line(entry.path)} is a link; a plugin has none", key="plugin")
            if entry.is_dir(follow_symlinks=False):
                continue
            copied += 1
            size += _copy_file(entry.path, target / inside / entry.name, _BYTES_MAX - size)
            if copied > _FILES_MAX:
                raise ConfigError(f"a plugin has at most {_FILES_MAX} files", key="plugin")


def _folders(source: str) -> Iterator[tuple[str, str]]:
    """Yield the folders of a plugin and their paths in it, outermost first; hidden ones are left out."""
    waiting = [(source, "")]
    count = 0
    while waiting:
        folder, inside = waiting.pop(0)
        count += 1
        if count > _FILES_MAX or inside.count(os.sep) >= _DEPTH_MAX:
            raise ConfigError("a plugin has fewer folders than this", key="plugin")
        yield folder, inside
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            )
        waiting += [(os.path.join(folder, name), os.path.join(inside, name)) for name in names]


def _copy_file(source: str, target: Path, bytes_left: int) -> int:
    try:
        data = read_plain_file(source, max(0, bytes_left), follow_links=False)
    except OSError as error:
        raise ConfigError(f"{one_line(source)} cannot be copied: {error.strerror}", key="plugin") from None
    runs = os.stat(source, follow_symlinks=False).st_mode & stat.S_IXUSR
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o700 if runs else 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    return len(data)


def plugin_servers(folder: str) -> list[ServerSettings]:
    """Return the servers, for a session in this folder."""
    if not os.path.isdir(data_folder() / "plugins"):
        return []

    return [server for plugin in PluginStore().active()[0] for server in plugin.servers(os.path.realpath(folder))]
