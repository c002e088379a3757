"""The Python file that declares the agents and programs of a run, which `lyra replay` is given with `--load`.

The file is run, as a program of the person who names it, under the module name that the journal knows its programs by.
Its agents are registered, the functions that the run names as programs, and what its `setup(kernel)` registers, where
it has one. What it prints goes to stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_NOT_FILES: Final = ("agent", "lyra", "model", "tool", "hook")  # words before the colon that name no module


class ProgramFile:
    """The file `file`, run once, when its programs are first asked for; `names` are the programs and effects of the
    run."""

    def __init__(self, file: str, names: Iterable[str]) -> None:
        self._file = file
        self._wanted = [name.partition(":")[::2] for name in names]
        self._module: ModuleType | None = None

    def _loaded(self) -> ModuleType:
        if self._module is None:
            modules = [
                module
                for module, own in self._wanted
                if own and module not in _NOT_FILES and not module.startswith("lyra.")
            ]
            self._module = _run(self._file, _module_name(self._file, modules))
        return self._module

    async def register(self, kernel: Kernel) -> None:
        """Make what the file declares known to a kernel."""
        from lyra.agents.declaration.agent import AgentDeclaration

        module = self._loaded()
        setup = getattr(module, "setup", None)
        if callable(setup):
            prepared = setup(kernel)
            if hasattr(prepared, "__await__"):
                await prepared
        for value in list(vars(module).values()):
            if isinstance(value, AgentDeclaration):
                kernel.register(value)
        for name, own in self._wanted:
            program = getattr(module, own, None) if name == module.__name__ and own.isidentifier() else None
            if program is not None and _is_program(program):
                kernel.register(program)


def _module_name(file: str, modules: list[str]) -> str:
    """What the journal calls the module: as the file is called where it knows that, else the first that it names."""
    stem = Path(file).stem
    near = [name for name in modules if name.rpartition(".")[2] == stem]
    return (near or modules or [stem])[0]


def _run(file: str, name: str) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    sys.path.insert(0, str(Path(file).resolve().parent))  # what lies beside it can be imported, also later on
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is no Python file", key="--load")
    module = module_from_spec(spec)
    sys.modules[name] = module  # annotations of its functions are looked up there
    saved, sys.stdout = sys.stdout, sys.stderr
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file} cannot be run: {type(error).__name__}: {error}", key="--load") from error
    finally:
        sys.stdout = saved
    return module


def _is_program(value: Any) -> bool:
    import inspect

    return inspect.iscoroutinefunction(value)
