"""Control groups: `agent` for the daemon, `calls` for everything that it has run, one group below for each call.

Owns limits, the killing of whole trees and the record of why they died; refuses nothing that its caller has checked.
"""
import os
import select
import time

ROOT = '/sys/fs/cgroup'
CALLS = f'{ROOT}/calls'
AGENT = f'{ROOT}/agent'

_CPU_PERIOD_US = 100_000
_CONTROLLERS = '+memory +pids +cpu'
# What all calls together leave to kernel, PID 1 and agent; the agent's heap is the most of it.
_RESERVED_BYTES = 192 * 1024 * 1024
_CALLS_MAX_PIDS = 8192
_FREEZE_SECONDS = 5


def set_up(memory_total_bytes):
    """Makes the two groups. The agent is scheduled before the calls, so that it can always report and end them."""
    _write(f'{ROOT}/cgroup.subtree_control', _CONTROLLERS)
    for folder in (AGENT, CALLS):
        os.makedirs(folder, exist_ok=True)
    _write(f'{CALLS}/cgroup.subtree_control', _CONTROLLERS)
    _write(f'{AGENT}/cpu.weight', '1000')
    _write(f'{CALLS}/cpu.weight', '50')
    calls_bytes = max(memory_total_bytes - _RESERVED_BYTES, memory_total_bytes // 2)
    _write(f'{CALLS}/memory.max', str(calls_bytes))
    _write(f'{CALLS}/pids.max', str(_CALLS_MAX_PIDS))


class FrozenCalls:
    """As a context: no program of any call runs within. Raises TimeoutError when one does not stop in time."""

    def __enter__(self):
        _write(f'{CALLS}/cgroup.freeze', '1')
        deadline = time.monotonic() + _FREEZE_SECONDS
        while read_counter(f'{CALLS}/cgroup.events', 'frozen') == 0:
            if time.monotonic() > deadline:
                self.__exit__()
                raise TimeoutError(f'a program did not stop within {_FREEZE_SECONDS} s')
            time.sleep(0.001)

    def __exit__(self, *_failure):
        _write(f'{CALLS}/cgroup.freeze', '0')


class CallGroup:
    """The group of one call, from creation to removal."""

    def __init__(self, name, memory_bytes, pids, cpu_percent, dies_whole):
        self.path = f'{CALLS}/{name}'
        os.mkdir(self.path)
        _write(f'{self.path}/memory.max', str(memory_bytes))
        # When memory runs out, all of it ends or the largest process alone; the events file says why.
        _write(f'{self.path}/memory.oom.group', '1' if dies_whole else '0')
        _write(f'{self.path}/pids.max', str(pids))
        _write(f'{self.path}/cpu.max', f'{cpu_percent * _CPU_PERIOD_US // 100} {_CPU_PERIOD_US}')
        self._entry = os.open(f'{self.path}/cgroup.procs', os.O_WRONLY | os.O_CLOEXEC)

    def enter(self):
        """Moves the calling process in; for the forked child, before it gives up root."""
        os.write(self._entry, b'0')

    def end(self, timeout_seconds=10):
        """Kills every process of the group at once and waits until none is left. Whether that was so in time."""
        _write(f'{self.path}/cgroup.kill', '1')
        deadline = time.monotonic() + timeout_seconds
        with open(f'{self.path}/cgroup.events', encoding='ascii') as events:
            poller = select.poll()
            poller.register(events, select.POLLPRI)
            while True:
                events.seek(0)
                if 'populated 0' in events.read():
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                # The kernel wakes pollers of this file; the short sleep bounds what a missed wake-up costs.
                poller.poll(min(50, int(left * 1000) + 1))

    def oom_killed(self):
        """Whether the kernel killed for want of memory: its own limit, or that of all calls together."""
        return read_counter(f'{self.path}/memory.events', 'oom_kill') > 0

    def pids_refused(self):
        """How many forks were refused at the limit."""
        return read_counter(f'{self.path}/pids.events', 'max')

    def remove(self):
        """Removes the group, which must be empty. A busy one is left to the kernel."""
        os.close(self._entry)
        for _ in range(100):
            try:
                os.rmdir(self.path)
                return True
            except OSError:
                time.sleep(0.01)
        return False


def read_counter(path, key):
    """One number of a `key number` file; 0 when the file or the key is missing."""
    try:
        with open(path, encoding='ascii') as file:
            for line in file:
                name, _, value = line.partition(' ')
                if name == key:
                    return int(value)
    except (OSError, ValueError):
        pass
    return 0


def enter_agent_group():
    """Moves the calling process to the agent's group; for a forked child."""
    _write(f'{AGENT}/cgroup.procs', '0')


def _write(path, text):
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode('ascii'))
    finally:
        os.close(descriptor)
