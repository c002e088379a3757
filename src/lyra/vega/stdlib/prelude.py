"""Library functions written in Vega, because they call a lambda.

Being Vega, they can be interrupted, saved and resumed in the middle, and a lambda in them may do whatever a lambda
may do. Each is compiled into a program that uses it; errors in them are shown at the caller's place.
"""

from __future__ import annotations

from typing import Final

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
