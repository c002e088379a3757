"""One Config: every setting, where it comes from, and the sentence that explains it.

`KEYS` is the one table; parsing, environment names, `lyra config`, the reference page and the tests that no
key is inert all follow from it. Sources in rising precedence: defaults, the user's file
(`$XDG_CONFIG_HOME/lyra/lyra.toml`), the project's file (`lyra.toml` here or in the nearest folder above), the
environment (`LYRA_KERNEL_STORE`), flags (`--set kernel.store=…`).

A project's file comes with somebody's repository, so it is trusted less than the person: grants and budgets
it can only narrow, whatever the person said and wherever they said it, and it can name no secret of the
environment. A mistake is a `ConfigError` with its place (`lyra.toml:3`), never a guess; up to five more are
listed with it. Reads two small files and nothing else; opens no store. Next: `core.capability` and
`core.money`, which give the values their meaning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from lyra.core import limits
from lyra.core.capability import ANY_NAME, Grant
from lyra.core.check import did_you_mean, one_of, real, whole
from lyra.core.money import Money
from lyra.core.secret import Secret, is_reference, mask_url
from lyra.errors import ConfigError

__all__ = ["KEYS", "BudgetConfig", "Config", "KernelConfig", "Key", "Origin", "Row"]

FILE_NAME: Final = "lyra.toml"
FILE_BYTES_MAX: Final = 1024 * 1024  # a settings file this large is something else by mistake
ALSO_MAX: Final = 5  # further mistakes told along with the first
RETENTION_S: Final = 7 * 24 * 3600.0
NONE: Final = "none"  # how an optional setting is said to be absent, wherever it is written
_MESSAGE_LENGTH_MAX: Final = 300  # a value quoted back is cut here

Kind = Literal["default", "user", "project", "env", "flag"]
Flags = Iterable[str]


# ---------------------------------------------------------------- the table
class Key(NamedTuple):
    """One setting. `type` names a row of `_READERS`; `narrows` says a project's file can only tighten it."""

    name: str
    type: Literal["store", "word", "seconds", "count", "money", "rules"]
    default: Any
    sentence: str
    words: tuple[str, ...] = ()  # for `word`; where `narrows`, the tightest comes first
    least: float = 0
    most: float = 1e12
    optional: bool = False  # may be absent, written "none"
    narrows: bool = False

    @property
    def section(self) -> str:
        return self.name.partition(".")[0]

    @property
    def field(self) -> str:
        return self.name.partition(".")[2]

    @property
    def variable(self) -> str:
        return f"LYRA_{self.section}_{self.field}".upper()


