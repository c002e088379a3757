"""DynamicTools: the tools of a folder of files, as they are now.

    tools = DynamicTools("tools/", workspace=".")
    Agent("helper", model=…, tools=[tools, weather])

A source of tools (`lyra.tools.source`): an agent looks again at each message, so that a file that is added, changed or
taken away counts from the next message on, without a restart. Looking costs a listing of the folder; a file is read
when its size or time has changed. A file with a mistake keeps the tools of its last correct version, and is in
`problems` until it is corrected. Of two tools with one name the one of the first file counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from lyra.core.checking.check import Mistake
from lyra.core.checking.document import FORMATS
from lyra.core.checking.watched_files import WatchedFiles
from lyra.core.clock import Clock, loop_clock
from lyra.core.own_files import add_own_path
from lyra.core.tool import Tool
from lyra.sandbox.addresses import Lookup
from lyra.sandbox.proxy import system_lookup
from lyra.sandbox.sandbox import Sandbox
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.http_guard import Dial
from lyra.tools.yaml.reader import read_tools
from lyra.tools.yaml.template import ToolEnvironment

_FILES_MAX: Final = 500
_FILE_BYTES_MAX: Final = 128 * 1024  # bounds the time that a message waits for reading


class DynamicTools:
    """`path` is a folder or one file. `on_change` is called after a refresh that found a change. `accept` is asked for
    the path and the content of each file that is read; one that it refuses has no tools."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        workspace: Workspace | str | None = None,
        sandbox: Sandbox | None = None,
        secrets: Collection[str] | None = None,
        inside: Collection[str] = (),
        env: Mapping[str, str] | None = None,
        lookup: Lookup = system_lookup,
        dial: Dial | None = None,
        on_change: Callable[[DynamicTools], None] | None = None,
        accept: Callable[[str, bytes], bool] | None = None,
        clock: Clock | None = None,
    ) -> None:
        place = workspace if isinstance(workspace, Workspace) else Workspace(workspace or os.getcwd())
        self.path = os.fspath(path)
        add_own_path(self.path)  # its tools act with rights that the file names
        self._environment = ToolEnvironment(
            workspace=place,
            sandbox=sandbox or Sandbox(),
            secrets=None if secrets is None else frozenset(secrets),
            inside=frozenset(inside),
            env=env,
            lookup=lookup,
            dial=dial,
        )
        self._on_change = on_change
        self._files = WatchedFiles(self._read, bytes_max=_FILE_BYTES_MAX, accept=accept, clock=clock or loop_clock())
        self._tools: dict[str, Tool] = {}
        self._listing: tuple[Mistake, ...] = ()  # what is wrong with the folder itself
        self._mistakes: tuple[Mistake, ...] = ()
        self.refresh()

    # ------------------------------------------------------------ what there is
    def __lyra_tools__(self) -> tuple[Tool, ...]:
        self.refresh()
        return tuple(self._tools.values())

    def __iter__(self) -> Iterator[Tool]:
        return iter(self.__lyra_tools__())

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """All mistakes in the files, as of the last refresh."""
        return self._mistakes

    @property
    def problems(self) -> tuple[str, ...]:
        """The mistakes as texts: `file:line: sentence`."""
        return tuple(str(mistake) for mistake in self._mistakes)

    @property
    def accepted(self) -> bool:
        """Whether a file was accepted, as of the last refresh."""
        return self._files.accepted

    # ------------------------------------------------------------ looking
    def refresh(self) -> bool:
        """Look at the files; True if a tool or a mistake has changed."""
        names, listing = self._list_names()
        if not self._files.refresh(names) and self._listing == listing:
            return False
        self._listing = listing
        self._gather(names, listing)
        if self._on_change is not None:
            self._on_change(self)
        return True

    def _list_names(self) -> tuple[list[str], tuple[Mistake, ...]]:
        """Return the names of the files, in order; the known ones for a folder that cannot be read."""
        try:
            if not os.path.isdir(self.path):
                os.stat(self.path)
                return [self.path], ()
            with os.scandir(self.path) as entries:
                names = sorted(
                    entry.path
                    for entry in entries
                    if not entry.name.startswith(".") and os.path.splitext(entry.name)[1].lower() in FORMATS
                )
        except FileNotFoundError:
            return [], (Mistake(self.path, 1, 1, "there is no such file or folder"),)
        except OSError as error:
            return list(self._files.paths), (Mistake(self.path, 1, 1, f"it cannot be read: {error.strerror}"),)
        if len(names) > _FILES_MAX:
            message = f"only the first {_FILES_MAX} of {len(names)} files are read"
            return names[:_FILES_MAX], (Mistake(self.path, 1, 1, message),)
        return names, ()

    def _read(self, data: bytes, name: str) -> tuple[tuple[Tool, ...], list[Mistake]]:
        tools, mistakes = read_tools(data, name, self._environment)
        return tuple(tools), mistakes

    def _gather(self, names: list[str], mistakes: tuple[Mistake, ...]) -> None:
        tools: dict[str, Tool] = {}
        homes: dict[str, str] = {}
        gathered = list(mistakes)
        for name in names:
            gathered += self._files.mistakes(name)
            for tool in self._files.value(name) or ():
                if tool.name in tools:
                    gathered.append(Mistake(name, 1, 1, f"there is a tool {tool.name!r} in {homes[tool.name]} already"))
                else:
                    tools[tool.name], homes[tool.name] = tool, name
        self._tools = tools
        self._mistakes = tuple(gathered)

    def __repr__(self) -> str:
        return f"<DynamicTools {self.path}: {', '.join(self._tools)}>"
