"""Glob and Grep: the same answers with ripgrep and without, bounded, and beside the loop."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lyra.errors import ToolError
from lyra.tools.builtin import Workspace, search_worker
from lyra.tools.builtin.search import AT_ONCE, search_tools
from lyra.tools.builtin.search_worker import glob_regex
from tests.limits import within
from tests.tools.builtin.conftest import Tools

needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="needs ripgrep")

FILES = {
    "a.py": b"import os\n\ndef one():\n    return 1\n",
    "b.py": b"def two():\n    return one() + 1\n# ONE\n",
    "src/c.ts": b"const one = 1;\r\nfunction two() {\r\n  return one;\r\n}\r\n",
    "src/deep/d.md": "Größe one\n\nzwei (one) [x] {y}\n".encode(),
    "src/deep/e.txt": b"no newline one",
    "src/latin.txt": b"caf\xe9 one\n",
    "src/utf16.txt": "\ufeffone in utf-16\n".encode("utf-16-le"),
    "src/bom.txt": b"\xef\xbb\xbfone with a mark\n",
    "src/binary.bin": b"one\n\0\n",
    "src/late.bin": b"one\n" * 5_000 + b"\0\n",
    ".hidden/f.py": b"one = 1\n",
    "node_modules/x/g.py": b"one = 1\n",
    ".git/config": b"one\n",
    "sub/.venv/h.py": b"one\n",
    "name with space.py": b"one\n",
    "empty.py": b"",
}


def fill(root) -> None:
    for number, (name, data) in enumerate(FILES.items()):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        os.utime(file, (1_000_000 + number, 1_000_000 + number))


@pytest.fixture
def tree(tools):
    fill(tools.root)
    return tools


def grep(root, *, ripgrep: bool, **arguments) -> str:
    run = {tool.name: tool for tool in search_tools(Workspace(str(root)), ripgrep=ripgrep)}["Grep"].run
    assert run is not None
    try:
        return str(asyncio.run(run(**arguments)))
    except ToolError as error:
        return f"error: {error.reason}"


def grep_of(tools, **options) -> Any:
    return {tool.name: tool for tool in search_tools(tools.workspace, ripgrep=False, **options)}["Grep"].run


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["name with space.py", "empty.py", ".hidden/f.py", "b.py", "a.py"]),
        ("src/**/*.md", ["src/deep/d.md"]),
        ("src/*.ts", ["src/c.ts"]),
        ("**/*.{ts,md}", ["src/deep/d.md", "src/c.ts"]),
        ("[ab].py", ["b.py", "a.py"]),
        ("[!a].py", ["f.py", "b.py"]),
        ("?.md", ["src/deep/d.md"]),
        ("src/deep/*", ["src/deep/e.txt", "src/deep/d.md"]),
        ("deep/**", []),
    ],
)
def test_glob_newest_first(tree, pattern: str, expected: list[str]):
    """Folders of tools and dependencies are passed over; hidden files are files."""
    names = tree.Glob(pattern=pattern).split("\n")
    order = sorted(FILES, key=list(FILES).index, reverse=True)
    wanted = [name for name in order if name in expected] if pattern != "[!a].py" else [".hidden/f.py", "b.py"]
    assert names == (wanted or ["no file has such a name"])


@pytest.mark.timed
def test_a_pattern_of_many_any_folders_takes_no_longer():
    """`**/` five hundred times is `**/` once, for a path two hundred folders deep as well."""
    pattern = re.compile(glob_regex("**/" * 500 + "x"))
    began = time.thread_time()
    assert pattern.fullmatch("d/" * 200 + "y") is None
    assert pattern.fullmatch("d/" * 200 + "x")
    within(time.thread_time() - began, 1)


def test_glob_in_a_folder(tree):
    assert tree.Glob(pattern="*.txt", path="src/deep") == "src/deep/e.txt"
    assert tree.refused("Glob", pattern="*", path="a.py").reason == "not_a_folder"
    assert tree.refused("Glob", pattern="*", path="gone").reason == "not_found"
    assert tree.refused("Glob", pattern="*", path="..").reason == "permission_denied"
    assert tree.refused("Glob", pattern="").reason == "invalid_arguments"


def test_grep_modes(tree):
    """Paths, lines with numbers and context, counts."""
    assert tree.Grep(pattern="def (one|two)").split("\n") == ["a.py", "b.py"]
    assert tree.Grep(pattern="return", glob="*.py", output_mode="content") == (
        "a.py:4:    return 1\nb.py:2:    return one() + 1"
    )
    assert tree.Grep(pattern="return", path="b.py", output_mode="content", context=1) == (
        "b.py-1-def two():\nb.py:2:    return one() + 1\nb.py-3-# ONE"
    )
    assert tree.Grep(pattern="one", type="py", ignore_case=True, output_mode="count") == (
        ".hidden/f.py:1\na.py:1\nb.py:2\nname with space.py:1"
    )
    assert tree.Grep(pattern="return", type="ts", output_mode="content", line_numbers=False) == "src/c.ts:  return one;"
    assert tree.Grep(pattern="nothing like it") == "nothing matches"
    assert tree.Grep(pattern=r"def two.*?one", multiline=True, output_mode="content").startswith("b.py:1:def two():")


def test_grep_pages(tree):
    """`head_limit` rows from `offset`, and how to go on."""
    first = tree.Grep(pattern="one", head_limit=2)
    assert first.endswith("… there is more; go on with offset=2")
    rest = tree.Grep(pattern="one", offset=2)
    assert set(first.split("\n")[:2]).isdisjoint(rest.split("\n"))


def test_wrong_searches_say_so(tree):
    for wrong in ({"pattern": "("}, {"pattern": "one", "type": "pyy"}, {"pattern": "one", "before": -1}):
        assert tree.refused("Grep", **wrong).reason == "invalid_arguments"
    assert tree.refused("Grep", pattern="one", path="/etc").reason == "permission_denied"
    assert tree.refused("Grep", pattern="one", head_limit=0).reason == "invalid_arguments"


def test_hidden_files_stay_hidden(tmp_path):
    """Neither names nor lines of what may not be read."""
    fill(tmp_path)
    tools = Tools(tmp_path, hidden=lambda path: path.endswith("b.py"))
    assert "b.py" not in tools.Grep(pattern="def")
    assert "b.py" not in tools.Grep(pattern="def", output_mode="content")
    assert "b.py" not in tools.Glob(pattern="*.py")


def test_links_are_not_followed(tree, tmp_path):
    """Not out of the workspace, and not in a circle."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "s.py").write_text("one\n")
    (tree.root / "link").symlink_to(tmp_path / "outside")
    (tree.root / "circle").symlink_to(tree.root)
    (tree.root / "s.py").symlink_to(tmp_path / "outside" / "s.py")
    assert "link" not in tree.Glob(pattern="**/*.py")
    assert "s.py" not in tree.Grep(pattern="one", glob="s.py")


