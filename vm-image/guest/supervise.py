"""The agent's process: started with the rights it needs and no others, started again after a crash, and its ends recorded.

Owns back-off, the record of ends and the agent's stderr on the console; knows nothing of what the agent does.
"""
import os
import time
import _thread

import cgroup
import console
import mounts
import processes
import system

HELPER_SOCKET = f'{mounts.RUN}/helper.sock'
PORTS = ('caisson.rpc', 'caisson.http')

_PROGRAM = '/opt/caisson/agent.cjs'
_HOME = f'{mounts.RUN}/agent'
_EXITS = f'{mounts.RUN}/agent-exits.json'
# To read and write what `work` owns, and nothing beyond.
_CAPABILITIES = (system.CAP_DAC_OVERRIDE, system.CAP_FOWNER, system.CAP_CHOWN)
_ENVIRONMENT = {
    'PATH': '/usr/local/bin:/usr/bin:/bin',
    'HOME': _HOME,
    'LANG': 'C.UTF-8',
    'CAISSON_HELPER': HELPER_SOCKET,
    'CAISSON_AGENT_EXITS': _EXITS,
}
_FIRST_DELAY_SECONDS = 0.1
_LAST_DELAY_SECONDS = 5
_STEADY_SECONDS = 30
_PORTS_TIMEOUT_SECONDS = 5
_TAIL_CHARACTERS = 4096
# A busy agent may fill a screen, not a host's memory: bytes per second on the console, after a first burst.
_CONSOLE_RATE = 16 * 1024
_CONSOLE_BURST = 64 * 1024


class Supervisor:
    """Keeps one agent running: `start` once, then `run`, which never returns, in a thread of its own."""

    def __init__(self, children):
        self._children = children
        self._life = None
        self.restarts = 0
        # Called after each end of the agent, before it starts again.
        self.on_end = None

    def start(self):
        """Starts the agent with what it expects to find. It loads while PID 1 continues with the rest of the boot."""
        os.makedirs(_HOME, mode=0o700, exist_ok=True)
        os.chown(_HOME, system.AGENT_ID, system.AGENT_ID)
        self._record('null')
        self._hand_over_ports()
        self._life = _Life(self._children)

    def run(self):
        """Starts the agent again after each of its ends: soon when it ran well, ever later when it did not."""
        import json  # pylint: disable=import-outside-toplevel  (slow to load, and the first start must not wait for it)

        delay = _FIRST_DELAY_SECONDS
        while True:
            code, ended_by, tail = self._life.wait()
            if self._life.seconds() > _STEADY_SECONDS:
                delay = _FIRST_DELAY_SECONDS
            self.restarts += 1
            if self.on_end is not None:
                self.on_end()
            last = {'code': code, 'signal': ended_by, 'atMs': int(time.time() * 1000), 'stderrTail': tail}
            self._record(json.dumps(last))
            how = f'code {code}' if ended_by is None else ended_by
            console.report_error('agent', f'the agent ended with {how}; it starts again in {int(delay * 1000)} ms')
            time.sleep(delay)
            delay = min(delay * 2, _LAST_DELAY_SECONDS)
            self._life = _Life(self._children)

    def _hand_over_ports(self):
        found = mounts.find_ports(PORTS, _PORTS_TIMEOUT_SECONDS)
        for name in PORTS:
            if name in found:
                os.chown(found[name], system.AGENT_ID, system.AGENT_ID)
                os.chmod(found[name], 0o600)
            else:
                console.report_error('ports', f'expected a virtio-serial port named {name}, saw none: attach one')

    def _record(self, last):
        draft = f'{_EXITS}.new'
        with open(draft, 'w', encoding='utf-8') as file:
            file.write(f'{{"restarts":{self.restarts},"last":{last}}}')
        os.chmod(draft, 0o644)
        os.rename(draft, _EXITS)


class _Life:
    """One process of the agent, from start to end."""

    def __init__(self, children):
        self._started = time.monotonic()
        self._tail = _Tail()
        self._child = None
        said_read, said_write = os.pipe2(os.O_CLOEXEC)
        null = os.open('/dev/null', os.O_RDONLY | os.O_CLOEXEC)
        try:
            argv = ('/usr/bin/node', _PROGRAM)
            self._child = children.spawn(argv, _ENVIRONMENT, null, said_write, said_write, _become_agent)
        except processes.SpawnError as error:
            self._failure = str(error)[:_TAIL_CHARACTERS]
        finally:
            os.close(null)
            os.close(said_write)
        # Read apart, so that a process that inherited the pipe cannot keep the agent's end from being seen.
        _thread.start_new_thread(self._tail.follow, (said_read,))

    def seconds(self):
        return time.monotonic() - self._started

    def wait(self):
        """(exit code, signal, end of stderr), once it has ended."""
        if self._child is None:
            return 127, None, self._failure
        code, ended_by = self._child.wait()
        self._child.forget()
        self._tail.wait(0.5)
        return code, ended_by, self._tail.text()


class _Tail:
    """What a program says: the last of it kept, the rest shown as far as the rate allows."""

    def __init__(self):
        self._kept = bytearray()
        self._allowance = _CONSOLE_BURST
        self._counted_at = time.monotonic()
        self._following = _thread.allocate_lock()
        self._following.acquire()

    def follow(self, descriptor):
        """Reads until the end, then closes."""
        while True:
            piece = os.read(descriptor, 16 * 1024)
            if not piece:
                break
            self._kept = (self._kept + piece)[-4 * _TAIL_CHARACTERS:]
            self._show(piece)
        os.close(descriptor)
        self._following.release()

    def wait(self, timeout_seconds):
        """Until all was read, but not forever."""
        self._following.acquire(timeout=timeout_seconds)

    def text(self):
        return bytes(self._kept).decode('utf-8', 'replace')[-_TAIL_CHARACTERS:]

    def _show(self, piece):
        now = time.monotonic()
        self._allowance = min(_CONSOLE_BURST, self._allowance + (now - self._counted_at) * _CONSOLE_RATE)
        self._counted_at = now
        if len(piece) <= self._allowance:
            self._allowance -= len(piece)
            os.write(1, piece)


def _become_agent():
    # Runs in the forked child. Killed last when memory is short: it is what reports that.
    cgroup.enter_agent_group()
    descriptor = os.open('/proc/self/oom_score_adj', os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, b'-900')
    os.close(descriptor)
    processes.limit_resources()
    os.chdir('/')
    system.become(system.AGENT_ID, system.AGENT_ID, _CAPABILITIES)
