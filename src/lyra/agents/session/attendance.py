"""Who answers the questions of a kernel that its user cannot reach: those of `lyra.run`, `lyra.stream` and teams.

Such a kernel is made for one call, and no other code can answer what its agents ask. So a question is put to the
function that the caller gave as `answer`; without one it is refused at once, with a warning in the log that names it:
a tool that needs a permission is not run, and `ctx.ask` raises. Nothing waits there for a person by accident.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.errors import ConfigError, LyraError

if TYPE_CHECKING:
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel


_log: Final = logging.getLogger("lyra.agents")
_NO_PERSON: Final = "no person can answer here (give `answer=`, or run the agent in a Kernel of your own)"


def attend(kernel: Kernel, answer: Callable[[Interrupt], Any] | None) -> None:
    """Have the questions of a kernel's programs answered by a function, or refused."""
    if answer is not None and not callable(answer):
        raise ConfigError(f"answer is a function of the question, not {answer!r}", key="answer")

    def raised(interrupt: Interrupt) -> None:
        if answer is None:
            _refuse(kernel, interrupt, _NO_PERSON)
        else:
            kernel.tasks.start(_answered(kernel, answer, interrupt), name="lyra-answer")

    kernel.interrupts.on_raised.append(raised)


def _refuse(kernel: Kernel, interrupt: Interrupt, why: str) -> None:
    _log.warning("process %s asked: %s (%s): %s", interrupt.pid, interrupt.question, interrupt.kind, why)
    with suppress(LyraError):  # it is over already
        kernel.interrupts._withdraw(interrupt.id, why)


async def _answered(kernel: Kernel, answer: Callable[[Interrupt], Any], interrupt: Interrupt) -> None:
    """Put a question to the caller's function. True and False approve and deny; text is the answer to a question."""
    try:
        value = answer(interrupt.copy())
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, bool):
            value = {"approved": value, "decision": "allow" if value else "deny"}
        elif isinstance(value, str):
            value = {"text": value, "decision": value if interrupt.kind != "clarification" else ""}
        if value is None:
            _refuse(kernel, interrupt, "`answer` gave no answer")
        else:
            kernel.interrupts._answer(interrupt, value)
    except Exception as error:  # noqa: BLE001 - a question that its answerer fails at is refused, not left open
        _refuse(kernel, interrupt, f"`answer` failed: {type(error).__name__}: {error}")
