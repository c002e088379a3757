"""`vesper fmt FILE… [--check] [--stdout]`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Lyra
from tests.cli.vesper.command import VesperCommand

UGLY = "intent:   'x'\n# the id\nnode_id: a_v1\n"
FORMATTED = "# the id\nnode_id: a_v1\nintent: x\n"


@pytest.fixture
def vesper(lyra: Lyra) -> VesperCommand:
    return VesperCommand(lyra)


def test_files_and_folders_are_formatted_in_place(vesper: VesperCommand) -> None:
    inner = vesper.folder / "inner"
    inner.mkdir()
    files = [vesper.folder / "a.vsp", inner / "b.vsp"]
    for file in files:
        file.write_text(UGLY)
    assert vesper("fmt", "a.vsp", "inner").returncode == 0
    assert [file.read_text() for file in files] == [FORMATTED, FORMATTED]


def test_check_changes_nothing(vesper: VesperCommand) -> None:
    file = vesper.folder / "a.vsp"
    file.write_text(UGLY)
    done = vesper("fmt", "--check", "a.vsp")
    assert (done.returncode, file.read_text()) == (1, UGLY)
    assert "a.vsp" in done.stderr
    file.write_text(FORMATTED)
    assert vesper("fmt", "--check", "a.vsp").returncode == 0


def test_stdout_shows_the_text(vesper: VesperCommand) -> None:
    file = vesper.folder / "a.vsp"
    file.write_text(UGLY)
    done = vesper("fmt", "--stdout", "a.vsp")
    assert (done.returncode, done.stdout, file.read_text()) == (0, FORMATTED, UGLY)


def test_a_file_that_is_no_yaml_is_left_alone(vesper: VesperCommand) -> None:
    """The others are formatted all the same."""
    (vesper.folder / "a.vsp").write_text("a: [\n")
    (vesper.folder / "b.vsp").write_text(UGLY)
    done = vesper("fmt", "a.vsp", "b.vsp")
    assert done.returncode == 2
    assert "a.vsp" in done.stderr
    assert (vesper.folder / "a.vsp").read_text() == "a: [\n"
    assert (vesper.folder / "b.vsp").read_text() == FORMATTED
    assert vesper("fmt", "none.vsp").returncode == 2
