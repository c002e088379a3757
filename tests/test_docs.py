"""The documentation is true: its code runs, its commands and tests exist, its links lead somewhere."""

from __future__ import annotations

import linecache
import re
import shlex
from pathlib import Path

import click
import pytest

from lyra import vega, vesper
from lyra.cli.app import root
from lyra.cli.vega.group import vega as vega_command
from lyra.kernel import (
    CommBus,
    InterruptService,
    Kernel,
    LifecycleManager,
    Orchestrator,
    RateLimiter,
    ResourceTracker,
    ServiceRegistry,
    SupervisorHandle,
)
from lyra.kernel.health import HealthMonitor
from lyra.kernel.shared.groups import Groups
from lyra.vega.plain import test_program
from lyra.vesper.check.judge import check_text, program_of
from lyra.vesper.evidence.properties import problems_of
from tests.cases import each

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
_BLOCK = re.compile(r"(?:^<!-- (no-run): [^\n]+-->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VEGA = re.compile(
    r"(?:^<!-- (no-run): [^\n]+-->\n)?^```vega\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """(line, code) of the blocks in one language that are meant to run."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(3)) + 1, match[3])
        for match in _BLOCK.finditer(text)
        if match[2] == language and not match[1]
    ]


@pytest.mark.parametrize("name", [name for name, page in zip(NAMES, PAGES, strict=True) if blocks(page, "python")])
def test_the_code_runs(name, tmp_path, monkeypatch, capsys):
    """The Python blocks of a page run from top to bottom, as one program, and again in the folder that they left."""
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        namespace = {"__name__": "__main__"}
        for line, code in blocks(ROOT / name, "python"):
            # Blank lines in front, so that a traceback shows the page's own line numbers.
            text = "\n" * (line - 1) + code
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)  # for `inspect.getsource`
            exec(compile(text, name, "exec", dont_inherit=True), namespace)
    capsys.readouterr()


@each([name for name, page in zip(NAMES, PAGES, strict=True) if blocks(page, "console")])
def test_the_commands_exist(name):
    """`$ lyra …` and `$ vega …` name a command and options that exist, `$ make …` a target."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for _, text in blocks(ROOT / name, "console"):
        for line in text.splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[0] == "lyra":
                check_command(words[1:])
            elif words[0] == "vega":
                check_command(words[1 : words.index("--") if "--" in words else None], vega_command)
            elif words[0] == "make":
                assert re.search(rf"^{words[1]}:.*## ", makefile, re.MULTILINE), line


def vega_blocks(page: Path) -> list[tuple[int, str, str | None]]:
    """(line, program, what it prints) of the Vega blocks that are meant to run; None where the page does not say."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(2)) + 1, match[2], match[3]) for match in _VEGA.finditer(text) if not match[1]
    ]


@pytest.mark.parametrize("name", [name for name, page in zip(NAMES, PAGES, strict=True) if vega_blocks(page)])
def test_the_vega_programs_run(name, tmp_path):
    """Each Vega block is a program: it checks without a warning, prints what the page says, and its tests pass."""
    for line, source, printed in vega_blocks(ROOT / name):
        place = f"{name}:{line}"
        assert vega.check(source, place) == [], place
        program = vega.compile(source, place)
        lines: list[str] = []
        vega.run(program, model="sim/echo", stdout=lines.append, stderr=lambda _: None, folder=str(tmp_path))
        assert printed is None or lines == printed.splitlines(), place
        for block in program.tests:
            vega.run(test_program(program, block), model="sim/echo", stdout=lines.append, folder=str(tmp_path))


def check_command(words: list[str], command: click.Command = root) -> None:
    context = click.Context(command)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        subcommand = command.get_command(context, words[0])
        assert subcommand is not None, f"there is no command {words[0]}"
        command, words = subcommand, words[1:]
    known = {option for param in command.params for option in param.opts}
    for word in words:
        if word.startswith("-") and word != "-":  # which is a file: stdin
            assert word.partition("=")[0] in known, f"{command.name} has no option {word}"


@each(NAMES)
def test_the_links_lead_somewhere(name):
    """Links inside the repository name files that exist, and headings that are there."""
    page = ROOT / name
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        if heading:
            titles = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {title.lower().replace(" ", "-") for title in titles}, link


@each(NAMES)
def test_the_tests_it_names_exist(name):
    """A promise that points to a test points to one that is there."""
    for path, function in _TEST.findall((ROOT / name).read_text(encoding="utf-8")):
        assert re.search(rf"^(async )?def {function}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (
            function
        )


