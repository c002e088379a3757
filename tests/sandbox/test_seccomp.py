"""The filter of system calls, run call by call on both machines that it knows."""

from __future__ import annotations

import importlib
import platform
import struct

import pytest

from lyra.sandbox import seccomp

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request, monkeypatch):
    """The module as that machine would read it."""
    with monkeypatch.context() as patch:
        patch.setattr(platform, "machine", lambda: request.param)
        yield request.param, importlib.reload(seccomp)
    importlib.reload(seccomp)


def verdict(code: bytes, architecture: int, number: int, *args: int) -> int:
    """What the kernel would do: an interpreter for the few instructions that are used."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *(args + (0,) * 6)[:6])
    step = value = 0
    steps = list(struct.iter_unpack("<HBBI", code))
    while True:
        kind, yes, no, operand = steps[step]
        step += 1
        if kind == 0x20:
            (value,) = struct.unpack_from("<I", data, operand)
        elif kind == 0x54:
            value &= operand
        elif kind == 0x15:
            step += yes if value == operand else no
        elif kind == 0x35:
            step += yes if value >= operand else no
        elif kind == 0x45:
            step += yes if value & operand else no
        else:
            assert kind == 0x06
            return int(operand)


NUMBERS = {  # as in the tables of the kernel: x86_64, aarch64
    "read": (0, 63),
    "write": (1, 64),
    "execve": (59, 221),
    "ptrace": (101, 117),
    "mount": (165, 40),
    "unshare": (272, 97),
    "bpf": (321, 280),
    "clone": (56, 220),
    "clone3": (435, 435),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "ioctl": (16, 29),
    "openat": (257, 56),
    "openat2": (437, 437),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "setsid": (112, 157),
    "prlimit64": (302, 261),
    "utimensat": (280, 88),
    "sendto": (44, 206),
}
INET = seccomp.Rules(internet="any")
TCP = seccomp.Rules(internet="tcp", shared=True)
SHARED = seccomp.Rules(shared=True)
UNIX = seccomp.Rules(unix=True)
CASES = [
    (INET, "read", (), ALLOW),
    (INET, "write", (1 << 40,), ALLOW),
    (SHARED, "execve", (), ALLOW),
    (INET, "ptrace", (16,), EPERM),
    (SHARED, "mount", (), EPERM),
    (INET, "unshare", (0,), EPERM),
    (INET, "bpf", (), EPERM),
    (INET, "clone", (17,), ALLOW),
    (INET, "clone", (0x3D0F00,), ALLOW),  # what a thread is made with
    (INET, "clone", (0x10000011,), EPERM),
    (INET, "clone", (0x20011,), EPERM),
    (INET, "clone3", (), ENOSYS),
    (INET, "socket", (2, 1, 0), ALLOW),
    (INET, "socket", (10, 0x80802, 17), ALLOW),
    (INET, "socket", (2, 3, 1), EPERM),
    (INET, "socket", (1, 1, 0), EPERM),
    (INET, "socket", (16, 3, 0), EPERM),
    (INET, "socket", (40, 1, 0), EPERM),
    (UNIX, "socket", (1, 1, 0), ALLOW),
    (UNIX, "socket", (2, 1, 0), EPERM),
    (SHARED, "socket", (2, 1, 0), EPERM),
    (SHARED, "socket", (1, 1, 0), EPERM),
    (SHARED, "socketpair", (1, 1, 0), ALLOW),
    (SHARED, "socketpair", (16, 1, 0), 0x00050061),
    (TCP, "socket", (2, 0x80001, 0), ALLOW),
    (TCP, "socket", (10, 1, 6), ALLOW),
    (TCP, "socket", (2, 1, 262), EPERM),
    (TCP, "socket", (2, 2, 0), EPERM),
    (TCP, "sendto", (3, 0, 0, 0x4000), ALLOW),
    (TCP, "sendto", (3, 0, 0, 0x20004000), EPERM),
    (INET, "ioctl", (0, 0x5401), ALLOW),
    (INET, "ioctl", (0, 0x5412), EPERM),
    (INET, "ioctl", (0, 0xFFFFFFFF00005412), EPERM),
    (INET, "openat", (3, 0, 0x41, 0o644), ALLOW),
    (INET, "openat", (3, 0, 0x41, 0o4755), EPERM),
    (INET, "openat", (3, 0, 0x410000 | 2, 0o2755), EPERM),
    (INET, "openat", (3, 0, 0, 0o4755), ALLOW),  # without O_CREAT the argument means nothing
    (INET, "openat2", (), ENOSYS),
    (INET, "fchmod", (3, 0o755), ALLOW),
    (INET, "fchmod", (3, 0o4755), EPERM),
    (INET, "fchmodat", (3, 0, 0o755), ALLOW),
    (SHARED, "fchmodat", (3, 0, 0o755), EPERM),
    (INET, "setsid", (), ALLOW),
    (SHARED, "setsid", (), EPERM),
    (SHARED, "prlimit64", (0,), ALLOW),
    (SHARED, "prlimit64", (77,), EPERM),
    (INET, "prlimit64", (77,), ALLOW),
    (SHARED, "utimensat", (3, 0), ALLOW),
    (SHARED, "utimensat", (3, 0x1234), EPERM),
    (SHARED, "utimensat", (3, 0x7F0000000000), EPERM),
]


@pytest.mark.parametrize(("rules", "name", "args", "expected"), CASES)
def test_calls(machine, rules, name, args, expected):
    """Each call with its arguments gets its verdict."""
    here, module = machine
    code = module.program(module.Rules(*rules))
    assert verdict(code, ARCHITECTURES[here], NUMBERS[name][here == "aarch64"], *args) == expected


def test_other_architectures_are_killed(machine):
    """A number means another call there."""
    here, module = machine
    code = module.program(module.Rules())
    other = next(value for name, value in ARCHITECTURES.items() if name != here)
    assert verdict(code, other, 0) == KILL
    assert verdict(code, 0x40000003, 0) == KILL
    if here == "x86_64":
        assert verdict(code, ARCHITECTURES[here], 0x40000000 | 1) == ENOSYS


def test_the_filter_is_small_enough(machine):
    """The kernel takes 4096 instructions."""
    _, module = machine
    assert len(module.program(module.Rules(internet="tcp", unix=True, shared=True))) // 8 < 1_000
