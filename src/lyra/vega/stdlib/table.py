"""The table of the standard library: every `module::name`, its parameters, what it gives, how it is done."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

How = Literal["pure", "vega", "effect"]


class LibraryEntry(NamedTuple):
    """One function: its parameters as (name, type), how many must be given, the type of what it gives, how it is
    done, and a sentence."""

    parameters: tuple[tuple[str, str], ...]
    required: int
    result: str
    how: How
    text: str

    @property
    def most(self) -> int:
        return len(self.parameters)


def _row(signature: str, how: How, text: str) -> tuple[str, LibraryEntry]:
    """`name(a: str, b: int = ?) -> str`; a parameter with `?` may be left out."""
    head, _, result = signature.partition(" -> ")
    name, _, inside = head.partition("(")
    parameters: list[tuple[str, str]] = []
    required = 0
    for part in filter(None, inside.removesuffix(")").split(", ")):
        parameter, _, kind = part.partition(": ")
        required += not parameter.endswith("?")
        parameters.append((parameter.removesuffix("?"), kind or "any"))
    return name, LibraryEntry(tuple(parameters), required, result or "null", how, text)


LIBRARY: Final[dict[str, dict[str, LibraryEntry]]] = {
    "str": dict(
        [
            _row("len(s: str) -> int", "pure", "How many characters."),
            _row("char_at(s: str, index: int) -> str", "pure", "The character there; an error outside the string."),
            _row("char_code(s: str) -> int", "pure", "The code point of the first character."),
            _row("from_code(code: int) -> str", "pure", "The character with that code point."),
            _row("contains(s: str, part: str) -> bool", "pure", "Whether the part occurs."),
            _row("index_of(s: str, part: str) -> int", "pure", "Where the part first occurs, -1 if nowhere."),
            _row("split(s: str, sep: str) -> list", "pure", 'The pieces between separators; of "", all characters.'),
            _row("join(list: list, sep?: str) -> str", "pure", "The items as text, with the separator between."),
            _row("lines(s: str) -> list", "pure", "The lines, without their ends."),
            _row("upper(s: str) -> str", "pure", "In upper case."),
            _row("lower(s: str) -> str", "pure", "In lower case."),
            _row("trim(s: str) -> str", "pure", "Without white space at both ends."),
            _row("replace(s: str, old: str, new: str) -> str", "pure", "With every `old` replaced."),
            _row("starts_with(s: str, part: str) -> bool", "pure", "Whether it begins so."),
            _row("ends_with(s: str, part: str) -> bool", "pure", "Whether it ends so."),
            _row("repeat(s: str, times: int) -> str", "pure", "That many times in a row."),
            _row("slice(s: str, from: int, to?: int) -> str", "pure", "The characters from `from` up to before `to`."),
            _row("reverse(s: str) -> str", "pure", "Last character first."),
            _row("pad_left(s: str, width: int, fill?: str) -> str", "pure", "Filled on the left up to the width."),
            _row("pad_right(s: str, width: int, fill?: str) -> str", "pure", "Filled on the right up to the width."),
            _row("from(value) -> str", "pure", "Any value as `print` shows it."),
            _row("from_int(value: int) -> str", "pure", "The number as text."),
            _row("to_int(s: str) -> int", "pure", "The number a text holds; an error if it holds none."),
            _row("to_float(s: str) -> float", "pure", "The same for a float."),
            _row("builder() -> builder", "pure", "Text that grows in place: `.add(x)`, `.len()`, `.text()`."),
        ]
    ),
    "list": dict(
        [
            _row("len(xs: list) -> int", "pure", "How many items."),
            _row("push(xs: list, item) -> list", "pure", "Put one more at the end; gives the same list."),
            _row("pop(xs: list) -> any", "pure", "Take the last one off; an error when there is none."),
            _row("insert(xs: list, index: int, item) -> list", "pure", "Put one in before that index."),
            _row("remove(xs: list, index: int) -> any", "pure", "Take the one at that index out and give it."),
            _row("contains(xs: list, item) -> bool", "pure", "Whether one of them equals the item."),
            _row("index_of(xs: list, item) -> int", "pure", "The first index of an equal one, -1 if there is none."),
            _row("reverse(xs: list) -> list", "pure", "A new list, last first."),
            _row("slice(xs: list, from: int, to?: int) -> list", "pure", "A new list from `from` up to before `to`."),
            _row("concat(xs: list, ys: list) -> list", "pure", "A new list of both."),
            _row("range(from: int, to: int, step?: int) -> list", "pure", "The ints from `from` up to before `to`."),
            _row("first(xs: list) -> any", "pure", "The first; an error when there is none."),
            _row("last(xs: list) -> any", "pure", "The last; an error when there is none."),
            _row("sum(xs: list) -> any", "pure", "All added up."),
            _row("unique(xs: list) -> list", "pure", "A new list without repetitions."),
            _row("flatten(xs: list) -> list", "pure", "A new list of the items of its lists."),
            _row("zip(xs: list, ys: list) -> list", "pure", "A new list of pairs, as long as the shorter."),
            _row(
                "sort(xs: list, less?: function) -> list",
                "vega",
                "A new list in order; `less(a, b)` may say which comes first.",
            ),
            _row("sort_by(xs: list, key: function) -> list", "vega", "A new list in order of `key(item)`."),
            _row("map(xs: list, f: function) -> list", "vega", "A new list of `f(item)`."),
            _row("filter(xs: list, f: function) -> list", "vega", "A new list of those where `f(item)` is true."),
            _row("reduce(xs: list, init, f: function) -> any", "vega", "`f(so_far, item)` over all, from `init` on."),
            _row("each(xs: list, f: function)", "vega", "Calls `f(item)` for each."),
            _row("any(xs: list, f: function) -> bool", "vega", "Whether `f(item)` is true for one."),
            _row("all(xs: list, f: function) -> bool", "vega", "Whether `f(item)` is true for all."),
            _row("find(xs: list, f: function) -> any", "vega", "The first where `f(item)` is true, or null."),
        ]
    ),
    "map": dict(
        [
            _row("len(m: map) -> int", "pure", "How many keys."),
            _row("has(m: map, k) -> bool", "pure", "Whether the key is there."),
            _row("get(m: map, k, default?) -> any", "pure", "The value of the key, else the default (null)."),
            _row("set(m: map, k, value) -> map", "pure", "Store a value; gives the same map."),
            _row("keys(m: map) -> list", "pure", "The keys in order of insertion."),
            _row("values(m: map) -> list", "pure", "The values in the same order."),
            _row("entries(m: map) -> list", "pure", "Pairs of key and value."),
            _row("remove(m: map, k) -> any", "pure", "Take a key out and give its value; null when it was not there."),
            _row("merge(m: map, other: map) -> map", "pure", "A new map of both; the other's values win."),
        ]
    ),
    "json": dict(
        [
            _row("parse(s: str) -> any", "pure", "The value a JSON text holds."),
            _row("stringify(value, indent?: int) -> str", "pure", "The value as JSON text."),
        ]
    ),
    "math": dict(
        [
            _row("abs(x) -> any", "pure", "Without its sign."),
            _row("min(a, b) -> any", "pure", "The smaller one."),
            _row("max(a, b) -> any", "pure", "The larger one."),
            _row("sqrt(x) -> float", "pure", "The square root; an error for a negative number."),
            _row("pow(x, y) -> any", "pure", "x to the power y; an int for ints where y is not negative."),
            _row("floor(x) -> int", "pure", "The largest int that is not above."),
            _row("ceil(x) -> int", "pure", "The smallest int that is not below."),
            _row("round(x) -> int", "pure", "The nearest int, halves away from zero."),
            _row("int(x) -> int", "pure", "Without the part behind the point."),
            _row("float(x) -> float", "pure", "As a float."),
            _row("log(x) -> float", "pure", "The natural logarithm."),
            _row("exp(x) -> float", "pure", "e to the power x."),
            _row("sin(x) -> float", "pure", "The sine."),
            _row("cos(x) -> float", "pure", "The cosine."),
            _row("pi() -> float", "pure", "The circle's number."),
            _row("random() -> float", "effect", "A random number from 0 up to before 1."),
            _row("random_int(from: int, to: int) -> int", "effect", "A random int from `from` up to before `to`."),
        ]
    ),
    "regex": dict(
        [
            _row("matches(s: str, pattern: str) -> bool", "pure", "Whether the pattern occurs in the text."),
            _row("find(s: str, pattern: str) -> any", "pure", "The first match with its groups as a list, or null."),
            _row("find_all(s: str, pattern: str) -> list", "pure", "The texts of all matches."),
            _row("replace(s: str, pattern: str, new: str) -> str", "pure", "Every match replaced by the text."),
            _row("split(s: str, pattern: str) -> list", "pure", "The pieces between matches."),
        ]
    ),
    "time": dict(
        [
            _row("now() -> float", "effect", "Seconds since 1970."),
            _row("iso() -> str", "effect", "The present moment as `2026-01-31T12:00:00Z`."),
            _row("seconds(d: duration) -> float", "pure", "A duration in seconds."),
            _row("millis(d: duration) -> int", "pure", "A duration in whole milliseconds."),
            _row("duration(seconds) -> duration", "pure", "That many seconds as a duration."),
        ]
    ),
    "env": dict(
        [
            _row(
                "get(name: str, default?) -> any", "effect", "A variable of the environment, else the default (null)."
            ),
            _row("has(name: str) -> bool", "effect", "Whether the variable is set."),
            _row("args() -> list", "effect", "The arguments after `--`."),
        ]
    ),
    "budget": dict(
        [
            _row("remaining() -> float", "effect", "Dollars left in the innermost session."),
            _row("used() -> float", "effect", "Dollars spent in the innermost session."),
            _row("limit() -> float", "effect", "Dollars the innermost session has."),
        ]
    ),
    "process": dict(
        [
            _row("self() -> process", "effect", "This process."),
            _row("exit(reason?: str)", "effect", "End this process with that reason."),
            _row("sleep(duration: duration)", "effect", "Wait that long."),
            _row("link(p: process)", "effect", "An abnormal end of one ends the other."),
            _row("unlink(p: process)", "effect", "Undo a link."),
            _row("monitor(p: process)", "effect", 'Ask for the message `["DOWN", p, reason]` when it ends.'),
            _row("register(name: str, p?: process)", "effect", "Give a process (this one) a name."),
            _row("whereis(name: str) -> any", "effect", "The process of that name, or null."),
            _row("alive(p: process) -> bool", "effect", "Whether it still runs."),
        ]
    ),
    "trace": dict(
        [
            _row("span(name: str) -> span", "effect", "Begin a span; `.end()` ends it."),
            _row("event(msg: str)", "effect", "Note an event in the current span."),
            _row("set_attribute(key: str, value)", "effect", "Set a fact of the current span."),
        ]
    ),
    "file": dict(
        [
            _row("read(path: str) -> str", "effect", "The text of a file."),
            _row("write(path: str, content: str)", "effect", "Replace a file's text."),
            _row("append(path: str, content: str)", "effect", "Add to a file's end."),
            _row("exists(path: str) -> bool", "effect", "Whether there is such a file."),
            _row("list(path: str) -> list", "effect", "The names in a folder."),
            _row("remove(path: str)", "effect", "Delete a file."),
        ]
    ),
    "http": dict(
        [
            _row("get(url: str) -> response", "effect", "Fetch a page."),
            _row("post(url: str, body: str) -> response", "effect", "Send a text."),
        ]
    ),
}

# Functions without a module. `Ok` and `Err` make Results.
GLOBALS: Final[dict[str, LibraryEntry]] = dict(
    [
        _row("print(value?)", "effect", "Write the value and end the line."),
        _row("exec(command: str) -> str", "effect", "Run a command; gives its standard output."),
        _row("Ok(value?) -> result", "pure", "A Result that went well."),
        _row("Err(value?) -> result", "pure", "A Result that did not."),
        _row("type(value) -> str", "pure", "The word for the value's type."),
        _row("assert(condition: bool, message?: str)", "pure", "Throws AssertionFailed unless the condition holds."),
    ]
)

# `value.name(…)` is `module::name(value, …)` of the value's kind; these kinds have that, and these names besides.
METHODS: Final[dict[str, dict[str, str]]] = {
    "str": {"has": "str::contains"},
    "list": {"has": "list::contains", "join": "str::join"},
    "map": {},
    "builder": {"add": "builder::add", "len": "builder::len", "text": "builder::text"},
    "result": {"is_ok": "result::is_ok", "is_err": "result::is_err", "unwrap": "result::unwrap"},
    "response": {},
    "span": {"end": "span::end"},
    "stream": {"close": "stream::close"},
}


# The errors that the language itself throws, each with a sentence; a host adds those of `lyra.errors`.
ERRORS: Final[dict[str, str]] = {
    "Error": 'every error; also the name of `throw "text"`',
    "Overflow": "a number left its 64 bits",
    "ZeroDivision": "division by zero",
    "IndexError": "an index outside a list or string",
    "KeyError": "a key that a map does not have",
    "TypeError": "a value of the wrong kind",
    "ValueError": "a value of the right kind that cannot be used",
    "NameError": "a variable that is not set yet",
    "MatchError": "no arm of a match fits",
    "StackOverflow": "calls nested too deeply",
    "LimitExceeded": "a value larger than the machine allows",
    "ProcessError": "about a process that is not there",
    "AssertionFailed": "what `assert` claims does not hold",
}


def entry(module: str, name: str) -> LibraryEntry | None:
    """Return the row of `module::name`, or None."""
    return LIBRARY.get(module, {}).get(name)


# They can be interrupted, saved and resumed in the middle. Errors in them are shown at the caller's place.

PRELUDE: Final[dict[str, str]] = {
    "list::map": """
