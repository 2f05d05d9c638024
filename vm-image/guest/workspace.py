"""The scratch disk and the workspace on it: the host's read-only disk below, what the run changes above; and which views
of it there are. Folders that the host put on that disk beside the workspace are at FOLDERS, read-only for everybody.

Owns formatting, mounting and throwing away; refuses to continue while anything still uses what it is to unmount.
What the calls see as /tmp and home lies on the scratch disk too: it lasts from call to call, counts to no call's memory,
and is no part of the workspace.
"""
import itertools
import os
import struct
import threading
import time
import _signal as signal

import mounts
import system
from system import MS_BIND, MS_NOATIME, MS_NODEV, MS_NOSUID, MS_RDONLY, MS_REMOUNT

WORKSPACE = '/mnt/workspace'
VIEWS = '/mnt/views'
FOLDERS = '/mnt/folders'
SCRATCH = f'{mounts.RUN}/scratch'
BASE = f'{mounts.RUN}/base'
# A disk with folders, whole: its root holds `workspace` and `folders`.
_DISK = f'{mounts.RUN}/disk'
CALL_TMP = f'{SCRATCH}/tmp'
CALL_HOME = f'{SCRATCH}/home'
UPPER = f'{SCRATCH}/upper'
_WORK = f'{SCRATCH}/work'
# What the agent keeps of its run; a checkpoint has it together with the files.
_AGENT = f'{SCRATCH}/agent'
# What views lie over, see views.py.
VIEW_LAYERS = f'{SCRATCH}/views'
_VOLATILE = f'{_WORK}/work/incompat/volatile'

WORK_ID = 1000

_EXT4_MAGIC = (1024 + 56, b'\x53\xef')
_EROFS_MAGIC = (1024, struct.pack('<I', 0xE0F5E1E2))
# The volume's name says what its root is: no name in a workspace could.
_FOLDERS_MAGIC = (1024 + 64, b'caisson-folders\0')
# The disk is new or about to be discarded whole: nothing needs to be zeroed, now or in the background.
_MKFS = ('/sbin/mkfs.ext4', '-q', '-F', '-m0', '-E', 'lazy_itable_init=1,lazy_journal_init=1,discard')
# Nothing happens to an idle disk: a kernel thread that reads ahead where it is free would do so in each copy of a VM.
_OPTIONS = 'discard,noinit_itable,no_prefetch_block_bitmaps'
_FORMAT_TIMEOUT_SECONDS = 60
_BUSY_TIMEOUT_SECONDS = 3
# Sixteen at once in each of five depths, and some that are kept.
_MAX_VIEWS = 96
_MOUNT_FLAGS = MS_NOSUID | MS_NODEV | MS_NOATIME


def place_of(view):
    """Where a tree lies: the workspace for None, else the view of that id."""
    return WORKSPACE if view is None else f'{VIEWS}/{view}'