SAME = [
    {"pattern": "one"},
    {"pattern": "one", "output_mode": "count"},
    {"pattern": "one", "output_mode": "content", "context": 2},
    {"pattern": "ONE", "ignore_case": True, "output_mode": "content"},
    {"pattern": "^one", "output_mode": "content"},
    {"pattern": "one$", "output_mode": "content"},
    {"pattern": r"\bone\b.*1", "output_mode": "content"},
    {"pattern": r"\w+ö\w+", "output_mode": "content"},
    {"pattern": "one.*two", "multiline": True, "output_mode": "content"},
    {"pattern": r"def \w+\(\):\n", "multiline": True, "output_mode": "count"},
    {"pattern": "^", "output_mode": "count"},
    {"pattern": "(?<=def )one", "output_mode": "content"},
    {"pattern": r"(o)n\1?", "output_mode": "content"},
    {"pattern": "{y}", "output_mode": "content"},
    {"pattern": "(?i)ONE", "glob": "src/**/*.txt"},
    {"pattern": "one", "glob": "*.{py,ts}", "output_mode": "count"},
    {"pattern": "one", "type": "py", "glob": "a*"},
    {"pattern": "one", "path": "src/deep", "output_mode": "content"},
    {"pattern": "one", "path": "src/binary.bin"},
    {"pattern": "one", "path": "src/late.bin"},
    {"pattern": "[[:alpha:]]{4}", "output_mode": "content"},
    {"pattern": "[^[:alpha:][:space:]]", "output_mode": "content"},
    {"pattern": r"[[:punct:]\]x-]+$", "output_mode": "content"},
    {"pattern": r"[]o[:digit:]]", "output_mode": "count"},
    {"pattern": r"one\z", "output_mode": "content"},
    {"pattern": "caf.", "output_mode": "content"},
    {"pattern": "caf.*", "output_mode": "content"},
    {"pattern": "f.o", "multiline": True, "output_mode": "content"},
    {"pattern": "("},
    {"pattern": r"return\s+one", "output_mode": "content"},
    {"pattern": r"[^a-z]one", "output_mode": "content"},
]


@needs_ripgrep
@pytest.mark.parametrize("arguments", SAME, ids=lambda arguments: " ".join(map(str, arguments.values())))
def test_the_same_with_and_without_ripgrep(tree, arguments):
    assert grep(tree.root, ripgrep=True, **arguments) == grep(tree.root, ripgrep=False, **arguments)


