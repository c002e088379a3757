"""Hundreds of streams at once on one small budget: whatever they do, the key spends not a micro-dollar more.

A round is a key, its streams all at once, and its end. Clients leave in the middle, the provider fails, breaks off and
makes tokens that it never shows, calls are tried again, and in some rounds the key is revoked meanwhile. The figures of
the key are watched all the time; in the end its spending is held against what the provider bills.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from lyra.core.ids import ProcessRandom, make_random
from verify.crash.gateway.bill import BilledProvider
from verify.crash.gateway.gateway_server import GatewayServer
from verify.crash.gateway.ledger import RestlessLedger

__all__ = ["Overrun", "run"]

_STREAMS: Final = 200
_BUDGET_MICRO_USD: Final = (300, 8_000)
_MODES: Final = ("stream", "stream", "whole", "fail", "limit", "cut", "silent")
_MOODS: Final = (
    "",
    "silent",
    "",
    "whole",
    "cut",
    "stream",
)  # by turns; in some rounds all do the same and leave at once
_TOKENS_MAX: Final = 200
_SETTLE_S: Final = 60.0


class Overrun(NamedTuple):
    """What came of some rounds."""

    rounds: int
    streams: int
    answered: int
    over_budget: int
    revoked: int
    least_left: int  # micro-dollars that a key had left, the least of all
    failures: list[str]


def run(
    rounds: int,
    seed: int = 1,
    *,
    streams: int = _STREAMS,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Overrun:
    """Attack so many keys, one after the other."""
    with tempfile.TemporaryDirectory(prefix="lyra-gateway-overrun-") as name:
        return asyncio.run(_run(Path(name), rounds, make_random(seed), streams, progress))


async def _run(
    folder: Path, rounds: int, rng: ProcessRandom, streams: int, progress: Callable[[int, int], None]
) -> Overrun:
    total = Overrun(0, 0, 0, 0, 0, 10**9, [])
    async with BilledProvider() as provider:
        provider.pause_s = 0.001
        provider.hidden_s = 3.0
        provider.tokens_out = _TOKENS_MAX  # as long an answer as the request allows
        server = GatewayServer(folder, "memory", provider)
        try:
            await server.process.start()
            for number in range(rounds):
                ended = await _Round(server, provider, rng, number, streams).run()
                total = _sum(total, ended)
                progress(number + 1, rounds)
        finally:
            await server.close()
    if "Traceback" in server.process.errors:
        total.failures.append(f"the log has a traceback: {server.process.errors[-1_500:]}")
    return total


def _sum(left: Overrun, right: Overrun) -> Overrun:
    return Overrun(
        left.rounds + right.rounds,
        left.streams + right.streams,
        left.answered + right.answered,
        left.over_budget + right.over_budget,
        left.revoked + right.revoked,
        min(left.least_left, right.least_left),
        left.failures + right.failures,
    )


class _Round:
    """One key."""

    def __init__(
        self, server: GatewayServer, provider: BilledProvider, rng: ProcessRandom, number: int, streams: int
    ) -> None:
        self._server, self._provider, self._rng = server, provider, rng
        self._name, self._streams = f"key{number}", streams
        self._budget = rng.randrange(*_BUDGET_MICRO_USD)
        self._mood = _MOODS[number % len(_MOODS)]
        self._may_be_revoked = number > 0  # the first key shows answers that came whole
        self._is_over = False

    async def run(self) -> Overrun:
        body = {"name": self._name, "budget": f"${self._budget / 1e6:.6f}"}
        status, made = await self._server.operate("POST", "/api/keys", json=body)
        assert status == 201, made
        ledger = RestlessLedger(self._name, made["key"], self._budget)
        watching = asyncio.create_task(self._watch(ledger))
        is_revoked = self._rng.randrange(4) == 0 and self._may_be_revoked
        tasks = [asyncio.create_task(self._ask(ledger)) for _ in range(self._streams)]
        view = None
        if is_revoked:
            await asyncio.sleep(self._rng.uniform(0.0, 1.0))
            status, _ = await self._server.operate("DELETE", f"/api/keys/{self._name}")
            assert status == 200, status
        await asyncio.gather(*tasks)
        if not is_revoked:
            view = await self._settled()
        self._is_over = True
        await watching
        failures = ledger.problems + ([] if view is None else ledger.failures(view, self._provider))
        failures += self._failures_of_bill(ledger)
        left = 10**9 if view is None else self._budget - view["spent_micro_usd"]
        return Overrun(1, self._streams, ledger.whole, ledger.refused, int(is_revoked), left, failures)

    async def _ask(self, ledger: RestlessLedger) -> None:
        mode = self._mood or _MODES[self._rng.randrange(len(_MODES))]
        leave_after = self._rng.randrange(8) if self._rng.randrange(3) == 0 else None
        if self._mood:
            leave_after = 0
        tokens_max = self._rng.randrange(1, _TOKENS_MAX)
        outcome = await self._server.ask(
            ledger.secret, ledger.next_id(), mode, tokens_max=tokens_max, leave_after=leave_after
        )
        ledger.note(outcome)

    async def _watch(self, ledger: RestlessLedger) -> None:
        while not self._is_over:
            status, view = await self._server.operate("GET", f"/api/keys/{self._name}")
            if status != 200:
                return  # revoked
            ledger.watch(view)

    async def _settled(self) -> dict[str, Any]:
        """The key, once nothing is reserved: a client that has left is noticed a moment later."""
        async with asyncio.timeout(_SETTLE_S):
            while True:
                view = (await self._server.keys())[self._name]
                if not view["reserved_micro_usd"]:
                    return view
                await asyncio.sleep(0.02)

    def _failures_of_bill(self, ledger: RestlessLedger) -> list[str]:
        """A revoked key is not listed; what the provider bills for it is within its budget all the same."""
        rows = [row for row in self._provider.bill.values() if row.id.rpartition("-")[0] == self._name]
        billed = sum(row.micro_usd for row in rows)
        if billed > ledger.budget_micro_usd:
            return [f"{self._name}: the provider bills {billed}, the budget is {ledger.budget_micro_usd}"]
        return []
