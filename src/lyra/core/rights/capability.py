"""Rights: what a process may do, and how a right is narrowed when it is passed on.

A **Capability** is one right, a name and a scope: `fs.read:/project/**`,
`process.exec:pytest`, `net.http:api.stripe.com`. Left out, the scope is everything (`**`). A **Grant** is a
set of allow and deny rules; deny always wins, and `narrow` is the only way to derive one Grant from
another, so that a child can never do what its parent cannot.

Anything that cannot be read for certain is denied: a path with `..`, a relative path, a host with a `/` in
it, a chain of shell commands under a rule with a wildcard. A request with wildcards (a tool that needs
`fs.read:/project/**`) is allowed only if one rule provably covers it, and denied if any deny could touch
it.

This module decides and explains; it never resolves a symlink, a name or a command: `sandbox` enforces.
`scope` reads scopes and compares their patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self, TypeAlias

import msgspec

from lyra.core.checking.check import check_keys, did_you_mean, distance
from lyra.core.limits import (
    CAPABILITY_LENGTH_MAX,
    COMMANDS_MAX,
    GRANT_CACHE_MAX,
    GRANT_COMPARISONS_MAX,
    GRANT_LAYERS_MAX,
    GRANT_RULES_MAX,
    RULE_LENGTH_MAX,
)
from lyra.core.rights.scope import (
    EVERYTHING,
    Glob,
    commands_in,
    covers,
    find_named_part,
    normal,
    overlaps,
    pattern_of,
    problem,
)
from lyra.errors import CapabilityDenied, ConfigError

Rights: TypeAlias = "Grant | Iterable[str | Capability] | Mapping[str, Any]"  # what `Grant.of` reads
ANY_NAME: Final = "*"


class Verb(NamedTuple):
    """One known right: how its scope is read, what it allows, and where Lyra checks it. Every effect and tool that
    declares a right is checked for it besides."""

    kind: str
    sentence: str
    checked: str


VERBS: Final[dict[str, Verb]] = {
    "fs.read": Verb(
        "path",
        "read files and list folders under the scope",
        "file tools, YAML tools, sandboxed commands, Vega's files",
    ),
    "fs.write": Verb(
        "path",
        "create, change and delete files under the scope",
        "file tools, YAML tools, sandboxed commands, Vega's files",
    ),
    "process.exec": Verb(
        "command",
        "run a command line: one program, an exact line, or a line ending in ` *`",
        "Bash, YAML tools, Vega's `exec`",
    ),
    "process.spawn": Verb(
        "plain",
        "start a process that runs the program, agent or Vega function named by the scope",
        "`ctx.spawn`, each child of `ctx.supervise`, helpers and Task, pipelines, Vega's `spawn`; "
        "`kernel.spawn` and `kernel.submit` inside a process",
    ),
    "process.send": Verb(
        "plain",
        "send messages and signals to the process, group or service named by the scope: by its name, its pid or the "
        "program, agent or Vega function that it runs",
        "send, link, monitor, stop and kill; questions to agents; `groups.broadcast`; `dispatch`; Vega's `<-`; inside "
        "a process also answers to questions, and what workers do with entries and pipelines; `kernel` is the name for "
        "shutdown, default quotas and rate limits",
    ),
    "net.http": Verb(
        "host",
        "make HTTP requests to the host (and port) of the scope",
        "WebFetch, YAML tools, sandboxed commands, Vega's `http`",
    ),
    "net.listen": Verb(
        "host",
        "accept connections on the address (and port) of the scope",
        "effects and tools that declare it; a sandboxed command accepts none from outside, whatever its grant says",
    ),
    "secrets.read": Verb("plain", "use the secret named by the scope", "YAML tools"),
    "env.read": Verb("plain", "read the environment variable named by the scope", "Vega's `env`"),
    "db.read": Verb(
        "dotted",
        "read rows of the table named by the scope; `memories.NAME` and `blackboard.GROUP` are Lyra's own tables",
        "memories and an agent's recall, blackboards",
    ),
    "db.write": Verb(
        "dotted",
        "change rows of the table named by the scope; `memories.NAME` and `blackboard.GROUP` are Lyra's own tables",
        "memories, blackboards, making and deleting groups",
    ),
    "events.publish": Verb(
        "dotted",
        "publish events of the type named by the scope",
        "the bus: publish, send and query; `kernel.emit_event`",
    ),
    "events.subscribe": Verb(
        "dotted",
        "receive events of the type, the broadcasts of the group or the requests to the service named by the scope",
        "the bus: subscribe, stream and handlers; `kernel.on_event`; joining a group; handlers of services",
    ),
    "model.use": Verb(
        "plain",
        "call the model named by the scope",
        "each model that an agent tries, fallbacks and an MCP server's sampling included; `dispatch_inference`",
    ),
    "tool.use": Verb(
        "plain", "call the tool named by the scope", "each tool call of an agent, `ctx.do(tool)`, MCP and YAML tools"
    ),
    "human.ask": Verb(
        "plain",
        "put a question of the kind named by the scope to a human",
        "`ctx.ask`, AskUser, approvals, MCP forms, pipelines; `create_interrupt` inside a process",
    ),
}

# An unknown verb (`fs.stat`) reads its scope like the known verbs of that object, where those agree.
_OBJECT_KINDS: Final = {
    name.partition(".")[0]: verb.kind for name, verb in VERBS.items() if not name.startswith("process.")
}

# Alternative spellings of objects, and then of whole names.
_OBJECTS: Final[dict[str, str]] = {"filesystem": "fs", "database": "db", "network": "net", "exec": "process"}
_NAMES: Final[dict[str, str]] = {
    "net.http_client": "net.http",
    "net.http_server": "net.listen",
    "process.shell_command": "process.exec",
}


class Capability(msgspec.Struct, frozen=True, cache_hash=True):
    """One right. As a rule in a Grant its scope is a pattern; as a request it is usually one exact thing."""

    name: str
    scope: str = EVERYTHING

    def __post_init__(self) -> None:
        verb = VERBS.get(self.name)
        if verb is None:
            _check_name(self.name)
        if len(self.scope) > CAPABILITY_LENGTH_MAX:
            raise ConfigError(
                f"a capability's scope has at most {CAPABILITY_LENGTH_MAX} characters, not {len(self.scope)}",
                capability=f"{self.name}:{self.scope[:80]}…",
            )
        scope = normal(verb.kind if verb else self.kind, self.scope)
        if not scope or (self.name.endswith("*") and scope != EVERYTHING):
            raise ConfigError(
                f"{self.name!r} takes no scope" if scope else f"the scope of {self.name!r} is empty",
                hint="leave the scope out to mean everything",
                capability=self.name,
            )
        if scope != self.scope:
            msgspec.structs.force_setattr(self, "scope", scope)

    @property
    def kind(self) -> str:
        verb = VERBS.get(self.name)
        return verb.kind if verb else _OBJECT_KINDS.get(self.name.partition(".")[0], "plain")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read any spelling: `fs.read:/a`, `fs::read`, `fs:read`, `database.write.rows`, `*`, `fs.*`."""
        if not isinstance(text, str):
            raise ConfigError(f"a capability is text such as 'fs.read:/project/**', not {text!r}")
        if text == ANY_NAME:
            return cls(ANY_NAME)
        name, end = _read_name(text)
        return cls(name, text[end + 1 :] if end < len(text) else EVERYTHING)

    @classmethod
    def of(cls, value: Capability | str) -> Capability:
        return value if isinstance(value, Capability) else cls.parse(value)

    @classmethod
    def with_scopes(
        cls, spelling: str, *, allowed_paths: Iterable[str] = (), allowed_commands: Iterable[str] = ()
    ) -> list[Capability]:
        """`capabilities [fs::read] allowed_paths ["/project/**"]`: one for each scope of its kind."""
        base = cls.parse(spelling)
        scopes = {"path": list(allowed_paths), "command": list(allowed_commands)}.get(base.kind, [])
        if scopes and base.scope != EVERYTHING:
            raise ConfigError(f"{spelling!r} already names a scope", hint="leave the scope out or drop the list")
        return [cls(base.name, scope) for scope in scopes] or [base]

    def __str__(self) -> str:
        return self.name if self.scope == EVERYTHING else f"{self.name}:{self.scope}"


