"""`vega new NAME`: a folder with a program that runs, a test that passes and a README that says how."""

from __future__ import annotations

import os
import re
from typing import Final

import click

from lyra.cli.app import CliCommand
from lyra.errors import ConfigError

_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*")

_MAIN: Final = """\
// An agent that greets, and a budget it stays within.
import "./greeting.vega" as greeting;

fn main(args) {
    let who = "world";
    if args.len() > 0 {
        who = args[0];
    }
    session budget $0.50 {
        try {
            print(greeting::greet(who));
        } catch BudgetExceeded {
            print("out of budget");
        } catch AgentFailed(reason) {
            print("no answer: " + reason);
        }
    }
}
"""

_GREETING: Final = """\
agent Greeter {
    model "claude-sonnet-4-20250514"
    system "You greet people warmly, in one sentence."
    temperature 0.7

    retry {
        max_attempts 3
        backoff exponential(100ms, 2.0, 5s)
    }
}

fn greet(name: str) -> str {
    let greeter = spawn Greeter;
    return greeter <- "Say hello to ${name}." timeout 30s;
}

test "greets by name" {
    mock Greeter {
        on "hello to Ada" reply "Hello, Ada!"
    }
    assert(greet("Ada") == "Hello, Ada!", "the greeting names her");
}
"""

_README: Final = """\
# {name}

```console
$ vega run main.vega --model sim/echo        # without a key: the simulated model says what it was told
$ vega run main.vega -- Ada                  # with ANTHROPIC_API_KEY set
$ vega test                                  # the test blocks, with scripted answers
$ vega check main.vega && vega fmt *.vega
```

`main.vega` is the program, `greeting.vega` an agent with its test.
"""

_IGNORED: Final = "*.vgb\n*.db\n.lyra/\n"


@click.command(cls=CliCommand, name="new")
@click.argument("name")
def new(*, name: str) -> None:
    """Create a project: a program, a test, a README.

    Creates the folder NAME. Existing files are not touched.
    """
    folder = os.path.normpath(name)
    title = os.path.basename(os.path.abspath(folder))
    if not _NAME.fullmatch(title):
        raise ConfigError(f"{title!r} is not a valid project name", hint="use letters, digits, - and _", key="NAME")
    files = {
        "main.vega": _MAIN,
        "greeting.vega": _GREETING,
        "README.md": _README.format(name=title),
        ".gitignore": _IGNORED,
    }
    if os.path.isdir(folder) and os.listdir(folder):
        raise ConfigError(f"{folder} already exists and is not empty", hint="choose another name", key="NAME")
    try:
        os.makedirs(folder, exist_ok=True)
        for file, text in files.items():
            with open(os.path.join(folder, file), "x", encoding="utf-8") as opened:
                opened.write(text)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be made: {error.strerror}", key="NAME") from None
    click.echo(f"made {folder}: {', '.join(files)}")
    click.echo(f"  cd {folder} && vega run main.vega --model sim/echo")
