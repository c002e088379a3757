"""Where rules come from: layers of settings, and a managed policy that can only tighten.

    managed   /etc/lyra/permissions.toml            deny, ask, protected, forbid_modes; an allow there is an error
    user      ~/.config/lyra/permissions.toml       everything
    project   .lyra/permissions.toml                everything, once its folder is trusted; before that it tightens
    local     .lyra/permissions.local.toml          the same
    flags     --allow, --ask, --deny, --mode        everything

The user's and the project's `lyra.toml` may hold the same keys under `[permissions]`; they are layers beside those.
A mistake in a project's file is an error where the file is trusted. Otherwise it stops nothing, and as the file may
have denied something, every call is asked about. Lists add up; deny beats ask beats allow whatever the layer. The last
layer that names a `mode` decides it. Each rule knows its file and line, so that a decision can name it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lyra.config.asks import TIGHT_MODES
from lyra.config.files import parse_toml, read_bytes
from lyra.config.sources import Loading
from lyra.config.trust import FolderTrust, trust_for
from lyra.core.checking.check import check_keys, one_of
from lyra.core.checking.document import TooDeep, key_lines
from lyra.core.rights.capability import ANY_NAME
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError
from lyra.tools.permissions.decision import MODES, Permissions
from lyra.tools.permissions.rules import Effect, Rule, read_rules

MANAGED_FILE: Final = "/etc/lyra/permissions.toml"
LAYERS: Final = ("managed", "user", "project", "local", "flags")
_NAME_LENGTH_MAX: Final = 255  # the limit of file systems for one name
_NAME_STARS_MAX: Final = 3  # each star multiplies the cost of a comparison by the length of a path
_SECTION: Final = "permissions"
_EFFECTS: Final[tuple[Effect, ...]] = ("deny", "ask", "allow")
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "managed": ("deny", "ask", "protected", "forbid_modes"),
    **dict.fromkeys(("user", "project", "local", "flags"), ("deny", "ask", "allow", "protected", "mode")),
}


# The keys of a file's content and their lines; None where the file has none of permissions.
_Parse = Callable[[bytes, str], "tuple[Mapping[str, Any], Mapping[str, int]] | None"]


class Layer(NamedTuple):
    """The settings of one source. `places` names the line of a key, where there is one."""

    name: str
    settings: Mapping[str, Any]
    file: str = ""
    places: Mapping[str, int] = {}
    trusted: bool = True
    problems: tuple[str, ...] = ()  # mistakes of a layer without trust

    def place(self, key: str) -> str:
        if not self.file:
            return self.name
        line = self.places.get(key)
        return f"{self.name}: {self.file}:{line}" if line else f"{self.name}: {self.file}"


def permissions_of(
    layers: Iterable[Layer],
    *,
    workspace: str = "/",
    home: str = "",
    mode: str | None = None,
    extra_folders: Iterable[str] = (),
    attended: bool = True,
    keep: Callable[[Rule], object] | None = None,
    answers: Iterable[Rule] = (),
    own_text: bool = False,
    asks_outside: bool = False,
) -> Permissions:
    """Return the Permissions that these layers come to; `mode` overrides theirs. `extra_folders` count as inside.
    `own_text`: the files of the workspace are the user's own project. `asks_outside`: a person is asked about reading
    a file outside and fetching a page."""
    rules: list[Rule] = []
    protected: list[str] = []
    forbidden: list[str] = []
    named: str | None = None
    for layer in sorted(layers, key=lambda entry: LAYERS.index(one_of(entry.name, LAYERS, "layer"))):
        _check(layer)
        for effect in _EFFECTS:
            if effect in layer.settings:
                place = layer.place(effect)
                read = read_rules(layer.settings[effect], effect, source=place, workspace=workspace, home=home)
                rules += read if effect != "allow" or layer.trusted else ()
        protected += _names(layer, "protected")
        forbidden += _names(layer, "forbid_modes")
        named = _mode(layer, named) or named
    return Permissions(
        rules,
        mode=mode or named or "default",
        workspace=workspace,
        home=home,
        protected=protected,
        forbid_modes=forbidden,
        extra_folders=extra_folders,
        attended=attended,
        keep=keep,
        answers=answers,
        own_text=own_text,
        asks_outside=asks_outside,
    )


def describe_passed_over(layers: Iterable[Layer]) -> list[str]:
    """Return the settings that are ignored because their folder is not trusted, one sentence for each file."""
    remarks = []
    for layer in layers:
        keys = [key for key in ("allow", "mode") if layer.settings.get(key)]
        if "mode" in keys and layer.settings["mode"] in TIGHT_MODES:
            keys.remove("mode")
        if keys and not layer.trusted:
            remarks.append(f"{layer.file or layer.name}: {' and '.join(keys)} counts once the folder is trusted")
        remarks += (
            f"{layer.file or layer.name}: {problem}: until it is mended, every call is asked about"
            for problem in layer.problems
        )
    return remarks


def permissions_from_files(folders: Sequence[str] = (), **options: Any) -> Permissions:
    """Return the Permissions of the settings files for these folders; by default for the current one."""
    workspace, *extra_folders = [os.path.realpath(folder) for folder in folders] or [os.path.realpath(os.getcwd())]
    home = os.path.expanduser("~")
    layers = load_layers(workspace, home=home, trusted=None)
    return permissions_of(layers, workspace=workspace, home=home, extra_folders=extra_folders, **options)


def build_permissions(settings: Mapping[str, Any], folders: Sequence[str] = ()) -> Permissions:
    """Return the Permissions that a program declares: `allow`, `ask`, `deny`, `protected`, `mode` and `attended`. Of
    the files only the managed policy is added."""
    workspace, *extra_folders = [os.path.realpath(folder) for folder in folders] or [os.path.realpath(os.getcwd())]
    own = dict(settings)
    attended = own.pop("attended", True)
    if not isinstance(attended, bool):
        raise ConfigError(f"attended is true or false, not {attended!r}", key="attended")
    managed = _load("managed", MANAGED_FILE)
    layers = [*([managed] if managed is not None else []), Layer("flags", own)]
    home = os.path.expanduser("~")
    return permissions_of(layers, workspace=workspace, home=home, extra_folders=extra_folders, attended=attended)


def load_layers(
    folder: str,
    *,
    home: str = "",
    managed: str = MANAGED_FILE,
    trusted: FolderTrust | bool | None = False,
    keep_mistakes: bool = False,
) -> list[Layer]:
    """Return the layers that lie in files, for a project's folder. A project's own file may loosen only when it is
    trusted.

    `trusted` is True or False for the folder as it is, or a FolderTrust, which says it for the content of each file;
    None is the trust of the command that is running, else the answers that the user gave. `keep_mistakes` leaves keys
    that cannot be read in a layer without trust, for a caller that reports them.
    """
    trust = trust_for(folder, trusted)
    own = [_load("managed", managed)]
    if home:
        own.append(_load("user", os.path.join(home, ".config", "lyra", "permissions.toml")))
    theirs = [
        _load(name, os.path.join(folder, ".lyra", file), (trust, folder))
        for name, file in (("project", "permissions.toml"), ("local", "permissions.local.toml"))
    ]
    in_files = [layer for layer in (*own, *theirs) if layer is not None]
    layers = [*_in_lyra_toml(folder, home, trust), *in_files]
    if keep_mistakes:
        return layers
    return [layer if layer.trusted else _without_mistakes(layer, folder, home) for layer in layers]


def _without_mistakes(layer: Layer, workspace: str, home: str) -> Layer:
    """Return a layer without trust: where a key of it cannot be read, it asks about every call instead."""
    settings: dict[str, Any] = {}
    problems = list(layer.problems)
    for key, value in layer.settings.items():
        try:
            permissions_of([layer._replace(settings={key: value})], workspace=workspace, home=home)
            settings[key] = value
        except ConfigError as mistake:
            problems.append(f"{visible(key)}: {mistake.message}")
    if problems:
        settings["ask"] = [*settings.get("ask", ()), ANY_NAME]
    return layer._replace(settings=settings, problems=tuple(problems))


def _in_lyra_toml(folder: str, home: str, trust: FolderTrust) -> list[Layer]:
    """Return the sections `[permissions]` of the user's and the project's settings."""
    env = dict(os.environ) if home == os.path.expanduser("~") else {"HOME": home}
    loading = Loading(folder, env)
    user = loading.user_file()
    layers = []
    for name, path in (("user", user), ("project", loading.project_file(user))):
        if path is not None and os.path.lexists(path):
            shown = os.path.relpath(path, folder) if os.path.dirname(path) == folder else path
            of_project = (trust, os.path.dirname(path)) if name == "project" else None
            layers.append(_read(name, path, shown, _section_of, of_project))
    return [layer for layer in layers if layer is not None]


def _section_of(data: bytes, shown: str) -> tuple[Mapping[str, Any], Mapping[str, int]] | None:
    """Return the section `[permissions]` of a `lyra.toml`, and the lines of its keys."""
    document, lines = parse_toml(data, shown)
    section = document.get(_SECTION)
    if section is None:
        return None
    if not isinstance(section, dict):
        place = f"{shown}:{lines.get((_SECTION,), 1)}"
        raise ConfigError(f"{_SECTION} is a section", hint=f"write [{_SECTION}]", place=place)
    return section, {key[1]: line for key, line in lines.items() if key[:1] == (_SECTION,) and len(key) == 2}


def _read_toml(data: bytes, path: str) -> tuple[Mapping[str, Any], Mapping[str, int]]:
    """Return the keys of a file of permissions, and their lines."""
    import tomllib

    try:
        text = data.decode()
        places = {".".join(key): line for key, line in key_lines(text).items()}
        return tomllib.loads(text), places
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, TooDeep, RecursionError) as error:
        raise ConfigError(f"the permissions in {path} are not TOML: {error}", place=path) from None


def _load(name: str, path: str, of_project: tuple[FolderTrust, str] | None = None) -> Layer | None:
    """Return the layer of one file of permissions."""
    return _read(name, path, path, _read_toml, of_project)


def _read(name: str, path: str, shown: str, parse: _Parse, of_project: tuple[FolderTrust, str] | None) -> Layer | None:
    """Return the layer of one file. That of a project is trusted where the trust covers the content that is read here;
    where it is not, and the file cannot be read, the layer has the reason."""
    is_sure = of_project is None or of_project[0].is_whole(of_project[1])
    try:
        data = read_bytes(path, shown)
        if data is None:
            return None
        if of_project is not None:
            trust, folder = of_project
            is_sure = trust.covers(folder, os.path.relpath(path, folder), data)
        content = parse(data, shown)
    except ConfigError as mistake:
        if is_sure:
            raise
        return Layer(name, {}, shown, {}, trusted=False, problems=(mistake.message,))
    return None if content is None else Layer(name, content[0], shown, content[1], is_sure)


def _check(layer: Layer) -> None:
    known = _KEYS[layer.name]
    if layer.name == "managed" and "allow" in layer.settings:
        raise ConfigError(
            "a managed policy can only tighten: it has no allow",
            hint="use deny, ask, protected",
            place=layer.place("allow"),
        )
    try:
        check_keys(layer.settings, known, "permissions")
    except ConfigError as error:
        error.place = layer.place(str(error.fields.get("key", "")))
        raise


def _mode(layer: Layer, before: str | None) -> str | None:
    """Return the mode that a layer chooses. One without trust may choose a tight mode, and not instead of another tight
    one: `deny-unasked` allows what `plan` denies."""
    named = layer.settings.get("mode")
    if named is None:
        return None
    one_of(named, MODES, "mode")
    return str(named) if layer.trusted or (named in TIGHT_MODES and before not in TIGHT_MODES) else None


def _names(layer: Layer, key: str) -> Sequence[str]:
    value = layer.settings.get(key, ())
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{key} is a list of names, not {value!r}", place=layer.place(key), key=key)
    for name in value:
        if key == "forbid_modes":
            one_of(name, MODES, key)
        elif not 0 < len(name.strip("/")) <= _NAME_LENGTH_MAX or name.count("*") > _NAME_STARS_MAX:
            raise ConfigError(
                f"{name[:80]!r} is not the name of a file to protect",
                hint=f"at most {_NAME_LENGTH_MAX} characters, {_NAME_STARS_MAX} of them stars",
                place=layer.place(key),
                key=key,
            )
    return value
