"""`sage -p` and `lyra agent -p` on real models: what is printed of the answer, its thought, its calls and its cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.cli.conftest import Lyra
from tests.real_models import Answer, Call, FakeVendor, Vendor, write_settings

COMMANDS = {"sage -p": ("lyra.cli.main:sage", []), "lyra agent -p": ("lyra.cli.main:main", ["agent"])}


class Printed:
    """One of the two commands, in a folder with a file."""

    def __init__(self, words: str, lyra: Lyra, vendor: Vendor, provider: FakeVendor) -> None:
        self.target, self.first = COMMANDS[words]
        self.folder: Path = lyra.folder
        self.env = {**lyra.env, **vendor.variables(provider.url)}
        self.model = vendor.model
        (self.folder / "a.txt").write_text("secret word: heron\n")
        write_settings(vendor, Path(lyra.env["HOME"]))

    def __call__(self, *words: str) -> Any:
        args = [*self.first, "-p", "Which bird?", "--model", self.model, *words]
        done = warm.run(self.target, args, cwd=self.folder, env=self.env)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout


@pytest.fixture(params=COMMANDS)
def printed(request: pytest.FixtureRequest, lyra: Lyra, vendor: Vendor, provider: FakeVendor) -> Printed:
    return Printed(request.param, lyra, vendor, provider)


def test_everything_as_lines(printed: Printed, vendor: Vendor, provider: FakeVendor) -> None:
    """Thoughts, calls and usage as lines of their own; the result has the dollars and the tokens of the whole run."""
    call = Call("Read", {"file_path": str(printed.folder / "a.txt")})
    written = 100 if vendor.charges_cache_writes else 0
    answers = (Answer(thinking="Look.", calls=(call,)), Answer("A heron.", written_tokens=written))
    provider.say(*answers)
    lines = [json.loads(line) for line in printed("--output-format", "stream-json").splitlines()]
    result = lines[-1]
    assert (result["type"], result["status"], result["text"]) == ("result", "success", "A heron.")
    assert result["cost_usd"] == vendor.cost_usd(*answers)
    usage = result["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["cache_read_tokens"]) == (2_000, 400, 1_200)
    assert usage["cache_write_tokens"] == written
    assert [line["cost_usd"] for line in lines if line["type"] == "usage"] == [
        vendor.cost_usd(answer) for answer in answers
    ]
    thoughts = [line["delta"] for line in lines if line["type"] == "thinking_delta"]
    assert thoughts == (["Look."] if vendor.thinks_aloud else [])
    (started,) = [line for line in lines if line["type"] == "tool_start"]
    assert (started["name"], started["arguments"]) == call
    assert "heron" in provider.requests[1].results[0]
    assert provider.requests[1].signatures == ([answers[0].signature] if vendor.thinks_aloud else [])


def test_the_answer_alone(printed: Printed, vendor: Vendor, provider: FakeVendor) -> None:
    """Text has the answer and no thought; a model that nobody has published answers too, at a cost that is null."""
    provider.say(Answer("A heron.", thinking="Look."))
    assert printed() == "A heron.\n"
    printed.model = f"{vendor.model.partition('/')[0]}/nova-of-tomorrow"
    assert json.loads(printed("--output-format", "json"))["cost_usd"] is None
