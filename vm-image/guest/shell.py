"""Shells and commands of a person: calls that may take as long as they like, on pipes or on a terminal of their own.

Owns the terminal (size, control, end); user, namespaces and control group are those of every call.
"""
import errno
import fcntl
import os
import struct
import termios

import calls
import frames
import workspace

# What all calls together may have is bound enough for a person: nothing here but what the kernel takes as no limit.
_LIMITS = {'wallMs': None, 'memoryBytes': 1 << 60, 'pids': 4096, 'cpuPercent': 25_600}
# So that a program that is not there is reported as by any shell, with the code 127.
_AS_A_SHELL_RUNS_IT = ('/bin/sh', '-c', 'exec "$@"', 'sh')
_LOGIN_SHELL = ('/bin/bash', '-l')
_END_OF_TRANSMISSION = b'\x04'
_IUTF8 = 0x4000


def to_call(request):
    """The request of a `shell` as one that `Calls.run` serves."""
    terminal = request['terminal']
    return {
        'argv': [*_AS_A_SHELL_RUNS_IT, *request['argv']] if request['argv'] else list(_LOGIN_SHELL),
        'view': None,
        'cwd': '',
        'env': {**request['env'], **({} if terminal is None else {'TERM': terminal['term']})},
        'stdin': True,
        'limits': _LIMITS,
        'terminal': terminal,
    }


class ShellCall(calls.Call):
    """One shell or command. What outlives it is ended with it, as with every call."""

    # A person's shell survives the program in it that took too much.
    dies_whole = False

    def __init__(self, name, request, children):
        self._terminal = request['terminal']
        if self._terminal is not None:
            # The program keeps its session, and with it the terminal, which is nobody else's.
            self.bwrap_extra = ()
        super().__init__(name, request, children)

    def _open_streams(self, connection, reader):
        if self._terminal is None:
            return super()._open_streams(connection, reader)
        return TerminalStreams(connection, reader, self._terminal['columns'], self._terminal['rows'])

    def _prepare(self):
        # Runs in the forked child, which leads a session that has no terminal yet.
        if self._terminal is not None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        super()._prepare()

    def _reply(self, result, reason, duration_ms):
        return {
            'ok': True,
            'exitCode': result[0],
            'signal': result[1],
            'oomKilled': self._group.oom_killed(),
        }


class TerminalStreams(calls.Streams):
    """A pseudo-terminal in the place of the three pipes."""

    def __init__(self, connection, reader, columns, rows):
        super().__init__(connection, reader, True)
        self._master = -1
        self._size = struct.pack('HHHH', rows, columns, 0, 0)

    def open_pipes(self):
        """Makes the terminal; the program's three ends of it, which the caller closes."""
        ends = []
        try:
            self._master, end = os.openpty()
            ends.append(end)
            os.set_blocking(self._master, False)
            self._outputs[self._master] = frames.STDOUT
            self._stdin = os.dup(self._master)
            os.fchown(end, workspace.WORK_ID, workspace.WORK_ID)
            modes = termios.tcgetattr(end)
            modes[0] |= _IUTF8
            termios.tcsetattr(end, termios.TCSANOW, modes)
            self._set_size()
            ends += (os.dup(end), os.dup(end))
        except OSError:
            for descriptor in ends:
                os.close(descriptor)
            raise
        return ends

    def _set_size(self):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, self._size)

    def _take(self, received):
        for kind, payload in received:
            if kind == frames.WINDOW_SIZE:
                if len(payload) != 4:
                    raise frames.FrameError(f'expected a window size of 4 bytes, saw {len(payload)}')
                columns, rows = struct.unpack('>HH', payload)
                self._size = struct.pack('HHHH', rows, columns, 0, 0)
                # After the program's end its last output is still being sent.
                if self._master in self._outputs:
                    self._set_size()
            else:
                # A terminal has no end of input; its reader gets the key for that.
                super()._take([(kind, payload or _END_OF_TRANSMISSION)])

    def _feed_program(self):
        try:
            super()._feed_program()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._discard_input()

    def _read_output(self, descriptor):
        try:
            super()._read_output(descriptor)
        except OSError as error:
            # What Linux says where nobody has the other end open any more.
            if error.errno != errno.EIO:
                raise
            os.close(descriptor)
            del self._outputs[descriptor]