# ---------------------------------------------------------------- reading a name
def _read_name(text: str) -> tuple[str, int]:
    """Return the canonical name and the index of the character before the scope (the end, when there is none)."""
    first = _word_end(text, 0)
    if first == 0:
        raise _unreadable(text, 0, "a word such as 'fs'")
    second = first + 2 if text.startswith("::", first) else first + 1
    if first == len(text) or text[first] not in ".:":
        raise _unreadable(text, first, "'.' and a second word")
    if text[second:] == "*":
        return f"{_OBJECTS.get(text[:first], text[:first])}.*", len(text)
    end = _word_end(text, second)
    if end == second:
        raise _unreadable(text, second, "a word such as 'read'")
    if end < len(text) and text[end] not in ".:":
        raise _unreadable(text, end, "':' and a scope")
    if end == len(text) - 1:
        raise _unreadable(text, end + 1, "a scope")
    name = f"{_OBJECTS.get(text[:first], text[:first])}.{text[second:end]}"
    return _NAMES.get(name, name), end


def _word_end(text: str, index: int) -> int:
    start = index
    while index < len(text) and (text[index] in _FIRST_LETTERS if index == start else text[index] in _LATER_LETTERS):
        index += 1
    return index


_FIRST_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz")
_LATER_LETTERS: Final = _FIRST_LETTERS | frozenset("0123456789_")


