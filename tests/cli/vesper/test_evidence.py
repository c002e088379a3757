"""`vesper verify`, `confidence`, `mode` and `status`: kept between calls."""

from __future__ import annotations

import io
import json
import sys
from contextlib import contextmanager
from itertools import count

import pytest

from lyra.cli import render
from lyra.cli.vesper import evidence, node_files, run
from lyra.errors import Conflict
from lyra.vesper.confidence import lower_bound
from lyra.vesper.evidence import differential
from lyra.vesper.runtime import runtime
from tests.cli.vesper.test_nodes import DISCOUNT, told


@pytest.fixture
def vesper(lyra):
    def call(*args, **env):
        return lyra("vesper", *args, **env)

    (lyra.folder / "discount.vsp").write_text(DISCOUNT, encoding="utf-8")
    return call


def test_verify_gathers_evidence_that_stays(vesper):
    done = vesper("verify", "discount.vsp", "-n", "600", "--seed", "3", "--json")
    assert done.returncode == 0, done.stderr
    data = told(done)
    assert (data["compared"], data["divergences"], data["confidence"]) == (600, 0, 0.0)
    vesper("verify", "discount.vsp", "--num-tests", "1400", "--seed", "4")
    data = told(vesper("confidence", "discount.vsp", "--json"))
    assert (data["compared"], data["divergences"], data["blocked"]) == (2_000, 0, False)
    assert 1_000 < data["accepted"] < data["distinct"] <= 2_000
    assert data["confidence"] == lower_bound(data["accepted"], 0)
    assert f"confidence {data['confidence']:.5f}" in vesper("confidence", "discount_v1").stdout


@pytest.mark.parametrize(
    ("declared", "options", "compared"),
    [
        ("", (), 1_000),
        ("{sample_size: 70}", (), 70),
        ("{sample_size: 70}", ("-n", "30"), 30),
        ("{enabled: true}", (), 1_000),
        ("{enabled: false, sample_size: 70}", (), 0),
        ("{enabled: false}", ("-n", "30"), 30),
    ],
)
def test_a_node_says_how_many_inputs_are_compared(vesper, lyra, declared, options, compared):
    text = DISCOUNT + f"  differential_tests: {declared}\n"
    (lyra.folder / "discount.vsp").write_text(text, encoding="utf-8")
    done = vesper("verify", "discount.vsp", *options, "--json")
    assert (done.returncode, told(done)["compared_now"]) == (0, compared)
    assert told(vesper("confidence", "discount.vsp", "--json"))["compared"] == compared
    if compared < 1_000:
        shown = vesper("verify", "discount.vsp", *options).stdout
        assert ("nothing is compared without -n" in shown) is (compared == 0)


def test_a_mode_needs_evidence_or_force(vesper):
    done = vesper("mode", "discount.vsp", "canary_direct")
    assert done.returncode == 1
    assert "allows shadow_direct" in done.stderr
    vesper("verify", "discount.vsp", "-n", "2500")
    assert vesper("mode", "discount.vsp", "canary_direct").returncode == 0
    assert vesper("mode", "discount.vsp").stdout.startswith("canary_direct\n")
    assert vesper("mode", "discount.vsp", "direct_only").returncode == 1
    assert vesper("mode", "discount.vsp", "direct_only", "--force").returncode == 0
    data = told(vesper("mode", "discount.vsp", "--json"))
    assert data["mode"] == "direct_only"
    assert [change["to"] for change in data["history"]] == ["canary_direct", "direct_only"]


def test_the_setting_says_how_many_successes_a_promotion_takes(vesper):
    """Given by an option or by a variable."""
    vesper("verify", "discount.vsp", "-n", "2500")
    for options, variables in (
        (("--set", "vesper.min_successes=20000"), {}),
        ((), {"LYRA_VESPER_MIN_SUCCESSES": "20000"}),
    ):
        refused = vesper("mode", "discount.vsp", "canary_direct", *options, **variables)
        assert (refused.returncode, "20000 are needed" in refused.stderr) == (1, True)
    assert vesper("mode", "discount.vsp", "canary_direct").returncode == 0