_TABLE: Final = (
    Key(
        "kernel.store",
        "store",
        ".lyra/lyra.db",
        "Where the journal lives: a file path, `memory`, `postgresql://…`, or `env:NAME` for a variable that "
        "holds one of these. A relative path in a file starts at the project's folder, elsewhere at the "
        "working folder.",
    ),
    Key(
        "kernel.durability",
        "word",
        "process",
        "What an acknowledged row survives: `process` is kill -9, `power` is a power cut too, at the price "
        "of a disk flush.",
        words=("process", "power"),
    ),
    Key(
        "kernel.lease_s",
        "seconds",
        limits.LEASE_S,
        "How long a kernel owns its store without renewing; a dead owner's store opens after this.",
        least=0.5,
        most=3600,
    ),
    Key(
        "kernel.snapshot_every_events",
        "count",
        limits.SNAPSHOT_EVERY_EVENTS,
        "Journal rows between two snapshots, and so the most that are folded when a kernel opens its store.",
        least=1,
        most=1_000_000_000,
    ),
    Key(
        "kernel.mailbox_messages_max",
        "count",
        limits.MAILBOX_MESSAGES_MAX,
        "Messages that may wait in one mailbox; a sender of more is told so.",
        least=1,
        most=1_000_000_000,
    ),
    Key(
        "kernel.processes_max",
        "count",
        limits.PROCESSES_MAX,
        "Processes alive at once; a spawn beyond it is refused.",
        least=1,
        most=limits.PROCESSES_MAX,
    ),
    Key(
        "kernel.retention_s",
        "seconds",
        RETENTION_S,
        "How long journal rows that a snapshot covers are kept before a compaction may drop them.",
    ),
    Key(
        "budget.usd",
        "money",
        None,
        "What a root process and everything below it may spend, in dollars, when its spawn names no budget.",
        optional=True,
        narrows=True,
    ),
    Key(
        "budget.seconds",
        "seconds",
        None,
        "How long a root process may run when its spawn names no budget.",
        least=0.001,
        optional=True,
        narrows=True,
    ),
    Key(
        "budget.on_exceed",
        "word",
        "block",
        "What happens at the limit: `block` refuses the effect, `warn` tells and goes on, `allow` goes on.",
        words=("block", "warn", "allow"),
        narrows=True,
    ),
    Key(
        "grant.allow",
        "rules",
        (ANY_NAME,),
        "What root processes may do, as capabilities such as `fs.read:/project/**`; `*` is everything. Where "
        "a project narrows it, lists of which each must allow.",
        narrows=True,
    ),
    Key(
        "grant.deny",
        "rules",
        (),
        "What root processes may not do, whatever is allowed. A project's denies are added.",
        narrows=True,
    ),
)
KEYS: Final[dict[str, Key]] = {key.name: key for key in _TABLE}
SECTIONS: Final[tuple[str, ...]] = tuple(dict.fromkeys(key.section for key in _TABLE))


# ---------------------------------------------------------------- what a caller reads
class Origin(NamedTuple):
    """Which source a value comes from, and where in it (None for a default)."""

    kind: Kind
    place: str | None = None


class Row(NamedTuple):
    """One line of `lyra config show`: plain data, passwords masked."""

    name: str
    value: Any
    origin: Origin


class KernelConfig(msgspec.Struct, frozen=True, kw_only=True):
    store: Secret
    durability: str
    lease_s: float
    snapshot_every_events: int
    mailbox_messages_max: int
    processes_max: int
    retention_s: float


class BudgetConfig(msgspec.Struct, frozen=True, kw_only=True):
    usd: Money | None
    seconds: float | None
    on_exceed: str


class Config:
    """Every setting in force: `config.kernel.lease_s`, `config.budget.usd`, and `config.grant`, a Grant."""

    __slots__ = ("_rows", "budget", "files", "grant", "kernel", "notes")

    def __init__(self, values: Mapping[str, Any], origins: Mapping[str, Origin], grant: Grant) -> None:
        self.kernel = KernelConfig(**_section(values, "kernel"))
        self.budget = BudgetConfig(**_section(values, "budget"))
        self.grant = grant
        self.files: list[tuple[Kind, str]] = []
        self.notes: list[str] = []
        shown = {**values, "grant.allow": _layers(grant), "grant.deny": [str(rule) for rule in grant.deny]}
        self._rows = {name: Row(name, _plain(shown[name]), origins[name]) for name in KEYS}

    @classmethod
    def load(
        cls,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        *,
        flags: Flags = (),
        user_file: str | os.PathLike[str] | None = None,
    ) -> Config:
        """Read every source; the first mistake is raised, with up to five more in its field `also`."""
        return _Loading(_folder(cwd), os.environ if env is None else env).config(flags, user_file)

    def origin(self, name: str) -> Origin:
        """Where a setting's value comes from."""
        return self._row(name).origin

    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def to_data(self) -> dict[str, dict[str, Any]]:
        """The settings as nested plain data, passwords masked."""
        data: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        for name, row in self._rows.items():
            data[KEYS[name].section][KEYS[name].field] = row.value
        return data

    def _row(self, name: str) -> Row:
        if name not in self._rows:
            raise ConfigError(f"there is no setting {name!r}", hint=_hint_for(name), key=name)
        return self._rows[name]


