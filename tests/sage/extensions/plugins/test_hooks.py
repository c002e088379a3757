"""A hook of a plugin runs in the sandbox, from the plugin's own folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.sage.extensions.hooks import Hooks
from lyra.sage.extensions.plugins.store import PluginStore
from tests.agents.support import run
from tests.sage.extensions.plugins.support import make
from tests.sage.extensions.support import Desk, put

SCRIPT = """\
#!/bin/sh
cat > /dev/null
test -e ../enabled.json && reason="sees the others" || reason="sees itself"
echo "{\\"decision\\": \\"deny\\", \\"reason\\": \\"$reason\\"}"
"""


@pytest.mark.slow
def test_a_program_of_a_plugin_is_run_as_a_hook(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found beside the manifest, and sees nothing else of the folder where plugins are kept."""
    for name, value in desk.env.items():
        monkeypatch.setenv(name, value)
    folder = make(
        tmp_path / "acme",
        {"hooks.toml": "[[hooks.PreToolUse]]\ncommand = ['./check.sh']\nblocking = true\n"},
        assets='hooks = ["hooks.toml"]',
    )
    put(folder / "check.sh", SCRIPT).chmod(0o755)
    store = PluginStore()
    store.install(folder)
    store.enable("acme")
    ((plugin,), _) = store.active()
    hooks = Hooks(plugin.hooks, folder=str(desk.project))
    outcome = run(hooks.run("PreToolUse", {"tool": "Edit", "arguments": {}}))
    assert (outcome.decision, outcome.reason) == ("deny", "hook ./check.sh: sees itself")
