"""Durable runs of Vega programs on a cluster: `vega run --cluster URL`.

A run is a process of a shard, like any other, whose one effect is to execute the program to its end. The program has
a kernel and a journal of its own (`PostgresSpace`) beside the shards. When its host is killed, the host that takes the
shard over performs the effect again, which continues the run from its journal: nothing finished in it is performed
twice, and its own lease and epoch keep the woken host of before out. All processes of one run are on one host at a
time; runs spread over the shards.

A command that follows a run reads its journal (`follow`), and needs no host for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core import codec
from lyra.core.naming import VEGA_RUN, give_name
from lyra.errors import DeadlineExceeded, StoreError, VegaError
from lyra.store.postgres_space import PostgresSpace
from lyra.store.standing import vouch

if TYPE_CHECKING:
    from lyra.cluster.client import Cluster, RemoteHandle
    from lyra.cluster.directory import Directory
    from lyra.config import Config
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.context import Context
    from lyra.vega.durable.runs import DurableRun

_log: Final = logging.getLogger("lyra.cluster")
HOSTS_LOST_MAX: Final = 1_000_000  # a run goes on however many of its hosts are lost
_LOOK_S: Final = 0.1
_PERFORM: Final = "vega.runs"  # in the parts of a kernel


def open_run(directory: Directory, run: str, *, make: bool = True) -> tuple[PostgresSpace, DurableRun | None]:
    """Return the journal of a run, and the run as it is there; None where it has not begun."""
    from lyra.vega.durable.runs import DurableRun

    space = PostgresSpace(directory.url, run, directory.signer, make=make)
    try:
        if vouch(space).name == "empty":
            return space, None
        before = DurableRun(space)
        has_begun = before.has_begun and before.facts.began is not None
    except BaseException:
        space.close()
        raise
    return space, before if has_begun else None


# ---------------------------------------------------------------- on a host


def register_runs(kernel: Kernel, directory: Directory, lease_s: float) -> None:
    """Let runs of the cluster begin and continue on a kernel."""

    async def perform(run: str, program: bytes, facts: dict[str, Any]) -> None:
        await execute(directory, run, program, facts, config=kernel.config, lease_s=lease_s)

    kernel.parts[_PERFORM] = RunPerformer(perform)
    kernel.register(vega_run)


class RunPerformer(NamedTuple):
    """What executes the runs of one kernel; closed with it, when there is nothing to close."""

    perform: Callable[[str, bytes, dict[str, Any]], Awaitable[None]]

    async def close(self) -> None:
        """Its runs end with the processes that they are."""


@give_name(VEGA_RUN)
async def vega_run(ctx: Context, run: str, program: bytes, facts: dict[str, Any]) -> None:
    """Run a Vega program, as the process of a shard."""
    performer: RunPerformer = ctx.own_process.kernel.parts[_PERFORM]
    await ctx.do(performer.perform, run, program, facts, idempotent=True)


async def execute(
    directory: Directory, run: str, program: bytes, facts: Mapping[str, Any], *, config: Config | None, lease_s: float
) -> None:
    """Execute a run, from the beginning or from where its last host was killed, until its main process ends."""
    from lyra.core.budgets.money import Money
    from lyra.vega.bytecode import file as bytecode
    from lyra.vega.durable.durable_run import Overtaken, RunExecution
    from lyra.vega.runtime.world import RunOptions

    def warn(line: str) -> None:
        _log.warning("run %s: %s", run, line)

    while True:
        space, before = await asyncio.to_thread(open_run, directory, run)
        try:
            if before is not None and before.is_over:
                return
            began = facts if before is None else before.began
            options = RunOptions(
                write=lambda _: None,  # who follows it reads its journal
                warn=warn,
                model=began["model"],
                budget=None if began["budget"] is None else Money(began["budget"]),
                args=tuple(began["args"]),
                sequential=began["sequential"],
            )
            execution = RunExecution(
                space,
                bytecode.load(program) if before is None else before.program(),
                options,
                before=before,
                config=config,
                lease={"lease_s": lease_s, "lease_wait_s": lease_s + 1.0},
            )
            await execution.run(None if before is not None else facts)
            return
        except Overtaken:  # the host of before wrote on until its lease was over
            continue
        except VegaError:
            if execution.lack is not None:
                raise
            return  # the program's own end; it is in the journal
        finally:
            await asyncio.to_thread(space.close)


# ---------------------------------------------------------------- outside


async def start_run(
    cluster: Cluster,
    run: str,
    shard: str,
    program: bytes,
    facts: Mapping[str, Any],
    *,
    attempt: int = 1,
) -> RemoteHandle:
    """Begin a run on a shard, or find the one of that name there; returns when it is durable. A further `attempt` goes
    on with one that lacked something, such as the key of a model."""
    pid = run if attempt == 1 else f"{run}.{attempt}"
    data = {
        "shard": shard,
        "program": VEGA_RUN,
        "args": codec.encode((run, program, dict(facts))),
        "pid": pid,
        "name": run,
        "recovery_attempts": HOSTS_LOST_MAX,
    }
    await cluster.call_shard(shard, "spawn", data)
    return cluster.process(f"{shard}/{pid}")


async def follow(
    directory: Directory, run: str, handle: RemoteHandle, write: Callable[[str], object], *, tail: bool
) -> DurableRun:
    """Write the lines of a run, those that it has printed already too unless `tail`, until it is over; returns it, with
    its journal open.

    Raises the error with which the process of the run ended, where the run itself is not over."""
    from lyra.kernel.base.tasks import Tasks

    tasks = Tasks()
    ending = tasks.start(handle.wait(), name=f"lyra-run {run}")
    reader = _Reader(directory, run, skip=tail)
    try:
        while True:
            has_ended = ending.done()  # before the look: what it printed is in the journal by then
            for line in await asyncio.to_thread(reader.read_new):
                write(line)
            if reader.is_over:
                return reader.hand_over()
            if has_ended:
                try:
                    ended = ending.result()
                except (StoreError, DeadlineExceeded):  # its host is gone, and the journal says the rest
                    ending = tasks.start(handle.wait(), name=f"lyra-run {run}")
                else:
                    raise ended.error or StoreError(f"run {run} was ended on the cluster: {ended.reason}")
            await asyncio.wait({ending}, timeout=_LOOK_S)
    finally:
        await tasks.close()
        reader.close()


class _Reader:
    """Reads what a run prints; its calls block."""

    def __init__(self, directory: Directory, run: str, *, skip: bool) -> None:
        self._directory = directory
        self._run = run
        self._skip = skip
        self._space: PostgresSpace | None = None
        self._seq = 0
        self.is_over = False

    def read_new(self) -> list[str]:
        """Return the lines that were printed since the last call."""
        if self._space is None:
            return self._read_first()
        last = self._space.last_seq()
        if last <= self._seq:
            return []
        rows = self._space.read(after=self._seq, upto=last, kind="run.printed")
        lines = [str(codec.decode(row.data)["text"]) for row in rows]
        self.is_over = next(self._space.read(after=self._seq, upto=last, kind="run.ended"), None) is not None
        self._seq = last
        return lines

    def _read_first(self) -> list[str]:
        try:
            space, run = open_run(self._directory, self._run, make=False)
        except StoreError as error:
            if error.fields.get("name") == self._run:  # it has not begun yet
                return []
            raise
        if run is None:
            space.close()
            return []
        self._space, self._seq, self.is_over = space, run.fold.seq, run.is_over
        return [] if self._skip else run.output()

    def hand_over(self) -> DurableRun:
        """Return the run as it is now; its journal is the caller's to close."""
        from lyra.vega.durable.runs import DurableRun

        assert self._space is not None
        space, self._space = self._space, None
        return DurableRun(space)

    def close(self) -> None:
        if self._space is not None:
            self._space.close()