def _section(values: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {key.field: values[key.name] for key in _TABLE if key.section == section}


def _layers(grant: Grant) -> list[Any]:
    """Allow rules as one list, or as a list of lists where more than one has to agree."""
    layers = [[str(rule) for rule in layer] for layer in grant.layers]
    return [ANY_NAME] if not layers else layers[0] if len(layers) == 1 else layers


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, (Secret, Money)) else value


# ---------------------------------------------------------------- reading one value
class _Source(NamedTuple):
    """What a reader may need to know besides the value: whose it is, and where relative paths start."""

    kind: Kind
    base: str
    env: Mapping[str, str]


def _read_store(key: Key, value: Any, source: _Source) -> Secret:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ConfigError(f"{key.name} is a path or a URL, not {_shape(value)}", hint="such as '.lyra/lyra.db'")
    if is_reference(value):
        if source.kind == "project":
            raise ConfigError(
                f"a project's file may not read the environment: {key.name} = {value!r}",
                hint=f"put it in your own file, or set {key.variable}",
            )
        return Secret.parse(value, env=source.env)
    if source.kind == "project" and "://" in value and not value.startswith("sqlite://"):
        # Cloning a repository must not be enough to send somebody's journal to its author.
        raise ConfigError(
            f"a project's file may not send the journal to a server: {key.name} = {mask_url(value)!r}",
            hint=f"put it in your own file, or set {key.variable}",
        )
    if "://" in value or value == "memory":
        return Secret(value, label=mask_url(value))
    path = _expand(value, source)
    return Secret(path, label=mask_url(path))


def _expand(path: str, source: _Source) -> str:
    """`~/…` from HOME; a relative path stays as it is written when that already means the right folder."""
    home = source.env.get("HOME")
    if path.startswith("~/") and home:
        return os.path.join(home, path[2:])
    return path if os.path.isabs(path) or source.base == _folder(None) else os.path.join(source.base, path)


def _read_word(key: Key, value: Any, _source: _Source) -> str:
    return one_of(value, key.words, key.name)


def _read_seconds(key: Key, value: Any, source: _Source) -> float:
    number = _number(value, float) if source.kind in ("env", "flag") else _from_decimal(value)
    return real(number, key.name, least=key.least, most=key.most)


def _read_count(key: Key, value: Any, source: _Source) -> int:
    number = _number(value, int) if source.kind in ("env", "flag") else _from_decimal(value)
    return whole(number, key.name, least=int(key.least), most=int(key.most))


def _read_money(key: Key, value: Any, _source: _Source) -> Money:
    """Dollars, as the key's name says: 5, 0.5 and "$0.50" (a bare int is micro-dollars only in the SDK)."""
    if isinstance(value, (list, dict, bool)):
        raise ConfigError(f"{key.name} is an amount of money, not {_shape(value)}", hint="write '$0.50'")
    return Money.parse(str(value) if isinstance(value, int) else value)


def _read_rules(key: Key, value: Any, source: _Source) -> tuple[str, ...]:
    if isinstance(value, str) and source.kind in ("env", "flag"):
        value = _split_list(value)
    if not isinstance(value, (list, tuple)) or not all(isinstance(rule, str) for rule in value):
        raise ConfigError(
            f"{key.name} is a list of capabilities, not {_shape(value)}",
            hint='such as ["fs.read:/project/**"]',
        )
    Grant(**{key.field: value})  # says what is wrong with a rule
    return tuple(value)


_READERS: Final[dict[str, Callable[[Key, Any, _Source], Any]]] = {
    "store": _read_store,
    "word": _read_word,
    "seconds": _read_seconds,
    "count": _read_count,
    "money": _read_money,
    "rules": _read_rules,
}


def _number(text: str, number: Callable[[str], Any]) -> Any:
    """The number a variable or flag spells, or the text itself for the check to refuse in its own words."""
    try:
        return number(text)
    except ValueError:
        return text


