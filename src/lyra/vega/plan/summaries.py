"""What code does besides computing: the effects of statements, functions, tools and agents.

An effect is a word of EFFECTS. A function's are those of its body and of what it calls, found by a fixpoint: the
round over all that a function reaches is repeated until nothing is added. An agent may be asked ahead of
its turn when no call of it can be told from another by what it leaves behind: it keeps nothing from one call to the
next, and its tools only read. That is read off the declared capabilities and off what the tools' code does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.budgets.early_calls import more_than_reading, why_ordered
from lyra.vega.plan.aliases import CHANGING, Aliases, Targets
from lyra.vega.plan.names import ModuleScope, Symbol, Variable
from lyra.vega.stdlib.table import GLOBALS, LIBRARY, METHODS
from lyra.vega.syntax import ast
from lyra.vega.syntax.facts import children, walk_own_parts

_Called = Callable[[Symbol, bool], frozenset[str]]  # the effects of a function; whether a library function calls it


# Each effect, and how a plan says that it is in the way.
EFFECTS: Final[dict[str, str]] = {
    "ask": "a question to an agent that may be asked early",
    "asks": "a call of a function that asks such agents",
    "change": "a change of a list or map",
    "global": "an assignment of a variable that functions share",
    "method": "a method that a map may have a function for",
    "continue": "continue",
    "print": "print",
    "ordered": "a call that must wait for its turn",
    "stream": "a streaming answer",
    "send": "a message to a process",
    "receive": "receive",
    "spawn": "spawn",
    "wait": "await",
    "read": "reading from outside",
    "io": "an effect on the outside",
    "budget": "a look at the budget",
    "exit": "process::exit",
    "return": "return",
    "break": "break",
    "throw": "throw",
    "try": "try",
    "session": "session",
    "parallel": "parallel",
    "defer": "defer",
    "unknown": "a call of a function that is only known when it runs",
    "other": "a declaration",
}

_STATEMENTS: Final[dict[type, str]] = {
    ast.Return: "return",
    ast.Break: "break",
    ast.Continue: "continue",
    ast.Throw: "throw",
    ast.Try: "try",
    ast.Session: "session",
    ast.Parallel: "parallel",
    ast.Defer: "defer",
    ast.Import: "other",
    ast.Mock: "other",
    ast.Receive: "receive",
    ast.Spawn: "spawn",
    ast.Await: "wait",
}
_INSIDE: Final = frozenset({"return", "break", "continue", "throw", "defer"})  # of no concern to a function's caller
_CLOSED: Final = (ast.Lambda, ast.Function, ast.Agent, ast.Tool, ast.Supervisor, ast.Test, ast.Type)
_LIBRARY_EFFECTS: Final = {
    "print": "print",
    "exec": "io",
    "process::exit": "exit",
    **{f"budget::{name}": "budget" for name in LIBRARY["budget"]},
    **{f"{module}::{name}": "read" for module in ("time", "env") for name in LIBRARY[module]},
    **{f"file::{name}": "read" for name in ("read", "exists", "list")},
    "http::get": "read",
    "math::random": "read",
    "math::random_int": "read",
}
_CALLS_MAX: Final = 20  # functions that call each other, looked through for the questions they ask
_PLAIN_SETTINGS: Final = (ast.Literal, ast.ListLiteral, ast.MapLiteral, ast.Interpolation, ast.Binary, ast.Unary)
_QUIET: Final = frozenset({"change", "read", "method", *_INSIDE, "try"})  # what a tool may do and still only read
_METHODS: Final = frozenset(
    {name for module in ("str", "list", "map") for name in LIBRARY[module]}
    | {name for kind, names in METHODS.items() if kind not in ("span", "stream") for name in names}
)
# Methods that mean the same for every value: none of them can be a function that a map holds.
SAFE_METHODS: Final = frozenset(
    {"len", *LIBRARY["map"], *(name for name, row in LIBRARY["list"].items() if row.how == "vega")}
)


class EffectSite(NamedTuple):
    """An effect and the node that has it; `through` names the function it comes from."""

    effect: str
    node: ast.SyntaxNode
    through: str = ""


class Summary(NamedTuple):
    effects: frozenset[str]
    reads: tuple[Variable, ...]  # the globals it reads; in an order, since code is made from it


class _Local:
    """A function by itself: `calls` are the functions it calls, and those it gives to library functions to call;
    `tools` are those of the agents it asks, which see the same variables."""

    def __init__(self) -> None:
        self.effects: set[str] = set()
        self.reads: dict[Variable, None] = {}
        self.calls: list[tuple[Symbol, bool]] = []
        self.tools: list[Symbol] = []


class Summaries:
    def __init__(self, modules: Callable[[], Iterable[ModuleScope]], host_names: frozenset[str]) -> None:
        self.targets = Targets()
        self._modules = modules
        self._host_names = host_names
        self._functions: dict[int, Summary] = {}
        self._agents: dict[int, str] = {}
        self.aliases = Aliases(self.targets)

    def prepare(self) -> None:
        modules = list(self._modules())
        self.targets.learn(modules)
        self.aliases.learn(modules)

    # ------------------------------------------------------------ functions

    def function(self, symbol: Symbol) -> Summary:
        """Return the effects and reads of a declared function or tool."""
        if id(symbol.node) not in self._functions:
            self._summarize(symbol)
        return self._functions[id(symbol.node)]

    def _summarize(self, symbol: Symbol) -> None:
        """Compute the fixpoint over a function and all it reaches; with its own list, however long the chain of
        calls."""
        parts: dict[int, _Local] = {}
        todo = [symbol]
        while todo:
            key = id(todo[-1].node)
            if key in parts or key in self._functions:
                todo.pop()
                continue
            parts[key] = local = self._local(todo.pop())
            todo.extend([*(callee for callee, _ in local.calls), *local.tools])
        summaries = {key: Summary(frozenset(local.effects), tuple(local.reads)) for key, local in parts.items()}
        grows = True
        while grows:
            grows = False
            for key, local in parts.items():
                effects, reads = set(summaries[key].effects), dict.fromkeys(summaries[key].reads)
                for callee, is_given in local.calls:
                    inner = summaries.get(id(callee.node)) or self._functions[id(callee.node)]
                    effects |= _order_effects(inner.effects) if is_given else inner.effects
                    reads |= dict.fromkeys(inner.reads)
                for tool in local.tools:
                    reads |= dict.fromkeys((summaries.get(id(tool.node)) or self._functions[id(tool.node)]).reads)
                if len(effects) > len(summaries[key].effects) or len(reads) > len(summaries[key].reads):
                    summaries[key], grows = Summary(frozenset(effects), tuple(reads)), True
        self._functions |= summaries

    def asks_once(self, symbol: Symbol) -> bool:
        """Return whether a function asks one question at most, whatever happens in it."""
        return self._questions(symbol, _CALLS_MAX) <= 1

    def _questions(self, symbol: Symbol, depth: int) -> int:
        """Count the questions that a call of a function asks at most; 2 represents more."""
        if not depth:
            return 2
        count = 0
        for node in _below(_code(symbol.node)):
            meaning = symbol.module.meanings.get(id(node.callee)) if isinstance(node, ast.Call) else None
            if isinstance(node, (ast.While, ast.For, ast.ForIn)):
                count += 2 if self._asks(node, symbol.module) else 0
            elif isinstance(node, ast.Send):
                count += 1
            elif isinstance(meaning, Symbol) and meaning.kind in ("function", "tool"):
                count += self._questions(meaning, depth - 1) if "asks" in self.function(meaning).effects else 0
            if count > 1:
                return 2
        return count

    def _asks(self, node: Any, module: ModuleScope) -> bool:
        return any(
            effect_site.effect in ("ask", "asks") for effect_site in self._walk(node, module, self._read_call_effects)
        )

    def _local(self, symbol: Symbol) -> _Local:
        """Return the effects of a function's own code, and the functions it calls."""
        local = _Local()

        def note_call(callee: Symbol, is_given: bool) -> frozenset[str]:
            local.calls.append((callee, is_given))
            return frozenset()

        for effect_site in self._walk(_code(symbol.node), symbol.module, note_call):
            if effect_site.effect not in _INSIDE and not (
                effect_site.effect == "change" and self._is_own(effect_site.node, symbol)
            ):
                local.effects.add("asks" if effect_site.effect == "ask" else effect_site.effect)
        for node in _below(_code(symbol.node), into_closures=True):
            meaning = symbol.module.meanings.get(id(node)) if isinstance(node, (ast.Name, ast.Path)) else None
            if isinstance(meaning, Variable) and meaning.is_top:
                local.reads[meaning] = None
            elif isinstance(node, ast.Send):
                agents = self.targets.agents(node.target, symbol.module) or ()
                for agent in sorted(agents, key=lambda agent: agent.name):
                    local.tools += self._tools(agent)
        return local

    def _is_own(self, node: ast.SyntaxNode, symbol: Symbol) -> bool:
        """Return whether what is changed was made by this very call of the function."""
        root = find_changed_value(node)
        while isinstance(root, (ast.Index, ast.Field)):
            return False  # a part of a value may belong to another variable too
        meaning = symbol.module.meanings.get(id(root)) if root is not None else None
        return isinstance(meaning, Variable) and not meaning.is_top and self._is_made(meaning)

    def _is_made(self, variable: Variable) -> bool:
        """Return whether a variable holds a list or map that is made where it is declared, and never another."""
        if variable.is_parameter or variable.is_assigned:
            return False
        values = self.targets.values(variable)
        return len(values) == 1 and isinstance(values[0][1], (ast.ListLiteral, ast.MapLiteral))

    # ------------------------------------------------------------ any code

    def effects(self, node: Any, module: ModuleScope) -> list[EffectSite]:
        """All effects of a statement or expression, in the order they stand in."""
        effect_sites = self._walk(node, module, self._read_call_effects)
        return sorted(effect_sites, key=lambda site: site.node.at)

    def _read_call_effects(self, symbol: Symbol, is_given: bool) -> frozenset[str]:
        effects = self.function(symbol).effects
        return _order_effects(effects) if is_given else effects

    def _walk(self, root: Any, module: ModuleScope, function: _Called) -> list[EffectSite]:
        effect_sites: list[EffectSite] = []
        for node in _below(root):
            word = _STATEMENTS.get(type(node))
            if word is not None:
                effect_sites.append(EffectSite(word, node))
            elif isinstance(node, ast.Send):
                effect_sites.append(EffectSite(self.send_effect(node, module), node))
            elif isinstance(node, ast.Assign):
                meaning = module.meanings.get(id(node.target))
                if isinstance(node.target, (ast.Index, ast.Field)):
                    effect_sites.append(EffectSite("change", node))
                elif isinstance(meaning, Variable) and meaning.is_top:
                    effect_sites.append(EffectSite("global", node))
            elif isinstance(node, ast.Call):
                effect_sites.extend(self._call(node, module, function))
            elif isinstance(node, ast.MethodCall):
                effect_sites.extend(self._method(node, module, function))
        return effect_sites

    def send_effect(self, node: ast.Send, module: ModuleScope) -> str:
        if node.is_stream:
            return "stream"
        return "ordered" if self.why_ordered(node, module) else "ask"

    def why_ordered(self, node: ast.Send, module: ModuleScope) -> str:
        """Return why a send waits for its turn; "" when it need not."""
        agents = self.targets.agents(node.target, module)
        if agents is None:
            return "the receiver is not known to be an agent that may be asked early"
        return next((why for why in map(self.why_agent_ordered, agents) if why), "")

    def _call(self, node: ast.Call, module: ModuleScope, function: _Called) -> list[EffectSite]:
        callee = node.callee
        meaning = module.meanings.get(id(callee))
        if isinstance(meaning, Symbol):
            if meaning.kind not in ("function", "tool"):
                return [EffectSite("io", node, meaning.name)]
            return [EffectSite(effect, node, meaning.name) for effect in sorted(function(meaning, False))]
        if meaning is not None or not isinstance(callee, (ast.Name, ast.Path)):
            return [EffectSite("unknown", node)]
        full = f"{callee.module}::{callee.name}" if isinstance(callee, ast.Path) else callee.name
        if full in self._host_names:
            return [EffectSite("io", node, full)]
        table = LIBRARY.get(callee.module, {}) if isinstance(callee, ast.Path) else GLOBALS
        entry = table.get(callee.name)
        if entry is None:
            return [EffectSite("unknown", node)]
        if entry.how == "effect":
            return [EffectSite(_LIBRARY_EFFECTS.get(full, "io"), node, full)]
        if entry.how == "vega":
            values = [argument.value for argument in node.arguments]
            return self._read_callback_effects(node, values, module, function)
        if callee.name in CHANGING and isinstance(callee, ast.Path):
            return [EffectSite("change", node)]
        return []

    def _method(self, node: ast.MethodCall, module: ModuleScope, function: _Called) -> list[EffectSite]:
        if node.name in CHANGING:
            return [EffectSite("change", node)]
        if node.name not in _METHODS:
            return [EffectSite("unknown", node)]
        if node.name not in SAFE_METHODS:
            return [EffectSite("method", node)]
        return self._read_callback_effects(node, [argument.value for argument in node.arguments], module, function)

    def _read_callback_effects(
        self, node: ast.SyntaxNode, values: Sequence[Any], module: ModuleScope, function: _Called
    ) -> list[EffectSite]:
        """Return the effects of functions that a library function is given, and calls."""
        effect_sites: list[EffectSite] = []
        for value in values:
            meaning = module.meanings.get(id(value)) if isinstance(value, (ast.Name, ast.Path)) else None
            through = getattr(value, "name", "") or "the function it is given"
            if isinstance(value, ast.Lambda):
                effect_sites.extend(self._in_lambda(value, node, module, function))
            elif isinstance(meaning, Symbol) and meaning.kind in ("function", "tool"):
                effect_sites.extend(EffectSite(effect, node, through) for effect in sorted(function(meaning, True)))
            elif isinstance(meaning, Variable) and _takes_function(node):
                effect_sites.append(EffectSite("unknown", node))
        return effect_sites

    def _in_lambda(
        self, value: ast.Lambda, node: ast.SyntaxNode, module: ModuleScope, function: _Called
    ) -> list[EffectSite]:
        """Return the effects of a lambda that is called here. Looking ahead would run them, and the program would run
        them again."""
        inside = self._walk(value.body, module, function)
        own = {id(module.declared[id(part)]) for part in walk_own_parts(value.body) if id(part) in module.declared}
        effect_sites: list[EffectSite] = []
        for effect_site in inside:
            if effect_site.effect in _INSIDE:
                continue
            (effect,) = _order_effects([effect_site.effect])
            place = effect_site.node
            if effect_site.effect == "change" and not effect_site.through:
                root = find_changed_value(place)
                meaning = module.meanings.get(id(root)) if root is not None else None
                if isinstance(meaning, Variable) and id(meaning) in own and self._is_made(meaning):
                    continue
            else:
                place = node
            effect_sites.append(EffectSite(effect, place, effect_site.through or "the function it is given"))
        return effect_sites

    # ------------------------------------------------------------ spawns

    def why_spawn_stays(self, node: ast.Spawn, module: ModuleScope) -> str:
        """Return why nothing may be asked across a spawn, as a plan says it; "" where it may."""
        meaning = module.meanings.get(id(node.target))
        if node.is_function or not isinstance(meaning, Symbol) or meaning.kind != "agent":
            return "what it starts is no agent"
        if node.is_async:
            return "the program awaits what it starts"
        if node.supervision is not None:
            return "it says how the process is supervised"
        if self.targets.is_held(node):
            return "its process is used for more than to ask it"
        return f"the settings of {meaning.name} are computed" if self.setting_reads(meaning) is None else ""

    def setting_reads(self, symbol: Symbol) -> tuple[Variable, ...] | None:
        """Return the variables that the settings of an agent are made of; None where more than that is computed."""
        agent: ast.Agent = symbol.node
        todo: list[tuple[Any, ModuleScope]] = [(agent.fields, symbol.module)]
        todo += [(tool.settings, symbol.module) for tool in agent.tools]
        variables: dict[Variable, None] = {}
        tools: set[int] = set()
        while todo:
            node, module = todo.pop()
            if isinstance(node, (ast.Name, ast.Path)):
                meaning = module.meanings.get(id(node))
                if isinstance(meaning, Variable) and meaning.literal is None:
                    variables[meaning] = None
                elif isinstance(meaning, Symbol) and meaning.kind == "tool" and id(meaning.node) not in tools:
                    tools.add(id(meaning.node))
                    todo.append((meaning.node.settings, meaning.module))
            elif isinstance(node, ast.Call) and module.meanings.get(id(node.callee)) is None:
                todo.extend((argument.value, module) for argument in node.arguments)  # a word: `window(10)`
            elif isinstance(node, dict):
                todo.extend((value, module) for value in node.values())
            elif isinstance(node, (*_PLAIN_SETTINGS, list, tuple)):
                todo.extend((part, module) for part in children(node))
            elif isinstance(node, ast.SyntaxNode) and not isinstance(node, ast.TypeLiteral):
                return None
        return tuple(variables)

    # ------------------------------------------------------------ agents

    def why_agent_ordered(self, symbol: Symbol) -> str:
        """Return why an agent is asked in its turn; "" for one that may be asked early."""
        key = id(symbol.node)
        if key not in self._agents:
            self._agents[key] = f"a tool of {symbol.name} asks it"  # where it comes back here while it is looked at
            self._agents[key] = self._why_agent(symbol)
        return self._agents[key]

    def tool_reads(self, symbol: Symbol) -> tuple[Variable, ...]:
        """Return the globals that the tools of an agent read when they are called."""
        tools = self._tools(symbol)
        return tuple(dict.fromkeys(variable for tool in tools for variable in self.function(tool).reads))

    def _tools(self, symbol: Symbol) -> list[Symbol]:
        agent: ast.Agent = symbol.node
        tools = [Symbol("tool", tool.name, tool, symbol.module) for tool in agent.tools]
        named = agent.fields.get("tools")
        for item in named.items if isinstance(named, ast.ListLiteral) else []:
            meaning = symbol.module.meanings.get(id(item))
            if isinstance(meaning, Symbol) and meaning.kind in ("tool", "function"):
                tools.append(meaning)
        return tools

    def _why_agent(self, symbol: Symbol) -> str:
        agent: ast.Agent = symbol.node
        fields = agent.fields
        memory = fields.get("memory")
        remembers = memory is not None and getattr(memory, "name", "") != "none"
        if why := why_ordered(agent.name, remembers=remembers, has_breaker="circuit_breaker" in fields):
            return why
        if "rate_limit" in fields and (why := self._why_limited(symbol, fields["rate_limit"])):
            return why
        if getattr(fields.get("concurrency"), "value", None) == 1:
            return f"the concurrency of {agent.name} is 1"
        for tool in agent.tools:
            why = self._why_tool(tool, symbol.module, fields)
            if why:
                return f"the tool {tool.name} of {agent.name} {why}"
        return self._why_shared(agent, symbol.module)

    def _why_limited(self, symbol: Symbol, limit: Any) -> str:
        """Calls that come together wait for the rate, which line by line they would not: that must not fail them."""
        strategy = limit.get("strategy") if isinstance(limit, dict) else limit
        word = "queue" if strategy is None else getattr(strategy, "name", "")
        if word == "reject":
            return f"the rate limit of {symbol.name} refuses calls that come too soon"
        if word != "queue":
            return f"the rate limit of {symbol.name} refuses calls when others wait"
        if "timeout" in symbol.node.fields or self.targets.is_timed(symbol):
            return f"waiting for the rate limit of {symbol.name} counts for its time-out"
        return ""

    def _why_shared(self, agent: ast.Agent, module: ModuleScope) -> str:
        named = agent.fields.get("tools")
        if named is None:
            return ""
        for item in named.items if isinstance(named, ast.ListLiteral) else [named]:
            meaning = module.meanings.get(id(item))
            name = getattr(item, "name", "")
            if not isinstance(meaning, Symbol) or meaning.kind not in ("tool", "function"):
                return f"the effects of the tool {name} of {agent.name} are not known".replace("  ", " ")
            why = self._why_tool(meaning.node, meaning.module, agent.fields)
            if why:
                return f"the tool {meaning.name} of {agent.name} {why}"
        return ""

    def _why_tool(self, tool: Any, module: ModuleScope, agent: dict[str, Any]) -> str:
        settings = getattr(tool, "settings", {})
        declared = settings.get("capabilities", agent.get("capabilities"))
        if declared is not None:
            items = declared.items if isinstance(declared, ast.ListLiteral) else [declared]
            name = more_than_reading(map(_capability, items))
            if name is not None:
                return f"may do more than read ({name or 'a capability that is computed'})"
        symbol = Symbol("tool", tool.name, tool, module)
        for effect in sorted(self.function(symbol).effects):
            if effect not in _QUIET:
                return f"does more than read: {EFFECTS[effect]}"
        return ""


