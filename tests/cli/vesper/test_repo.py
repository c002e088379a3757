"""`vesper repo`, and `vesper run` with calls of other nodes."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Lyra
from tests.cli.vesper.command import VesperCommand
from tests.vesper.repository.nodes import CALLER, DOUBLE, caller, double, write


@pytest.fixture
def vesper(lyra: Lyra) -> VesperCommand:
    return VesperCommand(lyra)


def test_list_shows_nodes_and_broken_files(vesper: VesperCommand) -> None:
    write(vesper.folder, wrong="- a\n")
    write(vesper.folder / "nodes", a=DOUBLE, b=double("2"))
    data = vesper.json("repo", "list")
    assert [(row["node_id"], row["is_highest"]) for row in data["nodes"]] == [("double_v1", False), ("double_v2", True)]
    assert [entry["file"] for entry in data["broken"]] == ["wrong.vsp"]
    done = vesper("repo", "list", "-d", "nodes")
    assert done.returncode == 0
    assert "double_v2" in done.stdout
    assert vesper("repo", "list", "-d", "none").returncode == 2


def test_add_refuses_what_breaks(vesper: VesperCommand) -> None:
    stricter = double("1.2").replace("number: integer", "number: integer\n  other: integer")
    write(vesper.folder, a=DOUBLE, b=stricter)
    assert vesper.json("repo", "add", "a.vsp")["added"] == [{"node_id": "double_v1", "file": "nodes/double_v1.vsp"}]
    done = vesper("repo", "add", "b.vsp")
    assert done.returncode == 2
    assert "double_v1.2 breaks double_v1" in done.stderr
    assert [file.name for file in (vesper.folder / "nodes").iterdir()] == ["double_v1.vsp"]


def test_deps_reports_missing_nodes_and_circles(vesper: VesperCommand) -> None:
    write(vesper.folder, caller=CALLER, a=caller("a_v1", "b"), b=caller("b_v1", "a"))
    data = vesper.json("repo", "deps", "caller.vsp", code=1)
    assert data["missing"] == ["double"]
    assert vesper.json("repo", "deps", "a", code=1)["cycles"] == [["a_v1", "b_v1", "a_v1"]]
    write(vesper.folder / "nodes", double=DOUBLE)
    data = vesper.json("repo", "deps", "caller")
    assert data["dependencies"] == [{"node": "caller_v1", "needs": "double", "target": "double_v1", "called": True}]
    assert "double_v1" in vesper("repo", "deps", "caller").stdout


def test_diff_says_which_part_must_be_raised(vesper: VesperCommand) -> None:
    write(vesper.folder, a=DOUBLE, b=double("1.1").replace("number: integer", "number: integer\n  other: integer"))
    data = vesper.json("repo", "diff", "double_v1", "b.vsp", code=1)
    assert (data["needed"], data["raised"], data["allowed"]) == ("major", "minor", False)
    assert [change["code"] for change in data["changes"]] == ["added_input"]
    assert vesper("repo", "diff", "a.vsp", "b.vsp").returncode == 1


def test_capabilities_names_the_nodes(vesper: VesperCommand) -> None:
    text = DOUBLE + "\nsecurity:\n  capabilities_required: [database.read.users]\n"
    write(vesper.folder, a=text)
    assert vesper.json("repo", "capabilities") == {"capabilities": {"database.read.users": ["double_v1"]}}


def test_run_finds_siblings_and_the_nodes_folder(vesper: VesperCommand) -> None:
    write(vesper.folder / "app", caller=CALLER)
    write(vesper.folder / "nodes", double=double("3", 5))
    assert vesper.json("run", "app/caller.vsp", "-i", "number=4")["outputs"] == {"answer": 20}
    write(vesper.folder / "app", double=double("4", 7))
    assert vesper.json("run", "app/caller.vsp", "-i", "number=4")["outputs"] == {"answer": 28}
