"""Durable runs of Vega programs that `make` leaves in the middle of their work.

A run comes back in one of two ways, and both are kept, each with all programs as runs of one file. `vega-replayed.db`
has runs whose processes go through all of their journal again. In `vega-saved.db` the processes had done so much that
their fibers were saved whole (`program.checkpoint`), and only what follows is gone through. The programs are the same:
`busy()` does ROUNDS cheap effects, which are enough for a save in the second file and none in the first.
`vega-snapshots.db` has the runs of the second file with snapshots of their journals all the time.

The model is `sim/script`. In the first life it does not come to the end of what has the word `hold` in it, and gives an
answer with the word `drip` piece by piece, so slowly that the rest is in flight. A run that was kept is never changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.kept_stores.scenes import MADE_AT


class VegaWay(NamedTuple):
    """`rounds` are those of `busy`; `options` come before the command's name."""

    rounds: int
    options: tuple[str, ...] = ()


VEGA_WAYS = {
    "vega-replayed": VegaWay(0),
    "vega-saved": VegaWay(300),
    "vega-snapshots": VegaWay(300, ("--set", "kernel.snapshot_every_events=5")),
}
_BUSY = "fn busy() { for i in list::range(0, ROUNDS) { process::self(); } }\n"
_AGENT = 'agent A { model "sim/script" max_tokens 50 retry { max_attempts 1 } }\n'


class VegaScene(NamedTuple):
    """`printed` is what a life has printed when it is killed. With `edits` a second life, which is killed too, goes on
    with the program in which the first of these texts is replaced by the second."""

    source: str
    printed: tuple[str, ...]
    edits: tuple[str, str] | None = None


VEGA_SCENES: dict[str, VegaScene] = {
    "ahead": VegaScene(
        _AGENT
        + _BUSY
        + """
fn review(a, what) { return a <- "review ${what}"; }
let a = spawn A;
let b = spawn A;
print(a <- "begin");
busy();
let x = a <- "one";
let y = b <- "hold two";
let z = review(b, "three");
print("${x}, ${y}, ${z}");
parallel {
    let p = a <- "four";
    let q = b <- "five";
}
print("${p}, ${q}");
""",
        ("begin",),
    ),
    "supervised": VegaScene(
        _AGENT
        + _BUSY
        + """
fn worker(main, name) {
    let helper = spawn A;
    busy();
    main <- [name, helper <- "work of ${name}"];
    receive {
        "fall" => { throw Broken("as told"); },
        text => { main <- [name, helper <- "more of ${name}: ${text}"]; }
    }
    receive { "end" => {} }
}
supervisor Team {
    strategy one_for_one
    max_restarts 5
    window 60s
    child ada = fn worker(process::self(), "ada")
    child bob = fn worker(process::self(), "bob")
}
let team = spawn Team;
let got = [];
for i in [1, 2] { receive { [name, text] => { got.push(name + ": " + text); } } }
for line in got.sort() { print(line); }
process::whereis("ada") <- "fall";
receive { [name, text] => { print(name + " again: " + text); } }
busy();
process::whereis("bob") <- "hold";
receive { [name, text] => { print(name + ": " + text); } }
process::whereis("ada") <- "go on";
receive { [name, text] => { print(name + ": " + text); } }
""",
        ("ada: work of ada", "bob: work of bob", "ada again: work of ada"),
    ),
    "stream": VegaScene(
        _AGENT
        + _BUSY
        + """
let a = spawn A;
print(await (a <~ "whole at once"));
busy();
for piece in a <~ "drip by drip" { print(piece); }
print(await (a <~ "whole again"));
""",
        ("whole at once", "drip "),
    ),
    "timers": VegaScene(
        _BUSY
        + """
fn ticker(main) {
    busy();
    process::sleep(300s);
    main <- "tick";
}
fn fragile() { receive { "break" => { throw Broken("as told"); } } }
fn keeper(main) {
    process::register("keeper");
    main <- "ready";
    while true { receive { [who, n] => { who <- n * 2; } } }
}
let glass = spawn fn fragile() supervised by { strategy stop };
process::monitor(glass);
spawn fn keeper(process::self());
receive { "ready" => {} }
spawn fn ticker(process::self());
process::self() <- "unread";
print("waits");
busy();
receive { "tick" => { print("ticked"); } after 900s => { print("too late"); } }
glass <- "break";
receive { ["DOWN", who, why] => { print("${who == glass} ${why}"); } }
process::whereis("keeper") <- [process::self(), 21];
receive { "unread" => { print("read"); } }
receive { n => { print(n); } }
receive { never => { print(never); } after 1ms => { print("nothing more"); } }
""",
        ("waits",),
    ),
    "tools": VegaScene(
        _BUSY
        + """
agent T {
    model "sim/script"
    tool double(n: int) -> int { return n * 2; }
    tool slow(text: str) -> str { process::sleep(300s); return "slow " + text; }
}
let t = spawn T;
print(t <- "use double");
busy();
print(t <- "use slow");
print(t <- "use double");
""",
        ("result 8",),
    ),
    "conversation": VegaScene(
        _BUSY
        + """
agent M { model "sim/script" max_tokens 50 memory conversation }
let m = spawn M;
print(m <- "first");
busy();
session budget $1.00 {
    print(m <- "second");
    print(m <- "hold third");
    print(budget::used());
}
print(m <- "how many turns");
""",
        ("first", "second"),
    ),
    "asks": VegaScene(
        _BUSY
        + """
agent Q { model "sim/script" tools ["AskUser"] }
let q = spawn Q;
print("before");
busy();
print(q <- "ask the user");
print("after");
""",
        ("before",),
    ),
    "fails": VegaScene(
        _AGENT
        + _BUSY
        + """
let a = spawn A supervised by { strategy restart max_restarts 5 window 60s };
try { print(a <- "please fail"); } catch AgentFailed { print("it failed"); }
busy();
print(a <- "hold on");
throw Broken("at the end");
""",
        ("it failed",),
    ),
    "edited": VegaScene(
        _AGENT
        + _BUSY
        + """
fn late(x) { return "late ${x}"; }
fn main() {
    let a = spawn A;
    print(a <- "one");
    busy();
    print(a <- "hold on");
    print(late("two"));
    print(a <- "three");
}
""",
        ("one",),
        ("late ${x}", "later ${x}"),
    ),
}

