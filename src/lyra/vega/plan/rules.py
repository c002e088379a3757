"""The rules that calls made ahead of their turn keep, one row each. `vega plan` rests on them. Tests break each rule to
see that the comparison of random programs with their line-by-line runs notices."""

from __future__ import annotations

from typing import Final

RULES: Final[dict[str, str]] = {
    "ordered": "an agent that remembers, writes, answers by order or is not known is asked in its turn",
    "barrier": "nothing is asked across a return, break, try, session, receive or another effect",
    "branch": "a branch or loop that waits for an answer is not looked into",
    "delivery": "one process gets its messages in the order of the program",
    "aliases": "a list or map that changes is not read ahead, under whatever name",
    "copies": "what is computed ahead is computed on copies: a failure leaves no binding behind it",
    "same": "an early answer is taken only by the very call that the program then makes",
    "first": "the first failure in the order of the program is the one raised",
    "cancelled": "what was asked early and not taken is cancelled and waited for",
    "crash": "an agent crashes when the program comes to the failure, not before",
    "spend": "what a call cost is spent when the program comes to it, and only if its budget would have allowed it",
    "reserve": "a call is made early only if it fits beside all calls before it",
    "once": "under a limit a function is called early only if it asks one question at most",
    "early": "who is asked early is asked once more when the run knows who it is",
    "limits": "an agent whose rate limit could fail a call that waits is asked in its turn",
    "clock": "time that was won is given back to rules that go by the clock, before it could fail a call",
    "names": "one process is one process under all its names",
    "given": "what a library function calls runs ahead only if it leaves nothing behind",
    "handed": "a function runs ahead only if it hands back nothing that its caller has",
    "returns": "what a function returns may be what others hold",
    "defaults": "the default of a parameter is one of its values",
    "output": "an answer that is a list can change",
    "tools": "a function that asks sees what the tools of its agents see",
    "depth": "a function that runs ahead is as deep in its calls as in its turn, and calls only so many ahead",
    "fuel": "looking ahead ends after a while",
    "held": "nothing is asked across a spawn whose process is seen by others than those who ask it",
    "settings": "an agent is asked before it is spawned only if its settings are known then",
    "spawn": "a process is started when the program comes to its spawn, and not before",
    "window": "no more calls of an agent are under way than its concurrency allows",
}
