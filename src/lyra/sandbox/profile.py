"""What a command may touch: a Grant, a workspace and limits, turned into paths that the kernel can enforce.

A `Profile` says which folders can be read and written, which paths inside the workspace are protected, what the
environment holds, whether the network is there, and how much of everything may be used. `Profile.of` reads them from
a Grant: `fs.read` and `fs.write` rules that end in `/**` become folders, `net.http` rules open the way through the
proxy. A rule that no folder can express (a wildcard in the middle) opens nothing. `bubblewrap` and `landlock_tier`
enforce a profile; `protected` finds the protected paths.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from lyra.core.limits import (
    SANDBOX_CPU_S,
    SANDBOX_FILE_BYTES_MAX,
    SANDBOX_MEMORY_BYTES_MAX,
    SANDBOX_OPEN_FILES_MAX,
    SANDBOX_OUTPUT_BYTES_MAX,
    SANDBOX_OUTPUT_KEPT_BYTES,
    SANDBOX_PROCESSES_MAX,
    SANDBOX_WALL_S,
)
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import CapabilityDenied, ConfigError
from lyra.sandbox.protection.protected_places import is_closed

# Folders of programs and libraries, read-only in every profile; of /etc only files that programs need and that hold no
# secrets.
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")
SYSTEM_FOLDERS: Final = ("/etc/alternatives", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs")
SYSTEM_FILES: Final = (
    *("/etc/ld.so.cache", "/etc/ssl/openssl.cnf", "/etc/localtime", "/etc/timezone", "/etc/passwd", "/etc/group"),
    *("/etc/nsswitch.conf", "/etc/hosts", "/etc/protocols", "/etc/services", "/etc/mime.types", "/etc/os-release"),
)
# Folders that cannot be a workspace: it would open a folder of the system for writing.
NO_WORKSPACE: Final = frozenset({"/", "/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/root", "/run", "/sbin"}) | {
    *("/sys", "/usr", "/var", "/home", "/tmp", "/opt", "/srv", "/mnt")  # noqa: S108 - refused, not used
}
ENVIRONMENT_HOMES: Final = (".venvs", ".virtualenvs")  # where people keep Python environments, below their home
_ENVIRONMENT: Final = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "COLORTERM", "NO_COLOR")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one command may use; reaching one ends the command or the call that asked for more."""

    wall_s: float = SANDBOX_WALL_S
    cpu_s: int = SANDBOX_CPU_S  # of each process
    memory_bytes: int = SANDBOX_MEMORY_BYTES_MAX  # of all together where the kernel counts it, else of each process
    file_bytes: int = SANDBOX_FILE_BYTES_MAX
    processes: int = SANDBOX_PROCESSES_MAX
    open_files: int = SANDBOX_OPEN_FILES_MAX
    output_bytes: int = SANDBOX_OUTPUT_BYTES_MAX
    output_kept_bytes: int = SANDBOX_OUTPUT_KEPT_BYTES

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ConfigError(f"the limit {name} of a sandbox must be above 0, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything a tier needs to know. Paths are absolute and without symlinks."""

    workspace: str
    writable: bool = True
    readable: tuple[str, ...] = ()
    writable_also: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()  # names or paths besides the usual ones that become read-only
    hidden: tuple[str, ...] = ()  # names or paths that cannot be read either
    env: Mapping[str, str] = field(default_factory=dict)
    egress: Grant | None = None  # None: no network; else `net.http` rules decide, at the proxy
    unix_sockets: bool = False
    limits: Limits = field(default_factory=Limits)
    grant: Grant | None = None  # its deny rules are checked for the paths inside the workspace
    start: str = ""  # the folder in which the command starts; by default the workspace

    def __post_init__(self) -> None:
        object.__setattr__(self, "workspace", _folder(self.workspace))
        object.__setattr__(self, "start", _folder(self.start) if self.start else self.workspace)
        for name in ("readable", "writable_also"):
            object.__setattr__(self, name, tuple(_existing(getattr(self, name))))
        # A folder inside a repository's own or inside Lyra's own can only be read.
        object.__setattr__(self, "writable", self.writable and not is_closed(self.workspace))
        object.__setattr__(self, "writable_also", tuple(path for path in self.writable_also if not is_closed(path)))
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in name + value:
                raise ConfigError(f"{name[:80]!r} cannot be an environment variable")

    @classmethod
    def of(
        cls,
        grant: Grant,
        workspace: str,
        *,
        readable: Iterable[str] = (),
        protected: Iterable[str] = (),
        hidden: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        unix_sockets: bool = False,
    ) -> Profile:
        """Return the profile that a Grant allows. CapabilityDenied when it cannot even read the workspace."""
        root = _folder(workspace)
        if not _allows_some(grant, "fs.read", root):
            raise CapabilityDenied(
                f"the grant does not allow to read {root}",
                hint=f"allow it with 'fs.read:{root}/**' in the grant",
                capability=f"fs.read:{root}/**",
            )
        writes = [path for path in _roots(grant, "fs.write") if path not in NO_WORKSPACE]
        has_network = any(_is_about(cap, "net.http") for layer in grant.layers for cap in layer) or not grant.layers
        return cls(
            root,
            writable=_allows_some(grant, "fs.write", root),
            readable=(*_roots(grant, "fs.read"), *readable),
            writable_also=tuple(path for path in writes if path != root and not _inside(path, root)),
            protected=tuple(protected),
            hidden=tuple(hidden),
            env=env or {},
            egress=grant if has_network else None,
            unix_sockets=unix_sockets,
            limits=limits or Limits(),
            grant=grant if grant.deny else None,
        )

    def find_home_links(self) -> list[tuple[str, str]]:
        """Return the folders of Python environments that `~` leads to in the command, too: their names and paths."""
        home = os.path.realpath(os.path.expanduser("~"))
        folders = ((name, os.path.join(home, name)) for name in ENVIRONMENT_HOMES)
        return [(name, path) for name, path in folders if path in self.readable]

    def list_environments(self) -> list[str]:
        """Return the Python environments among the folders that may be read, for which their interpreters are shown."""
        folders = [path for _, path in self.find_home_links()]
        inside = [os.path.join(folder, name) for folder in folders for name in os.listdir(folder)]
        return [path for path in (*self.readable, *inside) if os.path.exists(f"{path}/pyvenv.cfg")]

    def environment(self, *, home: str, temporary: str) -> dict[str, str]:
        """Return the environment of the command: a few variables of Lyra's own environment, then those of the
        profile."""
        own = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        own |= {"PATH": self._search_path(), "HOME": home, "TMPDIR": temporary, "LYRA_SANDBOX": "1"}
        return own | dict(self.env)

    def _search_path(self) -> str:
        """Return the folders of PATH that are visible in the sandbox, then the usual ones."""
        return _search_path(os.environ.get("PATH", ""), (*self.readable, self.workspace))


@lru_cache(maxsize=64)
def _search_path(path: str, visible: tuple[str, ...]) -> str:
    seen = [os.path.realpath(root) for root in (*SYSTEM, *visible)]
    mine = [folder for folder in path.split(":") if folder.startswith("/")]
    kept = [folder for folder in mine if any(_inside(os.path.realpath(folder), root) for root in seen)]
    return ":".join(dict.fromkeys([*kept, *_PATH.split(":")]))


def _folder(path: str) -> str:
    real = os.path.realpath(path)
    if not os.path.isdir(real):
        raise ConfigError(f"the workspace {path} is not a folder", place=path)
    if real in NO_WORKSPACE:
        raise ConfigError(
            f"{real} cannot be a workspace: it holds the system or other people's files",
            hint="give the folder of one project",
            place=real,
        )
    return real


def _existing(paths: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path))


def _inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _is_about(cap: Capability, name: str) -> bool:
    return cap.name in (name, "*", name.partition(".")[0] + ".*")


def _roots(grant: Grant, name: str) -> list[str]:
    """Return the folders that rules of that name allow as a whole."""
    roots: list[str] = []
    for cap in (cap for layer in grant.layers for cap in layer if cap.name == name):
        root = cap.scope.removesuffix("/**")
        if root != cap.scope and root and not set("*?[{") & set(root) and _allows_some(grant, name, root):
            roots.append(root)
    return roots


def _allows_some(grant: Grant, name: str, root: str) -> bool:
    """Return whether every layer allows the whole folder; denied paths inside it become protected paths."""
    opened = Grant.from_data({"layers": [[str(cap) for cap in layer] for layer in grant.layers] or [["*"]]})
    if not opened.allows(Capability(name, f"{root}/**")):
        return False
    return not any(_is_about(cap, name) and _denies_folder(cap, root) for cap in grant.deny)


def _denies_folder(cap: Capability, root: str) -> bool:
    return Grant(allow=[cap]).allows(Capability(cap.name, root)) if cap.kind == "path" else True
