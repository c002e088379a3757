"""A run at any place of its timeline: its processes as they stood, forwards and backwards, by effect or by line.

A position is a number of steps: those before it have happened, and every process has run on to the effect that it waits
for. Between two positions one process may stand at a line on its way to its next effect. Going forwards gives the
machine the recorded answers; going back takes the nearest saved state and goes forwards from there. States are saved
every few steps, and of each process only when it changed.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, ClassVar, Final

import msgspec

from lyra.errors import ConfigError
from lyra.observe.timeline.travel import Travel
from lyra.vega.machine.fiber import Done, Fiber, OutOfFuel, VmEffect
from lyra.vega.machine.link import LinkedProgram, link
from lyra.vega.machine.rare_instructions import again
from lyra.vega.machine.snapshot import from_data, to_data, value_from_data
from lyra.vega.machine.vm import run
from lyra.vega.replay.frozen_kernel import answer_quietly, depth_of
from lyra.vega.replay.timeline import END, START, AgentView, ProcessFacts, Timeline, TimelineStep
from lyra.vega.replay.variables import Traps, Variables, WatchExpression
from lyra.vega.runtime.world import pad_globals
from lyra.vega.values.values import copy_value

_EVERY: Final = 32  # steps between two saved states, at first
_STATES_MAX: Final = 512  # then every second one is dropped
_SEGMENT_FUEL: Final = 20_000_000
_TURN: Final = 65_536
_LAST: Final = 1 << 60  # after every row


class Standing(msgspec.Struct):
    """How a process stands: `at` is the effect that it waits for, "" once it is over."""

    fiber: Fiber
    at: str = ""
    ended: str = ""  # why
    is_over: bool = False


def _message(form: str, message: Any, linked: LinkedProgram) -> Any:
    """Return a message as a program would get it."""
    if form:
        return ["DOWN" if form == "down" else form.upper(), message]
    if type(message) is list and len(message) == 2 and message[0] == "vega":
        return value_from_data(message[1], linked)
    return message


_Saved = dict[str, tuple[Any, str, str, bool]]


class Player(Travel):
    """`position` steps have happened. `inside` lines of the process in view were run since, when it stands between two
    effects; None when it has come to its next one."""

    shows_next: ClassVar[bool] = True

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline.steps)
        self.timeline = timeline
        self._linked = [link(program) for program, _ in timeline.versions]
        self._by_hash = {linked.hash: version for version, linked in enumerate(self._linked)}
        for linked in self._linked:
            for code in linked.functions:
                code.code = list(code.code)  # traps are set in it, and an expression runs without
        self._variables: dict[int, Variables] = {}
        self.inside: int | None = None
        self.chosen: str | None = None  # the process that the user chose to look at
        self.diverged = ""
        self._traps = Traps(*self._linked)
        self._standing: dict[str, Standing] = {}
        self._asleep: _Saved = {}  # processes as they were saved; woken when they are needed
        self._changed: set[str] = set()
        self._every = max(_EVERY, len(timeline.processes) // 16)
        self._places: list[int] = [0]
        self._states: list[_Saved] = [{}]

    # ------------------------------------------------------------ which program

    @property
    def version(self) -> int:
        """Which of the run's programs the process in view runs."""
        standing = self.standing(self.in_view)
        return -1 if standing is None else self._by_hash[standing.fiber.linked.hash]

    @property
    def sources(self) -> dict[str, str]:
        """The texts of that program."""
        return self.timeline.versions[self.version][1]

    def line_of(self, file: str, number: int) -> str:
        return self.timeline.line(file, number, self.version)

    @property
    def variables(self) -> Variables:
        return self.variables_of(self._linked[self.version])

    def variables_of(self, linked: LinkedProgram) -> Variables:
        version = self._by_hash[linked.hash]
        if version not in self._variables:
            self._variables[version] = Variables(*self.timeline.versions[version])
        return self._variables[version]

    # ------------------------------------------------------------ looking

    @property
    def pids(self) -> list[str]:
        """The processes that there are here, oldest first."""
        return [pid for pid in self.timeline.processes if pid in self._standing or pid in self._asleep]

    def standing(self, pid: str) -> Standing | None:
        standing = self._standing.get(pid)
        saved = self._asleep.get(pid) if standing is None else None
        if saved is None:
            return standing
        data, effect, ended, is_over = saved
        linked = self._linked[self._by_hash[data["program"]]]
        standing = self._standing[pid] = Standing(from_data(linked, data), effect, ended, is_over)
        del self._asleep[pid]
        return standing

    def state(self, pid: str) -> tuple[str, str, bool]:
        """Return what it waits for, why it ended and whether it is over, without waking it."""
        standing = self._standing.get(pid)
        if standing is not None:
            return standing.at, standing.ended, standing.is_over
        _, effect, ended, is_over = self._asleep[pid]
        return effect, ended, is_over

    @property
    def next_step(self) -> TimelineStep | None:
        return self.timeline.step(self.position)

    @property
    def last_step(self) -> TimelineStep | None:
        return self.timeline.step(self.position - 1)

    @property
    def in_view(self) -> str:
        """The process to look at: the one that was chosen, else the one whose step it is."""
        if self.chosen is not None and (self.chosen in self._standing or self.chosen in self._asleep):
            return self.chosen
        step = self.last_step if self.inside is not None else self.next_step
        if step is None or step.kind == START:
            step = self.last_step
        return step.pid if step is not None else next(iter(self.timeline.processes))

    def facts(self, pid: str) -> ProcessFacts:
        return self.timeline.processes[pid]

    def place(self, pid: str | None = None) -> tuple[str, int]:
        """File and line of a process; ("", 0) where it is at none."""
        standing = self.standing(self.in_view if pid is None else pid)
        if standing is None:
            return "", 0
        fiber = standing.fiber
        if self.is_between(pid):
            code, pc = fiber.code, fiber.pc
            if not code.function.is_hidden:
                return fiber.linked.program.files[code.function.file], code.function.place(pc)[0]
        file, line, _ = fiber.place()
        return (file, line) if line else self._last_place(pid or self.in_view)

    def _last_place(self, pid: str) -> tuple[str, int]:
        """Return the place of the last step of a process."""
        for number in range(self.position, -1, -1):
            step = self.timeline.step(number)
            if step is not None and step.pid == pid and step.line:
                return step.file, step.line
        return "", 0

    def is_between(self, pid: str | None = None) -> bool:
        """Return whether a process has stopped before an instruction, and not at an effect."""
        last = self.last_step
        return self.inside is not None and last is not None and last.pid == (self.in_view if pid is None else pid)

    def view(self, pid: str | None = None) -> dict[str, Any]:
        """Return the variables that a process sees."""
        standing = self.standing(self.in_view if pid is None else pid)
        if standing is None:
            return {}
        return self.variables_of(standing.fiber.linked).view(standing.fiber, before=self.is_between(pid))

    def locals(self, pid: str | None = None) -> dict[str, Any]:
        standing = self.standing(self.in_view if pid is None else pid)
        if standing is None:
            return {}
        return self.variables_of(standing.fiber.linked).local(standing.fiber, before=self.is_between(pid))

    @property
    def names(self) -> frozenset[str] | None:
        """All that an expression may name at some place of the run; None where a program has lost its names."""
        known = [self.variables_of(linked) for linked in self._linked]
        if not all(variables.has_names for variables in known):
            return None
        return frozenset(name for variables in known for name in variables.names)

    def expression(self, text: str) -> WatchExpression:
        return WatchExpression(text, self.variables_of)

    def value(self, text: str, pid: str | None = None) -> Any:
        """Evaluate an expression here."""
        standing = self.standing(self.in_view if pid is None else pid)
        if standing is None:
            raise ConfigError("nothing has begun yet", hint="`step` begins it")
        return self.expression(text).value(standing.fiber, before=self.is_between(pid))

    # ------------------------------------------------------------ beside the program

    @property
    def seq(self) -> int:
        """The row that all has happened up to."""
        last = self.last_step
        return 0 if last is None else last.seq if self.position < len(self.timeline) else _LAST

    @property
    def _seq_of_mail(self) -> int:
        """Return the row of a message: one to a supervised process is passed on to it, a little after it was sent."""
        if self.position >= len(self.timeline):
            return self.seq
        return max(self.seq, self.timeline.steps[self.position].seq - 1)

    @property
    def agents(self) -> list[str]:
        """The agents that there are here, by the pids that the program knows."""
        return self.timeline.agent_history.agents(self.seq)

    def agent(self, pid: str) -> AgentView | None:
        return self.timeline.agent_history.agent(pid, self.seq)

    def agents_asked(self) -> list[str]:
        timeline = self.timeline
        return sorted({*timeline.agents.values(), *(info.name for info in timeline.program.agents.values())})

    def answers(self, pid: str) -> list[TimelineStep]:
        """Return what the program has asked an agent and been answered so far."""
        return [step for step in self.timeline.steps[: self.position] if step.target == pid and step.agent]

    def mailbox(self, pid: str) -> list[Any]:
        """Return the messages that wait for a process of the program: those that its machine has, and those behind
        them."""
        standing = self.standing(pid)
        if standing is None or standing.is_over:
            return []
        waiting = self.timeline.agent_history.inbox(pid, self._seq_of_mail)
        return [
            *(standing.fiber.mailbox or ()),
            *(_message(form, message, standing.fiber.linked) for form, message in waiting),
        ]

    def process(self, name: str) -> str | None:
        """Return the process that goes by a pid: of a supervised one its newest."""
        pids = self.pids
        if name in pids:
            return name
        return next((pid for pid in reversed(pids) if self.facts(pid).known_as == name), None)

    # ------------------------------------------------------------ by effect

    def goto(self, position: int, inside: int | None = None) -> None:
        """To a position, and so many lines on from the answer before it."""
        position = max(0, min(position, len(self.timeline)))
        stop = position if inside is None else position - 1
        if stop < self.position or (self.inside is not None and stop == self.position - 1):
            self._back_to(stop)
        elif self.inside is not None:
            self.step()
        while self.position < stop:
            self._forward()
        if inside is not None:
            self._enter()
            with self._traps:
                for _ in range(inside):
                    if self.inside is not None:
                        self._one_line()

    def advance(self, count: int) -> None:
        if self.inside is not None and count > 0:
            self.step()
            count -= 1
        self.goto(self.position + count)

    def step(self) -> bool:
        """Let the next effect happen; from between two lines, on to the effect. False at the end."""
        if self.inside is not None:
            self._to_effect(self._current())
            self.inside = None
            return True
        if self.position >= len(self.timeline):
            return False
        self._forward()
        return True

    def back(self) -> bool:
        if self.inside is None and self.position == 0:
            return False
        self.goto(self.position - 1)
        return True

    def step_of(self, pid: str) -> bool:
        """On until the next effect of one process has happened."""
        number = next(
            (step.number for step in self.timeline.steps[self.position :] if step.pid == pid and step.is_effect), None
        )
        if number is None:
            return False
        self.goto(number + 1)
        return True

    def _forward(self) -> None:
        self._answer(self.timeline.steps[self.position])
        step = self.timeline.steps[self.position]
        self.position += 1
        if step.kind != END:
            self._to_effect(self._standing[step.pid])
        if self.position - self._places[-1] >= self._every:
            self._save()

    def _answer(self, step: TimelineStep) -> None:
        """Give a process its recorded answer; it has not gone on yet."""
        pid = step.pid
        if step.kind == START:
            self._standing[pid] = Standing(self._born(pid, self._linked[step.version]))
            self._changed.add(pid)
            return
        standing = self.standing(pid)
        if standing is None:
            raise ConfigError(f"process {pid} does something before it begins", hint="its journal is damaged")
        self._changed.add(pid)
        if step.kind == END:
            standing.ended, standing.is_over, standing.at = step.error or step.result, True, ""
            return
        if standing.at != step.kind and not self.diverged:
            self.diverged = f"process {pid} is at {standing.at or 'its end'} where its journal has {step.kind}"
        answer = step.answer
        assert answer is not None
        for message in answer.heard:
            standing.fiber.deliver(copy_value(message))
        if answer.expired:
            standing.fiber.expire()
        if answer.thrown is not None:
            standing.fiber.resume(None)
            standing.fiber.fault = again(answer.thrown)
        elif answer.error is not None:
            standing.fiber.throw(*answer.error)
        elif answer.is_last:
            standing.is_over = True
        elif not (answer.is_receive and (answer.heard or answer.expired)):
            standing.fiber.resume(copy_value(answer.value))
        if standing.fiber.linked is not self._linked[step.version]:
            standing.fiber.move_to(self._linked[step.version])

    def _born(self, pid: str, linked: LinkedProgram) -> Fiber:
        seed = self.timeline.processes[pid].seed
        if seed is None:
            return Fiber.start(linked)
        function, arguments, globals_ = value_from_data(seed, linked)
        fiber = Fiber.call(linked, function, arguments, pad_globals(linked, globals_))
        fiber.depth = depth_of(seed)
        return fiber

    def _to_effect(self, standing: Standing) -> None:
        """On to the next effect of a process, or to its end."""
        if standing.is_over:
            return
        used = 0
        while True:
            outcome = run(standing.fiber, _TURN)
            if type(outcome) is VmEffect and answer_quietly(standing.fiber, outcome):
                continue
            used += _TURN
            if type(outcome) is not OutOfFuel or used >= _SEGMENT_FUEL:
                break
        self._came_to(standing, outcome)

    def _came_to(self, standing: Standing, outcome: VmEffect | Done | OutOfFuel | None) -> None:
        standing.at = outcome.kind if type(outcome) is VmEffect else ""
        if type(outcome) is Done:
            standing.is_over = True
        elif type(outcome) is not VmEffect:
            standing.at = "computing"

    # ------------------------------------------------------------ by line

    def line(self) -> bool:
        """On to the next line of the process in view, or to its next effect; False at the end of the run."""
        if self.chosen is not None and not self._turn_of(self.chosen):
            return False
        if self.inside is None and not self._enter():
            return False
        if self.inside is not None:  # else a process ended, which is no line of it
            with self._traps:
                self._one_line()
        return True

    def _turn_of(self, pid: str) -> bool:
        """Go to where it is the turn of one process; False when it has none any more."""
        last = self.last_step
        if self.inside is not None and last is not None and last.pid == pid:
            return True
        steps = self.timeline.steps[self.position :]
        number = next((step.number for step in steps if step.pid == pid and step.kind != END), None)
        if number is None:
            return False
        self.goto(number)
        return True

    def _enter(self) -> bool:
        """Give the next step's answer, before any process goes on. False at the end."""
        if self.position >= len(self.timeline):
            return False
        step = self.timeline.steps[self.position]
        self._answer(step)
        self.position += 1
        self.inside = None if step.kind == END else 0
        return True

    def _one_line(self) -> None:
        assert self.inside is not None
        standing = self._current()
        outcome = Done() if standing.is_over else self._traps.run(standing.fiber, _SEGMENT_FUEL)
        if outcome is None:
            self.inside += 1
            return
        self._came_to(standing, outcome)
        self.inside = None

    def _current(self) -> Standing:
        last = self.last_step
        assert last is not None
        standing = self.standing(last.pid)
        assert standing is not None
        return standing

    def back_line(self) -> bool:
        """To the line before this one; False at the beginning."""
        if self.position == 0:
            return False
        if self.inside is None:
            lines = self._lines_before()
            self.goto(self.position, lines) if lines else self.goto(self.position - 1)
        elif self.inside > 1:
            self.goto(self.position, self.inside - 1)
        else:
            self.goto(self.position - 1)
        return True

    def _lines_before(self) -> int:
        """Count the lines between the last answer and here."""
        position, lines = self.position, 0
        if self.timeline.steps[position - 1].kind == END:
            return 0
        self.goto(position - 1)
        self._enter()
        with self._traps:
            while self.inside is not None:
                self._one_line()
                lines += self.inside is not None
        self.goto(position)
        return lines

    def lines_of_next(self) -> Any:
        """Stand at every line between the next answer and the effect after it, one after the other."""
        if not self._enter():
            return
        with self._traps:
            while self.inside is not None:
                self._one_line()
                if self.inside is not None:
                    yield self.inside
        if self.position - self._places[-1] >= self._every:
            self._save()

    # ------------------------------------------------------------ saved states

    def _save(self) -> None:
        """Save the processes that changed since the last saved state; the others are as they were there."""
        if self.position <= self._places[-1]:
            return
        state = dict(self._states[-1])
        for pid in self._changed:
            standing = self._standing.get(pid)
            if standing is not None:
                state[pid] = (to_data(standing.fiber), standing.at, standing.ended, standing.is_over)
        self._changed.clear()
        self._states.append(state)  # first: `recover` knows one too many
        self._places.append(self.position)
        if len(self._states) > _STATES_MAX:
            self._every *= 2
            self._places, self._states = self._places[::2], self._states[::2]
            self._changed.update(self._standing)

    def recover(self) -> None:
        """Go to the last complete position after an interruption (Ctrl-C) in the middle of a step."""
        del self._states[len(self._places) :]
        position = self.position
        self._back_to(max(position - 1, 0) if self.inside is not None else position)
        self.goto(position if self.inside is None else position - 1)

    def _back_to(self, position: int) -> None:
        """Restore the last saved state at or before a position; later ones stay, and are not made again."""
        index = bisect_right(self._places, position) - 1
        self._standing = {}
        self._asleep = dict(self._states[index])
        self.position, self.inside = self._places[index], None
        self._changed = set()