# The public methods that docs/reference/kernel.md has to list, by their class; `new()` is the row of the class itself.
REQUIRED = {
    "InterruptService": "InterruptService create_interrupt resolve_interrupt get_interrupt get_pending_interrupt "
    "list_interrupts cancel_interrupt expire_old_interrupts get_status has_pending cleanup_process_interrupts",
    "ServiceRegistry": "ServiceRegistry register_service unregister_service register_handler get_service list_services "
    "list_services_by_type update_health can_accept acquire_slot release_slot dispatch get_stats",
    "Orchestrator": "Orchestrator initialize_session get_next_instruction report_agent_result get_session_state "
    "terminate_session cleanup_session evaluate_routing",
    "LifecycleManager": "submit schedule get_next_runnable transition_state terminate get_process list_processes "
    "get_process_counts cleanup_process",
    "ResourceTracker": "record_usage record_tool_call record_agent_hop check_quota get_remaining_budget",
    "RateLimiter": "check_rate_limit",
    "CommBus": "publish send query subscribe",
    "Kernel": "create_interrupt resolve_interrupt get_pending_interrupt register_service unregister_service "
    "register_handler dispatch dispatch_inference initialize_orchestration get_next_instruction report_agent_result "
    "get_orchestration_state record_usage record_tool_call record_agent_hop get_remaining_budget on_event "
    "get_system_status get_request_status cleanup shutdown",
    "Groups": "",
    "HealthMonitor": "",
    "SupervisorHandle": "alive wait which_children count_children start_child terminate_child restart_child "
    "delete_child stop",
}


HOMES: dict[str, type] = {
    home.__name__: home
    for home in (
        *(CommBus, Groups, HealthMonitor, InterruptService, Kernel, LifecycleManager, Orchestrator, RateLimiter),
        *(ResourceTracker, ServiceRegistry, SupervisorHandle),
    )
}


def nodes_of(page: Path) -> list[tuple[int, str]]:
    """(line, text) of the whole nodes of a page."""
    return [block for block in blocks(page, "yaml") if block[1].startswith("node_id:")]


@pytest.mark.parametrize("name", [name for name, page in zip(NAMES, PAGES, strict=True) if nodes_of(page)])
def test_the_nodes_are_valid_and_their_test_cases_hold(name):
    """Without an error or a warning; the cases of nodes that do not act run on both paths."""
    for line, text in nodes_of(ROOT / name):
        issues = [issue for issue in check_text(text, f"{name}:{line}") if issue.severity != "info"]
        assert not issues, (line, issues)
        node = vesper.load(text)
        program = program_of(node)
        for case in node.testing.test_cases if program.pure else ():
            for path in ("python", "direct"):
                outcome = vesper.execute(node, case.inputs, path=path)
                problems = problems_of(case.expected_output, outcome, (*program.success, *program.error))
                assert not problems, (line, case.name, problems)


@pytest.mark.parametrize("part", REQUIRED)
def test_the_kernel_page_is_whole_and_true(part):
    """Each call on the page exists in the code and names a test; each one that is required is on the page."""
    page = (ROOT / "docs/reference/kernel.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {part}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section, part
    rows = [line for line in section[1].splitlines() if line.startswith("| `")]
    calls = {row[3:].partition("`")[0].partition("(")[0]: row for row in rows}
    assert set(REQUIRED[part].split()) <= set(calls)
    for name, row in calls.items():
        assert _TEST.search(row), row
        assert name == part or hasattr(HOMES[part], name), f"{part} has no {name}"


def test_every_page_is_in_the_index():
    """docs/README.md leads to every page."""
    linked = {(ROOT / "docs" / link).resolve() for link in _LINK.findall((ROOT / "docs/README.md").read_text())}
    assert {page for page in PAGES if page.parent.parent == ROOT / "docs"} <= linked


_PATH = re.compile(r"`((?:[a-z_][a-z0-9_]*/)+(?:[a-z_]+(?:\.py|\.md)?)?)`")


def test_the_files_that_the_architecture_names_exist():
    """A path in backquotes is one of the repository, or of `src/lyra`."""
    paths = _PATH.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists() and not (ROOT / "src/lyra" / path).exists()] == []


def test_the_architecture_draws_every_folder():
    """Each folder of `src/lyra` has its line in the tree of ARCHITECTURE.md, or stands in the line of its parent."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tree = text.partition("    src/lyra/\n")[2].partition("\n    tests/")[0]
    folders = {path.parent.name for path in (ROOT / "src/lyra").rglob("__init__.py")} - {"lyra"}
    assert set(re.findall(r"([a-z][a-z0-9_]*)/", tree)) == folders