def _unreadable(text: str, position: int, expected: str) -> ConfigError:
    near = did_you_mean(text[:80], VERBS)
    return ConfigError(
        f"{text[:80]!r} is not a capability: expected {expected} at position {position}",
        hint=f"did you mean {near!r}?" if near else "write it like 'fs.read:/project/**'",
        capability=text[:80],
        position=position,
    )


def _check_name(name: str) -> None:
    """Check an unknown name: it must be two words, and no typing mistake for a known one."""
    if name == ANY_NAME:
        return
    first, dot, second = name.partition(".")
    if second == "*" and _word_end(first, 0) == len(first) > 0:
        return
    if not (dot and first and second and _word_end(first, 0) == len(first) and _word_end(second, 0) == len(second)):
        raise _unreadable(name, _word_end(first, 0), "two words of a-z, 0-9 and _ joined by '.'")
    near = _near_verb(first, second)
    if near:
        raise ConfigError(f"there is no capability {name!r}", hint=f"did you mean {near!r}?", capability=name)


def _near_verb(first: str, second: str) -> str | None:
    for known in VERBS:
        known_first, _, known_second = known.partition(".")
        if _is_typo_of(first, known_first) and _is_typo_of(second, known_second):
            return known
    return None


def _is_typo_of(word: str, known: str) -> bool:
    """Return whether a word is equal to a known one or a typing mistake: two edits in a long word, one in a short one,
    and in a word of two letters only a swap."""
    if word == known:
        return True
    if len(known) <= 2:
        return sorted(word) == sorted(known)
    limit = 1 if len(known) <= 4 else 2
    return distance(word, known, limit) <= limit


# ---------------------------------------------------------------- rules and requests
class _Rule:
    """A capability compiled to be compared with requests."""

    __slots__ = ("cap", "kind", "pattern", "prefix")

    def __init__(self, cap: Capability) -> None:
        if len(cap.scope) > RULE_LENGTH_MAX:
            raise ConfigError(f"a rule's scope has at most {RULE_LENGTH_MAX} characters", capability=str(cap)[:80])
        reason = problem(cap.kind, cap.scope)
        if reason:
            raise ConfigError(
                f"the rule {str(cap)!r} can never match: {reason}",
                hint="a rule's path is absolute and normalised: '/project/**'" if cap.kind == "path" else None,
                capability=str(cap),
            )
        self.cap = cap
        self.kind = cap.kind
        self.prefix = cap.name[:-1] if cap.name.endswith("*") else None  # "" for `*`, "fs." for `fs.*`
        self.pattern = None if cap.scope == EVERYTHING else pattern_of(cap.kind, cap.scope, rule=True)

    def covers(self, request: _Request) -> bool:
        """Return whether every act that the request represents is inside this rule."""
        if self.prefix is not None:
            return request.name.startswith(self.prefix)
        if self.cap.name != request.name:
            return False
        if self.pattern is None:
            return True
        if request.exact:
            return self.cap.scope == request.scope
        if request.named and self.cap.scope != request.scope and not self._names(request.named):
            return False
        return request.pattern is not None and covers(self.pattern, request.pattern)

    def _names(self, words: str) -> bool:
        """Return whether the rule has these words before its first wildcard, so that no wildcard matches them."""
        wildcards = (self.cap.scope.find("*"), self.cap.scope.find("?"))
        head = min((index for index in wildcards if index >= 0), default=None)
        return (self.cap.scope[:head].rstrip(" ") + " ").startswith(words + " ")

    def touches(self, request: _Request) -> bool:
        """Return whether some act that the request represents may be inside this rule."""
        if self.prefix is not None or request.prefix is not None:
            mine, theirs = self.prefix or self.cap.name, request.prefix or request.name
            return self.prefix == "" or request.prefix == "" or mine.startswith(theirs) or theirs.startswith(mine)
        if self.cap.name != request.name:
            return False
        if self.pattern is None or request.pattern is None:
            return True
        parts = request.parts()
        return parts is None or any(overlaps(self.pattern, part) for part in parts)


