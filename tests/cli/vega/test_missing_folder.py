"""A folder that is gone for a while ends an execution, and not the run."""

from __future__ import annotations

from tests.cli.vega.test_durable import begin, kill
from tests.cli.vega_runner import Vega, vega

__all__ = ["vega"]  # the fixture

WRITES = """\
fn main() {
  print("one");
  process::sleep(1500ms);
  file::write("made.txt", "text");
  print("two");
}
"""


def test_a_run_goes_on_when_its_folder_is_back(vega: Vega):
    around, work = vega.folder, vega.folder / "work"
    work.mkdir()
    vega.folder = work
    vega.write("a.vega", WRITES)
    kill(begin(vega, "run", "a.vega", "--db", "../run.db", "--run-id", "r", until="one"))
    vega.folder = around
    work.rename(around / "elsewhere")
    gone = vega("resume", "r", "--db", "run.db")
    assert gone.returncode != 0
    assert f"the folder {work} is not there" in gone.stderr
    assert vega.json("runs", "--db", "run.db")[0]["state"] == "stopped"
    (around / "elsewhere").rename(work)
    done = vega("resume", "r", "--db", "run.db")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["one", "two"]), done.stderr
    assert (work / "made.txt").read_text() == "text"
