"""Calls: programs run as `work` under bubblewrap, each in a control group and namespaces of its own.

Owns one call from its group's creation to its removal, with bounded memory in between: a client that does not read stops
the program, and one that goes away ends it. Refuses nothing of what the program does inside its limits.
"""
import itertools
import math
import os
import select
import socket
import threading
import time

import frames
import processes
import system
import workspace
from cgroup import CallGroup

_CHUNK = 64 * 1024
_MAX_CALLS = 32
_MAX_STDIN_PENDING = 256 * 1024
# A pump that is longer without its turn was in a VM that stood still.
_TURN_SECONDS = 1
_LATE_SECONDS = 1

_BWRAP = (
    '/usr/bin/bwrap',
    '--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup',
    '--hostname', 'caisson', '--die-with-parent',
    '--ro-bind', '/usr', '/usr',
    '--symlink', 'usr/bin', '/bin', '--symlink', 'usr/sbin', '/sbin',
    '--symlink', 'usr/lib', '/lib', '--symlink', 'usr/lib64', '/lib64',
    '--ro-bind', '/etc', '/etc',
    '--proc', '/proc', '--dev', '/dev',
    '--bind', workspace.CALL_TMP, '/tmp', '--bind', workspace.CALL_HOME, '/home/work',
    '--cap-drop', 'ALL',
)
_ENVIRONMENT = {
    # Where pip puts programs comes first.
    'PATH': '/home/work/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin',
    'HOME': '/home/work',
    'USER': 'work',
    'LOGNAME': 'work',
    'LANG': 'C.UTF-8',
    'TMPDIR': '/tmp',
    'TERM': 'dumb',
}


