"""ToolSearch: finds tools that are not in the model's request, because there are too many of them.

A `deferred` tool is known to its agent but not listed in the request; once ToolSearch has found it, it is listed from
the next model call on. Which ones were found is read from the transcript itself (`collect_found`): no other state is
kept, and a replay finds the same. A query is words that are looked for in names and descriptions, or
`select:NAME,NAME`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, Final

from lyra.core.checking.check import did_you_mean
from lyra.core.tool import Tool, ToolResult
from lyra.errors import ToolError
from lyra.tools.function import tool

NAME: Final = "ToolSearch"
_RESULTS_MAX: Final = 20
_QUERY_CHARS_MAX: Final = 500
_DESCRIPTION_CHARS: Final = 300
_SELECT: Final = "select:"
_WORD: Final = re.compile(r"[a-z]+|[0-9]+")

# The deferred tools of the agent or registry whose call is being made.
searchable: Final[ContextVar[Callable[[], Iterable[Tool]]]] = ContextVar("lyra_searchable", default=tuple)


def _search(query: str, max_results: int = 5) -> dict[str, Any]:
    """Find tools that are not listed, by words of their names and descriptions. Those that are found can be called from
    the next turn on.

    Args:
        query: words such as "notebook jupyter", or "select:NAME,NAME" for tools whose names are known
        max_results: how many to find at most
    """
    if not query.strip() or len(query) > _QUERY_CHARS_MAX:
        raise ToolError(f"a query has between 1 and {_QUERY_CHARS_MAX} characters", reason="invalid_arguments")
    known = {candidate.name: candidate for candidate in searchable.get()()}
    if query.strip().lower().startswith(_SELECT):
        names = [name.strip() for name in query.strip()[len(_SELECT) :].split(",") if name.strip()]
        return _answer(
            [known[name] for name in names if name in known], [name for name in names if name not in known], known
        )
    most = max(1, min(max_results, _RESULTS_MAX))
    return _answer(_rank(query, known.values())[:most], [], known)


def _answer(matches: list[Tool], missing: list[str], known: dict[str, Tool]) -> dict[str, Any]:
    """Return the answer to the model. `found` decides which tools are listed from now on; descriptions are for
    reading."""
    answer: dict[str, Any] = {"found": [match.name for match in matches]}
    if matches:
        answer["tools"] = {match.name: match.description[:_DESCRIPTION_CHARS] for match in matches}
    if missing:
        near = {name: did_you_mean(name, known) for name in missing}
        answer["missing"] = {
            name: f"did you mean {other}?" if other else "there is none" for name, other in near.items()
        }
    elif not matches:
        answer["hint"] = f"{len(known)} tools can be found; try other words"
    return answer


def _rank(query: str, tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools that contain a word of the query, the best match first: a word of the name counts more, a part
    of a word less."""
    words = set(_WORD.findall(query.lower()))
    scored = []
    for candidate in tools:
        in_name, in_text = set(_words(candidate.name)), set(_words(candidate.description))
        score = sum(_weight(word, in_name) * 3 + _weight(word, in_text) for word in words)
        if score:
            scored.append((-score, candidate.name, candidate))
    return [candidate for _, _, candidate in sorted(scored, key=lambda item: item[:2])]


def _words(text: str) -> list[str]:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return _WORD.findall(apart.lower())


def _weight(word: str, words: set[str]) -> int:
    if word in words:
        return 2
    return int(len(word) >= 3 and any(word in other or (len(other) >= 3 and other in word) for other in words))


tool_search: Final = tool(_search, name=NAME, idempotent=True, trusted=True).mark_builtin()


def collect_found(results: Iterable[ToolResult]) -> list[str]:
    """Return the names that ToolSearch has found, by its results as a transcript holds them; in their order."""
    name_lists = (names_in(result.output) for result in results if result.name == NAME and not result.is_error)
    return list(dict.fromkeys(name for names in name_lists for name in names))


def names_in(output: Any) -> list[str]:
    """Return the names in one result of ToolSearch."""
    if isinstance(output, str):
        try:
            output = json.loads(output)
        except ValueError:
            return []
    names = output.get("found") if isinstance(output, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
