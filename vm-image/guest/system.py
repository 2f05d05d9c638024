"""The system calls that Python has no function for, each with its Linux name and its errors as OSError.

Owns numbers from the kernel's headers and nothing else; knows no path and no policy of ours.
"""
import ctypes
import fcntl
import os
import struct

# Users of the guest: see vm-image/guest/workspace.py for the calls'.
AGENT_ID = 1001

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_NOATIME = 1024
MS_BIND = 4096

RLIMIT_CORE = 4
RLIMIT_NOFILE = 7

# linux/capability.h
CAP_CHOWN = 0
CAP_DAC_OVERRIDE = 1
CAP_FOWNER = 3

_PR_SET_KEEPCAPS = 8
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 40

_RB_AUTOBOOT = 0x01234567
_RB_POWER_OFF = 0x4321FEDC

_BLKFLSBUF = 0x1261
_BLKGETSIZE64 = 0x80081272
_RNDADDENTROPY = 0x40085203
_RNDRESEEDCRNG = 0x5207
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
_libc.prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)


def _check(result, what):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f'{what}: {os.strerror(code)}')


def mount(source, target, kind, flags=0, options=''):
    """mount(2). One page is the kernel's bound for `options`."""
    result = _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode() or None)
    _check(result, f'mount {kind} on {target}')


def unmount(target):
    """umount2(2) without flags: EBUSY while anything is open below."""
    _check(_libc.umount2(target.encode(), 0), f'unmount {target}')


def set_no_new_privileges():
    """From here on no exec of this process can gain a privilege."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 'no_new_privs')


def become(uid, gid, capabilities=()):
    """Gives up root for good. What is kept: `capabilities`, also over an exec (ambient); all others cannot come back.

    To be called in a forked child only: it changes the whole process.
    """
    for capability in range(_LAST_CAPABILITY + 1):
        if capability not in capabilities:
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    if capabilities:
        _check(_libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), 'keepcaps')
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if capabilities:
        _keep(capabilities)
    set_no_new_privileges()


def _keep(capabilities):
    mask = sum(1 << capability for capability in capabilities)
    header = struct.pack('=Ii', _CAPABILITY_VERSION_3, 0)
    data = struct.pack('=IIIIII', mask, mask, mask, 0, 0, 0)
    _check(_libc.capset(header, data), 'capset')
    for capability in capabilities:
        _check(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0), 'ambient capability')


def set_limit(resource, value):
    """setrlimit(2), soft and hard alike."""
    _check(_libc.setrlimit(resource, struct.pack('=QQ', value, value)), 'setrlimit')


def bring_up_interface(name, probe):
    """ip link set NAME up, by any internet socket."""
    request = bytearray(struct.pack('16sh22x', name.encode(), 0))
    fcntl.ioctl(probe, _SIOCGIFFLAGS, request)
    flags = struct.unpack_from('h', request, 16)[0]
    struct.pack_into('h', request, 16, flags | _IFF_UP)
    fcntl.ioctl(probe, _SIOCSIFFLAGS, request)


def flush_filesystem(descriptor):
    """Writes what the file system of an open file or directory holds back; its disk has it then."""
    _check(_libc.syncfs(descriptor), 'syncfs')


def forget_cached_blocks(device):
    """Drops what the kernel remembers of a block device, whose content may have changed under a resumed guest."""
    fcntl.ioctl(device, _BLKFLSBUF, 0)


def device_size(device):
    """Bytes of an open block device."""
    return struct.unpack('=Q', fcntl.ioctl(device, _BLKGETSIZE64, bytes(8)))[0]


def open_generator():
    """The kernel's random generator, for `add_entropy`."""
    return os.open('/dev/urandom', os.O_WRONLY | os.O_CLOEXEC)


def add_entropy(generator, seed):
    """Counts `seed` fully and makes the kernel's generator draw from it at once."""
    fcntl.ioctl(generator, _RNDADDENTROPY, struct.pack('=ii', len(seed) * 8, len(seed)) + seed)
    fcntl.ioctl(generator, _RNDRESEEDCRNG)


def power_off():
    """Ends the VM, as QEMU sees it, in good order."""
    os.sync()
    _libc.reboot(_RB_POWER_OFF)


def restart():
    """Ends the VM after a failure: QEMU runs with -no-reboot."""
    os.sync()
    _libc.reboot(_RB_AUTOBOOT)