class WorkspaceError(Exception):
    """`code` is one of the helper socket's; the message says what was expected, seen, and what to do."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Workspace:
    """Scratch disk and overlay. Operations run one at a time; call `prepare_scratch` once, in its own thread."""

    def __init__(self, processes, say_error):
        self._processes = processes
        self._say_error = say_error
        self._lock = threading.Lock()
        self._scratch_ready = threading.Event()
        self._scratch_failure = None
        self._mounted = False
        self._read_only = False
        # Those that programs may be started in; others may still be ending.
        self._open_views = set()
        # By view, the copies that it lies over, the topmost first.
        self._views = {}
        self._numbers = itertools.count(1)
        # Of our own that work on the scratch disk.
        self._programs = set()

    def prepare_scratch(self):
        """Formats the scratch disk unless it has a file system, and mounts it. A failure is kept for who asks."""
        try:
            device = mounts.find_drive('scratch')
            if device is None:
                raise WorkspaceError('not_ready', 'expected a drive with the serial "scratch", saw none: attach one')
            if not _has_magic(device, _EXT4_MAGIC):
                self._format(device)
            _mount_scratch(device)
        except (WorkspaceError, OSError) as error:
            self._scratch_failure = f'scratch disk: {error}'
            self._say_error('scratch', str(error))
        finally:
            self._scratch_ready.set()

    def mount(self, read_only):
        """Puts the workspace at its place; nothing to do when it is there. Raises WorkspaceError or OSError.

        Read-only is the whole mount, so that nobody but root can write below it, by whatever name.
        """
        with self._lock:
            flags = _MOUNT_FLAGS | (MS_RDONLY if read_only else 0)
            if self._mounted:
                if read_only != self._read_only:
                    system.mount('workspace', WORKSPACE, 'overlay', MS_REMOUNT | flags)
                    self._read_only = read_only
                return
            self._wait_for_scratch()
            if not os.path.ismount(SCRATCH):
                # Not before: the disk of a copy of a saved VM may be another than the one that it was saved with.
                _mount_scratch(mounts.find_drive('scratch'))
            _forget_volatile()
            for folder, mode in ((UPPER, 0o755), (_WORK, 0o755), (CALL_HOME, 0o700), (CALL_TMP, 0o1777)):
                make_folder(folder, mode)
            if not self._views:
                # Of the VM whose disk this was.
                self._discard((VIEW_LAYERS,))
            os.makedirs(_AGENT, mode=0o700, exist_ok=True)
            os.chown(_AGENT, system.AGENT_ID, system.AGENT_ID)
            lower = self._mount_base()
            os.makedirs(WORKSPACE, exist_ok=True)
            # redirect_dir: without it the rename of a directory of the base fails with EXDEV.
            # volatile: each first write to a file of the base would wait for the disk, which does not outlive this VM.
            options = f'lowerdir={lower},upperdir={UPPER},workdir={_WORK},redirect_dir=on,volatile'
            system.mount('workspace', WORKSPACE, 'overlay', flags, options)
            self._mounted = True
            self._read_only = read_only

    def reset(self, keep_home):
        """Takes the workspace away with all that was changed; the calls must have ended. Raises WorkspaceError, OSError.

        Their home folder and /tmp stay with `keep_home`.
        """
        with self._lock:
            self._wait_for_scratch()
            self._remove_views(self._views)
            for place in (WORKSPACE, BASE, FOLDERS, _DISK):
                if os.path.ismount(place):
                    unmount_when_free(place)
            self._mounted = False
            if keep_home:
                self._discard_changes()
                return
            self._end_programs()
            if os.path.ismount(SCRATCH):
                unmount_when_free(SCRATCH)
            # Formatting anew is quicker than deleting, and no depth, name or attribute of a file can stop it.
            device = mounts.find_drive('scratch')
            self._format(device)
            # Not mounted: who saves the VM now has copies that can begin with another disk, such as a checkpoint.
            os.sync()

    def open_views(self, wanted, source):
        """Makes views of the workspace, or of the view `source`, as it is now; all or none. The paths of their parts.

        Raises WorkspaceError or OSError.
        """
        import views  # pylint: disable=import-outside-toplevel  (most VMs never need it)

        with self._lock:
            if not self._mounted:
                raise WorkspaceError('not_ready', 'expected a mounted workspace; ask for workspace_mount first')
            for view in wanted:
                if view in self._views:
                    raise WorkspaceError('bad_request', f'ids: there is a view {view!r} already; take another id')
            if not self.has_view(source):
                raise WorkspaceError('bad_request', f'source: there is no view {source!r}')
            there = len(self._views)
            if there + len(wanted) > _MAX_VIEWS:
                raise WorkspaceError('busy', f'there are {there} views of at most {_MAX_VIEWS} already; close some first')
            frozen = views.frozen_place(next(self._numbers))
            copies = (frozen, *(() if source is None else self._views[source]))
            self._views.update((view, copies) for view in wanted)
            try:
                views.freeze(source, frozen, self._run)
                parts = [views.make(view, copies) for view in wanted]
            except BaseException:
                self._remove_views(wanted)
                raise
            self._open_views.update(wanted)
            return parts

    def forget_views(self, views):
        """From here on no program can be started in these."""
        self._open_views.difference_update(views)

    def close_views(self, views=None):
        """Takes views, all by default, away with all that was changed in them; their calls must have ended.

        Nothing to do for those that there are not.
        """
        with self._lock:
            self._remove_views(self._views if views is None else [view for view in views if view in self._views])

    def has_view(self, view):
        """Whether programs can be started in the view; None is the workspace itself."""
        return view is None or view in self._open_views

    def has_views(self):
        """Whether there is any view, also one that could not be taken away yet."""
        return bool(self._views)

    def _remove_views(self, unwanted):
        """All that can be, also when one of them cannot: its error is raised in the end."""
        if not unwanted:
            return
        import views  # pylint: disable=import-outside-toplevel

        places = []
        failure = None
        for view in list(unwanted):
            self._open_views.discard(view)
            try:
                places.append(views.unmount(view))
            except (WorkspaceError, OSError) as error:
                failure = error
                continue
            copies = self._views.pop(view)
            used = {copy for others in self._views.values() for copy in others}
            places.extend(copy for copy in copies if copy not in used)
        self._discard(places)
        if failure is not None:
            raise failure

    def _discard_changes(self):
        self._discard((UPPER, _WORK, _AGENT))

    def _discard(self, places):
        """Out of the way at once; to remove them takes as long as it takes."""
        there = [place for place in places if os.path.isdir(place)]
        if not there:
            return
        gone = [f'{SCRATCH}/gone-{time.monotonic_ns()}-{index}' for index, _ in enumerate(there)]
        for place, target in zip(there, gone):
            os.rename(place, target)
        threading.Thread(target=self._run, args=(('/usr/bin/rm', '-rf', *gone),), daemon=True).start()

    def _run(self, argv):
        """Runs one of the system's programs without a word; whether it ended well."""
        null = os.open('/dev/null', os.O_RDWR | os.O_CLOEXEC)
        try:
            child = self._processes.spawn(argv, {'PATH': '/usr/bin'}, null, null, null)
            self._programs.add(child)
            code, _ = child.wait()
            self._programs.discard(child)
            child.forget()
            return code == 0
        finally:
            os.close(null)

    def _end_programs(self):
        """Nothing needs to be removed any more from a disk that is formatted."""
        for child in list(self._programs):
            if not child.has_ended():
                os.kill(child.pid, signal.SIGKILL)

    def is_mounted(self):
        """Whether calls have a workspace to run in."""
        return self._mounted

    def scratch_space(self):
        """(total bytes, free bytes) of the scratch disk; zeros before it is mounted."""
        if not os.path.ismount(SCRATCH):
            return 0, 0
        seen = os.statvfs(SCRATCH)
        return seen.f_blocks * seen.f_frsize, seen.f_bavail * seen.f_frsize

    def flush(self):
        """Brings all that was written to the scratch disk, whose state is then a checkpoint. Raises WorkspaceError, OSError.

        Through the workspace nobody can: its overlay is volatile.
        """
        self._wait_for_scratch()
        descriptor = os.open(SCRATCH, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            system.flush_filesystem(descriptor)
        finally:
            os.close(descriptor)

    def _wait_for_scratch(self):
        if not self._scratch_ready.wait(_FORMAT_TIMEOUT_SECONDS):
            raise WorkspaceError('not_ready', f'the scratch disk was not ready after {_FORMAT_TIMEOUT_SECONDS} s')
        if self._scratch_failure is not None:
            raise WorkspaceError('not_ready', self._scratch_failure)

    def _format(self, device):
        null = os.open('/dev/null', os.O_RDWR | os.O_CLOEXEC)
        said_read, said_write = os.pipe2(os.O_CLOEXEC)
        try:
            child = self._processes.spawn((*_MKFS, device), {'PATH': '/usr/sbin:/usr/bin'}, null, said_write, said_write)
            os.close(said_write)
            said_write = -1
            said = os.read(said_read, 2048).decode('utf-8', 'replace').strip()
            code, ended_by = child.wait(_FORMAT_TIMEOUT_SECONDS) or (None, 'nothing, it still runs')
            child.forget()
        finally:
            for descriptor in (null, said_read, said_write):
                if descriptor >= 0:
                    os.close(descriptor)
        if code != 0:
            raise WorkspaceError('internal', f'mkfs.ext4 {device} ended with {code if code is not None else ended_by}: {said}')

    def _mount_base(self):
        """The lowest layer: the host's disk, or an empty directory when it attached none or a blank one."""
        os.makedirs(BASE, exist_ok=True)
        device = mounts.find_drive('workspace')
        if device is None or not _has_magic(device, _EROFS_MAGIC):
            return BASE
        flags = MS_RDONLY | MS_NOSUID | MS_NODEV
        if not _has_magic(device, _FOLDERS_MAGIC):
            _mount_once(device, BASE, 'erofs', flags)
            return BASE
        _mount_once(device, _DISK, 'erofs', flags)
        # Both stay read-only: a bind mount has the flags of its source, and so has the file system.
        _mount_once(f'{_DISK}/workspace', BASE, '', MS_BIND)
        _mount_once(f'{_DISK}/folders', FOLDERS, '', MS_BIND)
        return BASE


def _mount_once(source, place, kind, flags):
    """An earlier mount of the workspace may have come this far and failed later."""
    if not os.path.ismount(place):
        os.makedirs(place, exist_ok=True)
        system.mount(source, place, kind, flags)


def _forget_volatile():
    """The kernel refuses an overlay that was not unmounted; what a checkpoint holds of it was flushed."""
    for remove, place in ((os.unlink, f'{_VOLATILE}/dirty'), (os.rmdir, _VOLATILE)):
        try:
            remove(place)
        except FileNotFoundError:
            pass


def _mount_scratch(device):
    _forget_blocks(device)
    os.makedirs(SCRATCH, mode=0o711, exist_ok=True)
    system.mount(device, SCRATCH, 'ext4', MS_NOATIME | MS_NOSUID | MS_NODEV, _OPTIONS)
    os.chmod(SCRATCH, 0o711)


def make_folder(path, mode):
    """A directory of the calls' user."""
    os.makedirs(path, exist_ok=True)
    os.chown(path, WORK_ID, WORK_ID)
    os.chmod(path, mode)


def _forget_blocks(device):
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        system.forget_cached_blocks(descriptor)
    finally:
        os.close(descriptor)


def _has_magic(device, magic):
    offset, expected = magic
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # A guest that was resumed may remember the blocks of another disk.
        system.forget_cached_blocks(descriptor)
        return os.pread(descriptor, len(expected), offset) == expected
    finally:
        os.close(descriptor)


def unmount_when_free(place):
    """Waits a moment for whoever is about to let go; raises WorkspaceError when somebody does not."""
    deadline = time.monotonic() + _BUSY_TIMEOUT_SECONDS
    while True:
        try:
            system.unmount(place)
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise WorkspaceError('busy', f'{error}; close what is open below it and ask again') from None
            time.sleep(0.02)
