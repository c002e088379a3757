"""Every setting of the configuration changes what a kernel does: none is inert."""

from __future__ import annotations

import asyncio

import pytest

from lyra.config import KEYS, Config
from lyra.core.clock import SystemClock
from lyra.errors import BudgetExceeded, CapabilityDenied, Conflict, DeadlineExceeded, Overloaded
from lyra.kernel import Kernel
from lyra.store.sqlite import SqliteStore
from tests.kernel.conftest import Crash, run, settle


async def act(value=1):
    return value


async def pays(ctx, cost):
    return await ctx.do(act, cost=cost)


async def reads(ctx, path):
    return await ctx.do(act, needs=f"fs.read:{path}")


async def forever(ctx):
    await ctx.receive()


async def deaf(ctx):
    await ctx.ask("?")


def kernel_with(tmp_path, *flags: str) -> Kernel:
    config = Config.load(cwd=tmp_path, env={}, flags=(f"kernel.store={tmp_path}/run.db", *flags))
    return Kernel.from_config(config)


async def _store(tmp_path):
    async with kernel_with(tmp_path) as kernel:
        assert kernel.journal.store.location.endswith("run.db")


async def _durability(tmp_path):
    async with kernel_with(tmp_path, "kernel.durability=power") as kernel:
        assert not kernel.journal.store.inline


async def _lease(tmp_path):
    async with kernel_with(tmp_path, "kernel.lease_s=77") as kernel:
        lease = kernel.journal.store.holder()
        assert 60 < lease.expires_at - kernel.clock.now() <= 77


async def _lease_wait(tmp_path):
    store = SqliteStore(tmp_path / "run.db")
    store.acquire("far-host/boot/ns|4711|2|x", now=SystemClock().now(), ttl_s=600.0)
    store.close()
    with pytest.raises(Conflict, match=r"process 4711 on far-host"):
        async with kernel_with(tmp_path, "kernel.lease_wait_s=0.2"):
            pass


async def _snapshot(tmp_path):
    async with kernel_with(tmp_path, "kernel.snapshot_every_events=5") as kernel:
        for _ in range(10):
            await kernel.run(pays, None)
            await settle(kernel)
        assert kernel.journal.store.load_snapshots().seq > 0


async def _retention(tmp_path):
    async with kernel_with(tmp_path, "kernel.snapshot_every_events=5", "kernel.retention_s=0") as kernel:
        for _ in range(10):
            await kernel.run(pays, None)
            await settle(kernel)
        assert kernel.journal.store.first_seq() > 1


async def _mailbox(tmp_path):
    async with kernel_with(tmp_path, "kernel.mailbox_messages_max=2") as kernel:
        handle = kernel.spawn(deaf)
        await settle(kernel)
        for _ in range(2):
            kernel.send(handle, 1)
        assert kernel.mailboxes.full(kernel.processes[handle.pid])


async def _processes(tmp_path):
    async with kernel_with(tmp_path, "kernel.processes_max=1") as kernel:
        kernel.spawn(forever)
        with pytest.raises(Overloaded):
            kernel.spawn(forever)


async def looks(ctx):
    async def look():
        await asyncio.Event().wait()

    await ctx.do(look, name="look", idempotent=True)


async def _recovery(tmp_path):
    for _ in range(2):
        kernel = kernel_with(tmp_path, "kernel.recovery_attempts=0")
        kernel.register(looks)
        async with Crash(kernel):
            kernel.spawn(looks, pid="looks")
            await settle(kernel)
    assert not kernel.processes["looks"].alive


async def _usd(tmp_path):
    async with kernel_with(tmp_path, "budget.usd=$0.10") as kernel:
        with pytest.raises(BudgetExceeded):
            await kernel.run(pays, "$0.11")


async def _seconds(tmp_path):
    async with kernel_with(tmp_path, "budget.seconds=0.05") as kernel:
        ended = await kernel.spawn(forever).wait()
        assert isinstance(ended.error, DeadlineExceeded)


async def _on_exceed(tmp_path):
    async with kernel_with(tmp_path, "budget.usd=$0.10", "budget.on_exceed=allow") as kernel:
        assert await kernel.run(pays, "$0.11") == 1


async def _allow(tmp_path):
    async with kernel_with(tmp_path, "grant.allow=fs.read:/project/**") as kernel:
        assert await kernel.run(reads, "/project/a") == 1
        with pytest.raises(CapabilityDenied):
            await kernel.run(reads, "/etc/passwd")