def _from_decimal(value: Any) -> Any:
    """A file's decimals arrive exact, for money; everything else wants a float."""
    return float(value) if type(value).__name__ == "Decimal" else value


def _split_list(text: str) -> Any:
    """A JSON list, or words between commas."""
    if not text.lstrip().startswith("["):
        return [word.strip() for word in text.split(",") if word.strip()]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _shape(value: Any) -> str:
    """A value in words; never its text, which may be a secret."""
    names = {
        dict: "a table",
        list: "a list",
        tuple: "a list",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    if isinstance(value, str):
        return "this text" if value.strip() else "an empty text"
    return names.get(type(value), f"a {type(value).__name__}")


# ---------------------------------------------------------------- reading every source
class _Layer(NamedTuple):
    """The checked values of one source, with their places."""

    kind: Kind
    values: dict[str, Any]
    places: dict[str, str]


class _Loading:
    """One load: the mistakes found so far, and the layers in rising precedence."""

    def __init__(self, cwd: str, env: Mapping[str, str]) -> None:
        self.cwd = cwd
        self.env = env
        self.mistakes: list[ConfigError] = []
        self.files: list[tuple[Kind, str]] = []

    def config(self, flags: Flags, user_file: str | os.PathLike[str] | None) -> Config:
        user = os.fspath(user_file) if user_file is not None else self.user_file()
        project = self.project_file(user)
        base = os.path.dirname(project) if project else self.cwd
        defaults = self.layer("default", base, ((name, key.default, "") for name, key in KEYS.items()))
        layers = [
            defaults,
            self.layer("user", base, self.file_items("user", user)),
            self.layer("project", base, self.file_items("project", project)),
            self.layer("env", self.cwd, self.env_items()),
            self.layer("flag", self.cwd, self.flag_items(flags)),
        ]
        self.raise_mistakes()
        merged = _Merged(layers)
        config = Config(merged.values, merged.origins, merged.grant)
        config.files, config.notes = self.files, merged.notes
        return config

    def layer(self, kind: Kind, base: str, items: Iterable[tuple[str, Any, str]]) -> _Layer:
        layer = _Layer(kind, {}, {})
        source = _Source(kind, base, self.env)
        for name, value, place in items:
            key = KEYS[name]
            absent = value is None or (key.optional and value == NONE)
            try:
                layer.values[name] = None if absent else _READERS[key.type](key, value, source)
            except ConfigError as mistake:
                self.mistake(mistake.message, place, hint=mistake.hint, key=name)
            layer.places[name] = place
        return layer

    def mistake(self, message: str, place: str, *, hint: str | None, key: str = "", **fields: Any) -> None:
        self.mistakes.append(ConfigError(message[:_MESSAGE_LENGTH_MAX], hint=hint, place=place, key=key, **fields))

    def raise_mistakes(self) -> None:
        if not self.mistakes:
            return
        first, *others = self.mistakes
        if others:
            first.fields["also"] = [_in_one_line(other) for other in others[:ALSO_MAX]]
        raise first

    # ------------------------------------------------------------ files
    def user_file(self) -> str | None:
        folder = self.env.get("XDG_CONFIG_HOME", "")
        home = self.env.get("HOME", "")
        if os.path.isabs(folder):  # the XDG rules say to ignore a relative one
            return os.path.join(folder, "lyra", FILE_NAME)
        return os.path.join(home, ".config", "lyra", FILE_NAME) if os.path.isabs(home) else None

    def project_file(self, user: str | None) -> str | None:
        """The nearest `lyra.toml` from the working folder up; the user's own file is no project's."""
        folder = self.cwd
        while True:
            path = os.path.join(folder, FILE_NAME)
            if os.path.lexists(path) and not _same_file(path, user):
                return path
            above = os.path.dirname(folder)
            if above == folder:
                return None
            folder = above

    def file_items(self, kind: Kind, path: str | None) -> Iterator[tuple[str, Any, str]]:
        if path is None or not os.path.lexists(path):
            return
        self.files.append((kind, path))
        shown = os.path.relpath(path, self.cwd) if os.path.dirname(path) == self.cwd else path
        try:
            document, lines = _read_toml(path, shown)
        except ConfigError as mistake:
            self.mistakes.append(mistake)
            return
        for section, table in document.items():
            place = f"{shown}:{lines.get((section,), 1)}"
            if section not in SECTIONS:
                known = not isinstance(table, dict)
                what = f"there is no setting {section!r}" if known else f"there is no section [{section}]"
                self.mistake(what, place, hint=_hint_for(section), key=section)
            elif not isinstance(table, dict):
                self.mistake(
                    f"{section} is a section, not {_shape(table)}",
                    place,
                    hint=f"write [{section}]",
                    key=section,
                )
            else:
                yield from self.section_items(section, table, lines, shown)

    def section_items(
        self, section: str, table: dict[str, Any], lines: dict[tuple[str, ...], int], shown: str
    ) -> Iterator[tuple[str, Any, str]]:
        for field, value in table.items():
            name = f"{section}.{field}"
            place = f"{shown}:{lines.get((section, field), 1)}"
            if name in KEYS:
                yield name, value, place
            else:
                self.mistake(f"there is no setting {name!r}", place, hint=_hint_for(name), key=name)

    # ------------------------------------------------------------ environment and flags
    def env_items(self) -> Iterator[tuple[str, Any, str]]:
        """Variables named after a section are ours to understand; other LYRA_ ones are somebody else's."""
        known = {key.variable: name for name, key in KEYS.items()}
        prefixes = tuple(f"LYRA_{section}_".upper() for section in SECTIONS)
        for variable, value in sorted(self.env.items()):
            if not variable.startswith(prefixes) or not value:
                continue
            if variable in known:
                yield known[variable], value, variable
            else:
                near = did_you_mean(variable, known)
                hint = f"did you mean {near}?" if near else f"known: {', '.join(known)}"
                self.mistake(f"no setting has the variable {variable}", variable, hint=hint, key=variable)

    def flag_items(self, flags: Flags) -> Iterator[tuple[str, Any, str]]:
        for flag in flags:
            name, equals, value = flag.partition("=")
            name = name.strip()
            place = f"--set {name}"
            if not equals:
                self.mistake("--set wants KEY=VALUE", place, hint="such as --set kernel.store=memory", key=name)
            elif name not in KEYS:
                self.mistake(f"there is no setting {name!r}", place, hint=_hint_for(name), key=name)
            else:
                yield name, value, place


# ---------------------------------------------------------------- who wins
class _Merged:
    """The layers folded into one: the later wins, but a project's file only narrows what `narrows` marks."""

    def __init__(self, layers: list[_Layer]) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.notes: list[str] = []
        own = [layer for layer in layers if layer.kind != "project"]
        project = next(layer for layer in layers if layer.kind == "project")
        for name, key in KEYS.items():
            for layer in own if key.narrows else layers:
                self.take(layer, name)
            if key.narrows and key.type != "rules" and project.values.get(name) is not None:
                self.tighten(key, project)
        self.grant = self.narrowed_grant(project)

    def take(self, layer: _Layer, name: str) -> None:
        if name in layer.values:
            self.values[name] = layer.values[name]
            self.origins[name] = Origin(layer.kind, layer.places[name] or None)

    def tighten(self, key: Key, project: _Layer) -> None:
        asked, holds = project.values[key.name], self.values[key.name]
        rank = key.words.index if key.words else _same
        if holds is None or rank(asked) <= rank(holds):
            self.take(project, key.name)
        else:
            place = project.places[key.name]
            self.notes.append(f"{place}: a project can only tighten {key.name}; your {holds} holds, not {asked}")

    def narrowed_grant(self, project: _Layer) -> Grant:
        own = Grant(allow=self.values["grant.allow"], deny=self.values["grant.deny"])
        theirs = Grant(allow=project.values.get("grant.allow", (ANY_NAME,)), deny=project.values.get("grant.deny", ()))
        grant = own.narrow(theirs)
        if grant.layers != own.layers:
            self.join_origin("grant.allow", project, alone=grant.layers == theirs.layers)
        elif theirs.layers and theirs.layers != own.layers:
            place = project.places["grant.allow"]
            self.notes.append(f"{place}: a project can only narrow grant.allow; your own is narrower already and holds")
        if grant.deny != own.deny:
            self.join_origin("grant.deny", project, alone=not own.deny)
        return grant

    def join_origin(self, name: str, project: _Layer, *, alone: bool) -> None:
        before = self.origins[name].place
        place = project.places[name]
        self.origins[name] = Origin("project", place if alone or not before else f"{place} and {before}")


def _same(value: Any) -> Any:
    return value


# ---------------------------------------------------------------- files and words
def _folder(cwd: str | os.PathLike[str] | None) -> str:
    try:
        return os.path.abspath(os.getcwd() if cwd is None else cwd)
    except FileNotFoundError:
        raise ConfigError("the working folder no longer exists", hint="change to a folder that does") from None


def _same_file(path: str, other: str | None) -> bool:
    return other is not None and os.path.exists(other) and os.path.exists(path) and os.path.samefile(path, other)


def _read_toml(path: str, shown: str) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """The document and the line of each key; anything but a small UTF-8 TOML file is a ConfigError."""
    import tomllib
    from decimal import Decimal

    from lyra.core.toml_places import DEPTH_MAX, TooDeep, key_lines

    text = _read_text(path, shown)
    try:
        lines = key_lines(text)
        return tomllib.loads(text, parse_float=Decimal), lines
    except TooDeep as deep:
        raise ConfigError(f"nested more than {DEPTH_MAX} deep", place=f"{shown}:{deep.line}") from None
    except tomllib.TOMLDecodeError as error:
        message, line, column = _toml_mistake(str(error), text)
        raise ConfigError(message, place=f"{shown}:{line}:{column}", line=line, column=column) from None
    except (ValueError, ArithmeticError):  # a number too long for Python, or too large for a Decimal
        raise ConfigError("it holds a number beyond all bounds", place=shown) from None


def _read_text(path: str, shown: str) -> str:
    import stat

    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would make us wait for ever
            raise ConfigError("it is not a file", place=shown, hint=f"{FILE_NAME} is a text file of settings")
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror}", place=shown) from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"it is larger than {FILE_BYTES_MAX} bytes", place=shown, hint="is it a settings file?")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("it is not UTF-8", place=f"{shown}:{line}", hint="save it as UTF-8") from None


def _toml_mistake(message: str, text: str) -> tuple[str, int, int]:
    """`tomllib` puts the place into its sentence; take it out again."""
    import re

    found = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    sentence = message[: found.start()] if found else message
    if found and found[1]:
        return sentence, int(found[1]), int(found[2])
    before = text.rstrip()
    return sentence, before.count("\n") + 1, len(before) - before.rfind("\n")


def _hint_for(name: str) -> str:
    """The setting or section somebody most likely meant."""
    section, dot, field = name.partition(".")
    near = did_you_mean(name, KEYS) or (did_you_mean(section, SECTIONS) if not dot else None)
    elsewhere = [key.name for key in _TABLE if key.field == (field or section)]
    if near or elsewhere:
        return f"did you mean {near or elsewhere[0]}?"
    if section in SECTIONS:
        return f"known here: {', '.join(key.field for key in _TABLE if key.section == section)}"
    return f"known sections: {', '.join(SECTIONS)}"


def _in_one_line(mistake: ConfigError) -> str:
    hint = f" ({mistake.hint})" if mistake.hint else ""
    return f"{mistake.place}: {mistake.message}{hint}"