_compile_rule = lru_cache(maxsize=512)(_Rule)  # the same rules come in each narrowing of a Grant


class _Request:
    """A requested capability, compiled to be compared with rules."""

    __slots__ = ("_parts", "exact", "kind", "name", "named", "pattern", "prefix", "scope")

    def __init__(self, cap: Capability, *, rule: bool = False) -> None:
        self.name = cap.name
        self.scope = cap.scope
        self.kind = cap.kind
        self.prefix = cap.name[:-1] if cap.name.endswith("*") else None
        self.pattern = None if cap.scope == EVERYTHING else pattern_of(self.kind, cap.scope, rule=rule)
        # Exact requests need a rule of the same text: lines that are not one plain command, and long ones with
        # wildcards. words that a rule has to name before its first wildcard
        self.named = find_named_part(cap.scope) if self.kind == "command" else ""
        self.exact = self._too_long() or self.named is None
        self._parts: list[Glob] | None = None

    def _too_long(self) -> bool:
        return self.pattern is not None and not self.pattern.literal and len(self.scope) > RULE_LENGTH_MAX

    def parts(self) -> list[Glob] | None:
        """Return the patterns that deny rules are compared with: the scope and every command in it; None when
        unknown."""
        if self._parts is None and self.pattern is not None and not self._too_long():
            commands = commands_in(self.scope) if self.kind == "command" else []
            if len(commands) <= COMMANDS_MAX:
                self._parts = [self.pattern, *(pattern_of("command", part, rule=False) for part in commands)]
        return self._parts


# ---------------------------------------------------------------- grants
class GrantDecision(NamedTuple):
    """Whether a capability is allowed, the rule that decided (None: no rule did), and the reason in a sentence."""

    allowed: bool
    rule: str | None
    reason: str


_TOUCHED, _UNCOVERED, _COVERED = "a deny rule touches it", "no allow rule covers it", "an allow rule covers it"
_DATA_KEYS: Final = ("allow", "deny", "layers")


