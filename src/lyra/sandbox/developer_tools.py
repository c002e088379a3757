"""The developer's own tools: folders outside the workspace that commands may read so that the usual programs run.

`find_developer_tools()` gives those that exist: the active Python environment and those in `~/.venvs` and
`~/.virtualenvs`, with their interpreters, the homes of version managers (pyenv, nvm, rustup, asdf, mise and their
like), `~/.local/bin`, and the caches of package managers.
They can be read and not written. Nothing else of the home folder is shown, and of these folders only parts that hold no
keys: `~/.cargo/registry` and not `~/.cargo/credentials.toml`. `find_variables` are the variables by which such programs
find their own files, since the home folder of a sandbox is another one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from lyra.sandbox.paths import interpreter_mounts
from lyra.sandbox.profile import ENVIRONMENT_HOMES, NO_WORKSPACE, SYSTEM

_AT_HOME: Final = (
    *ENVIRONMENT_HOMES,
    # Programs, and where the links among them lead.
    *(".local/bin", ".local/share/pipx", ".local/pipx", "bin", ".bun/bin", ".deno/bin", "go/bin", ".cargo/bin"),
    # Version managers.
    *(".pyenv", ".nvm", ".rustup", ".asdf", ".rbenv", ".nodenv", ".goenv", ".jenv", ".volta", ".fnm", ".tool-versions"),
    *(".local/share/mise", ".local/share/rtx", ".local/share/fnm", ".local/share/uv", ".sdkman/candidates", ".juliaup"),
    *(".ghcup/bin", ".ghcup/ghc", ".dotnet", ".elan", ".opam", "miniconda3", "miniforge3", "anaconda3", "micromamba"),
    # Caches of packages.
    *(".cache/pip", ".cache/uv", ".cache/pypoetry", ".local/share/virtualenvs", ".npm/_cacache", ".cache/yarn"),
    *(".yarn/berry/cache", ".local/share/pnpm/store", ".bun/install/cache", ".cache/deno", ".cache/node"),
    *(".cargo/registry", ".cargo/git", "go/pkg/mod", ".cache/go-build", ".m2/repository", ".gradle/caches"),
    *(".gem/ruby", ".bundle/cache", ".nuget/packages", ".cache/composer", ".cabal/packages", ".cache/coursier"),
    *(".ivy2/cache", ".cache/bazelisk", ".cache/ms-playwright", ".cache/pre-commit", ".cache/huggingface/hub"),
)
# Variables of the user that name such a folder, and where it is without one.
_VARIABLES: Final[dict[str, str]] = {
    "PYENV_ROOT": ".pyenv",
    "NVM_DIR": ".nvm",
    "RUSTUP_HOME": ".rustup",
    "CARGO_HOME": ".cargo",
    "ASDF_DIR": ".asdf",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "RBENV_ROOT": ".rbenv",
    "NODENV_ROOT": ".nodenv",
    "GOENV_ROOT": ".goenv",
    "VOLTA_HOME": ".volta",
    "FNM_DIR": ".local/share/fnm",
    "GOMODCACHE": "go/pkg/mod",
    "UV_PYTHON_INSTALL_DIR": ".local/share/uv/python",
    "PLAYWRIGHT_BROWSERS_PATH": ".cache/ms-playwright",
}
# Variables that only choose among versions.
_CHOICES: Final = ("PYENV_VERSION", "RUSTUP_TOOLCHAIN", "NODE_VERSION", "JAVA_HOME", "GOROOT", "CONDA_DEFAULT_ENV")
_ENVIRONMENTS: Final = ("VIRTUAL_ENV", "CONDA_PREFIX")
_MARKS: Final = ("pyvenv.cfg", "conda-meta")


def find_developer_tools(env: Mapping[str, str] | None = None) -> list[str]:
    """Return the folders that exist, without links in their paths."""
    env = os.environ if env is None else env
    home = env.get("HOME") or os.path.expanduser("~")
    wanted = [os.path.join(home, name) for name in _AT_HOME] if os.path.isabs(home) and home != "/" else []
    environments = _list_active_environments(env)
    wanted += environments
    wanted += [place for pair in interpreter_mounts(environments, SYSTEM) for place in pair]
    real = (os.path.realpath(path) for path in wanted if os.path.exists(path))
    return [path for path in dict.fromkeys(real) if path not in NO_WORKSPACE and path != os.path.realpath(home)]


def find_variables(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return variables for commands by which the tools find their files."""
    env = os.environ if env is None else env
    home = env.get("HOME") or os.path.expanduser("~")
    usual = {name: os.path.join(home, place) for name, place in _VARIABLES.items()}
    variables = {name: path for name, path in usual.items() if os.path.isdir(path)}
    variables |= {name: env[name] for name in _CHOICES if env.get(name)}
    for path in _list_active_environments(env)[:1]:
        variables["VIRTUAL_ENV" if os.path.exists(f"{path}/pyvenv.cfg") else "CONDA_PREFIX"] = path
    return variables


def _list_active_environments(env: Mapping[str, str]) -> list[str]:
    """Return the Python environments that the user's shell has activated."""
    paths = [env[name] for name in _ENVIRONMENTS if os.path.isabs(env.get(name, ""))]
    return [path for path in paths if any(os.path.exists(os.path.join(path, mark)) for mark in _MARKS)]
