"""The jobs on the page about scripts and CI call `sage` with options that it has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from lyra.cli.sage.start import start
from tests.test_docs import check_command

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "sage-in-scripts.md"
JOBS = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def steps_of(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("text", JOBS)
def test_a_workflow_calls_sage_with_known_options(text: str) -> None:
    """It has limits of money and of time, and the step with the key of the model has no other secret."""
    workflow = yaml.safe_load(text)
    (step,) = [step for step in steps_of(workflow) if "sage -p" in step.get("run", "")]
    words = shlex.split(step["run"].partition("sage ")[2].partition(" > ")[0])
    check_command(words, start)
    assert "--max-budget-usd" in words
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    assert "GH_TOKEN" not in step["env"]


def test_there_are_two_workflows() -> None:
    assert len(JOBS) == 2
