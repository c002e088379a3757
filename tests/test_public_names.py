"""The public names: what `from lyra import …` gives, and what `import lyra` costs."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import types

import pytest

import lyra
from tests.cases import each
from tests.limits import within

NAMES = {
    "Agent",
    "AgentExecution",
    "AgentProcess",
    "AgentState",
    "Backoff",
    "Budget",
    "Capability",
    "Charged",
    "CircuitBreaker",
    "Config",
    "Context",
    "Effect",
    "Event",
    "Exit",
    "Grant",
    "Image",
    "Kernel",
    "LLMClient",
    "LLMProvider",
    "LyraError",
    "Memory",
    "Message",
    "Money",
    "Policy",
    "RateLimit",
    "Reply",
    "Retry",
    "SageAgentSDK",
    "Stream",
    "Supervision",
    "Timeouts",
    "Tool",
    "ToolCall",
    "ToolRegistry",
    "ToolResult",
    "Usage",
    "__version__",
    "batch",
    "budget",
    "connect",
    "delegate",
    "effect",
    "errors",
    "fan_in",
    "fan_out",
    "map_reduce",
    "parallel",
    "pipeline",
    "router",
    "run",
    "stream",
    "team",
    "tool",
}


def test_the_public_names_are_these():
    """Adding a name is a decision; losing one breaks a user's program."""
    assert set(lyra.__all__) == NAMES
    assert set(" ".join(lyra._HOMES.values()).split()) == NAMES - {"__version__"}
    assert set(dir(lyra)) >= NAMES


@each(sorted(NAMES))
def test_every_public_name_is_there(name):
    """Each name resolves, and the second look gives the same object."""
    first = getattr(lyra, name)
    assert first is getattr(lyra, name)
    assert isinstance(first, (str, types.ModuleType)) or callable(first)


DOCUMENT_NAMES = {
    "lyra.agents": ("Agent", "AgentExecution", "AgentState"),
    "lyra.tools": ("Tool", "ToolCall", "ToolResult", "ToolRegistry"),
    "lyra.models": ("LLMClient", "LLMProvider", "Message"),
    "lyra.config": ("Config",),
}


@pytest.mark.parametrize("package", DOCUMENT_NAMES)
def test_names_are_where_a_user_would_look(package):
    """In the package of their kind, and the same objects as in `lyra`."""
    module = importlib.import_module(package)
    for name in DOCUMENT_NAMES[package]:
        assert getattr(module, name) is getattr(lyra, name)


# Documented import paths below the packages: `module: names`. Those that moved are kept by `lyra._imports`.
DOCUMENTED_PATHS = {
    "lyra.agents.headless": ("Headless", "HeadlessOptions"),
    "lyra.agents.task": ("task_tool",),
    "lyra.core.capability": ("Capability", "Grant", "VERBS"),
    "lyra.core.envelope": ("Envelope",),
    "lyra.core.event": ("KINDS", "Event"),
    "lyra.core.faultpoint": ("POINTS",),
    "lyra.core.limits": (),
    "lyra.core.program_options": (),
    "lyra.core.schema": (),
    "lyra.errors": ("CODES", "LyraError"),
    "lyra.kernel": ("BusMessage", "Child", "Kernel", "ServiceRequest", "ServiceResponse"),
    "lyra.kernel.pipeline_files": ("load_file",),
    "lyra.mcp": ("McpServers",),
    "lyra.models": (
        "Finished",
        "LLMClient",
        "LLMProvider",
        "Message",
        "Request",
        "Started",
        "TextDelta",
        "settings_of",
    ),
    "lyra.models.provider": ("LLMProvider",),
    "lyra.models.script": ("Reply", "Script", "ScriptedError"),
    "lyra.models.sim": ("SimProvider",),
    "lyra.observe": ("Spans", "SqliteRecords", "attach_audit", "observe", "verify"),
    "lyra.observe.audit": (),
    "lyra.sandbox": ("Beneath", "Limits", "Profile", "Sandbox"),
    "lyra.sandbox.protected": (),
    "lyra.store": ("open_store",),
    "lyra.store.memory": ("MemoryStore",),
    "lyra.testing": ("MockServer", "SimClock", "StoreConformance", "record", "run_in_virtual_time"),
    "lyra.testing.clock": ("SimClock",),
    "lyra.testing.conformance": ("StoreConformance",),
    "lyra.testing.loop": ("run",),
    "lyra.tools": ("DynamicTools", "Tool", "ToolCall", "ToolRegistry", "ToolResult", "tool"),
    "lyra.tools.builtin": ("builtin_tools",),
    "lyra.tools.layers": ("pure",),
    "lyra.tools.middleware": ("cache", "logging", "rate_limit", "redact", "retry", "timeout", "truncate"),
    "lyra.tools.permissions": ("Layer", "Permissions", "permissions_of", "subject_of"),
    "lyra.tools.permissions.answers": ("Answers",),
    "lyra.vega": ("Program", "VegaError", "check", "compile", "format_source", "parse", "run"),
    "lyra.vega.runs": ("Runs",),
    "lyra.vega.runtime.picture": ("Picture",),
}


