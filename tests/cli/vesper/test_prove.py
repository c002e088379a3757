"""`vesper prove` and `vesper validate --prove`."""

from __future__ import annotations

import json
import shlex

from tests.cli.conftest import Lyra
from tests.cli.vesper.command import VesperCommand

NODE = """\
node_id: halve_v1
type: function
intent: halve a number
inputs: {number: integer}
outputs: {half: integer}
contracts:
  postconditions: [half != 7]
flow:
  - {step: halve, operation: arithmetic, expression: (number - number % 2) / 2, output: half}
"""


def test_prove_shows_a_line_for_each_result_and_the_command_that_reproduces_it(lyra: Lyra) -> None:
    """A refuted contract has the input and a `vesper run` that fails; the exit code is 1."""
    vesper = VesperCommand(lyra)
    (vesper.folder / "halve.vsp").write_text(NODE)
    done = vesper("prove", "halve.vsp")
    assert done.returncode == 1
    assert "REFUTED  postcondition: half != 7" in done.stdout
    assert "PROVED   missing_output: half" in done.stdout
    command = next(line.strip() for line in done.stdout.splitlines() if line.strip().startswith("vesper run"))
    run = vesper(*shlex.split(command)[1:])
    assert run.returncode == 1
    assert "postcondition_failed" in run.stdout + run.stderr


def test_prove_as_json_has_the_fields_of_each_result(lyra: Lyra) -> None:
    """`--json` gives kind, expression, verdict, input and reason; without a refuted result the exit code is 0."""
    vesper = VesperCommand(lyra)
    (vesper.folder / "halve.vsp").write_text(NODE)
    results = vesper.json("prove", "halve.vsp", code=1)["results"]
    assert {"kind", "expression", "verdict", "input", "reason"} <= set(results[0])
    assert results[0]["verdict"] == "refuted"
    assert results[0]["input"]["number"] in (14, 15)
    (vesper.folder / "halve.vsp").write_text(NODE.replace("integer}\nout", "{type: integer, min: 20, max: 90}}\nout"))
    results = vesper.json("prove", "halve.vsp")["results"]
    assert {(result["verdict"], result["input"]) for result in results} == {("proved", None)}


def test_validate_proves_too_when_it_is_asked_to(lyra: Lyra) -> None:
    """`validate --prove` adds the results, and its exit code is 1 where a valid node has a refuted contract."""
    vesper = VesperCommand(lyra)
    (vesper.folder / "halve.vsp").write_text(NODE)
    assert vesper("validate", "halve.vsp").returncode == 0
    data = vesper.json("validate", "halve.vsp", "--prove", code=1)
    assert data["valid"] is True
    assert {row["file"] for row in data["results"]} == {"halve.vsp"}
    assert json.dumps(data).count('"refuted"') >= 1
