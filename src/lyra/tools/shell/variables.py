"""Variables whose value is run, or decides what runs, when the command after them (or a later one) starts."""

from __future__ import annotations

import re
from typing import Final

from lyra.tools.shell.text_glob import UNKNOWN

PATH: Final = "PATH"

_NAMES: Final = (
    "BASHOPTS BASH_ALIASES BASH_CMDS BASH_ENV"
    " BROWSER CARGO_HOME CDPATH COMPILER_PATH EDITOR ENV EXINIT FCEDIT FIGNORE GCC_EXEC_PREFIX"
    " GLOBIGNORE GREP GNUMAKEFLAGS HISTFILE HOME IFS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS LESSCLOSE LESSEDIT"
    " LESSOPEN MAKEFILES MAKEFLAGS MANOPT MANPAGER MANROFFOPT MYVIMRC NODE_OPTIONS NODE_PATH PAGER PERL5DB"
    " PERL5LIB PERL5OPT PROMPT_COMMAND PS0 PS1 PS2 PS4 PYTHONBREAKPOINT PYTHONHOME PYTHONINSPECT"
    " PYTHONSTARTUP PYTHONWARNINGS RSYNC_CONNECT_PROG RSYNC_RSH RUBYLIB RUBYOPT RUSTC"
    " RIPGREP_CONFIG_PATH RUSTC_WORKSPACE_WRAPPER RUSTC_WRAPPER R_PROFILE_USER SHELL SHELLOPTS SSH_ASKPASS SUDO_ASKPASS"
    " SUDO_EDITOR TAR_OPTIONS ZIPOPT GOFLAGS LUA_INIT SVN_SSH PYTEST_ADDOPTS PYTEST_PLUGINS"
    " VIMINIT VISUAL XDG_CONFIG_DIRS XDG_CONFIG_HOME ZDOTDIR _JAVA_OPTIONS"
    " CORECLR_PROFILER_PATH DEVELOPER_DIR DOTNET_HOST_PATH DOTNET_ROOT DOTNET_STARTUP_HOOKS SWIFT_EXEC ZIG_LIB_DIR"
)
_DECIDES: Final = frozenset(_NAMES.split())
_PROGRAM_NAMES: Final = frozenset({"CC", "CXX", "CPP", "LD", "AR", "AS", "FC", "RC", "YACC", "LEX", "TERMINAL"})
_DECIDES_STARTS: Final = (
    "GIT_",
    "FZF_",
    "LD_",
    "DYLD_",
    "BASH_FUNC_",
    "npm_config_",
    "NPM_CONFIG_",
    "PIP_",
    "CARGO_TARGET_",
    "CARGO_BUILD_",
    "CARGO_ALIAS_",
)
_DECIDES_ENDS: Final = ("PAGER", "EDITOR", "ASKPASS", "BROWSER")
# MSBuild takes variables for properties, in any case: these are commands, programs or files of further settings.
_PROPERTIES: Final = re.compile(
    r"(?:pre|post)\w*event|\w+tool(?:exe|path)|custom(?:before|after)\w+|directorybuild\w+|msbuild\w*path\w*",
    re.IGNORECASE,
)
_DECIDES_NOTHING: Final = re.compile(r"GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL|DATE)|GIT_TERMINAL_PROMPT")
_CALCULATES: Final = frozenset(
    {"BASHPID", "EPOCHSECONDS", "HISTCMD", "LINENO", "OPTIND", "RANDOM", "SECONDS", "SRANDOM"}
)


def calculates(name: str) -> bool:
    """Whether a shell does arithmetic with what is given to this variable, or to a place in it: `RANDOM`, `a[i]`."""
    return "[" in name or name in _CALCULATES


def is_relative_path(value: str) -> bool:
    """Whether a value of PATH has a folder that depends on the current one: the line may have put a program there."""
    return not all(folder[:1] in ("/", "~", UNKNOWN) for folder in value.split(":"))


def names_program(name: str) -> bool:
    """Whether the value of this variable is usually run as it is, such as that of `CC` by make."""
    return name in _PROGRAM_NAMES


def decides_what_runs(name: str) -> bool:
    """Whether a variable of this name, or a place in it, makes some program run what its value says."""
    name = name.partition("[")[0]
    if name in _DECIDES:
        return True
    if name.endswith(_DECIDES_ENDS) or _PROPERTIES.fullmatch(name):
        return True
    return name.startswith(_DECIDES_STARTS) and _DECIDES_NOTHING.fullmatch(name) is None