@needs_ripgrep
@pytest.mark.parametrize("name", search_worker._CLASSES)
def test_each_class_of_characters_is_the_same(tools, name):
    """One file for each character up to Latin-1, and some beyond."""
    for code in (*range(1, 256), 0x17F, 0x212A, 0x663, 0x2028):
        (tools.root / str(code)).write_text(f"{chr(code)}\n", newline="")
    outputs = [grep(tools.root, ripgrep=ripgrep, pattern=f"^[[:{name}:]]") for ripgrep in (True, False)]
    assert outputs[0] == outputs[1]
    assert "nothing" not in outputs[0]


@pytest.mark.parametrize("pattern", ["[[a]]", "[a&&b]", "[a--b]", "[[:^alpha:]]", "[[:nothing:]]"])
def test_what_only_ripgrep_can_read_is_an_error_without_it(tree, pattern):
    """Never another answer: Python reads them otherwise."""
    assert grep(tree.root, ripgrep=False, pattern=pattern) == "error: invalid_arguments"


@needs_ripgrep
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text("ab \n\r\té", max_size=30), min_size=1, max_size=4),
    pattern=st.sampled_from(("a", "a+b", "^a", "b$", "[^a]b", r"\s", "é", "a|b", r"\ba", "a.b", "")).filter(bool),
    options=st.fixed_dictionaries(
        {
            "ignore_case": st.booleans(),
            "multiline": st.booleans(),
            "context": st.integers(0, 2),
            "output_mode": st.sampled_from(("content", "count", "files_with_matches")),
        }
    ),
)
def test_the_same_on_any_text(tmp_path_factory, texts, pattern, options):
    root = tmp_path_factory.mktemp("texts")
    for number, text in enumerate(texts):
        (root / f"{number}.txt").write_bytes(text.encode())
    with_it = grep(root, ripgrep=True, pattern=pattern, **options)
    assert with_it == grep(root, ripgrep=False, pattern=pattern, **options)


def test_a_search_that_takes_for_ever_is_ended(tools):
    """A pattern that explodes ends with the time, and its process with it."""
    (tools.root / "a").write_text("a" * 40 + "!\n")
    run = grep_of(tools, seconds_max=1.0)
    began = time.monotonic()
    with pytest.raises(ToolError) as caught:
        asyncio.run(run(pattern="(a+)+$"))
    assert caught.value.reason == "timeout"
    assert time.monotonic() - began < 5


def test_a_cancelled_search_leaves_no_process(tools):
    (tools.root / "a").write_text("a" * 40 + "!\n")
    run = grep_of(tools)

    async def scene() -> None:
        async with asyncio.timeout(0.5):
            await run(pattern="(a+)+$")

    with pytest.raises(TimeoutError):
        asyncio.run(scene())


@pytest.mark.timed
@pytest.mark.slow
def test_eight_at_once_leave_the_loop_alone(tools):
    """The loop's lag stays far below what anybody would notice."""
    for folder in range(40):
        (tools.root / f"f{folder}").mkdir()
        for number in range(50):
            (tools.root / f"f{folder}" / f"{number}.py").write_text("def one():\n    return 1\n" * 20)
    run = grep_of(tools)
    lags: list[float] = []

    async def watch() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.002)
            lags.append(time.perf_counter() - began - 0.002)

    async def scene() -> None:
        watcher = asyncio.create_task(watch())
        await asyncio.gather(*(run(pattern="return", output_mode="content") for _ in range(8)))
        watcher.cancel()

    asyncio.run(scene())
    within(sorted(lags)[int(len(lags) * 0.99)], 0.25)  # 50 ms on a machine that does nothing else


def test_searches_start_one_at_a_time_and_only_so_many_run(tree, monkeypatch):
    """Starting a process holds the loop: a turn with many searches must not start them all in one go."""
    real, starts, alive = asyncio.create_subprocess_exec, [0], [0]
    worst = {"starting": 0, "running": 0}

    async def watched(*argv: Any, **options: Any) -> asyncio.subprocess.Process:
        starts[0] += 1
        worst["starting"] = max(worst["starting"], starts[0])
        try:
            process = await real(*argv, **options)
        finally:
            starts[0] -= 1
        alive[0] += 1
        worst["running"] = max(worst["running"], alive[0])
        wait = process.wait

        async def waited() -> int:
            code = await wait()
            alive[0] -= 1
            return code

        monkeypatch.setattr(process, "wait", waited)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    family = search_tools(Workspace(str(tree.root)))
    search = {tool_.name: tool_ for tool_ in family}["Grep"].run
    assert search is not None

    async def many() -> list[Any]:
        return await asyncio.gather(*(search(pattern="def two") for _ in range(3 * AT_ONCE)))

    answers = asyncio.run(many())
    assert set(answers) == {answers[0]}
    assert "b.py" in answers[0]
    assert worst == {"starting": 1, "running": AT_ONCE}