class CallError(Exception):
    """A call that did not come about; `code` is one of the helper socket's."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Calls:
    """The calls that run now."""

    def __init__(self, children, space):
        self._children = children
        self._space = space
        self._lock = threading.Condition()
        self._running = set()
        self._numbers = itertools.count(1)
        self._closed = False

    def count(self):
        """How many run."""
        return len(self._running)

    def run(self, request, connection, reader, make=None):
        """Serves one call on `connection` to its end; the reply is returned, None when nobody is left to read it.

        `make` is the kind of call, by default a plain one.
        """
        call = self._admit(request, make or Call)
        try:
            return call.run(connection, reader)
        finally:
            call.close()
            with self._lock:
                self._running.discard(call)
                self._lock.notify_all()

    def suspend(self, timeout_seconds=15):
        """Ends every call and admits none until `resume`. Whether all were gone in time."""
        with self._lock:
            self._closed = True
            for call in self._running:
                call.stop()
            return self._lock.wait_for(lambda: not self._running, timeout_seconds)

    def end_views(self, views, timeout_seconds=15):
        """Ends the calls of views that admit no more. Whether all were gone in time."""
        with self._lock:
            for call in self._running:
                if call.view in views:
                    call.stop()
            return self._lock.wait_for(lambda: all(call.view not in views for call in self._running), timeout_seconds)

    def resume(self):
        """Admits calls again."""
        with self._lock:
            self._closed = False

    def _admit(self, request, make):
        with self._lock:
            if self._closed:
                raise CallError('busy', 'the workspace is being reset; ask again when that has ended')
            if not self._space.is_mounted():
                raise CallError('not_ready', 'expected a mounted workspace; ask for workspace_mount first')
            if not self._space.has_view(request['view']):
                raise CallError('bad_request', f'view: there is no view {request["view"]!r}')
            if len(self._running) >= _MAX_CALLS:
                raise CallError('busy', f'{_MAX_CALLS} calls run already; ask again when one has ended')
            if not os.path.isdir(f'{workspace.place_of(request["view"])}/{request["cwd"]}'):
                raise CallError('bad_request', f'cwd: there is no directory {request["cwd"]!r} in the workspace')
            call = make(str(next(self._numbers)), request, self._children)
            self._running.add(call)
            return call


class Call:
    """One program from its control group to its result."""

    # Whether all of it ends when memory runs out: half a tree is of no use to an agent.
    dies_whole = True
    # A program on pipes has no terminal, and a session of its own in the new namespaces keeps it so.
    bwrap_extra = ('--new-session',)

    def __init__(self, name, request, children):
        limits = request['limits']
        # Whose workspace it sees.
        self.view = request['view']
        self._argv = _build_argv(request, self.bwrap_extra)
        self._with_stdin = request['stdin']
        self._wall_seconds = math.inf if limits['wallMs'] is None else limits['wallMs'] / 1000
        self._children = children
        self._group = CallGroup(name, limits['memoryBytes'], limits['pids'], limits['cpuPercent'], self.dies_whole)
        self._stopped = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._child = None
        self._streams = None

    def stop(self):
        """Ends the call from another thread."""
        os.eventfd_write(self._stopped, 1)

    def run(self, connection, reader):
        started = time.monotonic()
        self._streams = self._open_streams(connection, reader)
        self._start()
        reason = self._streams.pump(self._child, self._stopped, self._wall_seconds)
        ended = self._group.end()
        result = self._child.wait(5)
        if not ended or result is None:
            raise CallError('internal', 'processes of the call did not end although they were killed')
        duration_ms = int((time.monotonic() - started) * 1000)
        if reason == 'gone':
            return None
        if reason == 'stopped':
            raise CallError('busy', 'the call was ended because its workspace is being taken away')
        if not self._streams.drain(self._stopped):
            return None
        return self._reply(result, reason, duration_ms)

    def _open_streams(self, connection, reader):
        return Streams(connection, reader, self._with_stdin)

    def _reply(self, result, reason, duration_ms):
        return {
            'ok': True,
            'exitCode': result[0],
            'signal': result[1],
            'timedOut': reason == 'timed_out',
            'oomKilled': self._group.oom_killed(),
            'pidsRefused': self._group.pids_refused(),
            'durationMs': duration_ms,
        }

    def close(self):
        """Ends whatever is left, and gives everything back."""
        self._group.end()
        if self._child is not None:
            self._child.wait(5)
            self._child.forget()
        self._group.remove()
        if self._streams is not None:
            self._streams.close()
        os.close(self._stopped)

    def _start(self):
        child_ends = self._streams.open_pipes()
        try:
            self._child = self._children.spawn(self._argv, {}, *child_ends, self._prepare)
        except processes.SpawnError as error:
            if processes.is_too_big(error):
                raise CallError('bad_request', 'argv and env: together more than the kernel takes') from None
            raise
        finally:
            for descriptor in child_ends:
                os.close(descriptor)

    def _prepare(self):
        # Runs in the forked child. Killed first when memory is short; no core files in the workspace.
        self._group.enter()
        _write_own('oom_score_adj', b'500')
        processes.limit_resources()
        system.become(workspace.WORK_ID, workspace.WORK_ID)


class Streams:
    """The three pipes of a program and the socket of its client; at most one chunk each way is held."""

    def __init__(self, connection, reader, with_stdin):
        self._connection = connection
        self._reader = reader
        self._with_stdin = with_stdin
        self._outputs = {}
        self._stdin = -1
        self._to_client = b''
        self._to_program = bytearray()
        self._stdin_ended = False
        connection.setblocking(False)

    def open_pipes(self):
        """Makes the pipes; the program's ends, which the caller closes."""
        ends = []
        try:
            if self._with_stdin:
                child_end, self._stdin = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(self._stdin, False)
            else:
                child_end = os.open('/dev/null', os.O_RDONLY | os.O_CLOEXEC)
            ends.append(child_end)
            for kind in (frames.STDOUT, frames.STDERR):
                own_end, child_end = os.pipe2(os.O_CLOEXEC)
                ends.append(child_end)
                self._outputs[own_end] = kind
        except OSError:
            for descriptor in ends:
                os.close(descriptor)
            raise
        return ends

    def pump(self, child, stopped, wall_seconds):
        """Moves bytes until the call has to end; why: exited, timed_out, stopped or gone."""
        # From here on, since a VM can also stand still while the program is being started.
        last = time.monotonic()
        deadline = last + wall_seconds
        self._take(self._reader.feed(b''))
        while True:
            now = time.monotonic()
            # Time in which the VM stood still was none of the program's.
            if now - last > _TURN_SECONDS + _LATE_SECONDS:
                deadline += now - last - _TURN_SECONDS
            last = now
            left = deadline - now
            if left <= 0:
                return 'timed_out'
            ready = self._poll((child.exited, stopped), min(left, _TURN_SECONDS))
            if stopped in ready:
                return 'stopped'
            if not self._serve(ready):
                return 'gone'
            if child.has_ended():
                return 'exited'

    def drain(self, stopped):
        """Sends what the ended program has left in its pipes. Whether the client has read it all."""
        while self._outputs or self._to_client:
            ready = self._poll((stopped,), None)
            if stopped in ready or not self._serve(ready):
                return False
        return True

    def close(self):
        for descriptor in (*self._outputs, self._stdin):
            if descriptor >= 0:
                os.close(descriptor)
        self._outputs = {}
        self._stdin = -1
        self._connection.setblocking(True)

    def _poll(self, others, timeout_seconds):
        poller = select.poll()
        client = select.POLLRDHUP
        if self._to_client:
            client |= select.POLLOUT
        else:
            for descriptor in self._outputs:
                poller.register(descriptor, select.POLLIN)
        if len(self._to_program) < _MAX_STDIN_PENDING:
            client |= select.POLLIN
        poller.register(self._connection, client)
        if self._stdin >= 0 and (self._to_program or self._stdin_ended):
            poller.register(self._stdin, select.POLLOUT)
        for descriptor in others:
            poller.register(descriptor, select.POLLIN)
        # Rounded up, so that a deadline is never polled for in a busy loop.
        endless = timeout_seconds is None or timeout_seconds == math.inf
        return dict(poller.poll(None if endless else int(timeout_seconds * 1000) + 1))

    def _serve(self, ready):
        """One round; False when the client is gone."""
        client = ready.get(self._connection.fileno(), 0)
        if client & (select.POLLHUP | select.POLLRDHUP | select.POLLERR):
            return False
        try:
            if client & select.POLLIN and not self._receive():
                return False
            if self._stdin in ready:
                self._feed_program()
            for descriptor in list(self._outputs):
                if descriptor in ready and not self._to_client:
                    self._read_output(descriptor)
            if self._to_client:
                self._to_client = self._to_client[self._connection.send(self._to_client):]
        except BlockingIOError:
            pass
        except (ConnectionError, socket.timeout):
            return False
        return True

    def _receive(self):
        piece = self._connection.recv(_CHUNK)
        if not piece:
            return False
        self._take(self._reader.feed(piece))
        return True

    def _take(self, received):
        for kind, payload in received:
            if kind != frames.STDIN or not self._with_stdin or self._stdin_ended:
                raise frames.FrameError('expected input for the program, as the request announced, and nothing after its end')
            if payload:
                self._to_program += payload
            else:
                self._stdin_ended = True

    def _feed_program(self):
        try:
            if self._to_program:
                del self._to_program[:os.write(self._stdin, self._to_program[:_CHUNK])]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The program does not want it: what else the client sends is taken and dropped.
            self._discard_input()
            return
        if self._stdin_ended and not self._to_program:
            os.close(self._stdin)
            self._stdin = -1

    def _discard_input(self):
        os.close(self._stdin)
        self._stdin = os.open('/dev/null', os.O_WRONLY | os.O_CLOEXEC)
        self._to_program.clear()

    def _read_output(self, descriptor):
        piece = os.read(descriptor, _CHUNK)
        if piece:
            self._to_client = frames.encode(self._outputs[descriptor], piece)
            return
        os.close(descriptor)
        del self._outputs[descriptor]


def _build_argv(request, extra):
    argv = [*_BWRAP, *extra, '--bind', workspace.place_of(request['view']), workspace.WORKSPACE]
    if os.path.ismount(workspace.FOLDERS):
        argv += ('--ro-bind', workspace.FOLDERS, workspace.FOLDERS)
    argv += ('--chdir', f'{workspace.WORKSPACE}/{request["cwd"]}'.rstrip('/'), '--clearenv')
    for name, value in {**_ENVIRONMENT, **request['env']}.items():
        argv += ('--setenv', name, value)
    return [*argv, '--', *request['argv']]


def _write_own(name, text):
    descriptor = os.open(f'/proc/self/{name}', os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, text)
    os.close(descriptor)
