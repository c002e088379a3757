"""Wrappers that take options and then a command: `sudo -u bob rm`, `timeout -k 1 5 rm`; which options they have."""

from __future__ import annotations

from typing import Final, NamedTuple


class WrapperOptions(NamedTuple):
    """How a wrapper's own arguments are read: short options without and with a value, long ones likewise, and how
    many plain arguments come before the command."""

    flags: str = ""
    values: str = ""
    long_flags: frozenset[str] = frozenset()
    long_values: frozenset[str] = frozenset()
    plain: int = 0
    assigns: bool = False


def _long(text: str) -> frozenset[str]:
    return frozenset(text.split())


WRAPPERS: Final[dict[str, WrapperOptions]] = {
    "sudo": WrapperOptions(
        "ABbEeHiKklNnPSsVv",
        "CcDghpRrTtUu",
        _long("askpass background bell preserve-env edit set-home login reset-timestamp non-interactive stdin shell"),
        _long("close-from chdir group host prompt chroot role command-timeout type other-user user"),
        assigns=True,
    ),
    "doas": WrapperOptions("Lns", "aCu"),
    "env": WrapperOptions("i0v", "uC", _long("ignore-environment null debug"), _long("unset chdir"), assigns=True),
    "nice": WrapperOptions("0123456789", "n", frozenset(), _long("adjustment")),
    "ionice": WrapperOptions("t", "cn", _long("ignore"), _long("class classdata")),
    "chrt": WrapperOptions("bfiorRvda", "TPD", plain=1),
    "taskset": WrapperOptions("apc", plain=1),
    "timeout": WrapperOptions("fpv", "ks", _long("preserve-status foreground verbose"), _long("kill-after signal"), 1),
    "nohup": WrapperOptions(),
    "setsid": WrapperOptions("cfw", "", _long("ctty fork wait")),
    "stdbuf": WrapperOptions("", "ioe", frozenset(), _long("input output error")),
    "time": WrapperOptions("apqv", "fo", _long("append portability quiet verbose"), _long("format output")),
    "xargs": WrapperOptions(
        "0oprtxil",
        "adEILnPs",
        # The value of the last three is attached or missing.
        _long("null open-tty interactive no-run-if-empty verbose exit show-limits max-lines replace eof"),
        _long("arg-file delimiter max-args max-procs max-chars process-slot-var"),
    ),
    "command": WrapperOptions("pvV"),
    "builtin": WrapperOptions(),
    "exec": WrapperOptions("cl", "a"),
    "chroot": WrapperOptions("", "", _long("skip-chdir"), _long("groups userspec"), 1),
    "ld.so": WrapperOptions(),
    "fakeroot": WrapperOptions("u", "lsib"),
    "caffeinate": WrapperOptions("disum", "tw"),
}


def short_options(letters: str, options: WrapperOptions) -> int:
    """How many words this cluster of short options takes; 0 if it has an unknown letter."""
    for place, letter in enumerate(letters):
        if letter in options.values:
            return 1 if place + 1 < len(letters) else 2
        if letter not in options.flags:
            return 0
        if letter in "il" and "I" in options.values:  # xargs: its value is attached or missing
            return 1
    return 1


def long_option(text: str, options: WrapperOptions) -> int:
    """How many words a long option takes; 0 if it is unknown."""
    name, equals, _ = text.partition("=")
    if name not in options.long_values and name not in options.long_flags:  # an abbreviation, if it is unambiguous
        full = [known for known in (*options.long_values, *options.long_flags) if known.startswith(name)]
        name = full[0] if len(full) == 1 else ""
    if name in options.long_values:
        return 1 if equals else 2
    return 1 if name in options.long_flags else 0
