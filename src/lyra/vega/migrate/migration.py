"""Going on with a changed program: whether that is safe, and what it takes.

A run is a journal. Its next execution restores every live process by running the program again from the process's last
checkpoint, answered from the journal. So another program may take over where nothing of that shows a difference:

- it is rehearsed (`migrate.rehearsal`): it has to ask for what the run asked for, print what the run printed, and use
  every answer that the run has; what was changed in code that no process comes to again is then free to differ;
- calls that were in progress when a process was saved have to be in functions that are the same to the instruction;
- agents that are in use may change in what decides how the next call is made (`HARMLESS`), and calls that were made
  keep the settings that they were made with;
- it may not be allowed more than the run was allowed when it began.

Everything else is refused, with what changed and why that is not safe. A migration is a row of the journal: from there
on the other program is in force, in all later lives.

    migration = plan_migration(run, compiled, texts)  # None where the code is the same; ConfigError where unsafe

What changed between two programs, by the names of their parts, and which part a line belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import unified_diff
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core import codec
from lyra.core.naming import VEGA_AGENT, VEGA_PROCESS
from lyra.errors import ConfigError, SourceError
from lyra.vega.bytecode.file import content_hash
from lyra.vega.bytecode.opcodes import OP_GLOBAL_GET
from lyra.vega.bytecode.program import Program
from lyra.vega.bytecode.renumber import find_changed_functions, find_reachable, is_gone, renumber
from lyra.vega.durable.durable_run import agent_of, arguments_of
from lyra.vega.durable.record import MAIN, ProgramMigration
from lyra.vega.machine.link import link
from lyra.vega.migrate.rehearsal import Rehearsal, describe_effect
from lyra.vega.runtime.agents.plan import HARMLESS, difference
from lyra.vega.runtime.rights import Rights, settings_of
from lyra.vega.syntax.ast import Declaration
from lyra.vega.syntax.parser import parse
from lyra.vega.syntax.source import Source
from lyra.vega.values.values import UNSET

if TYPE_CHECKING:
    from lyra.kernel.journal.history import ProcessState
    from lyra.vega.durable.runs import DurableRun


class SourceChange(NamedTuple):
    """`what` is added, removed or changed; `line` is in the newer program, of what was removed in the older one."""

    what: str
    kind: str
    name: str
    file: str
    line: int

    @property
    def part(self) -> tuple[str, str]:
        return self.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.name} was {self.what} ({self.file}:{self.line})"


def _bare(program: Program) -> bytes:
    plain = msgspec.to_builtins(program, builtin_types=(bytes,), enc_hook=repr)
    plain.update(name="", files=[])
    for function in plain["functions"]:
        function["places"] = []
    for agent in plain["agents"].values():
        agent.update(line=0, column=0)
    return msgspec.msgpack.encode(plain)


# ---------------------------------------------------------------- by name
def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[SourceChange]:
    """Return the declarations that differ, in the order of the newer sources; of texts by the names of their files."""
    listed: list[SourceChange] = []
    before, after = _parts(_under_new_names(old, new)), _parts(new)
    for key, (text, file, line) in after.items():
        if key not in before:
            listed.append(SourceChange("added", *key, file, line))
        elif before[key][0] != text:
            listed.append(SourceChange("changed", *key, file, line))
    listed += [SourceChange("removed", *key, file, line) for key, (_, file, line) in before.items() if key not in after]
    return listed


def lines_changed(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the lines that differ, as `diff` shows them, file by file."""
    lines: list[str] = []
    before = _under_new_names(old, new)
    for file in dict.fromkeys((*new, *before)):
        was, is_now = before.get(file, "").splitlines(), new.get(file, "").splitlines()
        lines += unified_diff(was, is_now, f"{file} of the run", file, n=1, lineterm="")
    return lines


