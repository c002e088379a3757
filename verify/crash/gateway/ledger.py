"""What the clients of a campaign know, and the judgement of the server's figures by it.

`SteadyLedger` is exact: its calls are alike, so that what a key has spent tells how many of them were settled by their
usage and how many were in doubt and charged what was reserved. `RestlessLedger` is of a key whose clients leave, whose
provider fails and whose budget runs out: its spending is between what the provider bills and the budget.
"""

from __future__ import annotations

from typing import Any

from verify.crash.gateway.bill import TOKENS_IN, BilledProvider, cost_of
from verify.crash.gateway.gateway_server import Outcome

__all__ = ["RestlessLedger", "SteadyLedger"]


class KeyLedger:
    """A key as its clients know it; `secret` is its text."""

    def __init__(self, name: str, secret: str, budget_micro_usd: int) -> None:
        self.name = name
        self.secret = secret
        self.budget_micro_usd = budget_micro_usd
        self.attempts = 0
        self.whole = 0
        self.problems: list[str] = []

    def next_id(self) -> str:
        self.attempts += 1
        return f"{self.name}-{self.attempts:05}"

    def note(self, outcome: Outcome) -> None:
        self.whole += outcome.is_whole
        if outcome.problem:
            self.problems.append(f"{self.name}: {outcome.problem}")

    def failures(self, view: dict[str, Any], provider: BilledProvider) -> list[str]:
        """What does not hold after a restart, when nothing is in flight."""
        raise NotImplementedError

    def common_failures(self, view: dict[str, Any], provider: BilledProvider) -> list[str]:
        """What must hold for any key, whatever happened."""
        spent, reserved = view["spent_micro_usd"], view["reserved_micro_usd"]
        bill = [row for row in provider.bill.values() if row.id.rpartition("-")[0] == self.name]
        billed = sum(row.micro_usd > 0 for row in bill)  # a request that was refused is free
        promises = {
            f"its budget is {view['budget_micro_usd']}": view["budget_micro_usd"] == self.budget_micro_usd,
            f"{spent} spent and {reserved} reserved of {self.budget_micro_usd}": spent + reserved
            <= self.budget_micro_usd,
            f"{view['calls']} calls are charged, {self.attempts} were asked for": view["calls"] <= self.attempts,
            f"{view['calls']} calls are charged, {billed} are on the bill": view["calls"] >= billed,
            "a call was made more often than its retries allow": all(row.tries <= 2 for row in bill),
        }
        return [f"{self.name}: {promise}" for promise, is_kept in promises.items() if not is_kept]


class SteadyLedger(KeyLedger):
    """Every call costs the same: `micro_usd` with its usage, `reserved` where a kill left it in doubt."""

    def __init__(self, name: str, secret: str, budget_micro_usd: int) -> None:
        super().__init__(name, secret, budget_micro_usd)
        self.reserved = 0
        self.in_doubt = 0

    def failures(self, view: dict[str, Any], provider: BilledProvider) -> list[str]:
        micro_usd = cost_of(TOKENS_IN, provider.tokens_out)
        spent, calls, lost = view["spent_micro_usd"], view["calls"], self.attempts - self.whole
        self.in_doubt, rest = divmod(spent - calls * micro_usd, self.reserved - micro_usd)
        promises = {
            f"{calls} calls are charged, {self.whole} were answered": calls >= self.whole,
            f"{spent} is no sum of {micro_usd} and {self.reserved}": rest == 0,
            f"{self.in_doubt} are charged as in doubt, {lost} were cut off": 0 <= self.in_doubt <= lost,
            f"{view['reserved_micro_usd']} is still reserved": view["reserved_micro_usd"] == 0,
        }
        failures = [f"{self.name}: {promise}" for promise, is_kept in promises.items() if not is_kept]
        return failures + self.common_failures(view, provider)


class RestlessLedger(KeyLedger):
    """`settled` is what it had spent when its server was gone; nothing is added afterwards."""

    def __init__(self, name: str, secret: str, budget_micro_usd: int) -> None:
        super().__init__(name, secret, budget_micro_usd)
        self.settled: int | None = None
        self.seen = 0
        self.refused = 0

    def note(self, outcome: Outcome) -> None:
        super().note(outcome)
        self.refused += outcome.is_over_budget

    def watch(self, view: dict[str, Any]) -> None:
        """Look at the key while its calls are in flight."""
        spent, reserved = view["spent_micro_usd"], view["reserved_micro_usd"]
        if spent + reserved > self.budget_micro_usd and not self.problems:
            self.problems.append(f"{self.name}: {spent} spent, {reserved} reserved of {self.budget_micro_usd}")
        if spent < self.seen:
            self.problems.append(f"{self.name}: {spent} spent, {self.seen} spent before")
        self.seen = spent

    def failures(self, view: dict[str, Any], provider: BilledProvider) -> list[str]:
        spent = view["spent_micro_usd"]
        rows = [row for row in provider.bill.values() if row.id.rpartition("-")[0] == self.name]
        billed = sum(row.micro_usd for row in rows)
        if self.settled is None:
            self.settled = spent
        promises = {
            f"{spent} is spent, the provider bills {billed}": spent >= billed,
            f"the provider bills {billed}, the budget is {self.budget_micro_usd}": billed <= self.budget_micro_usd,
            f"{spent} is spent, {self.settled} was before": spent == self.settled,
            f"{spent} is spent, {self.seen} was seen": spent >= self.seen,
            f"{view['reserved_micro_usd']} is still reserved": view["reserved_micro_usd"] == 0,
        }
        failures = [f"{self.name}: {promise}" for promise, is_kept in promises.items() if not is_kept]
        return failures + self.common_failures(view, provider)
