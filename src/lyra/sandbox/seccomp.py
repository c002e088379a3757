"""The filter of system calls, as the bytes that the kernel reads (classic BPF), without a library.

Everything is allowed but a list: calls that change mounts, namespaces, clocks, modules or other processes, that have
been the way into the kernel (io_uring, bpf, userfaultfd, keyrings), and sockets that the profile does not name. A
refused call gives EPERM (`clone3` gives ENOSYS, so that C libraries fall back to `clone`, whose flags can be
read). A process of another architecture is killed. `program(rules)` gives the bytes; `bubblewrap` (by file descriptor)
and `pre_exec` (by prctl) install them.
"""

from __future__ import annotations

import platform
import struct
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from lyra.sandbox.creator import CALLS

_LD: Final = 0x20  # load a word of the call's data
_AND: Final = 0x54
_JEQ: Final = 0x15
_JGE: Final = 0x35
_JSET: Final = 0x45
_RET: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000
_NOTIFY: Final = 0x7FC00000  # pass the call on to the process that holds the listener
_EPERM: Final = 1
_ENOSYS: Final = 38
_EAFNOSUPPORT: Final = 97

_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_MACHINE: Final = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
SUPPORTED: Final = _MACHINE in _ARCHITECTURES
_X32: Final = 0x40000000

# Name → number on x86_64 and on aarch64; None where the architecture has no such call.
_REFUSED: Final[dict[str, tuple[int | None, int | None]]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "syslog": (103, 116),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "vhangup": (153, 58),
    "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "memfd_secret": (447, 447),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "nfsservctl": (180, 42),
}
# Also refused where the command has no process table and no mounts of its own: calls that Landlock does not check.
# Modes, owners and attributes can be changed by descriptor (which Landlock has checked), not by name.
_REFUSED_SHARED: Final[dict[str, tuple[int | None, int | None]]] = {
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semctl": (66, 191),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "setsid": (112, 157),
    "setpgid": (109, 154),
}
# Calls that act on the process in this argument: only 0, the calling process, is allowed.
_ON_PROCESSES: Final[dict[str, tuple[int, int, int]]] = {
    "prlimit64": (302, 261, 0),
    "sched_setaffinity": (203, 122, 0),
    "sched_setscheduler": (144, 119, 0),
    "sched_setparam": (142, 118, 0),
    "sched_setattr": (314, 274, 0),
    "setpriority": (141, 140, 1),
    "ioprio_set": (251, 30, 1),
}
# Calls that set a file's mode: the argument with the mode, and the one with the flags that say whether it is used.
_MODES: Final[dict[str, tuple[int | None, int, int, int | None]]] = {
    "open": (2, 0, 2, 1),
    "creat": (85, 0, 1, None),
    "openat": (257, 56, 3, 2),
    "mknod": (133, 0, 1, None),
    "mknodat": (259, 33, 2, None),
    "chmod": (90, 0, 1, None),
    "fchmod": (91, 52, 1, None),
    "fchmodat": (268, 53, 2, None),
    "fchmodat2": (452, 452, 2, None),
}
_SET_ID: Final = 0o6000
_CREATING: Final = 0x400040  # O_CREAT and the bit of O_TMPFILE
_CREATES: Final = 0x40  # O_CREAT
_OPENING: Final = {"open": 1, "openat": 2}  # the argument with the flags

_CALLS: Final[dict[str, tuple[int, int]]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "ioctl": (16, 29),
    "openat2": (437, 437),
    "utimensat": (280, 88),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
}
_NEW_NAMESPACES: Final = 0x7E020000  # every CLONE_NEW… flag that `clone` takes
_TIOCSTI: Final = 0x5412  # types into the terminal
_TIOCLINUX: Final = 0x541C  # pastes into it
_TIOCSETD: Final = 0x5423  # loads a line discipline
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_STREAM, _DATAGRAM, _TCP = 1, 2, 6
_FAST_OPEN: Final = 0x20000000  # connects while it sends, which avoids the rules about ports


class Rules(NamedTuple):
    """The differences between filters: internet sockets, unix sockets, and whether the process table is shared."""

    internet: Literal["none", "tcp", "any"] = "none"
    unix: bool = False
    shared: bool = False  # no own process table and mounts; then no descendant can leave its process group either


def _word(index: int) -> int:
    """Return the offset of the low half of an argument."""
    return 16 + 8 * index


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _fail(number: int) -> bytes:
    return _step(_RET, _ERRNO | number)


_AGAIN: Final = _step(_LD, 0)  # load the number of the call again, after its arguments


_COLUMN: Final = 0 if _MACHINE == "x86_64" else 1


def _refuse(number: int | None, error: int = _EPERM) -> bytes:
    return b"" if number is None else _step(_JEQ, number, 0, 1) + _fail(error)


def _number(name: str) -> int:
    return _CALLS[name][_COLUMN]