def _code(function: Any) -> list[Any]:
    """Return the code that runs when a function is called: its defaults and its body."""
    return [*function.parameters, function.body]


def _order_effects(effects: Iterable[str]) -> frozenset[str]:
    """Return the effects of a function that a library function calls: questions in it are asked there, one after the
    other."""
    return frozenset("ordered" if effect in ("ask", "asks") else effect for effect in effects)


def find_changed_value(node: ast.SyntaxNode) -> Any:
    """Return the value that a changing node changes."""
    if isinstance(node, ast.Assign):
        return node.target.target if isinstance(node.target, (ast.Index, ast.Field)) else None
    if isinstance(node, ast.MethodCall):
        return node.target
    if isinstance(node, ast.Call) and node.arguments:
        return node.arguments[0].value
    return None


def _capability(item: Any) -> str:
    """`fs::read` and "fs.read" alike, without a scope."""
    if isinstance(item, ast.Path):
        return f"{item.module}.{item.name}"
    text = getattr(item, "value", None) or getattr(item, "name", "")
    return str(text).partition(":")[0].strip() if "::" not in str(text) else str(text).replace("::", ".")


def _takes_function(node: ast.SyntaxNode) -> bool:
    """Return whether a library call or method has a parameter that is a function."""
    name = node.name if isinstance(node, ast.MethodCall) else getattr(getattr(node, "callee", None), "name", "")
    entry = LIBRARY["list"].get(name)
    return entry is not None and entry.how == "vega"


def _below(root: Any, *, into_closures: bool = False) -> list[Any]:
    """Return a node and all below it, without the bodies of functions made there."""
    nodes: list[Any] = []
    todo = [root]
    while todo:
        node = todo.pop()
        if isinstance(node, msgspec.Struct):
            if isinstance(node, ast.SyntaxNode):
                nodes.append(node)
                if (
                    node is not root
                    and isinstance(node, _CLOSED)
                    and not (into_closures and isinstance(node, (ast.Lambda, ast.Function)))
                ):
                    continue
            todo.extend(getattr(node, name) for name in node.__struct_fields__ if name not in ("at", "end"))
        elif isinstance(node, (list, tuple)):
            todo.extend(node)
        elif isinstance(node, dict):
            todo.extend(node.values())
    return nodes
