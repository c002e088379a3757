"""Real hosts that are parted, killed and frozen: what clients saw could have been, and nothing is lost."""

from __future__ import annotations

import pytest

from verify.partitions.namespaces import partitions_missing
from verify.partitions.run import run

missing = partitions_missing()
pytestmark = pytest.mark.skipif(missing is not None, reason=missing or "")


def _judge(outcome) -> None:
    assert not outcome.failures, "\n".join([*outcome.troubles, *outcome.failures])
    assert sum(op.ended is not None for op in outcome.questions) > 10
    assert len(outcome.received) > 20
    assert len(outcome.fired) > 3
    assert outcome.payments > 5


@pytest.mark.slow
def test_a_host_parted_from_the_database_and_two_from_each_other(tmp_path):
    """Answers of a register, messages of a sender, firings and payments agree with one order of all that happened."""
    _judge(run(tmp_path, seed=1, troubles=2))


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
def test_partitions_kills_and_freezes_one_after_the_other(seed, tmp_path):
    """The same through a dozen troubles."""
    _judge(run(tmp_path, seed=seed, troubles=12))