def _on(call: str | int | None, body: bytes) -> bytes:
    """Run `body` only for that call; it continues with the call's number loaded again."""
    number = _number(call) if isinstance(call, str) else call
    if not number:
        return b""
    whole = body + _AGAIN
    return _step(_JEQ, number, 0, len(whole) // 8) + whole


def _flags(name: str, index: int, mask: int) -> bytes:
    return _on(name, _step(_LD, _word(index)) + _step(_JSET, mask, 0, 1) + _fail(_EPERM))


def _values(name: str, index: int, refused: tuple[int, ...]) -> bytes:
    body = _step(_LD, _word(index))
    for value in refused:
        body += _step(_JEQ, value, 0, 1) + _fail(_EPERM)
    return _on(name, body)


def _only(index: int, allowed: tuple[int, ...], error: int, mask: int = 0xFFFFFFFF) -> bytes:
    """Fail unless the argument is one of a few values."""
    body = _step(_LD, _word(index)) + (_step(_AND, mask) if mask != 0xFFFFFFFF else b"")
    for left, value in reversed(list(enumerate(allowed))):
        skip = left + 1  # the remaining comparisons, and the failure
        body += _step(_JEQ, value, skip, 0)
    return body + _fail(error)


@lru_cache(maxsize=1)
def notifying() -> bytes:
    """Return the filter that passes calls on to `creator` which make or remove an entry of a folder. Calls that another
    filter refuses stay refused, and so does a process of another architecture."""
    code = _step(_LD, 4) + _step(_JEQ, _ARCHITECTURES[_MACHINE], 1, 0) + _step(_RET, _ALLOW) + _AGAIN
    for name, numbers in CALLS.items():
        pass_on = _step(_RET, _NOTIFY)
        if name in _OPENING:
            pass_on = _step(_LD, _word(_OPENING[name])) + _step(_JSET, _CREATES, 0, 1) + pass_on
        code += _on(numbers[_COLUMN], pass_on)
    return code + _step(_RET, _ALLOW)


def _sockets(rules: Rules) -> bytes:
    families = ((_AF_UNIX,) if rules.unix else ()) + ((_AF_INET, _AF_INET6) if rules.internet != "none" else ())
    if not families:
        return _refuse(_number("socket")) + _on("socketpair", _only(0, (_AF_UNIX,), _EAFNOSUPPORT))
    body = _only(0, families, _EPERM)
    if rules.internet == "any":
        body += _only(1, (_STREAM, _DATAGRAM), _EPERM, 0xF)
    elif rules.internet == "tcp":  # other stream protocols (MPTCP) avoid the rules about TCP ports
        body += _only(1, (_STREAM,), _EPERM, 0xF) + _only(2, (0, _TCP), _EPERM)
    code = _on("socket", body) + _on("socketpair", _only(0, (_AF_UNIX,), _EAFNOSUPPORT))
    if rules.internet == "tcp":
        code += _flags("sendto", 3, _FAST_OPEN) + _flags("sendmsg", 2, _FAST_OPEN) + _flags("sendmmsg", 3, _FAST_OPEN)
    return code


def _no_set_id() -> bytes:
    """Refuse set-user-id and set-group-id files: where the user is root, any user could run one after the command."""
    code = _refuse(_number("openat2"), _ENOSYS)  # its mode is in memory, which a filter cannot read
    for x86, arm, mode, flags in _MODES.values():
        check = _step(_LD, _word(mode)) + _step(_JSET, _SET_ID, 0, 1) + _fail(_EPERM)
        if flags is not None:
            check = _step(_LD, _word(flags)) + _step(_JSET, _CREATING, 0, len(check) // 8) + check
        code += _on((x86, arm)[_COLUMN], check)
    return code


def _build_shared() -> bytes:
    code = b"".join(_refuse(numbers[_COLUMN]) for numbers in _REFUSED_SHARED.values())
    for *numbers, index in _ON_PROCESSES.values():
        code += _on(numbers[_COLUMN], _only(index, (0,), _EPERM))
    # Without a path it changes an open file; the two halves of the pointer are checked one by one.
    path = _step(_LD, _word(1)) + _step(_JEQ, 0, 1, 0) + _fail(_EPERM)
    path += _step(_LD, _word(1) + 4) + _step(_JEQ, 0, 1, 0) + _fail(_EPERM)
    return code + _on("utimensat", path)


@lru_cache(maxsize=32)
def program(rules: Rules) -> bytes:
    """Return the filter for these rules."""
    assert SUPPORTED, "no table of system calls for this machine"
    code = _step(_LD, 4) + _step(_JEQ, _ARCHITECTURES[_MACHINE], 1, 0) + _step(_RET, _KILL) + _AGAIN
    if _MACHINE == "x86_64":
        code += _step(_JGE, _X32, 0, 1) + _fail(_ENOSYS)
    code += b"".join(_refuse(numbers[_COLUMN]) for numbers in _REFUSED.values()) + _refuse(_number("clone3"), _ENOSYS)
    code += _flags("clone", 0, _NEW_NAMESPACES) + _values("ioctl", 1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD))
    code += _no_set_id() + (_build_shared() if rules.shared else b"")
    return code + _sockets(rules) + _step(_RET, _ALLOW)
