"""Every process that PID 1 starts or inherits: one place forks, one place waits.

A single reaper collects all zombies and keeps the exit codes of the children that somebody waits for; nothing else in
this program may call a wait function, or exit codes would be stolen from one another.
"""
import errno
import os
import select
# Not `signal` and `threading`: what they import costs a tenth of a second before the agent can start.
import _signal as signal
import _thread

import system

_MAX_OPEN_FILES = 65536
_SIGNAL_NAMES = {
    number: name
    for name, number in vars(signal).items()
    if name.startswith('SIG') and not name.startswith(('SIG_', 'SIGRT'))
}


class SpawnError(Exception):
    """A child that never reached its program. `code` is the errno, 0 when there is none."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Child:
    """A started process. `exited` is an eventfd that becomes readable when it has ended; close it by `forget`."""

    def __init__(self, pid):
        self.pid = pid
        self.exited = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.status = None

    def has_ended(self):
        return self.status is not None

    def wait(self, timeout_seconds=None):
        """(exit code, None) or (None, signal name) once it has ended; None when it has not in time."""
        if self.status is None:
            poller = select.poll()
            poller.register(self.exited, select.POLLIN)
            poller.poll(None if timeout_seconds is None else max(0, int(timeout_seconds * 1000)))
        return None if self.status is None else describe_status(self.status)

    def forget(self):
        os.close(self.exited)


def describe_status(status):
    """A wait status as (exit code, None) or (None, name of the signal)."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status), None
    number = os.WTERMSIG(status)
    return None, _SIGNAL_NAMES.get(number, f'SIG{number}')


class Processes:
    """The table of children. `spawn` from any thread; `reap` from the main thread, at each SIGCHLD."""

    def __init__(self):
        self._lock = _thread.allocate_lock()
        self._children = {}

    def spawn(self, argv, environment, stdin, stdout, stderr, prepare=None):
        """Starts argv[0] (an absolute path) with the three descriptors, in a session of its own.

        `prepare` runs in the child as root before the exec: it must neither import, nor print, nor take a lock.
        Raises SpawnError when `prepare` or the exec fails.
        """
        # Held over fork and registration, so that the reaper never sees a child that is not in the table; and from the pipe's
        # making to its closing here, so that no other child has the writing end: one that is frozen before its program begins
        # would keep this one from being seen to have begun, and what waits for it from ever thawing that one.
        with self._lock:
            failed_read, failed_write = os.pipe2(os.O_CLOEXEC)
            try:
                pid = os.fork()
                if pid == 0:
                    _run_child(argv, environment, (stdin, stdout, stderr), prepare, failed_write)
                child = Child(pid)
                self._children[pid] = child
            except BaseException:
                os.close(failed_read)
                raise
            finally:
                os.close(failed_write)
        try:
            failure = os.read(failed_read, 1024)
        finally:
            os.close(failed_read)
        if failure:
            with self._lock:
                self._children.pop(pid, None)
            child.forget()
            code, _, text = failure.decode('utf-8', 'replace').partition(' ')
            raise SpawnError(int(code), f'{argv[0]} did not start: {text}')
        return child

    def reap(self):
        """Collects every zombie there is: our children, and orphans of theirs."""
        with self._lock:
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return
                if pid == 0:
                    return
                child = self._children.pop(pid, None)
                if child is not None:
                    child.status = status
                    os.eventfd_write(child.exited, 1)


def _run_child(argv, environment, descriptors, prepare, failed):
    """The forked child's way to its program; never returns."""
    try:
        os.setsid()
        # Python ignores these in PID 1 and an ignored signal stays ignored over exec: `yes | head` would never end.
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        if prepare is not None:
            prepare()
        os.execve(argv[0], argv, environment)
    except BaseException as error:  # pylint: disable=broad-except
        code = getattr(error, 'errno', None) or 0
        os.write(failed, f'{code} {type(error).__name__}: {error}'.encode('utf-8', 'replace')[:1000])
    finally:
        os._exit(127)


def limit_resources():
    """Sets what a program gets by default elsewhere: many open files, no core dumps. For a forked child."""
    system.set_limit(system.RLIMIT_CORE, 0)
    system.set_limit(system.RLIMIT_NOFILE, _MAX_OPEN_FILES)


def is_too_big(error):
    """Whether a SpawnError says that arguments and environment exceed what the kernel takes."""
    return error.code == errno.E2BIG