_IMPORTING = """\
import json, os, sys, traceback

paths = json.load(sys.stdin)
for name in paths.pop(""):  # of the standard library: what all of them begin with
    __import__(name)
for path, names in paths.items():
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        print(json.dumps([path, status]), flush=True)
        continue
    try:
        exec(f"import {path} as module\\nfor name in {names!r}: getattr(module, name)")
        exec(f"from {path} import {', '.join(names)}" if names else "")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def imported() -> tuple[dict[str, int], str]:
    """Import each documented path in a process of its own, so that no other import has made it first."""
    given = {"": sorted(sys.stdlib_module_names & sys.modules.keys()), **DOCUMENTED_PATHS}
    command = [sys.executable, "-c", _IMPORTING]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=False)
    return dict(map(json.loads, done.stdout.splitlines())), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", DOCUMENTED_PATHS)
def test_every_documented_path_is_importable(path, imported):
    """In a process without Lyra; and it has the documented names."""
    statuses, told = imported
    assert statuses[path] == 0, told


def test_an_old_path_is_the_module_of_today():
    """Not a copy: a class imported from either path is the same class."""
    for old, home in lyra._imports.HOMES.items():
        assert importlib.import_module(old) is importlib.import_module(home)


def test_an_unknown_name_is_an_attribute_error():
    """As for any module."""
    with pytest.raises(AttributeError, match="Kernle"):
        lyra.Kernle  # type: ignore[attr-defined]  # noqa: B018 - the look-up is the test


def test_every_error_is_in_lyra_errors():
    """One tree, one module: every subclass of LyraError that leaves its module is listed there."""
    todo, names = [lyra.LyraError], set()
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        if cls.__module__.startswith("lyra") and not cls.__name__.startswith("_"):  # caught inside its own module
            names.add(cls.__name__)
    assert names <= set(lyra.errors.__all__)


_PROBE = """
import sys, time
before = time.process_time()
import lyra
spent = time.process_time() - before
heavy = {"asyncio", "msgspec", "sqlite3", "click", "rich", "typing", "lyra.kernel"} & set(sys.modules)
print(spent, time.process_time(), *sorted(heavy))
"""


@pytest.mark.timed
def test_import_lyra_is_cheap():
    """`import lyra` takes at most 60 ms of CPU, interpreter included, and loads nothing heavy."""
    best_total, best_import, heavy = 9.0, 9.0, []
    for _ in range(5):  # the least of five: other work on the machine only ever adds
        command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{_PROBE}"]
        words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        best_import, best_total = min(best_import, float(words[0])), min(best_total, float(words[1]))
        heavy = words[2:]
    assert heavy == []
    within(best_import, 0.010)
    within(best_total, 0.060)


OLD_NAMES = {
    "lyra.config": ("AgentConfig", "Cell", "Key", "Origin", "Row", "Table"),
    "lyra.tools.dynamic": ("Around", "DynamicTools", "Mistake", "read_tools"),
    "lyra.tools.permissions": ("Decision",),
}


@pytest.mark.parametrize("package", OLD_NAMES)
def test_names_that_were_public_once_stay(package):
    """Each old name gives the class of today, and a name that never was gives the usual error."""
    module = importlib.import_module(package)
    for name in OLD_NAMES[package]:
        assert getattr(module, name).__module__.startswith("lyra.")
    with pytest.raises(AttributeError, match="no attribute 'Never'"):
        module.Never  # noqa: B018 - reading it is the test