_REPLIES = """
[price]
input_usd_per_mtok = 10
output_usd_per_mtok = 10
{replies}
[[replies]]
user = "use double"
tool_calls = [{{name = "double", arguments = {{n = 4}}}}]
[[replies]]
user = "use slow"
tool_calls = [{{name = "slow", arguments = {{text = "tea"}}}}]
[[replies]]
user = "ask the user"
tool_calls = [{{name = "AskUser", arguments = {{question = "Which tea?"}}}}]
[[replies]]
result = "(?s)(.*)"
text = "result {{1}}"
[[replies]]
contains = "please fail"
error = {{kind = "bad_request"}}
[[replies]]
contains = "how many turns"
text = "turn {{turn}}"
[[replies]]
text = "{{user}}"
"""
_HELD = """
[[replies]]
contains = "hold"
first_s = 600.0
text = "{user}"
[[replies]]
contains = "drip"
chunk_s = 600.0
text = "{user}"
"""
_FOLDER = "/tmp"  # a run remembers the folder it works in; this one is on every machine
COMMANDS = Path(__file__).with_name("vega_commands.py")
_SETTLE_S = 1.5
_PATIENCE_S = 60.0


def write_script(path: Path, *, holds: bool) -> Path:
    """What the simulated model says; with `holds`, not to the end."""
    path.write_text(_REPLIES.format(replies=_HELD if holds else ""))
    return path


def make_vega(way: str, path: Path) -> None:
    """Run every program up to the place where it is killed, each as a run of the file `path`."""
    with tempfile.TemporaryDirectory(prefix="lyra-kept-") as home:
        script = write_script(Path(home) / "script.toml", holds=True)
        env = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "LYRA_SIM_SCRIPT": str(script)}
        for name, scene in VEGA_SCENES.items():
            source = scene.source.replace("ROUNDS", str(VEGA_WAYS[way].rounds))
            words = [*VEGA_WAYS[way].options, "run", "-", "--run-id", name, "--db", str(path)]
            _kill_in_the_middle(name, words, source, scene.printed, env)
            if scene.edits is not None:
                edited = Path(home) / f"{name}.vega"
                edited.write_text(source.replace(*scene.edits))
                words = [*VEGA_WAYS[way].options, "resume", name, "--program", str(edited), "--db", str(path)]
                _kill_in_the_middle(name, words, "", scene.printed, env)


def _kill_in_the_middle(
    name: str, words: list[str], source: str, printed: tuple[str, ...], env: dict[str, str]
) -> None:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as given:
        given.write(source)
        given.seek(0)
        child = subprocess.Popen(
            [sys.executable, str(COMMANDS), str(MADE_AT), json.dumps([words])],
            cwd=_FOLDER,
            env=env,
            stdin=given,
            stdout=output,
        )
        until = time.monotonic() + _PATIENCE_S
        wanted = "".join(f"{line}\n" for line in printed)
        while os.pread(output.fileno(), 1 << 16, 0).decode() != wanted:
            if child.poll() is not None or time.monotonic() > until:
                child.kill()
                shown = os.pread(output.fileno(), 1 << 16, 0).decode()
                raise AssertionError(f"{name} printed {shown!r} instead of {wanted!r}")
            time.sleep(0.02)
        time.sleep(_SETTLE_S)
        if child.poll() is not None:
            raise AssertionError(f"{name} ended before it was killed")
        child.kill()
        child.wait()