def test_the_same_inputs_again_are_no_more_evidence(vesper):
    first, *_, data = [told(vesper("verify", "discount.vsp", "-n", "400", "--json")) for _ in range(3)]
    assert (data["compared"], data["distinct"]) == (1_200, first["distinct"])
    assert 350 < data["distinct"] < 400  # some are other spellings of one input: a default that is given
    names = {"node", "compared", "distinct", "accepted", "successes", "divergences", "confidence", "unreached"}
    assert names <= set(data)


UNSURE = """\
node_id: unsure_v1
type: function
intent: take what is left
inputs: {a: {type: integer, constraints: [{min: 0}, {max: 1000}]}, b: {type: integer, constraints: [{min: 0}]}}
outputs: {success: {left: integer}}
contracts: {postconditions: ["success => left >= 0"]}
flow:
  - {step: subtract, operation: arithmetic, expression: a - b, output: left}
"""


def test_a_node_that_breaks_its_own_contract_fails(vesper, lyra):
    """By default, with the smallest input, in `test` and in `verify`; --no-search leaves it out."""
    (lyra.folder / "unsure.vsp").write_text(UNSURE, encoding="utf-8")
    done = vesper("test", "unsure.vsp", "--allow-no-tests", "--json", "-n", "30")
    broken = {"kind": "postcondition_failed", "expression": "success => left >= 0", "input": {"a": 0, "b": 1}}
    broken["sides"] = ["-1 >= 0 is false"]
    assert (done.returncode, told(done)["violations"]) == (1, [{"node": "unsure_v1", **broken}])
    assert vesper("test", "unsure.vsp", "--allow-no-tests", "--no-search").returncode == 0
    done = vesper("verify", "unsure.vsp", "-n", "300")
    assert (done.returncode, "breaks its contract: postcondition_failed: success" in done.stdout) == (1, True)
    assert "\n  where -1 >= 0 is false\n" in done.stdout
    secret = UNSURE.replace("[{min: 0}]}}", "[{min: 0}], sensitive: true}}")
    (lyra.folder / "unsure.vsp").write_text(secret, encoding="utf-8")
    hidden = vesper("verify", "unsure.vsp", "-n", "300")
    assert (hidden.returncode, "breaks its contract" in hidden.stdout, "-1" in hidden.stdout) == (1, True, False)


CUT = """\
node_id: cut_v1
type: function
intent: lower a price
inputs: {price: {type: integer, constraints: [{min: 0}, {max: 100000000}]}}
outputs: {total: integer}
contracts: {postconditions: ["price * price + total != 6049495057"]}
flow:
  - {step: cut, operation: arithmetic, expression: price - 5, output: total}
"""


def test_verify_begins_with_the_inputs_of_a_corpus_and_adds_those_that_fail(vesper, lyra):
    """One input of a hundred million breaks the contract, which a search alone does not find."""
    (lyra.folder / "cut.vsp").write_text(CUT, encoding="utf-8")
    words = ["verify", "cut.vsp", "-n", "50", "--corpus", "failures"]
    assert vesper(*words).returncode == 0
    folder = lyra.folder / "failures"
    folder.mkdir(exist_ok=True)
    (folder / "kept.json").write_text('{"node_id": "cut_v1", "inputs": {"price": 77778}}', encoding="utf-8")
    (folder / "another.json").write_text('{"node_id": "other_v1", "inputs": {}}', encoding="utf-8")
    done = vesper(*words, "--json")
    assert (done.returncode, told(done)["violations"][0]["input"]) == (1, {"price": 77778})
    assert len(list(folder.glob("cut_v1-*.json"))) == 1
    (folder / "kept.json").write_text('{"node_id": 7}', encoding="utf-8")
    done = vesper(*words)
    assert (done.returncode, "kept.json has no kept input" in done.stderr) == (2, True)