class Grant:
    """Allow and deny rules. Immutable; deny wins; made smaller with `narrow` and never larger.

    Inside, a Grant is a list of layers (each narrowing added at most one) and the union of all denies: a
    request must be allowed by some rule of every layer and touched by no deny.
    """

    __slots__ = ("_cache", "_denied", "_layers", "deny", "is_all", "layers")

    is_all: bool  # nothing is refused: places that are often passed ask this first
    deny: tuple[Capability, ...]
    layers: tuple[tuple[Capability, ...], ...]
    _denied: tuple[_Rule, ...]
    _layers: tuple[tuple[_Rule, ...], ...]
    _cache: dict[Any, bool]

    def __init__(self, allow: Iterable[Capability | str] = (), deny: Iterable[Capability | str] = ()) -> None:
        self._build((_capabilities(allow, "allow"),), _capabilities(deny, "deny"))

    def _build(self, layers: Iterable[tuple[Capability, ...]], deny: tuple[Capability, ...]) -> None:
        compiled: list[list[_Rule]] = []
        for layer in layers:
            rules = [_compile_rule(cap) for cap in layer]
            if any(rule.prefix == "" for rule in rules) or any(_layer_within(kept, rules) for kept in compiled):
                continue  # it allows everything, or an earlier layer is at least as strict
            compiled = [kept for kept in compiled if not _layer_within(rules, kept)]
            compiled.append(rules)
        count = len(deny) + sum(len(rules) for rules in compiled)
        if count > GRANT_RULES_MAX or len(compiled) > GRANT_LAYERS_MAX:
            raise ConfigError(
                f"a grant of {count} rules in {len(compiled)} layers is too large",
                hint=f"at most {GRANT_RULES_MAX} rules in {GRANT_LAYERS_MAX} layers: use wider patterns",
            )
        put = object.__setattr__
        put(self, "_layers", tuple(tuple(rules) for rules in compiled))
        put(self, "_denied", tuple(_compile_rule(cap) for cap in deny))
        put(self, "layers", tuple(tuple(rule.cap for rule in rules) for rules in compiled))
        put(self, "deny", deny)
        put(self, "_cache", {})
        put(self, "is_all", not (self._layers or self._denied))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Grant does not change (tried to set {name!r}); narrow() makes a smaller one")

    # ------------------------------------------------------------ making one
    @classmethod
    def all(cls) -> Grant:
        return _ALL

    @classmethod
    def none(cls) -> Grant:
        return _NONE

    @classmethod
    def of(cls, value: Any) -> Grant:
        """Return a Grant, None (everything), a list of allow rules, or a mapping with `allow` and `deny`."""
        if value is None:
            return _ALL
        if isinstance(value, Grant):
            return value
        if isinstance(value, Mapping):
            return cls.from_data(value)
        return cls(allow=value)

    @classmethod
    def from_data(cls, data: Any) -> Grant:
        if not isinstance(data, Mapping):
            raise ConfigError(f"a grant is a mapping with 'allow' and 'deny', not {data!r}")
        check_keys(data, _DATA_KEYS, "a grant")
        if ("allow" in data) == ("layers" in data):
            raise ConfigError(
                "a grant has 'allow' or 'layers', not both: give the allowed capabilities once",
                hint="write allow: ['*'] to allow everything but the denies",
            )
        layers = data["layers"] if "layers" in data else [data["allow"]]
        if not isinstance(layers, (list, tuple)) or len(layers) > GRANT_RULES_MAX:
            raise ConfigError("the layers of a grant are a list of lists of rules")
        grant = cls.__new__(cls)
        grant._build([_capabilities(layer, "allow") for layer in layers], _capabilities(data.get("deny", ()), "deny"))
        return grant

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = {}
        if len(self.layers) > 1:
            data["layers"] = [[str(cap) for cap in layer] for layer in self.layers]
        else:
            data["allow"] = [str(cap) for cap in self.layers[0]] if self.layers else [ANY_NAME]
        if self.deny:
            data["deny"] = [str(cap) for cap in self.deny]
        return data

    # ------------------------------------------------------------ deciding
    def allows(self, cap: Capability | str) -> bool:
        known = self._cache.get(cap)
        return self.explain(cap).allowed if known is None else known

    def check(self, cap: Capability | str) -> None:
        """Return, or raise CapabilityDenied with the rule that decided."""
        if self._cache.get(cap):
            return
        decision = self.explain(cap)
        if not decision.allowed:
            raise _make_denied_error(str(cap), decision)

    def check_any(self, verb: str, names: tuple[str, ...], *, implied: bool = False) -> None:
        """Return if a thing that goes by several names may be used: no deny touches one of them, and each layer allows
        one. `implied`: the right follows from another, so that only a deny refuses it."""
        known = self._cache.get((verb, implied, names))
        if known:
            return
        capabilities = [Capability(verb, name) for name in names]
        decision = self._decide_any(capabilities, implied)
        if not decision.allowed:
            raise _make_denied_error(str(capabilities[0]), decision)
        if sum(map(len, names)) <= RULE_LENGTH_MAX:
            if len(self._cache) >= GRANT_CACHE_MAX:
                self._cache.clear()
            self._cache[verb, implied, names] = True

    def _decide_any(self, capabilities: Sequence[Capability], implied: bool) -> GrantDecision:
        for cap in capabilities:
            if reason := problem(cap.kind, cap.scope):
                return GrantDecision(False, None, reason)
        requests = [_Request(cap) for cap in capabilities]
        for rule in self._denied:
            if any(rule.touches(request) for request in requests):
                return GrantDecision(False, str(rule.cap), _TOUCHED)
        for rules in () if implied else self._layers:
            if not any(rule.covers(request) for rule in rules for request in requests):
                return GrantDecision(False, None, _UNCOVERED)
        return GrantDecision(True, None, _COVERED)

    def explain(self, cap: Capability | str) -> GrantDecision:
        decision = self._decide(Capability.of(cap))
        size = len(cap if isinstance(cap, str) else cap.scope)
        if size <= RULE_LENGTH_MAX:  # bounds the cache in bytes, too
            if len(self._cache) >= GRANT_CACHE_MAX:
                self._cache.clear()
            self._cache[cap] = decision.allowed
        return decision

    def _decide(self, cap: Capability) -> GrantDecision:
        reason = problem(cap.kind, cap.scope)
        if reason:
            return GrantDecision(False, None, reason)
        request = _Request(cap)
        for rule in self._denied:
            if rule.touches(request):
                return GrantDecision(False, str(rule.cap), _TOUCHED)
        decided = ANY_NAME
        for rules in self._layers:
            covering = next((rule for rule in rules if rule.covers(request)), None)
            if covering is None:
                return GrantDecision(False, None, _UNCOVERED)
            decided = str(covering.cap)
        return GrantDecision(True, decided, _COVERED)

    # ------------------------------------------------------------ narrowing
    def narrow(self, other: Any) -> Grant:
        """Return the Grant of what both allow: `narrow(b).allows(x)` is `self.allows(x) and b.allows(x)`."""
        second = Grant.of(other)
        if second is self or not (second.layers or second.deny):
            return self
        if not (self.layers or self.deny):
            return second
        grant = Grant.__new__(Grant)
        grant._build((*self.layers, *second.layers), tuple(dict.fromkeys((*self.deny, *second.deny))))
        return grant

    def covers(self, other: Grant) -> bool:
        """True only if everything `other` allows is allowed here; False may also mean "cannot tell"."""
        for rules in self._layers:
            if not any(_layer_within(theirs, rules) for theirs in other._layers):
                return False
        return all(any(_denies_all(theirs, rule) for theirs in other._denied) for rule in self._denied)

    def is_narrower_than(self, other: Grant) -> bool:
        return other.covers(self)

    # ------------------------------------------------------------ equality
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grant) and (self.layers, self.deny) == (other.layers, other.deny)

    def __hash__(self) -> int:
        return hash((self.layers, self.deny))

    def __repr__(self) -> str:
        return f"Grant({self.to_data()})"


