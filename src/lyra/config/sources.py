"""Where settings come from: defaults, files, the environment, flags; each becomes one `SettingsLayer` of checked
values.

`Loading` goes through all of them before it complains: the first mistake is raised, with up to five more in its field
`also`. Where it is lenient, a mistake in a project's file that is not trusted is passed over instead (`refused`). Which
layer wins is `merge`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from lyra.config.files import FILE_NAME, MANAGED_FILE, is_own, parse_toml, project_file, read_bytes
from lyra.config.keys import ELSEWHERE, GONE, HOOKS, KEYS, NONE, SECTIONS, hint_for
from lyra.config.servers import check_name, read_cell
from lyra.config.tables import TABLES, TableCell, cell_of, groups, hint_for_cell
from lyra.config.trust import FolderTrust
from lyra.config.values import READERS, Kind, SettingSource, shape
from lyra.core.checking.check import did_you_mean
from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.config.hook_settings import HookSetting


ALSO_MAX: Final = 5  # further mistakes reported with the first
_MESSAGE_LENGTH_MAX: Final = 300  # a value quoted back is cut here

Flags = Iterable[str]


Item = tuple[str | TableCell, Any, str]  # the setting, its value, and the place where it is set


class SettingsLayer(NamedTuple):
    """The checked values of one source, with their places; `cells` are those of the tables. A layer that is not
    `trusted`, a project's, can only tighten."""

    kind: Kind
    values: dict[str, Any]
    places: dict[str, str]
    cells: dict[TableCell, tuple[Any, str]]
    trusted: bool = True


