"""A stretch: statements in a row without a barrier, and how the calls in it depend on each other.

Every value of a stretch has a level: 1 when it is known before any call of the stretch has answered, 2 when it needs
answers of calls whose questions are of level 1, and so on; NEVER when it cannot be computed ahead at all. The question
of a call is put as early as its level allows; its answer is one level higher. Levels flow through assignments as in
SSA form: each assignment gives a variable a new one, branches join to the higher, and a loop is repeated until its
levels stay as they are, so a sum over answers stays at level 2 and a chain of questions goes to NEVER.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from lyra.vega.plan.aliases import CHANGING, Aliases
from lyra.vega.plan.names import ModuleScope, Symbol, Variable
from lyra.vega.plan.summaries import EFFECTS, SAFE_METHODS, EffectSite, Summaries, find_changed_value
from lyra.vega.syntax import ast
from lyra.vega.syntax.facts import children, parts

NEVER: Final = 99
_STATEMENTS_MAX: Final = 128  # of one stretch: more calls than that are not under way together anyway
LEVELS_MAX: Final = 4  # questions that wait for answers that wait for answers …: more is a chain, not a web
ALLOWED: Final = frozenset({"ask", "asks", "change", "global", "continue", "method"})


class Barrier(Exception):
    """A statement that ends a stretch: what it does and where, and why that is in the way where it need not be."""

    def __init__(self, why: str, node: ast.SyntaxNode, because: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.node = node
        self.because = because


class EarlyValue(NamedTuple):
    level: int
    needs: frozenset[int]  # the numbers of the sites whose answers it holds

    def __or__(self, other: object) -> EarlyValue:
        assert isinstance(other, EarlyValue)
        return EarlyValue(max(self.level, other.level), self.needs | other.needs)


KNOWN: Final = EarlyValue(1, frozenset())
NOT_AHEAD: Final = EarlyValue(NEVER, frozenset())


class Site:
    """A place that makes a call: a send, or the call of a function that asks."""

    def __init__(self, node: ast.Send | ast.Call, number: int) -> None:
        self.node = node
        self.number = number
        self.level = 1
        self.needs: frozenset[int] = frozenset()
        self.in_loop = False
        self.in_order = True  # no call before it is put later than it
        self.hands_back = False  # its value may be something that the caller has, or hold it
        self.asks_once = True  # its answer is the end of it: it asks nothing else
        self.because = ""  # what keeps its question from being known before, besides answers
        self.why = ""  # it is made in its turn

    @property
    def is_early(self) -> bool:
        return not self.why and self.level < NEVER


class Stretch:
    def __init__(self, summaries: Summaries, module: ModuleScope) -> None:
        self.summaries = summaries
        self.module = module
        self.aliases: Aliases = summaries.aliases
        self.statements: list[ast.Statement] = []
        self.end: ast.Expression | None = None  # what the last statement, a print or return, needs
        self.barrier: Barrier | None = None  # what ends it
        self.sites: dict[int, Site] = {}  # by id(node), in the order of the program
        self.spawns: dict[int, int] = {}  # the numbers of the spawns in it, by id(node)
        self.levels: dict[int, int] = {}  # of the statements that give variables a value
        self.assigned: set[int] = set()  # ids of variables that get a value in it
        self._state: dict[Any, EarlyValue] = {}
        self._changed: set[int] = set()
        self._changed_as: dict[int, str] = {}  # the name of one that changes, for each of those
        self._read: set[int] = set()  # classes of lists and maps that were read
        self._captured: set[int] = set()  # ids of variables that a function or lambda was found to read
        self._loops = 0
        self._because = ""  # why what is looked at is not known ahead

    # ------------------------------------------------------------ growing

    def add(self, statement: ast.Statement) -> None:
        """Take one more statement in, or raise the Barrier that it is."""
        self.check(statement)
        assigned, changed_before = set(self.assigned), set(self._changed)
        self._note_writes(statement)
        try:
            if (self.assigned - assigned) & self._captured or (self._changed - changed_before) & self._read:
                self._again()  # what reads something that is written later is not known ahead
            self._statement(statement)
        except Barrier:
            self.assigned, self._changed = assigned, changed_before
            self._again()
            raise
        self.statements.append(statement)

    def _again(self) -> None:
        self._state, self.levels, self.sites, self.spawns, self._loops = {}, {}, {}, {}, 0
        for statement in self.statements:
            self._statement(statement)

    def add_end(self, statement: ast.Statement, value: ast.Expression) -> None:
        """Add a print or return as the last statement: its value is computed before it acts."""
        self.check(value)
        self._expression(value)
        self.end = value
        self.barrier = Barrier("the return" if isinstance(statement, ast.Return) else "the print", statement)
        self.statements.append(statement)

    def check(self, node: Any) -> None:
        for effect_site in self.summaries.effects(node, self.module):
            if effect_site.effect == "continue" and not _is_inside(effect_site.node, node):
                raise Barrier("the continue", effect_site.node)  # it leaves the stretch
            is_through = bool(effect_site.through) and effect_site.effect in ("change", "global")
            if effect_site.effect in ALLOWED and not is_through:
                continue
            if isinstance(effect_site.node, ast.Spawn):
                because = self.summaries.why_spawn_stays(effect_site.node, self.module)
                if not because:
                    continue
                raise Barrier("the spawn", effect_site.node, because)
            raise Barrier(says(effect_site), effect_site.node)

    def _note_writes(self, node: Any) -> None:
        for part in parts(node):
            variable = self.module.declared.get(id(part))
            if isinstance(part, ast.Assign):
                meaning = self.module.meanings.get(id(part.target))
                if isinstance(meaning, Variable):
                    variable = meaning
            if variable is not None:
                self.assigned.add(id(variable))
            root = find_changed_value(part) if _is_change(part) else None
            while isinstance(root, (ast.Index, ast.Field)):
                root = root.target
            meaning = self.module.meanings.get(id(root)) if root is not None else None
            if isinstance(meaning, Variable):
                self._changed.add(self.aliases.get_change_key(meaning))
                self._changed_as.setdefault(self.aliases.get_change_key(meaning), meaning.name)

    # ------------------------------------------------------------ the outcome of it

    @property
    def early(self) -> list[Site]:
        return [site for site in self.sites.values() if site.is_early]

    @property
    def overlaps(self) -> list[list[Site]]:
        """The early calls that run beside each other: those of one level, where there are several or a loop of them."""
        levels = []
        for level in sorted({site.level for site in self.early}):
            sites = [site for site in self.early if site.level == level]
            if len(sites) > 1 or sites[0].in_loop:
                levels.append(sites)
        return levels

    # ------------------------------------------------------------ statements

    def _statement(self, node: Any) -> None:
        kind = type(node)
        if kind is ast.Let or kind is ast.Const:
            self._set(node, self.module.declared[id(node)], node.value)
        elif kind is ast.Assign:
            self._assign(node)
        elif kind is ast.ExpressionStatement:
            self._expression(node.value)
        elif kind is ast.Block:
            for statement in node.statements:
                self._statement(statement)
        elif kind is ast.If:
            self._require_known(node.condition, "branch")
            before = dict(self._state)
            self._statement(node.then)
            after, self._state = self._state, before
            if node.otherwise is not None:
                self._statement(node.otherwise)
            self._join(after)
        elif kind in (ast.While, ast.For, ast.ForIn):
            self._loop(node)
        elif kind is not ast.Continue:
            raise Barrier(f"the {kind.__name__.lower()}", node)

    def _set(self, node: ast.Statement, variable: Variable, value: ast.Expression | None) -> None:
        early_value = KNOWN if value is None else self._expression(value)
        self._state[variable] = early_value
        self.levels[id(node)] = max(self.levels.get(id(node), 1), early_value.level)

    def _assign(self, node: ast.Assign) -> None:
        meaning = self.module.meanings.get(id(node.target))
        if isinstance(meaning, Variable):
            self._set(node, meaning, node.value)
            return
        self._expression(node.target)
        self._expression(node.value)

    def _join(self, other: dict[Any, EarlyValue]) -> None:
        for key, value in other.items():
            self._state[key] = self._state.get(key, KNOWN) | value

    def _loop(self, node: Any) -> None:
        if isinstance(node, ast.For) and node.start is not None:
            self._statement(node.start)
        if isinstance(node, ast.ForIn):
            self._require_known(node.source, "loop")
            self._state[self.module.declared[id(node)]] = KNOWN
        self._loops += 1
        try:
            while True:
                before = dict(self._state)
                if not isinstance(node, ast.ForIn) and node.condition is not None:
                    self._require_known(node.condition, "loop")
                self._statement(node.body)
                if isinstance(node, ast.For) and node.step is not None:
                    self._statement(node.step)
                self._join(before)
                if self._state == before:
                    break
        finally:
            self._loops -= 1

    def _require_known(self, condition: ast.Expression, what: str) -> None:
        """Require that a condition which decides where the program goes is known ahead and makes no call."""
        sites = len(self.sites)
        value = self._expression(condition)
        if len(self.sites) > sites:
            raise Barrier(f"a {what} that asks in its condition", condition)
        if value.level > 1:
            raise Barrier(f"a {what} that depends on an answer", condition)

    # ------------------------------------------------------------ expressions

    def _expression(self, root: Any) -> EarlyValue:
        """Return the level of an expression; sites in it are numbered in the order they are evaluated."""
        value = KNOWN
        todo = [root]
        while todo:
            node = todo.pop()
            if isinstance(node, ast.Send):
                value |= self._send(node)
            elif isinstance(node, (ast.Name, ast.Path)):
                value |= self._name(node)
            elif isinstance(node, ast.Spawn):
                value |= self._spawn(node)
            elif isinstance(node, ast.Lambda):
                value |= self._lambda(node)
            elif isinstance(node, ast.Match):
                value |= self._match(node)
            elif isinstance(node, ast.Binary) and node.operator in ("&&", "||"):
                todo.append(node.left)
                value |= self._sometimes(node.right, f"it stands behind {node.operator}")
            elif isinstance(node, ast.Call) and (called := self._call(node)) is not None:
                value |= called
            elif isinstance(node, ast.MethodCall) and node.name not in SAFE_METHODS:
                value = NOT_AHEAD
                self._because = f"a map may have a function `{node.name}` of its own"
                todo.extend(reversed(children(node)))
            else:
                todo.extend(reversed(children(node)))
        return value

    def _name(self, node: ast.Name | ast.Path) -> EarlyValue:
        meaning = self.module.meanings.get(id(node))
        if not isinstance(meaning, Variable) or meaning.literal is not None:
            return KNOWN
        if self._is_changed(meaning):
            self._because = f"it reads {self._says_changed(meaning)}"
            return NOT_AHEAD
        return self._state.get(meaning, KNOWN)

    def _is_changed(self, variable: Variable) -> bool:
        held_by = self.aliases.read_with(variable)
        self._read |= held_by
        return bool(held_by & self._changed)

    def _says_changed(self, variable: Variable) -> str:
        names = {self._changed_as[key] for key in self.aliases.read_with(variable) & self._changed}
        if not names or variable.name in names:  # it is assigned, or changes under its own name
            return f"`{variable.name}`, which changes beside it"
        return f"`{variable.name}`, which may have a part of `{min(names)}`, and that changes beside it"

    def _lambda(self, node: ast.Lambda) -> EarlyValue:
        value = KNOWN
        for part in parts(node.body):
            meaning = self.module.meanings.get(id(part)) if isinstance(part, (ast.Name, ast.Path)) else None
            if isinstance(meaning, Variable):
                value |= self._name(part)
                self._captured.add(id(meaning))
                if id(meaning) in self.assigned and (meaning.is_cell or meaning.is_global):
                    return NOT_AHEAD  # it would see the variable itself, not the copy
        return value

    def _match(self, node: ast.Match) -> EarlyValue:
        value = self._expression(node.subject)
        for arm in node.arms:
            is_plain = arm.is_value and not any(isinstance(part, ast.Assign) for part in parts(arm.body))
            inside = self._sometimes(arm.body, "it stands in an arm of a match")
            value = value | inside if is_plain else NOT_AHEAD
            for part in parts(arm.body):
                meaning = self.module.meanings.get(id(part.target)) if isinstance(part, ast.Assign) else None
                if isinstance(meaning, Variable):
                    self._state[meaning] = NOT_AHEAD
        return value

    def _sometimes(self, node: Any, why: str) -> EarlyValue:
        """Return a part that is not always evaluated: a call in it is made in its turn."""
        asking = [part for part in parts(node) if isinstance(part, ast.Send) or self._asks(part)]
        for part in asking:
            self._site(part).why = why
            self._state["all", None] = NOT_AHEAD
            if isinstance(part, ast.Send):
                self._state["to", self.summaries.targets.process(part.target, self.module)] = NOT_AHEAD
        return NOT_AHEAD if asking else self._expression(node)

    # ------------------------------------------------------------ calls

    def _site(self, node: Any) -> Site:
        site = self.sites.get(id(node))
        if site is None:
            site = self.sites[id(node)] = Site(node, len(self.sites))
        site.in_loop = site.in_loop or self._loops > 0
        return site

    def _send(self, node: ast.Send) -> EarlyValue:
        asked = KNOWN
        self._because = ""
        for part in (node.target, node.message, node.timeout, node.budget):
            if part is not None:
                asked |= self._expression(part)
        for agent in self.summaries.targets.agents(node.target, self.module) or ():
            reads = self.summaries.tool_reads(agent)
            self._captured.update(map(id, reads))
            if any(id(variable) in self.assigned or self._is_changed(variable) for variable in reads):
                asked = NOT_AHEAD  # its tools would see what the program has not yet come to change
                self._because = f"the tools of {agent.name} read what changes beside it"
        process = self.summaries.targets.process(node.target, self.module)
        told = self._find_question_level(process)
        if told > asked.level:
            self._because = "its receiver gets its messages in order, and one before it is not yet known"
        asked = EarlyValue(max(asked.level, told), asked.needs)
        answer = self._make_call(self._site(node), asked)
        self._state["to", process] = EarlyValue(max(answer.level - 1, 1), frozenset())
        return answer

    def _find_question_level(self, process: int | None) -> int:
        """Return the highest level of the questions before that may be to the same process."""
        if process is None:
            told = [value.level for key, value in self._state.items() if type(key) is tuple and key[0] == "to"]
            return max(told, default=1)
        return max(self._state.get(("to", who), KNOWN).level for who in (process, None))

    def _spawn(self, node: ast.Spawn) -> EarlyValue:
        """Return a process that is started in its turn: who will be asked is known as soon as its settings are."""
        self.spawns.setdefault(id(node), len(self.spawns))
        agent = self.module.meanings[id(node.target)]
        assert isinstance(agent, Symbol)
        reads = self.summaries.setting_reads(agent) or ()
        self._captured.update(map(id, reads))
        changes = any(id(variable) in self.assigned or self._is_changed(variable) for variable in reads)
        if not changes:
            return KNOWN
        self._because = f"the settings of {agent.name} read what changes beside it: they are not known ahead"
        return NOT_AHEAD

    def _make_call(self, site: Site, asked: EarlyValue) -> EarlyValue:
        level = NEVER if asked.level > LEVELS_MAX else asked.level
        site.because = self._because or site.because
        site.level = max(site.level, level)
        site.needs |= asked.needs
        before = self._state.get(("all", None), KNOWN)
        site.in_order = site.in_order and before.level <= site.level
        self._state["all", None] = before | EarlyValue(site.level if site.is_early else NEVER, frozenset())
        if not site.is_early:
            return EarlyValue(NEVER, frozenset({site.number}))
        return EarlyValue(site.level + 1, frozenset({site.number}))

    def _asks(self, node: Any) -> bool:
        meaning = self.module.meanings.get(id(node.callee)) if isinstance(node, ast.Call) else None
        if not isinstance(meaning, Symbol) or meaning.kind not in ("function", "tool"):
            return False
        return "asks" in self.summaries.function(meaning).effects

    def _call(self, node: ast.Call) -> EarlyValue | None:
        """Return the early value of a call; None where its parts determine it."""
        meaning = self.module.meanings.get(id(node.callee))
        if not isinstance(meaning, Symbol):
            name = getattr(node.callee, "name", "")
            if isinstance(node.callee, ast.Path) and name in CHANGING:
                for argument in node.arguments:
                    self._expression(argument.value)
                return NOT_AHEAD
            return None
        summary = self.summaries.function(meaning)
        given = KNOWN
        self._because = ""
        for argument in node.arguments:
            given |= self._expression(argument.value)
        self._captured.update(map(id, summary.reads))
        for variable in summary.reads:
            if id(variable) in self.assigned or self._is_changed(variable):
                given = NOT_AHEAD
                self._because = f"`{meaning.name}` reads {self._says_changed(variable)}"
        if "asks" in summary.effects:
            site = self._site(node)
            site.hands_back = self.aliases.hands_back(meaning)
            site.asks_once = self.summaries.asks_once(meaning)
            if summary.effects != {"asks"}:
                other = next(iter(sorted(summary.effects - {"asks"})))
                site.why = f"`{meaning.name}` does more than ask: {EFFECTS[other]}"
            return self._make_call(site, given)
        return NOT_AHEAD if summary.effects else given


def _is_inside(leaving: ast.SyntaxNode, statement: Any) -> bool:
    """Return whether the loop of a `continue` is in the statement too."""
    loops = (part for part in parts(statement) if isinstance(part, (ast.While, ast.For, ast.ForIn)))
    return any(part is leaving for loop in loops for part in parts(loop.body))


def says(effect_site: EffectSite) -> str:
    if effect_site.through and effect_site.through != "print":
        return f"`{effect_site.through}` ({EFFECTS[effect_site.effect]})"
    return EFFECTS[effect_site.effect] if " " in EFFECTS[effect_site.effect] else f"`{EFFECTS[effect_site.effect]}`"


def _is_change(node: Any) -> bool:
    if isinstance(node, ast.Assign):
        return isinstance(node.target, (ast.Index, ast.Field))
    if isinstance(node, ast.MethodCall):
        return node.name in CHANGING
    return isinstance(node, ast.Call) and isinstance(node.callee, ast.Path) and node.callee.name in CHANGING


def stretches(
    statements: Sequence[ast.Statement],
    summaries: Summaries,
    module: ModuleScope,
    ends: Callable[[ast.Statement], ast.Expression | None],
) -> Iterator[Stretch | ast.Statement]:
    """Yield the statements of a block in order: each by itself, or in a stretch whose calls overlap."""
    first = 0
    while first < len(statements):
        stretch = Stretch(summaries, module)
        index = first
        while index < len(statements):
            statement = statements[index]
            try:
                value = ends(statement)
                if value is not None:
                    stretch.add_end(statement, value)
                    index += 1
                    break
                stretch.add(statement)
            except Barrier as barrier:
                stretch.barrier = barrier
                break
            if len(stretch.statements) == _STATEMENTS_MAX:
                index += 1
                break
            if not stretch.sites:
                break  # nothing is asked yet: what comes before the first question is simply done
            index += 1
        if stretch.sites:
            yield stretch
        if index == first or not stretch.sites:
            yield statements[first]
            first += 1
        else:
            first = index
