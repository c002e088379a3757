"""Makes the stores that the tests keep: `python -m tests.kept_stores.make [--folder FOLDER] [NAME…]`, in the root of
the repository.

Each scene runs in a child process that is killed with SIGKILL in the middle of its work; the log that SQLite left
behind is then written into the file. A store that is there stays as it is, and is not made again. A later version
makes its own folder beside the older ones, and the tests finish the stores of all of them. A change of what journals
hold between two releases gets a folder, too: `--folder v0.1.0-fixed-names`.

A kernel scene is kept in two forms. `NAME.db` is the journal alone. `NAME-compacted.db` was made with snapshots all the
time, and the rows that its last snapshot covers were dropped, as `lyra store compact` does.
"""

from __future__ import annotations

import argparse
import os
import socket
import sqlite3
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from typing import Any

from lyra import Kernel, __version__
from lyra.store import open_store
from lyra.testing import SimClock, run_in_virtual_time
from tests.kept_stores import programs
from tests.kept_stores.scenes import HELD, MADE_AT, SCENES, SNAPSHOT_EVERY_EVENTS
from tests.kept_stores.vega_scenes import VEGA_WAYS, make_vega

HERE = Path(__file__).parent
COMPACTED = "-compacted"
NAMES = [*SCENES, *(f"{name}{COMPACTED}" for name in SCENES), *VEGA_WAYS]


def make(name: str, folder: Path) -> Path:
    """Make one store."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.db"
    if name in VEGA_WAYS:
        make_vega(name, path)
    else:
        scene = name.removesuffix(COMPACTED)
        kill_in_the_middle(lambda: live(scene, path, snapshots=name != scene))
        if name != scene:
            compact(path)
    put_into_one_file(path)
    return path


def kill_in_the_middle(life: Callable[[], None]) -> None:
    """Run `life` in a child process, which ends by SIGKILL."""
    child = os.fork()
    if child == 0:
        try:
            socket.gethostname = lambda: "kept"  # the owner of a store is named after its machine
            life()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != -SIGKILL:
        raise AssertionError("the child process was not killed where it should be")


def live(scene: str, path: Path, *, snapshots: bool) -> None:
    """The life of one kernel, in virtual time, up to the kill."""
    clock = SimClock(MADE_AT)
    every: dict[str, Any] = {"snapshot_every_events": SNAPSHOT_EVERY_EVENTS.get(scene, 3)} if snapshots else {}
    programs.held.update(HELD.get(scene, ()))

    async def main() -> None:
        known = [*programs.PROGRAMS, *programs.AGENTS]
        async with Kernel(path, clock, known, seed=7, **every) as kernel:
            programs.kernels.append(kernel)
            await SCENES[scene](kernel)
            await kernel.durable()
            missing = programs.held - set(programs.performed)
            if missing:
                raise AssertionError(f"{scene}: not in flight: {sorted(missing)}")
            os.kill(os.getpid(), SIGKILL)

    run_in_virtual_time(main(), clock=clock)


def compact(path: Path) -> None:
    store = open_store(str(path))
    lease = store.acquire("make", now=MADE_AT + 86_400.0, ttl_s=10.0)
    try:
        if not store.compact(before=MADE_AT + 86_400.0, epoch=lease.epoch):
            raise AssertionError(f"{path.name}: no snapshot covers any row")
    finally:
        store.release(lease)
        store.close()


def put_into_one_file(path: Path) -> None:
    """SQLite writes its log into the file and removes it; VACUUM makes the file as small as it can be."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if path.with_name(f"{path.name}-wal").exists():
        raise AssertionError(f"{path.name} has a log beside it")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kept_stores.make", description="Make the stores to keep.")
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], help="default: all", metavar="NAME")
    parser.add_argument("--folder", default=f"v{__version__}", help="default: the version")
    options = parser.parse_args(arguments)
    folder = HERE / options.folder
    missing = [name for name in options.names or NAMES if not (folder / f"{name}.db").exists()]
    if not missing:
        parser.error(f"{options.folder} has all of these already, and they stay as they are; name another --folder")
    for name in missing:
        path = make(name, folder)
        print(f"{path.relative_to(Path.cwd())}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
