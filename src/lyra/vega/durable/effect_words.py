"""What a journal calls an effect, in the words of the program that asks for it: `spawn agent:Critic` asks Critic."""

from __future__ import annotations

from typing import Final

from lyra.core.naming import SUPERVISE, VEGA_AGENT, VEGA_PROCESS, fixed_name

_STARTS: Final = {
    VEGA_PROCESS: "starts a function",
    VEGA_AGENT: "starts an agent",
    SUPERVISE: "starts an agent or a supervisor",
}
_READS: Final = {"clock": "reads the clock", "seed": "draws a random number"}
_ASKS: Final = {"vega.ask": "asks {}", "vega.stream": "reads a stream of {}"}
_PLAIN: Final = {
    "send": "sends a message",
    "receive": "waits for a message",
    "sleep": "sleeps",
    "wait": "waits for a process",
    "refused": "asks in vain",
    "link": "links a process",
    "monitor": "monitors a process",
}


def describe_effect(kind: str, name: str = "") -> str:
    """What a process does, by the kind and the name of its effect; one that has no words yet as it is called."""
    if kind == "spawn":
        agent = name.removeprefix("agent:").partition("~")[0]
        return f"asks {agent}" if name.startswith("agent:") else _STARTS.get(fixed_name(name), "starts a process")
    if kind == "do":
        what, _, agent = name.partition(":")
        return _ASKS[what].format(agent) if what in _ASKS else f"calls {name.removeprefix('vega.').replace('.', '::')}"
    if kind == "read":
        return _READS.get(name, f"reads {name}")
    return _PLAIN.get(kind, f"{kind} {name}".strip())
