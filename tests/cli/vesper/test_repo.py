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


def test_the_folder_is_named_in_two_ways(vesper: VesperCommand) -> None:
    write(vesper.folder / "app", caller=CALLER, double=DOUBLE + "\nsecurity:\n  capabilities_required: [audit.read]\n")
    write(vesper.folder, new=double("2"))
    for number, flag in enumerate(("-d", "--folder")):
        named = (flag, "app")
        assert len(vesper.json("repo", "list", *named)["nodes"]) == 2
        assert vesper.json("repo", "deps", "caller", *named)["missing"] == []
        assert vesper.json("repo", "diff", "double_v1", "new.vsp", *named)["needed"] == "patch"
        assert vesper.json("repo", "capabilities", *named)["capabilities"] == {"audit.read": ["double_v1"]}
        target = f"other{number}"
        assert vesper("repo", "add", "new.vsp", flag, target).returncode == 0
        assert (vesper.folder / target / "double_v2.vsp").is_file()
    assert vesper.json("repo", "list")["nodes"][0]["node_id"] == "double_v2"  # nothing of `app` without the flag


def test_add_copies_the_file(vesper: VesperCommand) -> None:
    write(vesper.folder, a=DOUBLE)
    assert vesper("repo", "add", "a.vsp").stdout == "double_v1: nodes/double_v1.vsp\n"
    assert vesper.json("repo", "add", "a.vsp") == {"added": [{"node_id": "double_v1", "file": "nodes/double_v1.vsp"}]}
    assert (vesper.folder / "nodes" / "double_v1.vsp").read_text() == DOUBLE


def test_the_store_keeps_nodes(vesper: VesperCommand) -> None:
    """A node is added to the store, found there by its id, called by others, and guarded like one of a folder."""
    text = DOUBLE + "\nsecurity:\n  capabilities_required: [audit.read]\n"
    files = write(vesper.folder / "files", a=text, caller=CALLER)
    assert vesper("repo", "add", str(files / "a.vsp"), str(files / "caller.vsp"), "--store").returncode == 0
    for file in files.iterdir():
        file.unlink()
    rows = vesper.json("repo", "list", "--store")["nodes"]
    assert [row["node_id"] for row in rows] == ["caller_v1", "double_v1"]
    assert vesper.json("repo", "list")["nodes"] == []
    assert vesper.json("repo", "deps", "caller", "--store")["missing"] == []
    assert vesper.json("repo", "capabilities", "--store") == {"capabilities": {"audit.read": ["double_v1"]}}
    assert vesper.json("run", "caller", "-i", "number=4")["outputs"] == {"answer": 8}
    write(vesper.folder, b=double("1").replace("* 2", "* 3"), c=double("1.1", 3))
    refused = vesper("repo", "add", "b.vsp", "--store")
    assert (refused.returncode, "another text" in refused.stderr) == (2, True)
    assert vesper.json("repo", "diff", "double_v1", "c.vsp", "--store")["needed"] == "patch"
    assert vesper("repo", "list", "--store", "-d", "files").returncode == 2
    assert vesper("run", "triple", "-i", "number=4").returncode == 2


def test_settings_and_tracebacks_before_the_command(lyra: Lyra) -> None:
    """`vesper --set`, `--debug` and `--trust-folder` hold for whatever follows."""
    write(lyra.folder, a=DOUBLE)
    assert lyra("vesper", "--set", "kernel.store=here.db", "repo", "add", "a.vsp", "--store").returncode == 0
    assert (lyra.folder / "here.db").is_file()
    assert "no nodes here" in lyra("vesper", "repo", "list", "--store").stdout
    assert "double_v1" in lyra("vesper", "--set", "kernel.store=here.db", "repo", "list", "--store").stdout
    (lyra.folder / "lyra.toml").write_text('[kernel]\nstore = "here.db"\n')
    assert "no nodes here" in lyra("vesper", "repo", "list", "--store").stdout  # the project's file is not trusted
    assert "double_v1" in lyra("vesper", "--trust-folder", "repo", "list", "--store").stdout
    plain, debugged = lyra("vesper", "run", "gone.vsp"), lyra("vesper", "--debug", "run", "gone.vsp")
    assert ("Traceback" in plain.stderr, "Traceback" in debugged.stderr) == (False, True)
