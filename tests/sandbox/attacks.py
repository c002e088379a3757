"""Ways out of a sandbox, one named attempt each.

The code of an attempt runs inside with the names of `prelude`. It has won when it prints the marker or one of the
secrets, or when the world outside is not as it was (`world.World.damage`). `outside=True` marks attempts that do win
without a sandbox and do no harm there: they show that a win is seen.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MODULES = ("os", "sys", "socket", "ctypes", "errno", "signal", "struct", "time", "stat", "fcntl", "glob")
_CALLS = """
L = ctypes.CDLL(None, use_errno=True)
ARM = os.uname().machine in ("aarch64", "arm64")
def call(x86, arm, *args):
    rc = L.syscall(arm if ARM else x86, *args)
    return rc
"""
_HELPERS = """
def won(): print("ESC" + "APED", flush=True)
def read(path): print(open(path, errors="replace").read(4000))
def write(path, text="bad", mode="w"):
    with open(path, mode) as file: file.write(text)
def unless_error(rc):
    if rc >= 0: won()
"""


def prelude(code: str) -> str:
    """Return the helpers that the code of an attempt may use, and the imports of what it names: starting many modules
    takes longer than most attempts."""
    calls = _CALLS if re.search(r"\b(L|ARM|call)\b", code) else ""
    words = {*re.findall(r"\w+", calls + code)}
    return f"import {', '.join(name for name in _MODULES if name in words | {'os'})}\n{calls}{_HELPERS}"


class Attack(NamedTuple):
    name: str
    code: str
    outside: bool = False


def _read(name: str, path: str, *, outside: bool = False) -> Attack:
    return Attack(name, f"read({path})", outside)


READS = [
    _read("a file outside", "OUT + '/secret'", outside=True),
    _read("a file outside by ..", "WS + '/../outside/secret'", outside=True),
    _read("a file outside by a relative ..", "'../outside/secret'", outside=True),
    _read("through /proc/self/root", "'/proc/self/root' + OUT + '/secret'", outside=True),
    _read("through /proc/1/root", "'/proc/1/root' + OUT + '/secret'"),
    _read("through /proc/self/cwd", "'/proc/self/cwd/../outside/secret'", outside=True),
    _read("through a symlink to a file", "WS + '/lib/to_file'", outside=True),
    _read("through a symlink to a folder", "WS + '/lib/to_folder/secret'", outside=True),
    Attack("through a new symlink", "os.symlink(OUT, 'lib/new'); read('lib/new/secret')", outside=True),
    Attack("through a hard link", "os.link(OUT + '/secret', 'lib/hard'); read('lib/hard')", outside=True),
    Attack("through a chain of symlinks", "os.symlink('/', 'lib/a'); read('lib/a' + OUT + '/secret')", outside=True),
    Attack("by a folder's descriptor", "d = os.open('/', 0); os.open(OUT[1:] + '/secret', 0, dir_fd=d); won()"),
    Attack("listing outside", "print(os.listdir(OUT)); won()", outside=True),
    _read("through the folder of another process", "f'/proc/{VICTIM}/cwd/secret'"),
    _read("through the root of another process", "f'/proc/{VICTIM}/root' + OUT + '/secret'"),
    _read("the environment of another process", "f'/proc/{VICTIM}/environ'"),
    _read("the command line of another process", "f'/proc/{VICTIM}/cmdline'"),
    _read("the environment of the parent", "f'/proc/{PARENT}/environ'"),
    Attack(
        "the environment of every process",
        "for f in glob.glob('/proc/[0-9]*/environ'):\n try: read(f)\n except OSError: pass",
    ),
    Attack(
        "the command line of every process",
        "for f in glob.glob('/proc/[0-9]*/cmdline'):\n try: read(f)\n except OSError: pass",
    ),
    Attack("open files of another process", "for f in glob.glob(f'/proc/{VICTIM}/fd/*'): read(f)"),
    Attack("memory of another process", "open(f'/proc/{VICTIM}/mem', 'rb'); won()", outside=True),
    Attack("maps of another process", "read(f'/proc/{VICTIM}/maps'); won()", outside=True),
    Attack("shadow passwords", "open('/etc/shadow').read(); won()"),
    Attack("private keys of the system", "os.listdir('/etc/ssl/private'); won()"),
    Attack(
        "files of the user's home",
        "for n in os.listdir(USER_HOME):\n p = USER_HOME + '/' + n\n if os.path.isfile(p): open(p).read(1); won()",
    ),
    Attack("own environment", "print(dict(os.environ))"),
    Attack(
        "inherited descriptors",
        "for n in range(3, 300):\n try: os.lseek(n, 0, 0)\n except OSError: pass\n try: print(os.read(n, 4000))\n except OSError: pass",
    ),
    Attack(
        "inherited folders",
        "for n in range(3, 300):\n try: os.open('secret', 0, dir_fd=n); won()\n except OSError: pass",
    ),
    Attack("a file by its handle", "unless_error(call(304, 265, -100, struct.pack('=Ii', 8, 1) + bytes(8), 0))"),
    Attack("raw memory", "open('/dev/mem', 'rb').read(1); won()"),
    Attack("kernel memory", "open('/proc/kcore', 'rb').read(64); won()"),
    Attack(
        "block devices",
        "for f in glob.glob('/dev/vd*') + glob.glob('/dev/sd*') + glob.glob('/dev/nvme*') + glob.glob('/dev/loop0'):\n os.open(f, os.O_RDONLY); won()",
    ),
    Attack(
        "a block device of its own",
        "os.mknod('lib/disk', stat.S_IFBLK | 0o600, os.makedev(DISK >> 8, DISK & 255)); os.open('lib/disk', 0); won()",
    ),
    Attack("a character device of its own", "os.mknod('lib/mem', stat.S_IFCHR | 0o600, os.makedev(1, 1)); won()"),
    Attack(
        "a device in /tmp", "os.mknod(os.environ['TMPDIR'] + '/mem', stat.S_IFCHR | 0o600, os.makedev(1, 1)); won()"
    ),
    Attack("the kernel's log", "b = ctypes.create_string_buffer(100); call(103, 116, 3, b, 100) >= 0 and won()"),
    Attack("the kernel's log device", "os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK); won()"),
    Attack("chroot and climb", "os.mkdir('lib/c'); os.chroot('lib/c'); won()"),
]

HIDDEN = [
    _read(".env", "WS + '/.env'", outside=True),
    _read(".env by /proc/self/cwd", "'/proc/self/cwd/.env'", outside=True),
    _read(".env by ..", "WS + '/lib/../.env'", outside=True),
    _read("a private key", "WS + '/id_rsa'", outside=True),
    _read("a nested .env", "WS + '/src/deep/.env'", outside=True),
    Attack(".env by a hard link", "os.link('.env', 'lib/e'); read('lib/e')"),
    Attack(".env by a symlink", "os.symlink('../.env', 'lib/e'); read('lib/e')", outside=True),
    Attack(".env by a rename", "os.rename('.env', 'lib/e'); read('lib/e')"),
    Attack(".env after its folder was renamed", "os.rename('src/deep', 'src/deeper'); read('src/deeper/.env')"),
    Attack(".env with other modes", "os.chmod('.env', 0o777); read('.env')"),
    Attack(
        ".env by copying everything",
        "os.system('cp -r . $TMPDIR/all; cat $TMPDIR/all/.env $TMPDIR/all/src/deep/.env')",
        outside=True,
    ),
    Attack(".env by tar", "os.system('tar c . | cat')", outside=True),
    Attack(".env unmounted", "L.umount2(b'.env', 2) == 0 and read('.env')"),
    Attack("write .env", "write('.env'); won()"),
    Attack("keys in .ssh", "read('.ssh/config')", outside=True),
    Attack("what the grant denies", "read('src/private/notes')", outside=True),
]

WRITES = [
    Attack("a new file outside", "write(OUT + '/new')", outside=True),
    Attack("over a file outside", "write(OUT + '/keep')"),
    Attack("at the end of a file outside", "write(OUT + '/keep', mode='a')"),
    Attack("emptying a file outside", "os.truncate(OUT + '/keep', 0)"),
    Attack("deleting outside", "os.unlink(OUT + '/keep')"),
    Attack("deleting a folder outside", "os.rmdir(OUT + '/folder')"),
    Attack("moving out", "write('lib/m'); os.rename('lib/m', OUT + '/m')"),
    Attack("moving in", "os.rename(OUT + '/keep', 'lib/k')"),
    Attack("linking out", "write('lib/l'); os.link('lib/l', OUT + '/l')"),
    Attack("a symlink outside", "os.symlink('/', OUT + '/s')"),
    Attack("a folder outside", "os.mkdir(OUT + '/d')"),
    Attack("a pipe outside", "os.mkfifo(OUT + '/p')"),
    Attack("modes outside", "os.chmod(OUT + '/keep', 0o777)"),
    Attack("owners outside", "os.chown(OUT + '/keep', 12, 12)"),
    Attack("times outside", "os.utime(OUT + '/keep', (1, 1))"),
    Attack("attributes outside", "os.setxattr(OUT + '/keep', 'user.x', b'x')"),
    Attack("through a symlink", "write('lib/to_folder/new')"),
    Attack("writing through /proc/self/root", "write('/proc/self/root' + OUT + '/new')"),
    Attack("through /proc/self/fd", "d = os.open('.', 0); write(f'/proc/self/fd/{d}/../outside/new')"),
    Attack("into the system", "write('/usr/local/lib/lyra-attack'); won()"),
    Attack("into /etc", "write('/etc/lyra-attack'); won()"),
    Attack("over a system program", "os.open('/usr/bin/env', os.O_WRONLY); won()"),
    Attack("into the root folder", "write('/lyra-attack'); won()"),
    Attack("into everybody's /dev/shm", "write('/dev/shm/lyra-attack')"),
    Attack("into everybody's /tmp", "write('/tmp/lyra-attack')"),
    Attack("into /var/tmp", "write('/var/tmp/lyra-attack')"),
    Attack("a hook of git", "write('.git/hooks/pre-commit')"),
    Attack("the settings of git", "write('.git/config', mode='a')"),
    Attack("git renamed away", "os.rename('.git', '.git2')"),
    Attack("git replaced by a symlink", "os.rename('.git', 'lib/g'); os.symlink('/tmp', '.git')"),
    Attack("git deleted", "os.system('rm -rf .git')"),
    Attack("git exchanged", "os.mkdir('lib/x'); call(316, 276, -100, b'.git', -100, b'lib/x', 2)"),
    Attack("a hard link into git", "os.link('.git/config', 'lib/c'); write('lib/c')"),
    Attack("modes of git", "os.chmod('.git/config', 0o777)"),
    Attack("git unmounted", "L.umount2(b'.git', 2); write('.git/config')"),
    Attack("git remounted", "L.mount(b'', b'.git', b'', 32 | 4096, None); write('.git/config')"),
    Attack("git through /proc/self/cwd", "write('/proc/self/cwd/.git/config')"),
    Attack(
        "git through a mount of the workspace",
        "os.mkdir('lib/b'); L.mount(WS.encode(), b'lib/b', b'', 4096, None); write('lib/b/.git/config')",
    ),
    Attack(
        "the parent of a nested git moved",
        "os.rename('src/sub', 'src/sub2')\ntry: write('src/sub2/.git/config')\nfinally: os.rename('src/sub2', 'src/sub')",
    ),
    Attack("Lyra's own folder", "write('.lyra/lyra.db')"),
    Attack("Lyra's settings", "write('lyra.toml')"),
    Attack("tasks of the editor", "write('.vscode/tasks.json')"),
    Attack("a set-user-id file", "os.open('lib/suid', os.O_CREAT | os.O_WRONLY, 0o4755)"),
    Attack("a set-user-id mode", "f = os.open('lib/suid', os.O_CREAT | os.O_WRONLY, 0o755); os.fchmod(f, 0o4755)"),
    Attack("a set-user-id mode by name", "write('lib/suid'); os.chmod('lib/suid', 0o6755)"),
    Attack(
        "a set-user-id file by openat2",
        "write('lib/suid'); h = struct.pack('=QQQ', os.O_CREAT | os.O_WRONLY, 0o4755, 0); call(437, 437, -100, b'lib/suid2', h, 24)",
    ),
]

KERNEL = [
    Attack("mount", "L.mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0 and won()"),
    Attack("remount the root", "L.mount(b'', b'/', b'', 32, None) == 0 and won()"),
    Attack("bind mount", "os.mkdir('lib/b'); L.mount(b'/', b'lib/b', None, 4096, None) == 0 and won()"),
    Attack("a new user namespace", "call(272, 97, 0x10000000) == 0 and won()", outside=True),
    Attack("a new mount namespace", "call(272, 97, 0x20000) == 0 and won()"),
    Attack("a new network namespace", "call(272, 97, 0x40000000) == 0 and won()"),
    Attack(
        "clone into a user namespace",
        "p = call(56, 220, 0x10000000 | 17, 0, 0, 0, 0)\nif p == 0: os._exit(0)\nif p > 0: won()",
        outside=True,
    ),
    Attack(
        "clone3 into a user namespace",
        "a = struct.pack('=11Q', 0x10000000, 0, 0, 0, 17, *([0] * 6)); p = call(435, 435, a, 88)\nif p == 0: os._exit(0)\nif p > 0: won()",
        outside=True,
    ),
    Attack(
        "enter the namespaces of process 1", "f = os.open('/proc/1/ns/mnt', 0); call(308, 268, f, 0) == 0 and won()"
    ),
    Attack(
        "enter the namespaces of another process",
        "f = os.open(f'/proc/{VICTIM}/ns/net', 0); call(308, 268, f, 0) == 0 and won()",
    ),
    Attack(
        "enter by process descriptor", "f = call(434, 434, VICTIM, 0); call(308, 268, f, 0x40000000) == 0 and won()"
    ),
    Attack("pivot_root", "call(155, 41, b'.', b'.') == 0 and won()"),
    Attack("the new calls for mounts", "unless_error(call(428, 428, -100, b'/', 1))"),
    Attack("a new file system", "unless_error(call(430, 430, b'tmpfs', 0))"),
    Attack("settings of the kernel", "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY); won()"),
    Attack("the host name in /proc/sys", "os.open('/proc/sys/kernel/hostname', os.O_WRONLY); won()"),
    Attack("settings of memory", "f = os.open('/proc/sys/vm/overcommit_memory', os.O_WRONLY); won()"),
    Attack(
        "interrupts",
        "for f in glob.glob('/proc/irq/*/smp_affinity') + glob.glob('/proc/irq/default*'):\n os.open(f, os.O_WRONLY); won()",
    ),
    Attack("keys of the kernel", "open('/proc/keys').read(1) and won()"),
    Attack("magic keys", "os.open('/proc/sysrq-trigger', os.O_WRONLY); won()"),
    Attack(
        "a control group",
        "for d in glob.glob('/sys/fs/cgroup/*'):\n try: os.mkdir(d + '/lyra-attack'); won()\n except OSError: pass",
    ),
    Attack(
        "settings of devices",
        "for f in ('/sys/kernel/mm/ksm/run', '/sys/power/state', '/sys/kernel/uevent_helper'):\n try: os.open(f, os.O_WRONLY); won()\n except OSError: pass",
    ),
    Attack("the host name", "L.sethostname(b'attacked', 8) == 0 and won()"),
    Attack("the clock", "t = struct.pack('=qq', int(time.time()), 0); call(227, 112, 0, t) == 0 and won()"),
    Attack(
        "a kernel module", "call(175, 105, b'', 0, b'') == 0 and won(); ctypes.get_errno() == errno.ENOEXEC and won()"
    ),
    Attack(
        "bpf",
        "b = ctypes.create_string_buffer(struct.pack('=IIIII', 1, 4, 4, 1, 0) + bytes(100)); unless_error(call(321, 280, 0, b, 72))",
    ),
    Attack(
        "performance counters",
        "b = ctypes.create_string_buffer(struct.pack('=IIQ', 1, 112, 0) + bytes(100)); unless_error(call(298, 241, b, 0, -1, -1, 0))",
    ),
    Attack("userfaultfd", "unless_error(call(323, 282, 1))", outside=True),
    Attack("io_uring", "b = ctypes.create_string_buffer(240); unless_error(call(425, 425, 2, b))", outside=True),
    Attack("keyrings", "unless_error(call(250, 219, 0, -3, 0))", outside=True),
    Attack("a key", "unless_error(call(248, 217, b'user', b'x', b'y', 1, -2))"),
    Attack("swap", "call(167, 224, b'/dev/zero', 0) == 0 and won()"),
    Attack("quotas", "call(179, 60, 0x800007 << 8, b'/dev/vda', 0, 0) == 0 and won()"),
    Attack("privileges by exec", "L.prctl(39, 0, 0, 0, 0) == 0 and won()", outside=True),
    Attack(
        "capabilities",
        "h = ctypes.create_string_buffer(struct.pack('=Ii', 0x20080522, 0)); d = ctypes.create_string_buffer(24); L.capget(h, d); any(d.raw) and won()",
    ),
    Attack(
        "capabilities after an exec",
        'os.system(\'capsh --print 2>/dev/null | grep -q "Current: =ep" && echo ESC""APED\')',
    ),
    Attack("another user", "os.setuid(12345); won()"),
    Attack("another group", "os.setgroups([0, 1]); won()"),
    Attack("typing into the terminal", "fcntl.ioctl(0, 0x5412, b'x'); won()"),
    Attack(
        "typing into a terminal of its own", "import pty; m, s = pty.openpty(); fcntl.ioctl(s, 0x5412, b'x'); won()"
    ),
    Attack("the terminal of the user", "os.open('/dev/tty', os.O_RDWR); won()"),
    Attack("the console", "os.open('/dev/console', os.O_RDWR); won()"),
    Attack(
        "resource limits raised",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 19, 1 << 19)); won()",
    ),
]

PROCESSES = [
    Attack("kill", "os.kill(VICTIM, signal.SIGTERM); won()"),
    Attack("kill the parent", "os.kill(PARENT, 0); won()", outside=True),
    Attack("kill everybody", "os.kill(-1, signal.SIGWINCH)"),
    Attack("kill a group", "os.killpg(VICTIM, 0); won()", outside=True),
    Attack("stop", "os.kill(VICTIM, signal.SIGSTOP); won()"),
    Attack("kill everybody with another signal", "call(62, 129, -1, signal.SIGWINCH)"),
    Attack("kill one thread", "call(234, 131, VICTIM, VICTIM, 15) == 0 and won()"),
    Attack(
        "kill by descriptor", "f = call(434, 434, VICTIM, 0); f >= 0 and call(424, 424, f, 15, 0, 0) == 0 and won()"
    ),
    Attack(
        "queue a signal",
        "i = ctypes.create_string_buffer(struct.pack('=iii', 15, 0, -1) + bytes(116)); call(129, 138, VICTIM, 15, i) == 0 and won()",
    ),
    Attack(
        "a signal by input",
        "a, b = os.pipe(); fcntl.fcntl(a, 8, VICTIM); fcntl.fcntl(a, 10, 15); fcntl.fcntl(a, fcntl.F_SETFL, os.O_ASYNC); os.write(b, b'x'); time.sleep(0.05)",
    ),
    Attack("ptrace", "L.ptrace(16, VICTIM, 0, 0) == 0 and won()"),
    Attack("ptrace seize", "L.ptrace(0x4206, VICTIM, 0, 0) == 0 and won()"),
    Attack(
        "reading memory by call",
        "b = ctypes.create_string_buffer(16); v = struct.pack('=QQ', ctypes.addressof(b), 16); r = struct.pack('=QQ', 4096, 16); call(310, 270, VICTIM, v, 1, r, 1, 0); ctypes.get_errno() == errno.EFAULT and won()",
    ),
    Attack("a descriptor of another process", "f = call(434, 434, VICTIM, 0); call(438, 438, f, 0, 0) >= 0 and won()"),
    Attack(
        "limits of another process",
        "n = ctypes.create_string_buffer(struct.pack('=QQ', 1, 1)); L.prlimit(VICTIM, 0, n, None) == 0 and won()",
    ),
    Attack("processors of another process", "os.sched_setaffinity(VICTIM, {0}); won()", outside=True),
    Attack("priority of another process", "os.setpriority(os.PRIO_PROCESS, VICTIM, 19); won()"),
    Attack(
        "memory of another process given back",
        "f = call(434, 434, VICTIM, 0); call(440, 440, f, b'', 0, 21, 0) == 0 and won()",
    ),
    Attack("shared memory", "unless_error(call(29, 194, SHM, 0, 0))"),
]

NETWORK = [
    Attack("TCP to this machine", "s = socket.create_connection(('127.0.0.1', PORT), 2); won()", outside=True),
    Attack("TCP to this machine by IPv6", "s = socket.create_connection(('::1', PORT6), 2); won()"),
    Attack(
        "TCP by a mapped address",
        "s = socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1', PORT)); won()",
        outside=True,
    ),
    Attack("TCP to 0.0.0.0", "s = socket.create_connection(('0.0.0.0', PORT), 2); won()", outside=True),
    Attack(
        "MPTCP", "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.connect(('127.0.0.1', PORT)); won()"
    ),
    Attack("fast open", "s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', PORT)); won()"),
    Attack("UDP to this machine", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', UDP))"),
    Attack(
        "a unix socket outside", "s = socket.socket(socket.AF_UNIX); s.connect(OUT + '/socket'); won()", outside=True
    ),
    Attack(
        "a datagram to a unix socket",
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect(OUT + '/socket'); won()",
    ),
    Attack("an abstract unix socket", "s = socket.socket(socket.AF_UNIX); s.connect(ABSTRACT); won()", outside=True),
    Attack("netlink", "s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); won()", outside=True),
    Attack("raw IP", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); won()"),
    Attack("raw packets", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3); won()"),
    Attack(
        "ping",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1).sendto(bytes(8), ('127.0.0.1', 1)); time.sleep(0.01)\ns = socket.create_connection(('127.0.0.1', PORT), 1); won()",
    ),
    Attack("a virtual machine's socket", "s = socket.socket(40, socket.SOCK_STREAM); won()"),
    Attack("the kernel's ciphers", "s = socket.socket(38, socket.SOCK_SEQPACKET); won()"),
    Attack("bluetooth", "s = socket.socket(31, socket.SOCK_RAW, 1); won()"),
    Attack("a name server", "socket.getaddrinfo('example.com', 80); won()"),
    Attack("a public address", "socket.create_connection(('1.1.1.1', 53), 1); won()"),
    Attack("the metadata of the cloud", "socket.create_connection(('169.254.169.254', 80), 1); won()"),
    Attack("interfaces", "import socket as s; [n for _, n in s.if_nameindex() if n != 'lo'] and won()"),
]

ATTACKS = [*READS, *HIDDEN, *WRITES, *KERNEL, *PROCESSES, *NETWORK]
