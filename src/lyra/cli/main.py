"""The entry point: one call from the shell, one exit code back.

Handles every way a command can end: a result, a LyraError, a usage mistake, Ctrl-C, a reader that closed the pipe, a
bug. Never shows a traceback unless `--debug` asks for it. Imports nothing heavy: `lyra --version` costs an interpreter
and little else. A Ctrl-C during the import of this module could not be caught, so it imports nothing before `main` is
called. Next: `app`, the table of commands.
"""

import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import of typing
if TYPE_CHECKING:
    from collections.abc import Sequence


# 128 + the signal, as a shell counts it: SIGINT is 2, SIGPIPE is 13.
_INTERRUPTED = 130
_READER_GONE = 141


def main(arguments: "Sequence[str] | None" = None) -> int:
    """Run `lyra` with these arguments (the command line's when left out) and return its exit code."""
    return _main("lyra", arguments)


def vega(arguments: "Sequence[str] | None" = None) -> int:
    """Run `vega`, which is `lyra vega` under its own name."""
    return _main("vega", arguments)


def vesper(arguments: "Sequence[str] | None" = None) -> int:
    """Run `vesper`, which is `lyra vesper`."""
    return _main("vesper", arguments)


def sage(arguments: "Sequence[str] | None" = None) -> int:
    """Run `sage`, which is `lyra sage`."""
    return _main("sage", arguments)


def _main(name: str, arguments: "Sequence[str] | None") -> int:
    args = list(sys.argv[1:] if arguments is None else arguments)
    if args == ["--version"]:
        from lyra._version import __version__

        sys.stdout.write(f"{name} {__version__}\n")
        return 0
    if sys.stdout is None:
        _say("error[output]: stdout is closed")
        return 1
    try:
        code = _run(name, args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _say("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        _drop_stdout()
        return _READER_GONE
    except OSError as error:  # the disk behind a redirection is full, say
        _drop_stdout()
        _say(f"error[output]: the result could not be written: {error.strerror}")
        return 1
    return code


def _run(name: str, args: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        # A file name that is not UTF-8, or a C locale, must not turn a result into an encoding error.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    from lyra.cli.app import run

    if name == "lyra":
        return run(args)
    if name == "vesper":
        from lyra.cli.vesper.group import vesper as nodes

        return run(args, nodes)
    if name == "sage":
        from lyra.cli.sage.group import sage as code_agent

        return run(args, code_agent)
    from lyra.cli.vega.group import vega as group

    return run(args, group)


def _say(line: str) -> None:
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        return  # stderr is closed


def _drop_stdout() -> None:
    """Point stdout at nothing, or the interpreter complains about its buffer on the way out."""
    import os

    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (OSError, ValueError):
        return  # stdout is not a file: there is nothing to complain about


if __name__ == "__main__":
    sys.exit(main())
