"""The helper socket: the few things that need root, done for the agent and for nobody else.

Owns who may ask, one request for each connection, and the reply; each request is checked in full before anything is done.
"""
import errno
import os
import select
import socket
import struct
import threading
import time

import calls
import console
import frames
import mounts
import processes
import requests
import workspace

_MAX_CONNECTIONS = 64
_FIRST_FRAME_SECONDS = 30
_LAST_FRAME_SECONDS = 30
_LINGER_SECONDS = 5


class Helper:
    """Serves the socket. Each connection has a thread of its own, since each may wait for a disk or a program."""

    def __init__(self, children, space, supervisor, allowed_uids):
        self._calls = calls.Calls(children, space)
        self._space = space
        self._supervisor = supervisor
        self._allowed_uids = allowed_uids
        self._slots = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        self._reset = threading.Lock()
        self._operations = {
            'workspace_mount': self._mount,
            'workspace_reset': self._reset_workspace,
            'view_open': self._open_views,
            'view_close': self._close_views,
            'status': self._status,
        }

    def accept(self, listener):
        """Takes one connection that waits; returns at once."""
        try:
            connection, _ = listener.accept()
        except OSError as error:
            console.report_error('helper', f'accept: {error}')
            return
        if not self._slots.acquire(blocking=False):
            connection.close()
            return
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            with connection:
                reply = self._answer(connection)
                if reply is not None:
                    connection.settimeout(_LAST_FRAME_SECONDS)
                    connection.sendall(frames.encode_json(reply))
                    _linger(connection)
        except OSError:
            pass  # The client is gone; there is nobody to tell.
        except Exception as error:  # pylint: disable=broad-except
            console.report_error('helper', f'{type(error).__name__}: {error}')
        finally:
            self._slots.release()

    def _answer(self, connection):
        """The reply to the connection's request; None when there is nobody to read it."""
        try:
            reader = frames.FrameReader()
            request = self._receive(connection, reader)
            if request is None:
                return None
            if request['op'] == 'exec':
                return self._calls.run(request, connection, reader)
            if request['op'] == 'shell':
                import shell  # pylint: disable=import-outside-toplevel  (most VMs never need it)

                return self._calls.run(shell.to_call(request), connection, reader, shell.ShellCall)
            reply = {'ok': True, **(self._operations[request['op']](request) or {})}
            if request['op'] == 'view_open' and _is_gone(connection):
                # Whoever asked has ended meanwhile, so nobody knows of them; `close_views` may have been here before.
                self._close_views(request)
                return None
            return reply
        except (frames.FrameError, requests.BadRequest) as error:
            return _failure('bad_request', str(error))
        except (calls.CallError, workspace.WorkspaceError) as error:
            return _failure(error.code, str(error))
        except processes.SpawnError as error:
            return _failure('internal', str(error))
        except OSError as error:
            return _failure('no_space' if error.errno in (errno.ENOSPC, errno.EDQUOT) else 'internal', str(error))

    def _receive(self, connection, reader):
        """The request, once it is there in full; None when the peer may not ask or does not."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize('3i'))
        _, uid, _ = struct.unpack('3i', credentials)
        if uid not in self._allowed_uids:
            return None
        deadline = time.monotonic() + _FIRST_FRAME_SECONDS
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise requests.BadRequest(f'expected a request within {_FIRST_FRAME_SECONDS} s')
            connection.settimeout(left)
            try:
                piece = connection.recv(64 * 1024)
            except TimeoutError:
                continue
            if not piece:
                return None
            received = reader.feed(piece)
            if received:
                kind, payload = received[0]
                if kind != frames.JSON:
                    raise frames.FrameError(f'expected a request, saw a frame of kind 0x{kind:02x}')
                reader.put_back(received[1:])
                return requests.parse_request(payload)

    def _mount(self, request):
        self._space.mount(request['readOnly'])

    def _reset_workspace(self, request):
        with self._reset:
            try:
                if not self._calls.suspend():
                    raise workspace.WorkspaceError('busy', 'a call did not end although it was killed')
                self._space.reset(request['keepHome'])
            finally:
                self._calls.resume()

    def _open_views(self, request):
        return {'views': self._space.open_views(request['ids'], request['source'])}

    def _close_views(self, request):
        self._space.forget_views(request['ids'])
        if not self._calls.end_views(request['ids']):
            raise workspace.WorkspaceError('busy', 'a call did not end although it was killed')
        self._space.close_views(request['ids'])

    def close_views(self):
        """When the agent has ended, nobody is left to close its views."""
        if not self._space.has_views():
            return
        with self._reset:
            try:
                self._calls.suspend()
                self._space.close_views()
            except (workspace.WorkspaceError, OSError) as error:
                console.report_error('views', str(error))
            finally:
                self._calls.resume()

    def _status(self, _request):
        total, free = self._space.scratch_space()
        memory = mounts.read_memory()
        return {
            'calls': self._calls.count(),
            'agentRestarts': self._supervisor.restarts,
            'memory': {'totalBytes': memory['MemTotal'], 'availableBytes': memory['MemAvailable']},
            'scratch': {'totalBytes': total, 'freeBytes': free},
            'uptimeMs': int(console.uptime_seconds() * 1000),
        }


def listen(path, owner):
    """The listening socket, which `owner` and root alone can reach."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    os.chown(path, owner, owner)
    listener.listen(_MAX_CONNECTIONS)
    listener.setblocking(False)
    return listener


def _is_gone(connection):
    """Whether the client has closed: it does not before it has its reply."""
    poller = select.poll()
    poller.register(connection, select.POLLRDHUP)
    return bool(poller.poll(0))


def _linger(connection):
    """Until the client has closed too: what it still sends would make the kernel throw away the reply with the rest."""
    connection.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + _LINGER_SECONDS
    connection.settimeout(_LINGER_SECONDS)
    while connection.recv(64 * 1024) and time.monotonic() < deadline:
        pass


def _failure(code, text):
    return {'ok': False, 'error': {'code': code, 'message': text[:2000]}}
