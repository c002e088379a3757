"""One life of a durable run: its kernel on the run's own journal, from the beginning or from where the last life was
killed, until the main process ends or this life is stopped.

A run is a space in a store's file: nobody else's journal, lease or snapshot is touched by it. Everything that its
processes do is in that journal before a program sees it. What an earlier life has printed is not printed again by this
one; who wants the whole output asks the run for it (`lyra.vega.runs`). Whoever wants something of a live run, an answer
to its question or its end, leaves a note in its space, which the life looks for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.runtime import scopes
from lyra.core import codec
from lyra.core.budget import NOTHING, Usage
from lyra.errors import LyraError, StoreFull
from lyra.kernel.kernel import Kernel
from lyra.vega import bytecode
from lyra.vega.runtime.agents import agent_front
from lyra.vega.runtime.driver import vega_process
from lyra.vega.runtime.homecoming import Homecoming
from lyra.vega.runtime.record import MAIN, Record, RunState
from lyra.vega.runtime.run import MAILBOX_MESSAGES, value_of
from lyra.vega.runtime.standstill import Standstill
from lyra.vega.runtime.world import Options, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lyra.config import Config
    from lyra.kernel.handle import Handle
    from lyra.kernel.process import Exit
    from lyra.kernel.recall import ProcessState
    from lyra.store.space import Space
    from lyra.vega.program import Program
    from lyra.vega.runs import Run

__all__ = ["Life", "answer_note", "cancel_note", "end"]

_LOOK_S: Final = 0.25  # between two looks for notes
_ENDED: Final = "cancelled"
_ASK: Final = b"lyra.ask"


def answer_note(interrupt_id: str, response: Mapping[str, Any]) -> bytes:
    """A note that answers a question of the run."""
    return codec.encode({"answer": interrupt_id, "response": dict(response)})


def cancel_note() -> bytes:
    """A note that ends the run."""
    return codec.encode({"cancel": True})


class Life:
    """`before` is the run as earlier lives left it, None for a new one; `began` is told its id once it is durable,
    `asks` of each question that waits."""

    def __init__(
        self,
        space: Space,
        program: Program,
        options: Options,
        *,
        before: Run | None = None,
        config: Config | None = None,
        began: Callable[[str], object] = lambda _: None,
        asks: Callable[[Any], object] = lambda _: None,
    ) -> None:
        self._space = space
        self._before = before
        self._began_with = began
        self._asks = asks
        self._asked: set[str] = set()  # questions that were told
        programs = [vega_process, agent_front]
        if config is None:
            self.kernel = Kernel(space, programs=programs, mailbox_messages_max=MAILBOX_MESSAGES)
        else:
            self.kernel = Kernel.from_config(
                config, store=space, programs=programs, mailbox_messages_max=MAILBOX_MESSAGES
            )
        self._record = Record(self.kernel, options.write)
        self.world = World(self.kernel, program, options, MAIN)
        self.world.record = self._record

    async def run(self, facts: Mapping[str, Any] | None = None) -> Any:
        """To its end: what main returned, or the error that nobody caught. `facts` is what a new run keeps."""
        kernel, world = self.kernel, self.world
        if self._before is not None:
            world.runtime.name = str(self._before.began["nonce"])
            self._recall(self._before)
        await kernel.start()
        try:
            self._record.open()
            world.runtime.tokens.told = self._record.learn
            for process in kernel.processes.values():
                process.context.run(scopes.set, (world.budget,))
            if self._before is not None:
                self._expect(self._before)
                world.names.update(self._record.names)
                for model, learned in self._record.learned.items():
                    world.runtime.tokens.know(model, *learned)
                world.home = Homecoming(world)
            await world.foreign.start()
            main = self._began(dict(facts or {})) if self._before is None else kernel.process(MAIN)
            self._listen()
            standstill = Standstill(world, MAIN)
            try:
                ended = await self._ended(main)
            finally:
                standstill.stop()
                world.is_over = kernel.process(MAIN).alive is False
                if world.picture is not None:
                    world.picture.over()
            if ended.reason != "divergence":  # with the right program it goes on
                self._record.end(ended)
            if standstill.error is not None:
                raise standstill.error
            return value_of(world, ended)
        finally:
            world.close()
            await kernel.close(drain_s=0.0, snapshot=not world.is_over)

    async def _ended(self, main: Handle) -> Exit:
        """How the main process ended, once that is in the store, however long there is no room in it."""
        while True:
            try:
                return await main.wait()
            except StoreFull:
                await self.kernel.outside_pause(_LOOK_S)

    def _recall(self, before: Run) -> None:
        """What a life has to know of those before it, which no program's replay tells."""
        world = self.world
        world.budget.charge(Usage.from_data(before.spent))
        front = self.kernel.programs.name(agent_front)
        for pid, state in before.processes.items():
            if state.spent:
                self._recall_spent(before, pid, state)
            if state.created.program == front:
                _, name, settings = codec.decode(_arguments(before, state))
                world.expected[state.created.parent if state.created.guarded else pid] = (name, settings)

    def _recall_spent(self, before: Run, pid: str, state: ProcessState) -> None:
        """Who has to count it in its sessions: the nearest process above that replays, at the start of what is below
        it. Of a conversation the record knows, since its turns belong to whoever asked."""
        fiber, world = self.kernel.programs.name(vega_process), self.world
        if _is_conversation(before, state, (fiber, self.kernel.programs.name(agent_front))):
            return
        spent = Usage.from_data(state.spent)
        while (above := before.processes.get(state.created.parent)) is not None:
            if above.exit is None and above.created.program == fiber:
                world.spent_before[pid] = world.spent_before.get(pid, NOTHING) + spent
                return
            pid, state = state.created.parent, above

    def _expect(self, before: Run) -> None:
        """Questions to conversations that are on their way, or answered and not yet heard: whoever asked them asks
        again, and must find them."""
        for pid, state in before.processes.items():
            process = self.kernel.processes.get(pid)
            if process is None or process.exit is not None:
                continue
            heard = [entry.value for entry in state.effects.values() if entry.kind == "receive"]
            for raw in (*heard, *(message for _, message, _, _ in state.inbox)):
                if _ASK in bytes(raw):
                    found = codec.decode(bytes(raw))
                    request_id = found.get("lyra.ask", "") if isinstance(found, dict) else ""
                    if _is_open(before, request_id):
                        stream = "/" in request_id
                        self.world.runtime.expect(request_id, process, (self.world.budget,), stream=stream)

    def _began(self, facts: dict[str, Any]) -> Handle:
        """The first rows of the run: what it is, and its main process; in one commit, so that there is both or none."""
        kernel, world = self.kernel, self.world
        program = kernel.call_now(self._space.put_blob, bytecode.dump(world.linked.program))
        sources = facts.pop("sources", None)
        world.runtime.name = kernel.entropy.text(12)
        facts |= {"nonce": world.runtime.name, "hash": world.linked.hash, "program": program}
        facts["sources"] = kernel.call_now(self._space.put_blob, codec.encode(sources)) if sources else ""
        self._record.begin(facts, self._began_with)
        grant = world.rights.grant
        if world.options.grant is not None:
            grant = world.options.grant.narrow(grant)
        return kernel.spawn(vega_process, world.run_id, None, pid=MAIN, grant=grant)

    # ------------------------------------------------------------ people

    def _listen(self) -> None:
        self.kernel.tasks.start(self._look(), name="vega notes")

    async def _look(self) -> None:
        kernel, space = self.kernel, self._space
        is_full = False
        while True:
            for number, data in await kernel.call(space.notes):
                await self._take(codec.decode(data))
                await kernel.call(space.drop_note, number)
            for waiting in kernel.interrupts.pending():
                if waiting.id not in self._asked:
                    self._asked.add(waiting.id)
                    self._asks(waiting)
            full = None if kernel.journal is None else kernel.journal.stuck
            if full is not None and not is_full:
                self.world.options.warn(f"warning: {full.message}")
            is_full = full is not None
            await kernel.outside_pause(_LOOK_S)

    async def _take(self, note: dict[str, Any]) -> None:
        if note.get("cancel"):
            await self.kernel.kill(MAIN, _ENDED)
            return
        try:
            await self.kernel.resolve_interrupt(note["answer"], note["response"])
        except LyraError as refusal:  # it was answered already, or is over
            self.world.options.warn(f"an answer was not used: {refusal.message}")


