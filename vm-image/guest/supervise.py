"""The agent's process: started with the rights it needs and no others, started again after a crash, and its ends recorded.

Owns back-off, the record of ends and the agent's stderr on the console; knows nothing of what the agent does.
"""
import json
import os
import threading
import time

import cgroup
import console
import mounts
import processes
import system

AGENT_ID = 1001
HELPER_SOCKET = f'{mounts.RUN}/helper.sock'
PORTS = ('caisson.rpc', 'caisson.http')

_PROGRAM = '/opt/caisson/agent.mjs'
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
    """Keeps one agent running. `run` never returns: it wants a thread of its own."""

    def __init__(self, children):
        self._children = children
        self.restarts = 0

    def prepare(self):
        """Makes what the agent finds when it starts: its home and the record of ends."""
        os.makedirs(_HOME, mode=0o700, exist_ok=True)
        os.chown(_HOME, AGENT_ID, AGENT_ID)
        self._record(None)

    def run(self):
        """Starts the agent, and again after each of its ends: at once when it ran well, ever later when it did not."""
        self._hand_over_ports()
        delay = _FIRST_DELAY_SECONDS
        while True:
            started = time.monotonic()
            code, ended_by, tail = self._run_once()
            if time.monotonic() - started > _STEADY_SECONDS:
                delay = _FIRST_DELAY_SECONDS
            self.restarts += 1
            self._record({'code': code, 'signal': ended_by, 'atMs': int(time.time() * 1000), 'stderrTail': tail})
            how = f'code {code}' if ended_by is None else ended_by
            console.report_error('agent', f'the agent ended with {how}; it starts again in {int(delay * 1000)} ms')
            time.sleep(delay)
            delay = min(delay * 2, _LAST_DELAY_SECONDS)

    def _hand_over_ports(self):
        found = mounts.find_ports(PORTS, _PORTS_TIMEOUT_SECONDS)
        for name in PORTS:
            if name in found:
                os.chown(found[name], AGENT_ID, AGENT_ID)
                os.chmod(found[name], 0o600)
            else:
                console.report_error('ports', f'expected a virtio-serial port named {name}, saw none: attach one')

    def _run_once(self):
        """(exit code, signal, end of stderr) of one life of the agent."""
        said_read, said_write = os.pipe2(os.O_CLOEXEC)
        null = os.open('/dev/null', os.O_RDONLY | os.O_CLOEXEC)
        tail = _Tail()
        try:
            argv = ('/usr/bin/node', _PROGRAM)
            child = self._children.spawn(argv, _ENVIRONMENT, null, said_write, said_write, _become_agent)
        except processes.SpawnError as error:
            os.close(said_read)
            return 127, None, str(error)[:_TAIL_CHARACTERS]
        finally:
            os.close(null)
            os.close(said_write)
        # Read apart, so that a process that inherited the pipe cannot keep the agent's end from being seen.
        reader = threading.Thread(target=tail.follow, args=(said_read,), daemon=True)
        reader.start()
        code, ended_by = child.wait()
        child.forget()
        reader.join(0.5)
        return code, ended_by, tail.text()

    def _record(self, last):
        draft = f'{_EXITS}.new'
        with open(draft, 'w', encoding='utf-8') as file:
            json.dump({'restarts': self.restarts, 'last': last}, file)
        os.chmod(draft, 0o644)
        os.rename(draft, _EXITS)


class _Tail:
    """What a program says: the last of it kept, the rest shown as far as the rate allows."""

    def __init__(self):
        self._kept = bytearray()
        self._allowance = _CONSOLE_BURST
        self._counted_at = time.monotonic()

    def follow(self, descriptor):
        """Reads until the end, then closes."""
        while True:
            piece = os.read(descriptor, 16 * 1024)
            if not piece:
                break
            self._kept = (self._kept + piece)[-4 * _TAIL_CHARACTERS:]
            self._show(piece)
        os.close(descriptor)

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
    system.become(AGENT_ID, AGENT_ID, _CAPABILITIES)