async def _deny(tmp_path):
    async with kernel_with(tmp_path, "grant.deny=fs.read:/etc/**") as kernel:
        assert await kernel.run(reads, "/project/a") == 1
        with pytest.raises(CapabilityDenied):
            await kernel.run(reads, "/etc/passwd")


CHECKS = {
    "kernel.store": _store,
    "kernel.durability": _durability,
    "kernel.lease_s": _lease,
    "kernel.lease_wait_s": _lease_wait,
    "kernel.snapshot_every_events": _snapshot,
    "kernel.retention_s": _retention,
    "kernel.mailbox_messages_max": _mailbox,
    "kernel.processes_max": _processes,
    "kernel.recovery_attempts": _recovery,
    "budget.usd": _usd,
    "budget.seconds": _seconds,
    "budget.on_exceed": _on_exceed,
    "grant.allow": _allow,
    "grant.deny": _deny,
}


def test_the_table_is_total():
    """A key without a check here would be an option that may do nothing."""
    not_the_kernels = {"agent.model", "audit.file", "audit.level"}  # the headless runner's: tests/cli/test_agent_*.py
    not_the_kernels |= {"vesper.results", "vesper.min_successes"}  # tests/cli/vesper
    not_the_kernels |= {f"sage.{limit}_budget_usd" for limit in ("daily", "session", "turn")}  # tests/sage/agent
    not_the_kernels |= {"sage.effort", "agent.max_tokens"}  # tests/sage/agent/test_unstopped.py
    not_the_kernels |= {"sage.cluster"}  # tests/cluster/test_sage_tasks.py
    not_the_kernels |= {"sage.keys", "sage.notify", "sage.theme"}  # tests/sage/terminal/test_settings.py
    not_the_kernels |= {"sandbox.readable", "sandbox.writable"}  # tests/cli, tests/sage
    not_the_kernels |= {"search.url", "search.key"}  # tests/sage/agent/test_web_search.py
    not_the_kernels |= {"retry.max_attempts", "retry.initial_s", "retry.max_s"}  # there, too
    not_the_kernels |= {name for name in KEYS if name.startswith("server.")}  # tests/server
    not_the_kernels |= {"log.file", "log.format", "log.level"}  # tests/cli/test_log_options.py
    not_the_kernels |= {name for name in KEYS if name.startswith("cluster.")}  # tests/cli/commands/test_cluster.py
    assert set(CHECKS) | not_the_kernels == set(KEYS)


@pytest.mark.parametrize("key", sorted(CHECKS))
def test_each_key_changes_the_kernel(key, tmp_path):
    """The setting is seen in what the kernel does."""
    run(CHECKS[key](tmp_path))


VARIABLES = {
    "LYRA_KERNEL_STORE": "kernel.store",
    "LYRA_KERNEL_DURABILITY": "kernel.durability",
    "LYRA_KERNEL_LEASE_S": "kernel.lease_s",
    "LYRA_KERNEL_LEASE_WAIT_S": "kernel.lease_wait_s",
    "LYRA_KERNEL_SNAPSHOT_EVERY_EVENTS": "kernel.snapshot_every_events",
    "LYRA_KERNEL_RETENTION_S": "kernel.retention_s",
    "LYRA_KERNEL_MAILBOX_MESSAGES_MAX": "kernel.mailbox_messages_max",
    "LYRA_KERNEL_PROCESSES_MAX": "kernel.processes_max",
    "LYRA_KERNEL_RECOVERY_ATTEMPTS": "kernel.recovery_attempts",
    "LYRA_BUDGET_USD": "budget.usd",
    "LYRA_BUDGET_SECONDS": "budget.seconds",
    "LYRA_BUDGET_ON_EXCEED": "budget.on_exceed",
    "LYRA_GRANT_ALLOW": "grant.allow",
    "LYRA_GRANT_DENY": "grant.deny",
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_each_variable_changes_the_kernel(variable, tmp_path, monkeypatch):
    """The same settings as variables of the environment, and none as a flag."""
    names = {key: name for name, key in VARIABLES.items()}

    def kernel_of_variables(folder, *flags: str) -> Kernel:
        settings = dict(flag.split("=", 1) for flag in (f"kernel.store={folder}/run.db", *flags))
        return Kernel.from_config(Config.load(cwd=folder, env={names[key]: text for key, text in settings.items()}))

    monkeypatch.setitem(globals(), "kernel_with", kernel_of_variables)
    run(CHECKS[VARIABLES[variable]](tmp_path))
    assert set(VARIABLES.values()) == set(CHECKS)
