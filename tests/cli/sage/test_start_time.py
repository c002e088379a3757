"""What `sage` costs until it asks the model or the user. Real processes, a server on the loopback, bytecode compiled.

CPU times get slack for a busy machine (`LYRA_STARTUP_SLACK`, 2 unless set).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.first_token import children, server
from benchmarks.sage import Arrival, to_prompt, to_request

from tests.limits import best_within

SLACK = float(os.environ.get("LYRA_STARTUP_SLACK", "2"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timed,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CPU is read from /proc"),
]

arrival = Arrival()


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a child, its bytecode compiled."""
    with server(arrived=arrival) as url, children(url) as variables:
        folder = str(tmp_path_factory.mktemp("data"))
        env = {**variables, "XDG_DATA_HOME": folder}
        to_request(arrival, env, folder)
        yield env


def test_from_the_start_of_a_process_to_the_request(env: dict[str, str], tmp_path: Path) -> None:
    """`sage -p`: at most 0.5 s of CPU."""

    def measure() -> float:
        used_ms = to_request(arrival, env, str(tmp_path))
        assert used_ms > 0
        return used_ms

    best_within(measure, 500 * SLACK, tries=3)


def test_from_the_start_of_a_process_to_the_prompt(env: dict[str, str], tmp_path: Path) -> None:
    """`sage` in a terminal: at most 0.7 s of CPU."""
    to_prompt(env, str(tmp_path))
    best_within(lambda: to_prompt(env, str(tmp_path)), 700 * SLACK, tries=3)
