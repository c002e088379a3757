"""Which tests are slow by their nature (servers, sandboxes, whole programs by the dozen), and which take the time.

`timed` tests run alone, after the others, and a limit that is missed (`tests.limits`) is measured again: whatever else
a machine does only ever adds to a time, so that one within its limit is shown, and one beyond it only when it always
is. No other failure is tried again.
"""

from __future__ import annotations

import gc
import json
import os
import signal
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from tests.cases import cases
from tests.limits import LimitMissed
from verify.home import use_own_home

_HERE = Path(__file__).parent

use_own_home()

pytest_plugins = [
    "tests.memory_folders",
    "tests.own_stores",
    "tests.worker_reports",
    "tests.endless",
    "tests.log_handlers",
    "tests.real_models",
]

# A shell that starts the tests in the background ignores these signals, and so would the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Reading the tests makes objects that stay: a garbage collection would go through them again and again for nothing.
gc.disable()

_MEASURED = 3  # times, at most

# How long an example takes beside other tests says nothing; what takes the time is marked so.
settings.register_profile("lyra", deadline=None, max_examples=cases(100))
settings.load_profile("lyra")

# Files and folders below tests/; `make check` leaves them out, `make test` runs them all.
_SLOW = (
    "agents/",
    "browser/",
    "cli/commands/test_agent",
    "cli/commands/test_mcp.py",
    "cli/demo/test_demo.py",
    "cli/vega/",
    "kept_stores/",
    "language/",
    "mcp/",
    "models/",
    "sandbox/",
    "store/test_postgres.py",
    "test_agent_examples.py",
    "test_benchmarks.py",
    "test_examples.py",
    "test_limits.py",
    "test_skips.py",
    "test_surface.py",
    "test_worker_reports.py",
    "testing/",
    "tools/builtin/",
    "tools/permissions/test_bash.py",
    "tools/permissions/test_fuzz.py",
    "type_checkers/",
    "vega/",
    "verify/",
)
_QUICK = (
    "agents/session/test_execution.py",
    "agents/test_teams.py",
    "agents/declaration/test_input.py",
    "models/wire/test_faults.py",
    "models/wire/test_sse.py",
    "models/test_names.py",
    "models/test_pricing.py",
    "models/test_script.py",
    "models/test_sim.py",
    "models/test_tokens.py",
    "vega/checker/",
    "vega/syntax/test_lexer.py",
    "vega/syntax/test_parser.py",
    "vega/values/test_values.py",
    "vega/machine/test_vm.py",
)
# Tests that take the longest, by how their ids begin; they run first, so that no worker is left alone with one of them.
_LONG = (
    "tests/verify/simulation/test_sim.py",
    "tests/verify/crash/",
    "tests/agents/parallel/test_parallel.py::test_random",
    "tests/agents/test_start_and_memory.py",
    "tests/vega/plan/test_parallel_random.py",
    "tests/vega/machine/test_pure_code.py",
    "tests/vega/bytecode/test_file_fuzz.py",
    "tests/verify/attacks/",
    "tests/vesper/python/test_generated_files.py::test_every_",
    "tests/vesper/runtime/test_crash.py",
    "tests/test_surface.py",
    "tests/type_checkers/",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two for each processor, since many tests wait for a server, a kill or a clock; of the quick ones fewer do."""
    processors = os.cpu_count() or 1
    return max(1, processors * 3 // 2) if _is_quick_part(config) else processors * 2


def _is_quick_part(config: pytest.Config) -> bool:
    return bool(config.option.markexpr.startswith("not slow"))


@cache
def _is_slow(path: Path) -> bool:
    place = path.relative_to(_HERE).as_posix() if path.is_relative_to(_HERE) else ""
    return place.startswith(_SLOW) and not place.startswith(_QUICK)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make check` does not read the files that it leaves out."""
    if not _is_quick_part(config):
        return None
    return True if collection_path.is_file() and _is_slow(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("timed"):
            item.add_marker(pytest.mark.flaky(reruns=_MEASURED - 1, only_rerun=[f"^{LimitMissed.__name__}:"]))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith(_LONG))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fifteen thousand tests are not garbage: no collection need look at them. A worker, which imports more than any
    program of a user does and takes no time, looks at the rest less often: a collection of all takes a quarter of a
    second."""
    gc.collect()
    gc.freeze()
    if hasattr(session.config, "workerinput"):
        gc.set_threshold(10_000, 20, 10)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped goes to the file of the whole run, where there is one: `tests.skips` reads it."""
    path = os.environ.get("LYRA_TESTS_SKIPS")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            for report in terminalreporter.stats.get("skipped", ()):
                reason = report.longrepr[2].removeprefix("Skipped: ")
                file.write(json.dumps([report.nodeid, reason]) + "\n")