def _arguments(before: Run, state: ProcessState) -> bytes:
    created = state.created
    return before.space.get_blob(created.blob) if created.blob else bytes(created.args)


def _is_conversation(before: Run, state: ProcessState, ours: tuple[str, ...]) -> bool:
    """Whether a process is an agent's that answers many: it was started without a question."""
    return state.created.program not in ours and not codec.decode(_arguments(before, state))


def _is_open(before: Run, request_id: str) -> bool:
    """Whether the process that asked has not heard the answer: `~pid:key` of a call, `~pid/number` of a stream."""
    if not request_id.startswith("~"):
        return False
    pid, colon, key = request_id[1:].partition(":")
    asker = before.processes.get(pid if colon else pid.rpartition("/")[0])
    if asker is None or asker.exit is not None:
        return False
    if not colon:
        return True
    entry = asker.effects.get(int(key) if key.isdigit() else key)
    return entry is not None and not entry.done


async def end(space: Space, before: Run) -> None:
    """Cancel a run: by its owner, who finds the note, or here, where nobody is at work on it. No program is run."""
    kernel = Kernel(space)
    kernel.states[RunState.NAME] = RunState()
    while True:
        if before.owner:
            await _pause()
            before = type(before)(space)
            if before.is_over:
                return
            continue
        await kernel.start()
        break
    try:
        for number, _ in space.notes():
            space.drop_note(number)
        main = kernel.process(MAIN)
        if main.alive:
            await main.kill(_ENDED)
    finally:
        await kernel.close(drain_s=0.0)


async def _pause() -> None:
    await asyncio.sleep(_LOOK_S)
