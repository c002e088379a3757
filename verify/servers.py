"""Real servers for tests, thrown away afterwards.

`PostgresServer` makes a database cluster in a temporary folder and runs it on a Unix socket in that folder: no port
to collide, nothing reachable from outside, nothing left behind. It never touches a server that is already running.
`postgres_missing()` says in one sentence why it cannot run here, for a test's skip. See `conformance` for what to do
with it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess  # noqa: TID251 - starting a real server is what this module is for
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final
from urllib.parse import urlencode

from lyra.errors import StoreError
from verify.home import make_folder_for

__all__ = ["PostgresServer", "postgres_missing"]

_START_TIMEOUT_S: Final = 60
_USER: Final = "lyra"
_PARENT_CHARS_MAX: Final = 70  # of the folder above: the path of the server's socket has at most 107


def _binaries() -> Path | None:
    """The folder with `initdb` and `pg_ctl`: on the PATH, or where Debian keeps the newest version."""
    initdb = shutil.which("initdb")
    if initdb:
        return Path(initdb).resolve().parent
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: _number(path.parts[-3]), reverse=True
    )
    return installed[0].parent if installed else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _demotion() -> list[str] | None:
    """The words before a command that make it run as `postgres`; PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv"):
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    if shutil.which("runuser"):
        return ["runuser", "-u", "postgres", "--"]
    return None


def postgres_missing() -> str | None:
    """Why no PostgreSQL server can be started here; None when one can."""
    if _binaries() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    try:
        user = _server_user()
    except KeyError:
        return "PostgreSQL does not run as root and there is no user postgres: apt-get install postgresql"
    if _demotion() is None:
        return "PostgreSQL does not run as root, and neither setpriv nor runuser is here: apt-get install util-linux"
    try:
        make_folder_for(user, prefix="lyra-pg-", parent_chars_max=_PARENT_CHARS_MAX).rmdir()
    except OSError as error:
        return f"PostgreSQL has no folder for its data: {error}"
    return None


def _server_user() -> int:
    """Return the id of the user that the server runs as; KeyError where root has no user `postgres` to become."""
    return os.geteuid() or pwd.getpwnam("postgres").pw_uid


class PostgresServer:
    """`with PostgresServer() as server: open_store(server.url)`. Without `fsync` it is quick and promises nothing.

    With `listen`, an address of this machine, it is reached at port 5432 there as well (`url_at`), by everybody.
    """

    def __init__(self, *, fsync: bool = False, listen: str = "") -> None:
        self._fsync = fsync
        self._listen = listen
        self._folder: Path | None = None

    @property
    def url(self) -> str:
        settings = urlencode({"host": str(self._place()), "user": _USER})
        return f"postgresql:///postgres?{settings}"

    @property
    def url_at(self) -> str:
        return f"postgresql://{_USER}@{self._listen}:5432/postgres"

    def start(self) -> None:
        missing = postgres_missing()
        if missing:
            raise StoreError(missing)
        self._folder = make_folder_for(_server_user(), prefix="lyra-pg-", parent_chars_max=_PARENT_CHARS_MAX)
        try:
            self._call("initdb", "--auth=trust", f"--username={_USER}", "--no-sync", "--encoding=UTF8", "--no-locale")
            if self._listen:
                with (self._folder / "data" / "pg_hba.conf").open("a") as rules:
                    rules.write("host all all all trust\n")
            self.resume()
        except BaseException:
            self._remove()
            raise

    def start_standby(self, primary: PostgresServer) -> None:
        """Become a copy of a running server that follows it, and that each commit of it waits for."""
        self._folder = make_folder_for(_server_user(), prefix="lyra-pg-", parent_chars_max=_PARENT_CHARS_MAX)
        try:
            settings = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
            self._call("pg_basebackup", f"--host={primary._place()}", f"--username={_USER}", *settings)
            self.resume()
            command = (
                "ALTER SYSTEM SET synchronous_standby_names = '*'"  # after the copy, which would wait for a standby
            )
            primary._call("psql", f"--host={primary._place()}", f"--username={_USER}", "postgres", "-c", command)
            primary._call("pg_ctl", "reload")
        except BaseException:
            self._remove()
            raise

    def cpu_s(self) -> float:
        """Return the CPU seconds that all its processes have used."""
        server = (self._place() / "data" / "postmaster.pid").read_text().split()[0]
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                fields = stat.read_text().rpartition(")")[2].split()
                if stat.parent.name == server:
                    ticks += sum(map(int, fields[11:15]))  # and those of its processes that have ended
                elif fields[1] == server:
                    ticks += sum(map(int, fields[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def promote(self) -> None:
        """Make a standby the primary."""
        self._call("pg_ctl", "promote", "--wait")

    def halt(self) -> None:
        """Stop it at once, as a crash would, and keep its data for `resume`."""
        self._call("pg_ctl", "stop", "--wait", "--mode=immediate")

    def resume(self) -> None:
        """Run the server on the data there is."""
        folder = self._place()
        fsync = "on" if self._fsync else "off"
        options = f"-k {folder} -c listen_addresses={self._listen} -c fsync={fsync} -c full_page_writes={fsync}"
        self._call(
            "pg_ctl",
            "start",
            "--wait",
            f"--timeout={_START_TIMEOUT_S}",
            f"--log={folder / 'log'}",
            f"--options={options}",
        )

    def stop(self) -> None:
        """Stop it at once, as a crash would, and remove its folder; stopping twice is harmless."""
        if self._folder is not None:
            try:
                self._call("pg_ctl", "stop", "--wait", "--mode=immediate")
            finally:
                self._remove()

    def _place(self) -> Path:
        if self._folder is None:
            raise StoreError("the PostgreSQL server is not running")
        return self._folder

    def _call(self, program: str, *words: str) -> None:
        binaries, demotion = _binaries(), _demotion()
        assert binaries is not None
        assert demotion is not None
        folder = self._place()
        data = () if program == "psql" else ("-D", str(folder / "data"))
        command = [*demotion, str(binaries / program), *words, *data]
        # Output goes to a file: the server inherits it and would keep a pipe open for ever.
        with (folder / "output").open("ab") as output:
            done = subprocess.run(  # noqa: S603 - our own words, no shell
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
            )
        if done.returncode:
            lines = (folder / "output").read_text(errors="replace").strip().splitlines()
            raise StoreError(f"{program} failed: {lines[-1] if lines else done.returncode}")

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
