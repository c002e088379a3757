"""The world around an attempt: secrets, files, processes and listeners, and what tells that they were touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

from lyra.core.rights.capability import Grant
from lyra.sandbox import Limits, Profile, Result
from tests.sandbox.attacks import prelude

MARKER = "ESC" + "APED"
SECRETS = ("secret-outside", "secret-env", "secret-key", "secret-variable", "secret-argument", "secret-denied")
PYTHON = os.path.realpath(sys.executable)
_VICTIM = (
    "import os, signal, time; signal.signal(signal.SIGWINCH, lambda *_: os._exit(1)); "
    "print('ready', flush=True); time.sleep(600)"
)


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = root / "workspace"
        self.outside = root / "outside"
        self._files()
        self._sockets()
        self.inherited = os.open(self.outside / "secret", os.O_RDONLY)
        os.set_inheritable(self.inherited, True)
        self.victim = subprocess.Popen(
            [PYTHON, "-IS", "-c", _VICTIM, "secret-argument"],
            env={"TOKEN": "secret-variable"},
            cwd=self.outside,
            stdin=self.inherited,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.victim.stdout is not None
        self.victim.stdout.readline()  # it is ready to be hit by any signal
        self.folder = os.open(self.outside, os.O_RDONLY)
        os.set_inheritable(self.folder, True)
        self.before = self.state()

    def _files(self) -> None:
        files = {
            "outside/secret": "secret-outside",
            "outside/keep": "kept",
            "workspace/.env": "secret-env",
            "workspace/id_rsa": "secret-key",
            "workspace/.ssh/config": "secret-key",
            "workspace/.git/config": "ours",
            "workspace/.git/hooks/sample": "ours",
            "workspace/.lyra/lyra.db": "ours",
            "workspace/lyra.toml": "ours",
            "workspace/.vscode/tasks.json": "ours",
            "workspace/lib/main.py": "print('hello')",
            "workspace/src/deep/.env": "secret-env",
            "workspace/src/sub/.git/config": "ours",
            "workspace/src/private/notes": "secret-denied",
        }
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            if not (self.root / name).exists():
                (self.root / name).write_text(text)
        (self.outside / "folder").mkdir(exist_ok=True)
        (self.workspace / "lib/to_file").symlink_to(self.outside / "secret")
        (self.workspace / "lib/to_folder").symlink_to(self.outside)

    def renew(self) -> None:
        """A new workspace for the next attempt; what is outside stays, since nothing may have changed it."""
        shutil.rmtree(self.workspace)
        self._files()
        self.before = self.state()

    def _sockets(self) -> None:
        self.listeners = {
            "tcp": socket.create_server(("127.0.0.1", 0)),
            "unix": socket.socket(socket.AF_UNIX),
            "abstract": socket.socket(socket.AF_UNIX),
            "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        }
        here = os.getcwd()
        os.chdir(self.outside)  # the name of a unix socket is short
        self.listeners["unix"].bind("socket")
        os.chdir(here)
        self.listeners["unix"].listen()
        self.abstract = f"\0lyra-test-{os.getpid()}-{id(self)}"
        self.listeners["abstract"].bind(self.abstract)
        self.listeners["abstract"].listen()
        self.listeners["udp"].bind(("127.0.0.1", 0))
        with contextlib.suppress(OSError):  # a machine without IPv6
            self.listeners["tcp6"] = socket.create_server(("::1", 0), family=socket.AF_INET6)
        for listener in self.listeners.values():
            listener.setblocking(False)

    def close(self) -> None:
        self.victim.kill()
        self.victim.communicate()
        os.close(self.inherited)
        os.close(self.folder)
        for listener in self.listeners.values():
            listener.close()

    def profile(self, **limits: float) -> Profile:
        grant = Grant(allow=["fs.*"], deny=[f"fs.read:{self.workspace}/src/private/**"])
        given = {"wall_s": 20.0, "memory_bytes": 512 * 2**20, "processes": 64, "file_bytes": 32 * 2**20} | limits
        return Profile(
            str(self.workspace),
            readable=(sys.base_prefix,),
            grant=grant,
            limits=Limits(**given),  # type: ignore[arg-type]
        )

    def _prelude(self, code: str) -> str:
        names = {
            "WS": str(self.workspace),
            "OUT": str(self.outside),
            "VICTIM": self.victim.pid,
            "PARENT": os.getpid(),
            "PORT": self.listeners["tcp"].getsockname()[1],
            "PORT6": self.listeners["tcp6"].getsockname()[1] if "tcp6" in self.listeners else 1,
            "UDP": self.listeners["udp"].getsockname()[1],
            "ABSTRACT": self.abstract,
            "USER_HOME": os.path.expanduser("~"),
            "DISK": os.stat("/").st_dev,
            "SHM": 0x4C595241,
        }
        return prelude(code) + "\n".join(f"{name} = {value!r}" for name, value in names.items()) + "\n"

    def argv(self, code: str) -> list[str]:
        return [PYTHON, "-IS", "-c", self._prelude(code) + code]

    # ------------------------------------------------------------ judging
    def state(self) -> dict[str, object]:
        """Everything that no attempt may change."""
        state: dict[str, object] = {"host": socket.gethostname()}
        kept = [self.outside, *(self.workspace / name for name in (".git", ".lyra", ".vscode", "src/sub/.git"))]
        paths = [path for top in kept for path in [top, *sorted(top.rglob("*"))]]
        for path in [*paths, self.workspace / ".env", self.workspace / "lyra.toml", self.workspace / "id_rsa"]:
            facts = path.lstat()
            content = path.read_text() if stat.S_ISREG(facts.st_mode) else None
            state[str(path)] = (facts.st_mode, facts.st_uid, facts.st_mtime_ns, content, tuple(os.listxattr(path)))
        for name in ("/dev/shm/lyra-attack", "/tmp/lyra-attack", "/var/tmp/lyra-attack", "/etc/lyra-attack"):
            state[name] = os.path.exists(name)
        state["set id"] = [
            str(path) for path in self.workspace.rglob("*") if path.is_file() and path.lstat().st_mode & 0o6000
        ]
        return state

    def damage(self) -> list[str]:
        """What is not as it was."""
        try:
            now = self.state()
        except FileNotFoundError as error:
            return [f"{error.filename} is gone"]
        changed = [key for key in {*now, *self.before} if now.get(key) != self.before.get(key)]
        if self.victim.poll() is not None or Path(f"/proc/{self.victim.pid}/stat").read_text().split()[2] == "T":
            changed.append("the victim")
        for name, listener in self.listeners.items():
            try:
                listener.recv(1) if name == "udp" else listener.accept()[0].close()
                changed.append(f"the {name} listener was reached")
            except BlockingIOError:
                pass
        return changed

    def verdict(self, result: Result) -> list[str]:
        text = result.output.text
        return [word for word in (MARKER, *SECRETS) if word in text] + self.damage()


def survivors(token: str) -> list[int]:
    """Processes outside that were started with this word in their environment or command line."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
            dead = (path / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if token.encode() in words and not dead and int(path.name) != os.getpid():
            pids.append(int(path.name))
    return pids