def test_verify_begins_with_the_inputs_that_prove_refuted(vesper, lyra):
    pytest.importorskip("z3")
    (lyra.folder / "cut.vsp").write_text(CUT, encoding="utf-8")
    assert vesper("verify", "cut.vsp", "-n", "50").returncode == 0
    assert vesper("prove", "cut.vsp").returncode == 1
    done = vesper("verify", "cut.vsp", "-n", "50", "--json")
    assert (done.returncode, told(done)["violations"][0]["input"]) == (1, {"price": 77778})
    (lyra.folder / "cut.vsp").write_text(CUT.replace("lower a price", "lower it").replace("price - 5", "price - 6"))
    assert vesper("verify", "cut.vsp", "-n", "50").returncode == 0  # another node: its verdicts are not these


def test_a_confidence_that_is_not_known_is_no_number(vesper):
    done = vesper("verify", "discount.vsp", "-n", "100")
    assert "confidence unknown (too few inputs" in done.stdout
    assert "0.00000" not in vesper("status").stdout + vesper("confidence", "discount.vsp").stdout


def test_verify_shows_how_far_it_is_where_stderr_is_a_terminal(vesper, monkeypatch):
    """After a second, in one line that is taken away at the end; a pipe gets none."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    numbers = []

    @contextmanager
    def showing(text):
        assert text in ("of 300 inputs compared", "of 200 inputs compared: discount.vsp")
        yield numbers.append

    assert "inputs compared" not in vesper("verify", "discount.vsp", "-n", "300").stderr
    monkeypatch.setattr(evidence, "show_progress", showing)
    monkeypatch.setattr(run, "show_progress", showing)
    vesper("verify", "discount.vsp", "-n", "300")
    vesper("test", "discount.vsp", "-n", "20")
    assert numbers == [64, 128, 192, 256, 64, 128, 192]
    monkeypatch.setattr(render, "_PROGRESS_S", 0.0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with render.show_progress("of 3 inputs compared") as show:
        show(2)
    assert terminal.getvalue() == "\r2 of 3 inputs compared\x1b[K\r\x1b[K"


def test_a_node_without_tests_fails_unless_that_is_asked_for(vesper, lyra):
    (lyra.folder / "unsure.vsp").write_text(UNSURE.replace("a - b", "a + 0"), encoding="utf-8")
    done = vesper("test", "unsure.vsp", "-n", "20")
    assert (done.returncode, "the node has no tests" in done.stdout) == (1, True)
    assert vesper("test", "unsure.vsp", "--allow-no-tests", "-n", "20").returncode == 0


def test_verify_fails_where_no_input_is_accepted(vesper, lyra):
    """It compares refusals only, and says that this shows nothing."""
    text = DISCOUNT.replace("constraints: [{min: 0}]", "constraints: ['value * value == 0 - 1']")
    (lyra.folder / "discount.vsp").write_text(text, encoding="utf-8")
    done = vesper("verify", "discount.vsp", "-n", "300")
    assert (done.returncode, "no input came past the entry checks" in done.stderr) == (1, True)


def test_a_node_with_few_inputs_is_complete(vesper, lyra):
    text = UNSURE.replace("constraints: [{min: 0}]}", "constraints: [{min: 0}, {max: 3}]}").replace("1000", "7")
    text = text.replace("a - b", "a + b")
    (lyra.folder / "unsure.vsp").write_text(text, encoding="utf-8")
    data = told(vesper("verify", "unsure.vsp", "-n", "100", "--json"))
    assert (data["complete"], data["accepted"] >= 32, data["confidence"]) == (True, True, 1.0)
    assert vesper("mode", "unsure.vsp", "direct_only").returncode == 0


def test_status_shows_every_node(vesper):
    assert vesper("status").stdout == "no node was executed yet\n"
    vesper("run", "discount.vsp", "-i", "price=1", "-i", "percent=1")
    shown = vesper("status").stdout
    assert "discount_v1" in shown
    assert "python_only" in shown
    (row,) = told(vesper("status", "--json"))["nodes"]
    assert row["executions"] == {"python": 1}
    assert json.loads(vesper("status", "--format", "json").stdout)["nodes"][0]["node"] == "discount_v1"
    metrics = vesper("status", "--format", "prometheus").stdout
    assert 'sir_executions_total{node="discount_v1",path="python"} 1' in metrics
    assert 'sir_traffic_split{node="discount_v1",path="direct"} 0' in metrics


def test_the_seed_decides_which_inputs_are_compared(vesper, monkeypatch):
    """A path that is wrong for some numbers is found with the same inputs by the same seed."""
    from lyra.vesper.direct import run as direct

    real = direct.run
    seen: list[object] = []

    def noted(program, inputs, execution, effects=None):
        seen.append(inputs.get("price"))
        return real(program, inputs, execution, effects)

    monkeypatch.setattr(direct, "run", noted)
    rounds = []
    for seed in ("1", "1", "2"):
        seen.clear()
        vesper("verify", "discount.vsp", "-n", "300", "--seed", seed)
        rounds.append([str(price) for price in seen])
    assert rounds[0] == rounds[1] != rounds[2]


def test_a_running_verify_leaves_the_store_to_other_commands(vesper, monkeypatch):
    """The store is opened when all is compared."""
    python, direct = differential.default_paths()
    meanwhile = []

    def slow_python(*arguments):
        if not meanwhile:
            meanwhile.append(vesper("confidence", "discount.vsp", "--json"))
        return python(*arguments)

    monkeypatch.setattr(differential, "default_paths", lambda: (slow_python, direct))
    assert vesper("verify", "discount.vsp", "-n", "50").returncode == 0
    assert (meanwhile[0].returncode, told(meanwhile[0])["compared"]) == (0, 0)
    assert told(vesper("confidence", "discount.vsp", "--json"))["compared"] == 50


def test_a_command_waits_for_one_that_has_the_store(vesper, lyra, monkeypatch):
    """Nothing fails, and nothing that was compared is lost, because another command runs; who waits is told so."""
    vesper("confidence", "discount.vsp")
    opened = runtime.Runtime
    tries = []

    def busy_twice(*arguments, **more):
        tries.append(arguments)
        if len(tries) < 3:
            raise Conflict("another kernel owns the store")
        return opened(*arguments, **more)

    monkeypatch.setattr(runtime, "Runtime", busy_twice)
    monkeypatch.setattr(node_files, "_PAUSE_S", 0.0)
    assert vesper("verify", "discount.vsp", "-n", "50").returncode == 0
    assert len(tries) == 3
    tries.clear()
    assert vesper("run", "discount.vsp", "--input-json", '{"price": "10.00", "percent": 20}').returncode == 0
    assert len(tries) == 3
    monkeypatch.setattr(node_files, "_TOLD_S", -1.0)
    tries.clear()
    assert "waiting up to 30 s: another kernel owns" in vesper("status").stderr
    monkeypatch.setattr(node_files, "STORE_WAIT_S", -1.0)
    tries.clear()
    assert "another kernel owns" in vesper("verify", "discount.vsp", "-n", "50").stderr


def test_an_interrupted_verify_keeps_what_was_compared(vesper, monkeypatch):
    """Ctrl-C ends the comparing; the comparison under way does not count."""
    python, direct = differential.default_paths()
    runs = count(1)

    def interrupted_python(*arguments):
        if next(runs) == 31:
            raise KeyboardInterrupt
        return python(*arguments)

    monkeypatch.setattr(differential, "default_paths", lambda: (interrupted_python, direct))
    done = vesper("verify", "discount.vsp", "-n", "500", "--json")
    assert done.returncode == 130
    assert "interrupted" in done.stderr
    assert (told(done)["compared_now"], told(done)["interrupted"]) == (30, True)
    assert told(vesper("confidence", "discount.vsp", "--json"))["compared"] == 30


def test_status_tells_a_node_that_became_slower(vesper, monkeypatch):
    from lyra.vesper.evidence.state import PathSpeed

    vesper("run", "discount.vsp", "-i", "price=1", "-i", "percent=1")
    (row,) = told(vesper("status", "--json"))["nodes"]
    assert row["speed"] == {"python": {"latest_ms": 0.0, "usual_ms": 0.0, "is_slower": False}}
    assert "slower" not in vesper("status").stdout
    monkeypatch.setattr(PathSpeed, "is_slow", True)
    assert "discount_v1 is slower than its own past on the python path" in vesper("status").stdout
