"""The programs that are killed: each prints what it came to, so that a run that lost or repeated something shows it."""

from __future__ import annotations

from typing import Final

__all__ = ["LIMITS", "SCENES"]

# Scenes whose sessions end at their budget, and its micro-dollars: a question ends with the number of its session.
LIMITS: Final = {"sessions": 900, "session ahead": 700, "session at once": 900, "talking": 1_600}

_AGENT: Final = 'agent A { model "claude-sonnet-4-20250514" retry { max_attempts 1 } }\n'

SCENES: Final[dict[str, str]] = {
    "parallel": _AGENT
    + """
let a = spawn A;
for round in [1, 2, 3] {
    parallel {
        let x = a <- "x ${round}";
        let y = a <- "y ${round}";
        let z = a <- "z ${round}";
    }
    print(x + " " + y + " " + z);
    session budget $5.00 { print(a <- "sum of ${round}"); }
}
""",
    "overlapping": _AGENT
    + """
fn review(a, what) { return a <- "review ${what}"; }
let a = spawn A;
let security = a <- "security of it";
let speed = a <- "speed of it";
let style = review(a, "style");
print(a <- security + speed + style);
let total = 0;
for i in [1, 2, 3, 4, 5] {
    let found = a <- "part ${i}";
    total = total + str::len(found);
    print("${i}: ${total}");
}
let one = spawn A;
let first = one <- "the first of two";
let two = spawn A;
let second = two <- "the second of two";
print(first + second);
let told = "";
for name in ["red", "green"] {
    let own = spawn A;
    told = told + (own <- "tell of ${name}");
}
print(told);
try { print(a <- "please fail"); } catch AgentFailed { print("it failed"); }
print(a <- "at last");
""",
    "streaming": _AGENT
    + """
let a = spawn A;
for round in [1, 2] {
    for piece in a <~ "tell me of ${round} in five or six words" { print(piece); }
    print(await (a <~ "again ${round}"));
}
""",
    "supervised": _AGENT
    + """
fn worker(main, name) {
    let helper = spawn A;
    main <- [name, helper <- "work of ${name}"];
    receive {
        "fall" => { throw Broken("as told"); },
        text => { main <- [name, helper <- "more of ${name}: ${text}"]; }
    }
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
process::whereis("bob") <- "go on";
receive { [name, text] => { print(name + ": " + text); } }
let shaky = spawn A supervised by { strategy restart max_restarts 5 window 60s };
try { print(shaky <- "please fail"); } catch AgentFailed { print("it failed"); }
print(shaky <- "after the fall");
""",
    "tools": """
agent T {
    model "claude-sonnet-4-20250514"
    tool double(n: int) -> int { return n * 2; }
    tool note(text: str) -> str { return "noted " + text; }
}
let t = spawn T;
print(t <- "use double 4");
print(t <- "use note tea");
parallel { let one = t <- "use double 5"; let two = t <- "use note milk"; }
print(one);
print(two);
""",
    "conversation": """
agent M { model "claude-sonnet-4-20250514" memory conversation }
let m = spawn M;
print(m <- "first");
print(m <- "second");
for piece in m <~ "third, in pieces" { print(piece); }
print(m <- "fourth");
""",
    "asking": """
agent Q { model "claude-sonnet-4-20250514" tools ["AskUser"] }
let q = spawn Q;
print("before");
print(q <- "ask the user for tea");
print(q <- "ask the user for milk");
print("after");
""",
    "sessions": """
agent A { model "claude-sonnet-4-20250514" max_tokens 5 retry { max_attempts 1 } }
fn part(main, what) { let own = spawn A; main <- (own <- what); }
let a = spawn A;
for round in [1, 2] {
    try {
        session budget $0.0009 {
            print(a <- "one of ${round}");
            spawn fn part(process::self(), "a part of ${round}");
            receive { text => { print(text); } }
            print(await (a <~ "in pieces ${round}"));
            print(budget::used());
            for i in [1, 2, 3, 4, 5, 6, 7, 8] { print(a <- "more ${i} of ${round}"); print(budget::used()); }
        }
    } catch BudgetExceeded { print("over"); }
}
""",
    "session ahead": """
agent A { model "claude-sonnet-4-20250514" max_tokens 5 retry { max_attempts 1 } }
agent B { model "claude-sonnet-4-20250514" max_tokens 5 retry { max_attempts 1 } }
fn apart(what) { let own = spawn A; return own <- what; }
let a = spawn A;
let b = spawn B;
for round in [1, 2] {
    try {
        session budget $0.0007 {
            let x = a <- "x of ${round}";
            let y = b <- "y of ${round}";
            let z = apart("z of ${round}");
            print(x + y + z);
            print(budget::used());
            let u = a <- "u of ${round}";
            let v = b <- "v of ${round}";
            let w = apart("w of ${round}");
            print(u + v + w);
            print(budget::used());
            print(b <- "one more of ${round}");
        }
    } catch BudgetExceeded { print("over"); }
}
""",
    "session at once": """
agent A { model "claude-sonnet-4-20250514" max_tokens 5 retry { max_attempts 1 } }
fn apart(what) { return a <- what; }
let a = spawn A;
for round in [1, 2] {
    try {
        session budget $0.0009 {
            let v = a <- "v takes a while in ${round}";
            let w = a <- "w takes a while in ${round}";
            let x = apart("x takes a while in ${round}");
            let y = a <- "y takes a while in ${round}";
            let z = apart("z takes a while in ${round}");
            print(v + w + x + y + z);
            print(budget::used());
            for i in [1, 2, 3, 4, 5, 6, 7, 8] { print(a <- "more ${i} of ${round}"); print(budget::used()); }
        }
    } catch BudgetExceeded { print("over"); }
}
""",
    "talking": """
agent M { model "claude-sonnet-4-20250514" max_tokens 5 memory conversation retry { max_attempts 1 } }
let m = spawn M;
for round in [1, 2] {
    try {
        session budget $0.0016 {
            for i in [1, 2, 3, 4, 5, 6, 7, 8] {
                print(m <- "${i} of ${round}");
                print(budget::used());
                if i == 2 { print(await (m <~ "in pieces ${round}")); }
            }
        }
    } catch BudgetExceeded { print("over"); }
}
""",
    "names": _AGENT
    + """
fn keeper(main, name) {
    process::register(name);
    let helper = spawn A;
    main <- "ready";
    while true { receive { [who, text] => { who <- (helper <- "${name} ${text}"); } } }
}
fn namer(main, name, whom) { process::register(name, whom); main <- "named"; }
let one = spawn fn keeper(process::self(), "one");
receive { "ready" => {} }
spawn fn namer(process::self(), "alias", one);
receive { "named" => {} }
let two = spawn fn keeper(process::self(), "two");
receive { "ready" => {} }
for i in [1, 2, 3, 4] {
    for name in ["one", "alias", "two"] {
        let found = process::whereis(name);
        print("${name} ${found == one} ${found == two}");
        found <- [process::self(), "${i}"];
        receive { text => { print(text); } }
    }
}
""",
    "numbers": _AGENT
    + """
fn fall() { process::sleep(5ms); throw Broken("as told"); }
fn tied() {
    let other = spawn fn fall() supervised by { strategy stop };
    process::link(other);
    receive { never => never }
}
let a = spawn A;
for round in [1, 2, 3] {
    let x = a <- "x ${round}";
    let y = a <- "y ${round}";
    let p = spawn fn tied() supervised by { strategy stop };
    process::monitor(p);
    print("${x} ${y} ${p}");
    receive { ["DOWN", who, why] => { print("${who} ${why}"); } }
}
""",
    "guarded": """
agent B {
    model "claude-sonnet-4-20250514"
    retry { max_attempts 1 }
    circuit_breaker { threshold 2 reset_after 600s }
}
agent R {
    model "claude-sonnet-4-20250514"
    rate_limit { requests_per_minute 1 burst 4 strategy reject }
}
let b = spawn B supervised by { strategy restart max_restarts 50 window 60s };
let r = spawn R;
for i in [1, 2, 3, 4, 5, 6] {
    try { print(b <- "be down ${i}"); }
    catch CircuitOpen { print("open"); }
    catch AgentFailed { print("failed"); }
    try { print(r <- "count ${i}"); } catch RateLimited { print("rejected"); }
    process::sleep(10ms);
}
""",
}
