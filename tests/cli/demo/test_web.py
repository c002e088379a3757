"""`lyra demo --web` serves a team at work until Ctrl-C, on this machine, with a token of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from lyra.cli.demo.web import show as office_module
from lyra.cli.demo.web.show import FIRST_ROUND, QUESTIONS_MAX, Office, Scene, live_through_past
from lyra.kernel.kernel import Kernel
from tests import warm


def _environment(tmp_path: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join(path for path in (os.environ.get("PYTHONPATH", ""), *sys.path) if path)
    return {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(tmp_path), "NO_COLOR": "1", **more}


def _start(tmp_path: Path, *words: str, **more: str) -> subprocess.Popen[str]:
    command = [*warm.command("lyra.cli.main:main"), "demo", "--web", *words]
    env = _environment(tmp_path, **more)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True)


@pytest.mark.slow
def test_the_demo_is_served_until_ctrl_c(tmp_path: Path) -> None:
    """The ready line has the address with the token; the page explains itself; the team has a past, works and asks; an
    end with Ctrl-C is an orderly one and leaves nothing behind."""
    mark = tmp_path.with_name(f"{tmp_path.name}-opened")
    process = _start(tmp_path, "--no-open", "--json", "--port", "0", "--speed", "20", BROWSER=f"touch {mark} %s")
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["url"] == f"{ready['http']}/?token={ready['token']}"
        assert ready["http"].startswith("http://127.0.0.1:")
        with httpx.Client(base_url=ready["http"], follow_redirects=True) as client:
            assert client.get("/").status_code == 401
            page = client.get("/", params={"token": ready["token"]})
            assert "This is a team of agents at work" in page.text
            assert "reviewers" in page.text
            headers = {"authorization": f"Bearer {ready['token']}"}
            costs = client.get("/api/costs", params={"by": "day"}, headers=headers).json()["groups"]
            assert len(costs) >= 6
            for _ in range(600):
                if client.get("/api/interrupts", headers=headers).json()["interrupts"]:
                    break
                signal.sigtimedwait([], 0.1)
            else:
                pytest.fail("no agent asked a person")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    assert (output, errors) == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert not mark.exists()


@pytest.mark.slow
def test_the_page_is_opened(tmp_path: Path) -> None:
    """Without --no-open the browser of the person is given the address."""
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\necho "$1" > {tmp_path}/opened.part && mv {tmp_path}/opened.part {tmp_path}/opened\n'
    )
    browser.chmod(0o700)
    process = _start(tmp_path, BROWSER=f"{browser} %s")
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        opened = tmp_path / "opened"
        for _ in range(600):
            if opened.exists():
                break
            signal.sigtimedwait([], 0.1)
        assert opened.read_text().strip() == url
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_the_port_is_the_one_that_is_named(tmp_path: Path) -> None:
    """No other port is taken where the one of --port is in use: the command ends and names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = _start(tmp_path, "--no-open", "--json", "--port", str(port))
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == ""
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode != 0
    assert str(port) in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--web", "--ask"), "--ask does not go with --web"),
        (("--web", "--fast"), "--fast does not go with --web"),
        (("--port", "8080"), "--port needs --web"),
        (("--no-open",), "--no-open needs --web"),
    ],
)
def test_options_that_would_do_nothing_are_refused(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    """An option of the other kind of demo is a mistake, not ignored."""
    done = warm.run("lyra.cli.main:main", ["demo", *words], cwd=Path.cwd(), env=_environment(tmp_path))
    assert done.returncode == 2
    assert message in done.stderr


def test_the_demo_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work ends after a number of rounds, and no more than a few questions wait, however long they are not answered."""
    monkeypatch.setattr(office_module, "ROUNDS_MAX", 25)
    monkeypatch.setattr(office_module, "_BRISK_S", 0.0)

    async def main() -> None:
        scene = Scene(tmp_path, pace=0.0, has_past=False)
        async with Kernel() as kernel:
            await scene.prepare(kernel)
            office = Office(scene, 7)
            async with asyncio.timeout(120):
                await office.run()
            assert office.round == 7 + 25
            assert 0 < len(kernel.interrupts.pending()) <= QUESTIONS_MAX + 1  # two may ask in the same moment
        await scene.close()

    asyncio.run(main())


def test_the_same_seed_has_the_same_past(tmp_path: Path) -> None:
    """What the team did before the page is opened follows from the seed."""

    async def changes(number: int) -> list[object]:
        folder = tmp_path / str(number)
        folder.mkdir()
        await live_through_past(str(folder / "demo.db"), folder, seed=3)
        async with Kernel(str(folder / "demo.db")) as kernel:
            ended = [row for row in kernel.processes.values() if (row.name or "").startswith("change ")]
            return [(row.name, row.exit.result) for row in ended if row.exit is not None]

    first, second = (asyncio.run(changes(number)) for number in (1, 2))
    assert len(first) == FIRST_ROUND
    assert first == second
