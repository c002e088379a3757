"""Nodes of folders: versions, dependencies, rights, differences, additions, calls."""

from __future__ import annotations

import inspect
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import CheckError, ConfigError
from lyra.vesper.effects.request import EffectError
from lyra.vesper.nodes import load
from lyra.vesper.repository.folders import (
    Repository,
    capabilities_of,
    cycles_of,
    dependencies_of,
    names_needed,
    repository_around,
)
from lyra.vesper.repository.versions import add, difference
from lyra.vesper.runtime.runtime import Runtime
from tests.vesper.repository.nodes import CALLER, DOUBLE, caller, double, write

FILES = Path(__file__).parents[1] / "files"


def with_input(version: str) -> str:
    return double(version).replace("number: integer", "number: integer\n  other: integer")


def with_output(version: str) -> str:
    return double(version).replace("result: integer", "result: integer\n    more: {type: string, required: false}")


def test_a_bare_id_is_the_highest_version(tmp_path: Path) -> None:
    """By number, not by letter: 10 comes after 9."""
    write(tmp_path, a=double("9"), b=double("10"), c=double("9.3"))
    repository = Repository([tmp_path])
    assert repository.resolve("double").node_id == "double_v10"
    assert repository.resolve("double_v9").node_id == "double_v9"
    assert repository.versions("double") == ["double_v9", "double_v9.3", "double_v10"]
    assert repository.find("double_v8") is None
    with pytest.raises(ConfigError) as caught:
        repository.resolve("double_v8")
    assert "double_v10" in str(caught.value.hint)


def test_the_earlier_folder_counts(tmp_path: Path) -> None:
    first = write(tmp_path / "first", x=double("1", 3))
    second = write(tmp_path / "second", x=double("1", 4), y=double("2"))
    repository = Repository([first, second, tmp_path / "none"])
    assert list(repository.nodes) == ["double_v1", "double_v2"]
    assert repository.resolve("double_v1").file == str(first / "x.vsp")


def test_files_that_are_no_nodes_are_reported(tmp_path: Path) -> None:
    write(tmp_path, good=DOUBLE, wrong="node_id: [\n", other="- a\n- b\n")
    repository = Repository([tmp_path])
    assert list(repository.nodes) == ["double_v1"]
    assert [Path(entry.file).name for entry in repository.broken] == ["other.vsp", "wrong.vsp"]
    write(tmp_path, wrong=double("2"))
    assert "double_v2" not in repository.nodes
    repository.refresh()
    assert "double_v2" in repository.nodes


def test_dependencies_are_followed(tmp_path: Path) -> None:
    """Steps that call, and ids that the metadata declares."""
    declared = CALLER.replace("  description: Calls.", "  description: Calls.\n  dependencies: [helper_v3, httpx]")
    write(tmp_path, a=declared, b=DOUBLE, c=caller("top_v1", "caller"))
    repository = Repository([tmp_path])
    needs = dependencies_of(repository.resolve("top"), repository)
    assert [(row.node, row.needs, row.target, row.called) for row in needs.all] == [
        ("top_v1", "caller", "caller_v1", True),
        ("caller_v1", "double", "double_v1", True),
        ("caller_v1", "helper_v3", None, False),
        ("caller_v1", "httpx", None, False),
    ]
    assert [row.needs for row in needs.direct] == ["caller"]
    assert needs.missing == ("helper_v3", "httpx")
    assert needs.cycles == ()
    assert names_needed(repository.resolve("double")) == {}


def test_circles_are_reported_once(tmp_path: Path) -> None:
    write(tmp_path, a=caller("a_v1", "b"), b=caller("b_v1", "c_v1"), c=caller("c_v1", "a"), d=caller("d_v1", "a"))
    repository = Repository([tmp_path])
    circle = ("a_v1", "b_v1", "c_v1", "a_v1")
    assert cycles_of(repository) == [circle]
    assert dependencies_of(repository.resolve("d"), repository).cycles == (circle,)


def test_a_long_chain_of_nodes_needs_no_deep_stack() -> None:
    """It is longer than the stack is deep."""
    nodes = [load(caller(f"n{index}_v1", f"n{(index + 1) % 300}")) for index in range(300)]
    repository = Repository(nodes=nodes)
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    try:
        (circle,) = cycles_of(repository)
    finally:
        sys.setrecursionlimit(usual)
    assert len(circle) == 301


def test_the_registry_says_which_node_needs_what() -> None:
    needs = capabilities_of(Repository([FILES]))
    assert [name.startswith("payment_handler_v") for name in needs["database.write.users"]] == [True]
    assert list(needs) == sorted(needs)


@pytest.mark.parametrize(
    ("old", "new", "needed", "raised", "is_allowed"),
    [
        (double("1"), double("2"), "none", "major", True),
        (double("1"), double("1.0.1", 3), "patch", "patch", True),
        (double("1"), with_output("1.1"), "minor", "minor", True),
        (double("1"), with_input("1.1"), "major", "minor", False),
        (double("1"), with_input("2"), "major", "major", True),
        (double("2"), double("1"), "none", "none", False),
    ],
)
def test_a_difference_needs_a_part_of_the_version(
    old: str, new: str, needed: str, raised: str, is_allowed: bool
) -> None:
    result = difference(load(old), load(new))
    assert (result.needed, result.raised, result.is_allowed) == (needed, raised, is_allowed)


