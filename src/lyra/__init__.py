"""Lyra, an operating system for AI agents: the public SDK.

    from lyra import Kernel, effect

Every name below is looked up when it is first used, so `import lyra` costs next to nothing. `_HOMES` is the
table of public names and the modules they live in; a test pins it. All errors are in `lyra.errors`, the
values in `lyra.core`, the kernel in `lyra.kernel`, stores in `lyra.store`, test tools in `lyra.testing`. What is
neither named here nor in the `__all__` of those packages may change without notice.
"""

from lyra._version import __version__

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import of typing, which costs more than this module
if TYPE_CHECKING:
    from typing import Any

    from lyra import errors
    from lyra.core.budget import Budget, Usage
    from lyra.core.capability import Capability, Grant
    from lyra.core.effect import Charged, Effect, effect
    from lyra.core.event import Event
    from lyra.core.money import Money
    from lyra.core.policy import Backoff, CircuitBreaker, Policy, RateLimit, Retry, Supervision
    from lyra.errors import LyraError
    from lyra.kernel.context import Context
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process import Exit

__all__ = [
    "Backoff",
    "Budget",
    "Capability",
    "Charged",
    "CircuitBreaker",
    "Context",
    "Effect",
    "Event",
    "Exit",
    "Grant",
    "Kernel",
    "LyraError",
    "Money",
    "Policy",
    "RateLimit",
    "Retry",
    "Supervision",
    "Usage",
    "__version__",
    "effect",
    "errors",
]

_HOMES = {
    "Backoff": "lyra.core.policy",
    "Budget": "lyra.core.budget",
    "Capability": "lyra.core.capability",
    "Charged": "lyra.core.effect",
    "CircuitBreaker": "lyra.core.policy",
    "Context": "lyra.kernel.context",
    "Effect": "lyra.core.effect",
    "Event": "lyra.core.event",
    "Exit": "lyra.kernel.process",
    "Grant": "lyra.core.capability",
    "Kernel": "lyra.kernel.kernel",
    "LyraError": "lyra.errors",
    "Money": "lyra.core.money",
    "Policy": "lyra.core.policy",
    "RateLimit": "lyra.core.policy",
    "Retry": "lyra.core.policy",
    "Supervision": "lyra.core.policy",
    "Usage": "lyra.core.budget",
    "effect": "lyra.core.effect",
    "errors": "lyra.errors",
}


def __getattr__(name: str) -> "Any":
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lyra' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(home)
    value = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
