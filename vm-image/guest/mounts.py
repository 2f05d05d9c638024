"""The guest's own file systems and devices, from an almost empty root on.

Finds drives and ports by the name that the host gave them, never by their order; refuses to guess.
"""
import errno
import os
import time

import system
from system import MS_NODEV, MS_NOEXEC, MS_NOSUID

RUN = '/run/caisson'

_PSEUDO = (
    ('proc', '/proc', 'proc', MS_NOSUID | MS_NODEV | MS_NOEXEC, ''),
    ('sysfs', '/sys', 'sysfs', MS_NOSUID | MS_NODEV | MS_NOEXEC, ''),
    ('devtmpfs', '/dev', 'devtmpfs', MS_NOSUID, 'mode=0755'),
    ('devpts', '/dev/pts', 'devpts', MS_NOSUID | MS_NOEXEC, 'mode=0620,ptmxmode=0666'),
    ('tmpfs', '/dev/shm', 'tmpfs', MS_NOSUID | MS_NODEV, 'mode=1777'),
    ('tmpfs', '/run', 'tmpfs', MS_NOSUID | MS_NODEV, 'mode=0755,size=32m'),
    ('tmpfs', '/tmp', 'tmpfs', MS_NOSUID | MS_NODEV, 'mode=1777,size=64m'),
    # favordynmods: without it each process that enters a cgroup waits for an RCU grace period.
    ('cgroup2', '/sys/fs/cgroup', 'cgroup2', MS_NOSUID | MS_NODEV | MS_NOEXEC, 'favordynmods'),
)


def mount_pseudo_filesystems():
    """Mounts what every program expects. A place that the initramfs has mounted already stays as it is."""
    for source, target, kind, flags, options in _PSEUDO:
        os.makedirs(target, exist_ok=True)
        if os.path.ismount(target):
            continue
        try:
            system.mount(source, target, kind, flags, options)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
    os.makedirs(RUN, mode=0o755, exist_ok=True)
    for name, target in (('fd', '/proc/self/fd'), ('stdin', '/proc/self/fd/0')):
        _link(target, f'/dev/{name}')
    _link('/proc/self/fd/1', '/dev/stdout')
    _link('/proc/self/fd/2', '/dev/stderr')


def find_drive(serial):
    """The device of the virtio drive with this serial, such as `/dev/vdc`; None when the host attached none."""
    for name in sorted(os.listdir('/sys/block')):
        if _read(f'/sys/block/{name}/serial') == serial:
            return f'/dev/{name}'
    return None


def find_ports(names, timeout_seconds):
    """Devices of the virtio-serial ports `names`, as {name: '/dev/vport…'}; what did not appear in time is missing.

    A port's name arrives with a message of the host's, some milliseconds after its driver has started.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        found = _list_ports()
        if all(name in found for name in names) or time.monotonic() > deadline:
            return {name: found[name] for name in names if name in found}
        time.sleep(0.005)


def read_memory():
    """/proc/meminfo as bytes by name."""
    with open('/proc/meminfo', encoding='ascii') as file:
        return {line.partition(':')[0]: int(line.split()[1]) * 1024 for line in file}


def machine_serial():
    """The serial number that the host gave the machine, or an empty text."""
    return _read('/sys/class/dmi/id/product_serial')


def _list_ports():
    folder = '/sys/class/virtio-ports'
    if not os.path.isdir(folder):
        return {}
    found = {_read(f'{folder}/{name}/name'): f'/dev/{name}' for name in os.listdir(folder)}
    return {name: device for name, device in found.items() if name and os.path.exists(device)}


def _link(target, path):
    try:
        os.symlink(target, path)
    except FileExistsError:
        pass


def _read(path):
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            return file.read().strip()
    except OSError:
        return ''