def test_adding_copies_a_valid_node(tmp_path: Path) -> None:
    """Adding it again changes nothing; another text under the same id is refused."""
    folder = tmp_path / "nodes"
    path = add(load(DOUBLE), folder)
    assert path == folder / "double_v1.vsp"
    assert path.read_text() == DOUBLE
    assert add(load(DOUBLE), folder) == path
    with pytest.raises(ConfigError, match="another text"):
        add(load(double("1", 3)), folder)
    assert [file.name for file in folder.iterdir()] == ["double_v1.vsp"]


def test_a_node_that_is_not_valid_is_not_added(tmp_path: Path) -> None:
    with pytest.raises(CheckError):
        add(load(DOUBLE.replace("number * 2", "nunber * 2")), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_break_under_the_same_major_version_is_refused(tmp_path: Path) -> None:
    """Also when the new file is the older version of the two."""
    stricter = with_input("1.2")
    add(load(DOUBLE), tmp_path)
    with pytest.raises(CheckError, match=r"double_v1\.2 breaks double_v1: "):
        add(load(stricter), tmp_path)
    add(load(stricter.replace("_v1.2", "_v2")), tmp_path)
    add(load(stricter.replace("_v1.2", "_v3.4")), tmp_path)
    with pytest.raises(CheckError, match=r"double_v3\.4 breaks double_v3\.1: "):
        add(load(double("3.1")), tmp_path)
    with pytest.raises(ConfigError, match="same version"):
        add(load(double("1.0.0")), tmp_path)


def call(runtime: Runtime, node_id: str) -> Any:
    """What a step that calls a node is answered with."""
    return runtime._thread.call(
        lambda kernel: runtime._call_node(node_id, {"number": 4}, "key", runtime.grant, frozenset())
    )


def test_a_call_finds_the_nodes_around_a_file(tmp_path: Path) -> None:
    """Siblings before `nodes/`, the highest version of a bare id."""
    write(tmp_path, caller=CALLER, double=double("1"))
    write(tmp_path / "nodes", newer=double("1.5", 10), same=double("1", 3))
    with Runtime(nodes=repository_around(tmp_path / "caller.vsp")) as runtime:
        assert call(runtime, "double") == {"result": 40}
        assert call(runtime, "double_v1") == {"result": 8}
        with pytest.raises(EffectError) as caught:
            call(runtime, "triple")
    assert caught.value.kind == "not_configured"


def test_nodes_can_be_handed_in_without_files() -> None:
    with Runtime(nodes=[load(DOUBLE)]) as runtime:
        assert call(runtime, "double") == {"result": 8}


@pytest.mark.parametrize("mode", ["python_only", "direct_only", "dual_verify"])
def test_a_node_that_calls_another_one_is_answered(tmp_path: Path, mode: str) -> None:
    write(tmp_path, caller=CALLER, double=double("1"))
    with Runtime(nodes=repository_around(tmp_path / "caller.vsp")) as runtime:
        outcome = runtime.execute(load(tmp_path / "caller.vsp"), {"number": 4}, mode)
    assert outcome.outputs == {"answer": 8}


def test_a_runtime_keeps_nodes_in_its_store(tmp_path: Path) -> None:
    """Added once, told as an Event, there after a restart, called by others; another text is refused."""
    store, events = str(tmp_path / "lyra.db"), list[Any]()
    with Runtime(store) as runtime:
        runtime.on_event(events.append, ["vesper.added"])
        assert runtime.add_node(load(DOUBLE))
        assert not runtime.add_node(load(DOUBLE))
        with pytest.raises(ConfigError, match="another text"):
            runtime.add_node(load(double("1", 3)))
        with pytest.raises(CheckError, match="breaks double_v1"):
            runtime.add_node(load(with_input("1.1")))
    assert [(event.kind, event.data["node"]) for event in events] == [("vesper.added", "double_v1")]
    with Runtime(store) as runtime:
        assert list(runtime.stored_nodes().nodes) == ["double_v1"]
        assert runtime.execute(load(CALLER), {"number": 4}).outputs == {"answer": 8}


INSERT = """\
node_id: insert_v1
type: function
intent: insert a row
inputs: {n: integer}
outputs: {success: {ok: boolean}}
security: {capabilities_required: [database.write.rows]}
flow:
  - {step: write, operation: database_write, table: rows, data: {n: "{n}"}}
  - {step: done, operation: return, return_success: {ok: true}}
"""


def test_a_node_that_acts_is_called_with_the_rights_of_its_caller(tmp_path: Path) -> None:
    """It needs no right to start processes: the runtime starts it. Without the right to write it is refused."""
    file = tmp_path / "rows.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE rows (n INTEGER)")
    calling = (
        caller("caller_v1", "insert").replace("reply.result", "reply.ok").replace("answer: integer", "answer: boolean")
    )
    calling = calling.replace("      number:", "      n:")
    for grant, code in ((["database.write.rows"], None), ([], "capability_denied")):
        with Runtime(database=f"sqlite:///{file}", grant=grant, nodes=[load(INSERT)]) as runtime:
            failure = runtime.execute(load(calling), {"number": 4}).error
        assert (None if failure is None else failure.code) == code, failure
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("SELECT n FROM rows").fetchall() == [(4,)]
