"""Kill, edit, go on: a random program is killed at a random moment, edited at random places, and gone on with by
`vega resume --program`, killed and edited again, until it comes to its end.

Each step of a program prints lines that say which step it is and how often it was edited, so an oracle knows line by
line what every version of the program prints. An edit that is refused changes nothing: the run goes on with the program
it has. One that is accepted may show in lines that were not printed yet, and has to show in all that come after those
of the step under way, parts of which may be over. No call
that was over is made again, one that was in flight is made again with the same question, and no life ends in an error.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from lyra.core.ids import ProcessRandom, make_random
from lyra.vega.durable.runs import Runs
from verify.crash.vega.kills import ID, Books, Scene
from verify.crash.vega.provider import Provider

__all__ = ["Edited", "Plan", "Step", "run"]

_KILLS_A_RUN: Final = 4
_UNDER_WAY: Final = 3  # lines of the step that a kill may have fallen into
_REFUSED: Final = 2
_TRIES: Final = 2  # edits that are refused, before it goes on without one
_ROWS_A_LIFE: Final = 24  # of one that is killed, at most
_PACE: Final = 6.0  # so slow is the provider that most kills find a call in flight


class Edited(NamedTuple):
    """What came of some edits."""

    runs: int
    kills: int
    accepted: int
    refused: int
    again: int
    failures: list[str]

    def plus(self, other: Edited) -> Edited:
        runs, kills, accepted, refused, again, failures = self
        return Edited(
            runs + other.runs,
            kills + other.kills,
            accepted + other.accepted,
            refused + other.refused,
            again + other.again,
            [*failures, *other.failures],
        )


# ---------------------------------------------------------------- programs
class Step(NamedTuple):
    kind: str
    number: int
    version: int = 0

    @property
    def tag(self) -> str:
        return f"{self.kind}{self.number} v{self.version}"


class _Kind(NamedTuple):
    """A kind of step: what it declares, what main does, and what that prints."""

    declared: str
    done: str
    printed: tuple[str, ...]


_KINDS: Final[dict[str, _Kind]] = {
    "pure": _Kind('fn pureN(x) { return "TAG ${x}"; }', 'print(pureN("z"));', ("TAG z",)),
    "ask": _Kind('fn askN(a) { let r = a <- "q TAG"; return "TAG ${r}"; }', "print(askN(a));", ("TAG [q TAG] (1)",)),
    "inline": _Kind("", 'print(a <- "TAG");', ("[TAG] (1)",)),
    "loop": _Kind(
        'fn loopN(x) { return "TAG ${x}"; }',
        'for i in list::range(0, 3) { print(loopN("${i}")); }',
        ("TAG 0", "TAG 1", "TAG 2"),
    ),
    "worker": _Kind(
        'fn workerN(to, a) { let r = a <- "w TAG"; to <- "TAG ${r}"; }',
        "spawn fn workerN(process::self(), a);\n  receive { text => { print(text); } }",
        ("TAG [w TAG] (1)",),
    ),
    "pair": _Kind(
        'fn pairN(a) { let x = a <- "x TAG"; let y = a <- "y TAG"; return x + y; }',
        "print(pairN(a));",
        ("[x TAG] (1)[y TAG] (1)",),
    ),
    "lambda": _Kind("", 'let lN = |x| "TAG ${x}";\n  print(lN("z"));', ("TAG z",)),
    "constant": _Kind('const CN = "TAG";\nfn constantN(x) { return CN + x; }', 'print(constantN("!"));', ("TAG!",)),
    "tool": _Kind(
        'agent TN {\n  model "claude-sonnet-4-20250514"\n  retry { max_attempts 1 }\n'
        '  tool double(n: int) -> str { return "TAG ${n}"; }\n}',
        'let tN = spawn TN;\n  print(tN <- "use double 4");',
        ("[result TAG 4] (3)",),
    ),
    "sleep": _Kind("", "process::sleep(5ms);", ()),
}


class Plan(NamedTuple):
    """A program: its steps, what its agent is told, and functions that are never called."""

    steps: tuple[Step, ...]
    system: int = 0
    extra: int = 0
    is_turned: bool = False

    def text(self) -> str:
        declared = [_filled(_KINDS[step.kind].declared, step) for step in self.steps]
        declared += [f"fn extra{number}(x) {{ return |y| x + y; }}" for number in range(self.extra)]
        done = "\n  ".join(_filled(_KINDS[step.kind].done, step) for step in self.steps)
        agent = f'agent A {{ model "claude-sonnet-4-20250514" system "s{self.system}" retry {{ max_attempts 1 }} }}\n'
        parts = [part for part in declared if part]
        main = f"fn main() {{\n  let a = spawn A;\n  {done}\n}}\n"
        return agent + "\n".join(parts[::-1] if self.is_turned else parts) + "\n" + main

    def lines(self) -> list[str]:
        return [_filled(line, step) for step in self.steps for line in _KINDS[step.kind].printed]


def _filled(text: str, step: Step) -> str:
    return text.replace("TAG", step.tag.replace(step.kind, step.kind.upper()[:3])).replace("N", str(step.number))


def _random_plan(rng: ProcessRandom) -> Plan:
    kinds = list(_KINDS)
    return Plan(tuple(Step(rng.choice(kinds), number) for number in range(rng.randint(4, 9))))


def _edited(plan: Plan, rng: ProcessRandom) -> Plan:
    """The program with one to three edits."""
    for _ in range(rng.randint(1, 3)):
        plan = rng.choice(_EDITS)(plan, rng)
    return plan


def _another(plan: Plan, rng: ProcessRandom) -> Plan:
    place = rng.randrange(len(plan.steps))
    step = plan.steps[place]
    return plan._replace(steps=(*plan.steps[:place], step._replace(version=step.version + 1), *plan.steps[place + 1 :]))


def _late(plan: Plan, rng: ProcessRandom) -> Plan:
    """Another version of one of the last steps: most kills come before it."""
    place = max(0, len(plan.steps) - rng.randint(1, 3))
    step = plan.steps[place]
    return plan._replace(steps=(*plan.steps[:place], step._replace(version=step.version + 1), *plan.steps[place + 1 :]))


def _longer(plan: Plan, rng: ProcessRandom) -> Plan:
    number = 1 + max(step.number for step in plan.steps)
    return plan._replace(steps=(*plan.steps, Step(rng.choice(list(_KINDS)), number)))


def _shorter(plan: Plan, _: ProcessRandom) -> Plan:
    return plan._replace(steps=plan.steps[:-1]) if len(plan.steps) > 1 else plan


def _told(plan: Plan, _: ProcessRandom) -> Plan:
    return plan._replace(system=plan.system + 1)


def _more(plan: Plan, _: ProcessRandom) -> Plan:
    return plan._replace(extra=plan.extra + 1)


def _turned(plan: Plan, _: ProcessRandom) -> Plan:
    return plan._replace(is_turned=not plan.is_turned)


_EDITS: Final[tuple[Callable[[Plan, ProcessRandom], Plan], ...]] = (
    *(_another, _late, _late, _late),
    *(_longer, _shorter, _told, _more, _turned),
)


# ---------------------------------------------------------------- runs
def run(n: int, seed: int, *, progress: Callable[[int, int], None] | None = None) -> Edited:
    """Run `n` programs, each killed and edited some times; in every other one processes are saved at each effect."""
    rng = make_random(seed)
    total = Edited(0, 0, 0, 0, 0, [])
    with Provider(pace=_PACE) as provider:
        for number in range(n):
            counts = _one(provider, rng, saves_often=bool(number % 2), label=f"seed {seed}, program {number}")
            total = total.plus(counts)
            if progress is not None:
                progress(number + 1, n)
            if len(total.failures) >= 5:
                break
    return total


def _one(provider: Provider, rng: ProcessRandom, *, saves_often: bool, label: str) -> Edited:
    plan = _random_plan(rng)
    with tempfile.TemporaryDirectory(prefix="lyra-vega-edits-") as folder:
        scene = Scene(Path(folder), plan.text(), provider, saves_often=saves_often)
        oracle, books = _Oracle(plan), Books()
        kills = accepted = refused = tries = 0
        failures: list[str] = []
        began = time.monotonic()
        while True:
            edited = _edited(plan, rng) if scene.has_begun() and tries < _TRIES else plan
            options: tuple[str, ...] = ()
            if edited != plan and edited.text() != plan.text():
                scene.file.write_text(edited.text())
                options = ("--program", str(scene.file))
            row = None if kills >= _KILLS_A_RUN else scene.rows() + rng.randint(1, _ROWS_A_LIFE)
            before = _versions(scene)
            status = scene.life(None, *options, kill_at_row=row)
            books.heard(provider.take())
            if options and _versions(scene) > before:
                accepted += 1
                oracle.migrated(edited, printed=_printed_before(scene))
                plan = edited
            elif options and status == _REFUSED:
                refused += 1
                tries += 1
                continue
            tries = 0
            if status is not None or time.monotonic() - began > 60:
                break
            kills += 1
            books.killed(scene.db)
        failures += [f"{label}: {failure}" for failure in books.failures]
        if status != 0:
            failures.append(f"{label}: ended with {status}: {scene.errors}")
        wrong = oracle.wrong(scene.output.splitlines()) if status == 0 else ""
        if wrong:
            failures.append(f"{label}: {wrong}\n{plan.text()}")
        return Edited(1, kills, accepted, refused, books.again, failures)


def _versions(scene: Scene) -> int:
    if not scene.has_begun():
        return 0
    with Runs(scene.db) as runs:
        return len(runs[ID].versions)


def _printed_before(scene: Scene) -> int:
    """How many lines there were when the last migration was written."""
    with Runs(scene.db) as runs:
        kinds = [record.kind for record in runs[ID].rows() if record.kind in ("run.printed", "run.migrated")]
    last = len(kinds) - 1 - kinds[::-1].index("run.migrated")
    return kinds[:last].count("run.printed")


class _Oracle:
    """Line by line what a run may print: the texts that each line may have."""

    def __init__(self, plan: Plan) -> None:
        self._lines = [{line} for line in plan.lines()]

    def migrated(self, plan: Plan, *, printed: int) -> None:
        lines = [{line} for line in plan.lines()]
        for index in range(min(printed + _UNDER_WAY, len(lines), len(self._lines))):
            lines[index] = self._lines[index] if index < printed else lines[index] | self._lines[index]
        self._lines = lines

    def wrong(self, output: list[str]) -> str:
        """What is wrong with an output; "" for nothing."""
        fits = len(output) == len(self._lines) and all(
            line in allowed for line, allowed in zip(output, self._lines, strict=True)
        )
        return (
            "" if fits else f"printed {output} where the oracle allows {[sorted(allowed) for allowed in self._lines]}"
        )