fn map(xs, f) {
    let out = [];
    for x in xs { out.push(f(x)); }
    return out;
}
""",
    "list::filter": """
fn filter(xs, f) {
    let out = [];
    for x in xs { if f(x) { out.push(x); } }
    return out;
}
""",
    "list::reduce": """
fn reduce(xs, init, f) {
    let result = init;
    for x in xs { result = f(result, x); }
    return result;
}
""",
    "list::each": """
fn each(xs, f) {
    for x in xs { f(x); }
}
""",
    "list::any": """
fn any(xs, f) {
    for x in xs { if f(x) { return true; } }
    return false;
}
""",
    "list::all": """
fn all(xs, f) {
    for x in xs { if !f(x) { return false; } }
    return true;
}
""",
    "list::find": """
fn find(xs, f) {
    for x in xs { if f(x) { return x; } }
    return null;
}
""",
    # A merge sort from the bottom up: stable, and `less` is called O(n log n) times.
    "list::sort": """
fn sort(xs, less = null) {
    if less == null { return list::sorted(xs); }
    let from = list::slice(xs, 0);
    let n = from.len();
    let width = 1;
    while width < n {
        let to = [];
        let start = 0;
        while start < n {
            let middle = math::min(start + width, n);
            let end = math::min(start + 2 * width, n);
            let i = start;
            let j = middle;
            while i < middle && j < end {
                if less(from[j], from[i]) {
                    to.push(from[j]);
                    j = j + 1;
                } else {
                    to.push(from[i]);
                    i = i + 1;
                }
            }
            while i < middle { to.push(from[i]); i = i + 1; }
            while j < end { to.push(from[j]); j = j + 1; }
            start = start + 2 * width;
        }
        from = to;
        width = width * 2;
    }
    return from;
}
""",
    "list::sort_by": """
fn sort_by(xs, key) {
    let pairs = [];
    for x in xs { pairs.push([key(x), x]); }
    let out = [];
    for pair in list::sort(pairs, |a, b| a[0] < b[0]) { out.push(pair[1]); }
    return out;
}
""",
}