def _under_new_names(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Give a file its new name where one file is gone and one has come."""
    gone, come = [file for file in old if file not in new], [file for file in new if file not in old]
    name = {gone[0]: come[0]} if len(gone) == len(come) == 1 else {}
    return {name.get(file, file): text for file, text in old.items()}


def _parts(sources: Mapping[str, str]) -> dict[tuple[str, str], tuple[Any, str, int]]:
    """Return the meaning of each declaration and of what stands between them, by kind and name, with its place."""
    parts: dict[tuple[str, str], tuple[Any, str, int]] = {}
    for file, text in sources.items():
        try:
            statements = parse(text, file).statements
        except SourceError:
            parts["file", file] = (text, file, 1)
            continue
        source = Source(file, text)
        loose: list[Any] = []
        first = 0
        for statement in statements:
            line, _ = source.place(statement.at)
            if isinstance(statement, Declaration):
                parts[_part(statement)] = (_shape(statement), file, line)
            else:
                loose.append(_shape(statement))
                first = first or line
        if loose:
            parts["top level", f"of {file}"] = (loose, file, first)
    return parts


_KINDS = {"Function": "fn"}


class Owners:
    """Which declaration each line of the sources belongs to; between them it is the top level."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._spans: dict[str, list[tuple[int, int, tuple[str, str]]]] = {}
        for file, text in sources.items():
            try:
                statements = parse(text, file).statements
            except SourceError:
                continue
            source = Source(file, text)
            self._spans[file] = [
                (source.place(statement.at)[0], source.place(max(statement.end - 1, statement.at))[0], _part(statement))
                for statement in statements
                if isinstance(statement, Declaration)
            ]

    def declaration_of(self, program: Program, index: int) -> tuple[str, str]:
        """Return the declaration that a function was made of, by kind and name."""
        function = program.functions[index]
        file = program.files[function.file] if function.file < len(program.files) else ""
        lines = {line for pc in range(len(function.places)) if (line := function.place(pc)[0])}
        spans, outside = self._spans.get(file, []), ("top level", f"of {file}")
        owners = {next((part for first, last, part in spans if first <= line <= last), outside) for line in lines}
        return owners.pop() if len(owners) == 1 else ("top level", f"of {file}")


def _part(statement: Any) -> tuple[str, str]:
    kind = _KINDS.get(type(statement).__name__, type(statement).__name__.lower())
    return kind, str(getattr(statement, "name", ""))


def _shape(node: Any) -> Any:
    """Return a part of the tree without its places."""
    if isinstance(node, msgspec.Struct):
        fields = [_shape(getattr(node, name)) for name in node.__struct_fields__ if name not in ("at", "end")]
        return (type(node).__name__, *fields)
    if isinstance(node, (list, tuple)):
        return [_shape(part) for part in node]
    if isinstance(node, dict):
        return {key: _shape(part) for key, part in node.items()}
    return node


_SHOWN_MAX: Final = 12
_LINES_MAX: Final = 60


def plan_migration(
    run: DurableRun, program: Program, sources: Mapping[str, str], *, say: Callable[[str], str] | None = None
) -> ProgramMigration | None:
    """Decide how a run continues with a program: None where its code is the same. ConfigError with what changed and why
    that is not safe, where it is not. `say` has the words of a command about the run, as its caller has to give it."""
    if content_hash(program) == run.hash:
        return None
    before = run.program()
    newer = renumber(before, program)
    # Whether nothing that happens can differ: all but places and names of files is equal.
    if _bare(before) == _bare(newer):
        return None
    case = _Case(run, before, ProgramMigration(before, newer, sources))
    if case.is_safe():
        case.migration.changes = [f"{change}: {why}" for change, why in case.verdicts()] or ["its instructions changed"]
        return case.migration
    resume, replay = (f"vega {verb} {run.id}" if say is None else say(verb) for verb in ("resume", "replay"))
    raise ConfigError(
        f"the program changed since run {run.id} began, and the run cannot go on with it:\n{case.describe()}",
        hint=f"go on with the program that the run has: {resume}; see what it did: {replay}; "
        f"or begin a new run: vega run {program.name}",
        run=run.id,
    )


class _Trouble(NamedTuple):
    """Why it is not safe: `part` is the declaration it is about, or else a process and where that is."""

    text: str
    part: tuple[str, str] | None = None
    pid: str = ""


class _Case:
    """One run, its program and the one that would take over."""

    def __init__(self, run: DurableRun, before: Program, migration: ProgramMigration) -> None:
        self.run = run
        self.before = before
        self.migration = migration
        self.newer = migration.program
        self.changed = find_changed_functions(before, self.newer)
        self.changes: list[SourceChange] = changes(run.sources(), migration.sources) if migration.sources else []
        self.troubles: list[_Trouble] = []
        self.live = {pid: state for pid, state in run.processes.items() if state.exit is None}
        self.processes = {pid: state for pid, state in self.live.items() if state.created.program == VEGA_PROCESS}

    def is_safe(self) -> bool:
        if self.run.is_over:
            self.troubles.append(_Trouble("the run is over: there is nothing left that another program could do"))
            return False
        for check in (self._rights, self._frames, self._values, self._variables, self._agents, self._tools):
            check()
        if not self.troubles:
            self._rehearsals()
        return not self.troubles

    # ------------------------------------------------------------ what processes hold

    def _rights(self) -> None:
        folder = self.run.began["folder"]
        old, new = (Rights(link(program, is_hashed=False), folder) for program in (self.before, self.newer))
        allowed = {right for layer in old.grant.layers for right in layer}
        more = [right for layer in new.grant.layers for right in layer if right not in allowed]
        if more and old.grant.layers:
            listed = ", ".join(sorted(map(str, more)))
            self.troubles.append(_Trouble(f"it wants to do more than the run was allowed when it began: {listed}"))

    @cached_property
    def _saved(self) -> dict[str, Any]:
        """The processes that come back from a checkpoint, as they were saved."""
        fibers = {}
        for pid, state in self.processes.items():
            raw = self.run.space.get_blob(state.restored_blob) if state.restored_blob else bytes(state.restored)
            kept = codec.decode(raw)
            if kept is not None:
                fibers[pid] = {**kept["fiber"], "printed": kept["printed"]}
        return fibers

    def _frames(self) -> None:
        for pid, fiber in self._saved.items():
            for index in {frame[0] for frame in fiber["frames"]} & self.changed:
                problem = f"process {pid} was saved in the middle of `{self.before.functions[index].name}`"
                self.troubles.append(_Trouble(problem, self._owner(index), pid))

    def _values(self) -> None:
        """Functions that processes hold as values: one that captured something is a part of its code, any other only
        a name."""
        fragile = {index for index in self.changed if not self._is_name(index)}
        if not fragile:
            return
        for pid, state in self.live.items():
            for index in self._find_held_functions(state) & fragile:
                problem = f"process {pid} holds `{self.before.functions[index].name}` as a value"
                self.troubles.append(_Trouble(problem, self._owner(index), pid))

    def _is_name(self, index: int) -> bool:
        old, new = self.before.functions[index], self.newer.functions[index]
        return not is_gone(new) and old.parameters == new.parameters and not old.captures and not new.captures

    def _find_held_functions(self, state: ProcessState) -> set[int]:
        """Return the functions that what the journal keeps for a process names."""
        functions: set[int] = set()
        for data in self._list_kept(state):
            functions.update(_find_functions(data))
        return functions

    def _list_kept(self, state: ProcessState) -> Iterator[Any]:
        get_blob = self.run.space.get_blob
        yield arguments_of(self.run, state)
        kept = [(state.restored, state.restored_blob), *((message, blob) for _, message, blob, _ in state.inbox)]
        kept += [(entry.value, entry.blob) for entry in state.effects.values() if entry.done]
        for raw, blob in kept:
            yield codec.decode(get_blob(blob) if blob else bytes(raw))

    def _variables(self) -> None:
        """Check the added variables: the top level sets them, so a process that resumes after it finds them unset."""
        added = range(len(self.before.globals), len(self.newer.globals))
        if not added:
            return
        for (
            pid,
            state,
        ) in self.live.items():  # also supervisors, which restart children with the arguments of their first start
            is_agent = state.created.program == VEGA_AGENT or state.created.program.startswith("agent:")
            if is_agent or (pid == MAIN and pid not in self._saved):
                continue
            roots = self._find_held_functions(state) | {
                frame[0] for frame in self._saved.get(pid, {"frames": ()})["frames"]
            }
            if pid == MAIN:
                roots |= set(_list_entry_points(self.newer))
            for index in find_reachable(self.newer, roots):
                slots = {b for op, _, b, _ in self.newer.functions[index].code if op == OP_GLOBAL_GET}
                for slot in slots.intersection(added):
                    name = self.newer.globals[slot]
                    problem = f"process {pid} is past the top level, which would have set `{name}`"
                    self.troubles.append(_Trouble(problem, self._owner(index), pid))

    # ------------------------------------------------------------ agents

    def _agents(self) -> None:
        fronts: dict[str, list[str]] = {}
        for pid, state in self.run.processes.items():
            agent = agent_of(self.run, pid, state)
            if agent is not None:
                fronts.setdefault(agent[1], []).append(pid)
        for name, pids in fronts.items():
            self._agent(name, [pid for pid in pids if pid in self.live])

    def _agent(self, name: str, live: list[str]) -> None:
        part = ("agent", name)
        old, new = self.before.agents.get(name), self.newer.agents.get(name)
        if old is None:  # one that a migration took away before
            return
        if new is None:
            if live:
                self.troubles.append(_Trouble(f"agent {name} is gone, and process {live[0]} is one", part))
            return
        was, becomes = self._settings(self.before, old.configuration), self._settings(self.newer, new.configuration)
        if was is None or becomes is None:
            if live and {old.configuration, new.configuration} & self.changed:
                self.troubles.append(_Trouble("its settings depend on what only the running program knows", part))
            return
        setting_change = difference(name, was, becomes)
        unsafe = [key for key in setting_change.keys if key not in HARMLESS]
        if unsafe and live:
            words = " and ".join(f"`{key}`" for key in unsafe)
            self.troubles.append(_Trouble(f"{words} cannot change while process {live[0]} is that agent", part))
        elif setting_change.keys and live and was.get("memory", "none") != "none":
            problem = f"process {live[0]} has a conversation with it that was begun with the settings it had"
            self.troubles.append(_Trouble(problem, part))
        elif setting_change.keys and not unsafe:
            self.migration.setting_changes.append(setting_change)

    def _settings(self, program: Program, function: int) -> dict[str, Any] | None:
        """Return an agent's settings with the variables that the main process has."""
        known = [*self._old.globals, *[UNSET] * (len(program.globals) - len(self._old.globals))]
        return settings_of(link(program, is_hashed=False), function, known[: len(program.globals)])

    def _tools(self) -> None:
        """Check the tools of calls that are under way: their models were told of them, and may have run some."""
        for pid, state in self.live.items():
            kind, _, name = state.created.program.partition(":")
            if kind != "agent":
                continue
            name = name.partition("~")[0]
            if _offer(self.before, name, self.before.tools) != _offer(self.newer, name, self.before.tools):
                self.troubles.append(
                    _Trouble(f"process {pid} is a call under way, whose model knows its tools", ("agent", name), pid)
                )
            for entry in state.effects.values():
                is_ours = entry.kind == "spawn" and entry.name == VEGA_PROCESS
                ran = self.run.processes.get(entry.link) if is_ours else None
                indexes = set() if ran is None else _find_functions(arguments_of(self.run, ran))
                for index in find_reachable(self.before, indexes) & self.changed:
                    problem = f"process {pid}, a call under way, has run it as a tool"
                    self.troubles.append(_Trouble(problem, self._owner(index), pid))
                if ran is not None and len(self.newer.globals) != len(self.before.globals):
                    self.troubles.append(_Trouble(f"a tool of process {pid} was begun with fewer variables", None, pid))

    # ------------------------------------------------------------ the rehearsals

    @cached_property
    def _old(self) -> Rehearsal:
        rehearsal = Rehearsal(self.run, self.before)
        rehearsal.rehearse()
        return rehearsal

    @cached_property
    def _new(self) -> Rehearsal:
        rehearsal = Rehearsal(self.run, self.newer, self.migration)
        rehearsal.rehearse()
        return rehearsal

    def _rehearsals(self) -> None:
        new = self._new
        for pid, state in self.processes.items():
            asked = {key for key in state.effects if not str(key).startswith("doubt:")}
            if state.stopping:
                continue
            if pid in new.diverged:
                self._differs(pid, *new.diverged[pid])
            elif not asked <= new.taken.get(pid, set()):
                self._differs(
                    pid, new.stands.get(pid, ""), self._describe_left_effect(state, new.taken.get(pid, set()))
                )
            else:
                self._lines(pid)

    def _describe_left_effect(self, state: ProcessState, taken: set[Any]) -> str:
        entry = next((entry for key, entry in state.effects.items() if key not in taken), None)
        return "comes to something else than the run did" + (
            f", which {describe_effect(entry.kind, entry.name)}" if entry else ""
        )

    def _lines(self, pid: str) -> None:
        """Check that it prints what was printed; lines before its checkpoint are not printed again."""
        count, new = self.run.facts.printed.get(pid, 0), self._new.printed.get(pid, {})
        first = int(self._saved[pid]["printed"]) if pid in self._saved else 0
        for number, line in self._read_printed(pid, count).items():
            if first <= number < count and new.get(number) != line:
                self._differs(pid, "", f"printed {line[:80]!r} where it would print {str(new.get(number))[:80]!r}")
                return

    def _read_printed(self, pid: str, count: int) -> dict[int, str]:
        """Return the lines of a process: of the journal, or, where that was shortened, as the program that printed them
        does it again."""
        rows = [record.data for record in self.run.rows(pid=pid, kind="run.printed")]
        if len(rows) != count:
            return self._old.printed.get(pid, {})
        return {number: str(codec.decode(data)["text"]) for number, data in enumerate(rows)}

    def _differs(self, pid: str, place: str, problem: str) -> None:
        problem = problem if problem.startswith(f"process {pid} ") else f"process {pid} {problem}"
        self.troubles.append(_Trouble(f"{problem} ({place})" if place else problem, None, pid))

    # ------------------------------------------------------------ in words

    @cached_property
    def _owners(self) -> tuple[Owners, Owners]:
        return Owners(self.run.sources()), Owners(self.migration.sources)

    def _owner(self, index: int) -> tuple[str, str]:
        old, new = self._owners
        if index < len(self.newer.functions) and not is_gone(self.newer.functions[index]):
            return new.declaration_of(self.newer, index)
        return old.declaration_of(self.before, index)

    def verdicts(self) -> list[tuple[SourceChange, str]]:
        """Each change, and what is to be said about it."""
        return [(change, self._verdict(change)) for change in self.changes]

    def _verdict(self, change: SourceChange) -> str:
        trouble_here = next((trouble for trouble in self.troubles if trouble.part == change.part), None)
        if trouble_here is not None:
            return trouble_here.text
        changed_settings = [
            key
            for setting_change in self.migration.setting_changes
            if ("agent", setting_change.agent) == change.part
            for key in setting_change.keys
        ]
        if changed_settings and not self.troubles:
            return f"calls to come have the new {' and '.join(changed_settings)}"
        if change.what == "added" and change.kind != "const":
            return "nothing has come to it yet"
        functions = self._functions(change)
        comes = {pid for pid, entered in self._old.entered.items() if entered & functions}
        for trouble in self.troubles:
            if trouble.pid in comes:
                return f"process {trouble.pid} runs it again when the run goes on"
        if change.kind == "top level" and MAIN in self._saved:
            return "it is not run again: variables stay as the run has them"
        if comes:
            return "what the run did with it stays as it was"
        return "no process comes to it again before it goes on"

    def _functions(self, change: SourceChange) -> set[int]:
        """Return the functions that a change is about; of a constant those that it is a part of."""
        owned = {index: self._owner(index) for index in self.changed}
        functions = {index for index, part in owned.items() if part == change.part}
        if not functions:
            changed_parts = {other_change.part for other_change in self.changes}
            functions = {index for index, part in owned.items() if part not in changed_parts or part[0] == "top level"}
        return functions

    def describe(self) -> str:
        """Describe what changed, and why that is not safe."""
        lines = [f"  {change}: {why}" for change, why in self.verdicts()][:_SHOWN_MAX]
        if len(self.changes) > _SHOWN_MAX:
            lines.append(f"  … and {len(self.changes) - _SHOWN_MAX} more")
        parts = {change.part for change in self.changes}
        others = dict.fromkeys(trouble.text for trouble in self.troubles if trouble.part not in parts)
        lines += [f"  {text}" for text in [*others][:_SHOWN_MAX]]
        return "\n".join(lines + self._difference())

    def _difference(self) -> list[str]:
        """Return the lines of the sources that differ."""
        lines = lines_changed(self.run.sources(), self.migration.sources) if self.migration.sources else []
        more = [f"… and {len(lines) - _LINES_MAX} lines more"] if len(lines) > _LINES_MAX else []
        return ["", *lines[:_LINES_MAX], *more] if lines else []


def _find_functions(data: Any) -> set[int]:
    """Return the functions that values in a journal's form name: `["function", index, captured]`, however deep."""
    functions: set[int] = set()
    todo = [data]
    while todo:
        item = todo.pop()
        if type(item) is dict:
            todo += item.values()
        elif type(item) is list:
            if len(item) == 3 and item[0] == "function" and type(item[1]) is int:
                functions.add(item[1])
            todo += item
    return functions


def _list_entry_points(program: Program) -> Iterable[int]:
    """Yield the functions that are called from outside the program's own code: tools, and the settings of agents."""
    for info in program.agents.values():
        yield info.configuration
        yield from (tool.function for tool in info.tools)
    for tool in program.tools.values():
        yield tool.function
        if tool.configuration >= 0:
            yield tool.configuration


def _offer(program: Program, agent: str, shared: Iterable[str]) -> list[Any]:
    """Return what a model is told of the tools of an agent: its own, and those that several may share."""
    info = program.agents.get(agent)
    linked = link(program, is_hashed=False)
    tools = [*([] if info is None else info.tools), *(program.tools[name] for name in shared if name in program.tools)]
    return [
        (
            tool.name,
            [(parameter.name, parameter.type, parameter.has_default) for parameter in tool.parameters],
            repr(settings_of(linked, tool.configuration)),
        )
        for tool in tools
    ]