class Loading:
    """One load: the mistakes found so far, and the layers in rising precedence."""

    def __init__(
        self, cwd: str, env: Mapping[str, str], trust: FolderTrust | None = None, *, lenient: bool = False
    ) -> None:
        self.cwd = cwd
        self.lenient = lenient
        self.env = env
        self.trust = trust
        self.project_trusted = False  # whether the content of the project's file is, as it was read
        self.base = cwd  # where relative paths of files start
        self.mistakes: list[ConfigError] = []
        self.files: list[tuple[Kind, str]] = []
        self.hooks: list[HookSetting] = []  # of the user's file, then of the project's
        self.notes: list[str] = []  # settings that are gone
        self.refused: list[ConfigError] = []  # mistakes in a project's file without trust

    def layers(self, flags: Flags, user_file: str | os.PathLike[str] | None) -> list[SettingsLayer]:
        """Read every source, the weakest first; raise the first mistake in any of them."""
        user = os.fspath(user_file) if user_file is not None else self.user_file()
        project = self.project_file(user)
        if project is not None and is_own(project, self.cwd):
            self.base = os.path.dirname(project)  # another user's file does not choose where something is written
        base = self.base
        defaults = self.layer("default", base, ((name, key.default, "") for name, key in KEYS.items()))
        layers = [
            defaults,
            self.layer("user", base, self.file_items("user", user)),
            self.project_layer(base, project),
            self.layer("env", self.cwd, self.env_items()),
            self.layer("flag", self.cwd, self.flag_items(flags)),
            self.layer("managed", "/", self.read_managed_items()),
        ]
        if self.mistakes:
            first, *others = self.mistakes
            if others:
                first.fields["also"] = [_in_one_line(other) for other in others[:ALSO_MAX]]
            raise first
        return layers

    def project_layer(self, base: str, path: str | None) -> SettingsLayer:
        count = len(self.mistakes)
        layer = self.layer("project", base, self.file_items("project", path))
        if self.lenient and path is not None and not self.project_trusted and not self.trusts_folder_of(path):
            self.refused, self.mistakes = self.mistakes[count:], self.mistakes[:count]
        return layer._replace(trusted=self.project_trusted)

    def trusts_folder_of(self, path: str) -> bool:
        """Return whether the folder is trusted whatever its file holds: then also one that cannot be read is a
        mistake."""
        return self.trust is not None and self.trust.is_whole(os.path.dirname(path))

    def layer(self, kind: Kind, base: str, items: Iterable[Item]) -> SettingsLayer:
        layer = SettingsLayer(kind, {}, {}, {})
        source = SettingSource(kind, base, self.env)
        for name, value, place in items:
            try:
                if isinstance(name, TableCell):
                    layer.cells[name] = read_cell(name, value, source), place
                    continue
                layer.places[name] = place
                key = KEYS[name]
                absent = value is None or (key.optional and value == NONE)
                layer.values[name] = None if absent else READERS[key.type](key, value, source)
            except ConfigError as mistake:
                self.mistake(mistake.message, place, hint=mistake.hint, key=str(name))
        return layer

    def mistake(self, message: str, place: str, *, hint: str | None, key: str = "", **fields: Any) -> None:
        self.mistakes.append(ConfigError(message[:_MESSAGE_LENGTH_MAX], hint=hint, place=place, key=key, **fields))

    # ------------------------------------------------------------ files
    def user_file(self) -> str | None:
        folder = user_folder(self.env)
        return None if folder is None else os.path.join(folder, FILE_NAME)

    def project_file(self, user: str | None) -> str | None:
        """Return the nearest `lyra.toml` from the working folder up; the user's own file is no project's."""
        return project_file(self.cwd, user)

    def read_managed_items(self) -> Iterator[Item]:
        """Yield the settings of the machine's file; one that cannot be tightened is a mistake there."""
        for name, value, place in self.file_items("managed", MANAGED_FILE):
            if isinstance(name, str) and KEYS[name].narrows:
                yield name, value, place
            else:
                known = ", ".join(key.name for key in KEYS.values() if key.narrows)
                self.mistake(f"a managed file can only tighten, and {name} has no order", place, hint=f"known: {known}")

    def file_items(self, kind: Kind, path: str | None) -> Iterator[Item]:
        if path is None or not os.path.lexists(path):
            return
        self.files.append((kind, path))
        shown = os.path.relpath(path, self.cwd) if os.path.dirname(path) == self.cwd else path
        try:
            data = read_bytes(path, shown)
            if data is None:
                raise ConfigError("there is no such file", place=shown)
        except ConfigError as mistake:
            self.mistakes.append(mistake)
            return
        if kind == "project" and self.trust is not None:  # answers of the user that cannot be read end the load here
            self.project_trusted = self.trust.covers(os.path.dirname(path), FILE_NAME, data)
        try:
            document, lines = parse_toml(data, shown)
        except ConfigError as mistake:
            self.mistakes.append(mistake)
            return
        for section, table in document.items():
            place = f"{shown}:{lines.get((section,), 1)}"
            if section == HOOKS and kind != "managed":
                self.read_hooks(kind, table, lines, path, shown)
                continue
            if section in ELSEWHERE and isinstance(table, dict):
                continue
            if section not in (*SECTIONS, *TABLES, *groups(), *ELSEWHERE):
                known = not isinstance(table, dict)
                what = f"there is no setting {section!r}" if known else f"there is no section [{section}]"
                self.mistake(what, place, hint=hint_for(section), key=section)
            elif not isinstance(table, dict):
                self.mistake(
                    f"{section} is a section, not {shape(table)}",
                    place,
                    hint=f"write [{section}]",
                    key=section,
                )
            elif section in TABLES:
                yield from self.table_items(section, table, lines, shown)
            elif section in groups():
                yield from self.group_items(section, table, lines, shown)
            else:
                yield from self.section_items(section, table, lines, shown)

    def read_hooks(self, kind: Kind, table: Any, lines: dict[tuple[str, ...], int], path: str, shown: str) -> None:
        """Read the hooks of one file; each has the place where its event is first named."""
        from lyra.config.hook_settings import hook_entries, read_hook  # most files have none

        is_project = kind == "project"
        place = f"{shown}:{lines.get((HOOKS,), 1)}"
        try:
            for event, number, entry in hook_entries(table):
                place = f"{shown}:{lines.get((HOOKS, event), 1)}"
                name = f"{HOOKS}.{event}[{number}]"
                hook = read_hook(event, entry, name=name)
                if is_project and not hook.sandbox:
                    raise ConfigError(
                        f"a hook of a project runs in the sandbox: {name}",
                        hint="take out sandbox, or put the hook into your own file",
                        key=name,
                    )
                base = os.path.dirname(os.path.abspath(path)) if is_project else ""
                origin: Literal["user", "project"] = "project" if is_project else "user"
                self.hooks.append(hook._replace(origin=origin, place=place, base=base))
        except ConfigError as mistake:
            self.mistake(mistake.message, place, hint=mistake.hint, key=str(mistake.fields.get("key", HOOKS)))

    def group_items(
        self, group: str, table: dict[str, Any], lines: dict[tuple[str, ...], int], shown: str
    ) -> Iterator[Item]:
        """Yield a section whose parts are tables: `[mcp.servers.NAME]`."""
        for part, entries in table.items():
            section = f"{group}.{part}"
            place = f"{shown}:{lines.get((group, part), 1)}"
            if section not in TABLES:
                self.mistake(f"there is no section [{section}]", place, hint=hint_for(section), key=section)
            elif not isinstance(entries, dict):
                hint = f"write [{section}.{TABLES[section].name}]"
                self.mistake(f"{section} is a section, not {shape(entries)}", place, hint=hint, key=section)
            else:
                yield from self.table_items(section, entries, lines, shown)

    def table_items(
        self, section: str, table: dict[str, Any], lines: dict[tuple[str, ...], int], shown: str
    ) -> Iterator[Item]:
        above = tuple(section.split("."))
        for name, entry in table.items():
            place = f"{shown}:{lines.get((*above, name), 1)}"
            if not isinstance(entry, dict):
                hint = f"write [{section}.{TABLES[section].name}]"
                self.mistake(f"{section}.{name} is a table, not {shape(entry)}", place, hint=hint, key=section)
            elif self.check_named(section, name, place):
                for field, value in entry.items():
                    field_place = f"{shown}:{lines.get((*above, name, field), 1)}"
                    yield from self.cell_items(TableCell(section, name, field), value, field_place)

    def check_named(self, section: str, name: str, place: str) -> bool:
        try:
            check_name(section, name)
        except ConfigError as mistake:
            self.mistake(mistake.message, place, hint=mistake.hint, key=f"{section}.{name}")
            return False
        return True

    def cell_items(self, cell: TableCell, value: Any, place: str) -> Iterator[Item]:
        if cell.field in TABLES[cell.section].columns:
            yield cell, value, place
        else:
            self.mistake(f"there is no setting {str(cell)!r}", place, hint=hint_for_cell(cell), key=str(cell))

    def section_items(
        self, section: str, table: dict[str, Any], lines: dict[tuple[str, ...], int], shown: str
    ) -> Iterator[Item]:
        for field, value in table.items():
            name = f"{section}.{field}"
            place = f"{shown}:{lines.get((section, field), 1)}"
            if name in KEYS:
                yield name, value, place
            elif name in GONE:
                self.notes.append(f"{place}: {name} means nothing any more: {GONE[name]}")
            else:
                self.mistake(f"there is no setting {name!r}", place, hint=hint_for(name), key=name)

    # ------------------------------------------------------------ environment and flags
    def env_items(self) -> Iterator[Item]:
        """Yield settings from variables. One named after a section must be known; other LYRA_ variables are ignored."""
        known = {key.variable: name for name, key in KEYS.items()}
        gone = {f"LYRA_{name}".replace(".", "_").upper(): name for name in GONE}
        prefixes = tuple(f"LYRA_{section}_".upper() for section in SECTIONS)
        for variable, value in sorted(self.env.items()):
            if not variable.startswith(prefixes) or not value:
                continue
            if variable in known:
                yield known[variable], value, variable
            elif variable in gone:
                self.notes.append(f"{variable} means nothing any more: {GONE[gone[variable]]}")
            else:
                near = did_you_mean(variable, known)
                hint = f"did you mean {near}?" if near else f"known: {', '.join(known)}"
                self.mistake(f"no setting has the variable {variable}", variable, hint=hint, key=variable)

    def flag_items(self, flags: Flags) -> Iterator[Item]:
        for flag in flags:
            name, equals, value = flag.partition("=")
            name = name.strip()
            place = f"--set {name}"
            if name in GONE:
                self.notes.append(f"{place}: {name} means nothing any more: {GONE[name]}")
            elif not equals:
                self.mistake("--set wants KEY=VALUE", place, hint="such as --set kernel.store=memory", key=name)
            elif name in KEYS:
                yield name, value, place
            elif (cell := cell_of(name)) is None:
                self.mistake(f"there is no setting {name!r}", place, hint=hint_for(name), key=name)
            elif self.check_named(cell.section, cell.name, place):
                yield from self.cell_items(cell, value, place)


def _in_one_line(mistake: ConfigError) -> str:
    hint = f" ({mistake.hint})" if mistake.hint else ""
    return f"{mistake.place}: {mistake.message}{hint}"