def _make_denied_error(capability: str, decision: GrantDecision) -> CapabilityDenied:
    shown = capability if len(capability) <= 200 else capability[:200] + "…"
    return CapabilityDenied(
        f"{shown} is denied: {decision.reason}",
        hint=f"the rule {decision.rule} decided" if decision.rule else f"allow it with {shown!r} in the grant",
        capability=shown,
        rule=decision.rule,
    )


def _layer_within(inner: Sequence[_Rule], outer: Sequence[_Rule]) -> bool:
    """Return whether every rule of `inner` lies inside one rule of `outer`; False also for too many rules to
    compare."""
    if len(inner) * len(outer) > GRANT_COMPARISONS_MAX:
        return {rule.cap for rule in inner} <= {rule.cap for rule in outer}
    return all(any(_rule_covers(wide, rule) for wide in outer) for rule in inner)


def _rule_covers(wide: _Rule, rule: _Rule) -> bool:
    return wide.cap == rule.cap or wide.covers(_Request(rule.cap, rule=True))


def _denies_all(theirs: _Rule, rule: _Rule) -> bool:
    """Return whether `theirs` denies all that `rule` denies. Deny rules for commands also look inside chains, so for
    them only the same rule is surely as wide."""
    if rule.kind == "command" and theirs.pattern is not None:
        return theirs.cap == rule.cap
    return _rule_covers(theirs, rule)


def _capabilities(values: Any, what: str) -> tuple[Capability, ...]:
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
        raise ConfigError(f"'{what}' is a list of capabilities, not {values!r}", key=what)
    capabilities = tuple(dict.fromkeys(Capability.of(value) for value in values))
    if len(capabilities) > GRANT_RULES_MAX:
        raise ConfigError(f"a grant has at most {GRANT_RULES_MAX} rules, not {len(capabilities)}", key=what)
    return capabilities


_ALL: Final = Grant(allow=(Capability(ANY_NAME),))
_NONE: Final = Grant()
