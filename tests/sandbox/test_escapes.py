"""No way out: every attempt, in every tier that works here."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.attacks import ATTACKS, Attack
from tests.sandbox.world import MARKER, SECRETS, World

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("world"))
    yield world
    world.close()


@pytest.fixture
def world(shared):
    shared.renew()
    return shared


@pytest.fixture
def fresh_world(tmp_path):
    """For attempts that may win."""
    world = World(tmp_path)
    yield world
    world.close()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_no_attempt_succeeds(attack: Attack, tier, sandbox, world, monkeypatch):
    """It prints no secret, reports no success, and leaves the world outside as it was."""
    monkeypatch.setenv("LYRA_TEST_TOKEN", "secret-variable")
    result = asyncio.run(sandbox.run(world.argv(attack.code), world.profile()))
    assert "SyntaxError" not in result.output.text, result.output.text
    assert world.verdict(result) == [], result.output.text
    assert result.tier == tier


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.outside], ids=lambda attack: attack.name)
def test_the_same_attempt_succeeds_without_a_sandbox(attack: Attack, fresh_world):
    """So the attempts are real, and a success is seen."""
    done = subprocess.run(
        fresh_world.argv(attack.code),
        check=False,
        cwd=fresh_world.workspace,
        capture_output=True,
        text=True,
        env={"TMPDIR": str(fresh_world.root)},
    )
    won = [word for word in (MARKER, *SECRETS) if word in done.stdout] + fresh_world.damage()
    assert won, done.stderr


def test_there_are_enough_attempts():
    """At least eighty, each with a name of its own."""
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 80


def test_ordinary_work_goes_on(sandbox, world):
    """A sandbox that refuses everything would pass every attempt above."""
    script = (
        "set -e; echo x > lib/new; mkdir -p lib/d; mv lib/new lib/d/; cat lib/main.py; ls lib; git --version || true"
    )
    result = asyncio.run(sandbox.run(["sh", "-c", script], world.profile()))
    assert result.exit_code == 0, result.output.text
    assert "hello" in result.output.text
    assert Path(world.workspace, "lib/d/new").read_text() == "x\n"
    result = asyncio.run(sandbox.run(["sh", "-c", "cat .git/config; echo $HOME; echo y > $HOME/f"], world.profile()))
    assert result.exit_code == 0, result.output.text
    assert "ours" in result.output.text
