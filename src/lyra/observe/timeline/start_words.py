"""How a step tells what a process was started with, where its arguments are those of Lyra's own programs.

A supervisor is started with the plan of its children, and a process of a Vega run with a number for its program: what a
person wants to know of them is who they are for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.core.naming import SUPERVISE, VEGA_AGENT, VEGA_PROCESS, fixed_name
from lyra.observe.timeline.values import brief

_CHILDREN_TOLD: Final = 8


def vega_name(pid: str, program: str, arguments: Any) -> str:
    """What a person calls a process of a Vega run; "" for any other."""
    if program == VEGA_PROCESS:
        return f"process {pid}"
    if program == VEGA_AGENT and isinstance(arguments, list) and len(arguments) > 1:
        return f"agent {arguments[1]}"
    return ""


def start_words(program: str, arguments: Any, text: str) -> str:
    """The arguments of a process in words; `text` is their short text, which others keep."""
    if not isinstance(arguments, list):
        return text
    if not arguments:
        return ""
    if program in (VEGA_PROCESS, VEGA_AGENT):
        return brief(arguments[-1]) if arguments[-1] is not None else ""
    plan = arguments[0]
    children = plan.get("children") if program == SUPERVISE and isinstance(plan, Mapping) else None
    if not isinstance(children, list) or not all(isinstance(child, Mapping) for child in children):
        return text
    told = [_child(child) for child in children[:_CHILDREN_TOLD]]
    more = [f"{len(children) - len(told)} more"] if len(children) > len(told) else []
    return brief(f"of {', '.join([*told, *more])}") if children else ""


def _child(child: Mapping[str, Any]) -> str:
    name = vega_name(str(child.get("id", "")), fixed_name(str(child.get("program", ""))), child.get("args"))
    return name or str(child.get("id", ""))
