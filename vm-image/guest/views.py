"""Views of the workspace for sub-agents: the workspace as it was at one moment, and what is changed in each from then on.

Owns the layers of views and two mounts of each: `VIEWS/ID`, which can be written, and `VIEWS/ID.start`, as it was when it
began. Overlays are not stacked: both have the host's disk as lowest layer and, above it, a copy of what the upper directory
of the workspace held. A view of a view has the copies of that view and, above them, one of its upper directory. Views that
began together share a copy. Nothing that is written below later is seen in a view, and nothing of a view below it.
"""
import os

import cgroup
import system
import workspace
from system import MS_NOATIME, MS_NODEV, MS_NOSUID, MS_RDONLY

_LAYERS = workspace.VIEW_LAYERS
_FLAGS = MS_NOSUID | MS_NODEV | MS_NOATIME
_COPY_ATTEMPTS = 3
# A copy that failed while less than this was free failed for want of it.
_FULL_BYTES = 1024 * 1024


def frozen_place(number):
    """Where a copy of what was changed lies; no view is called so."""
    return f'{_LAYERS}/frozen.{number}'


def freeze(source, frozen, run):
    """Makes the copy of what `source` changed, a view or None for the workspace, that views are then made over.

    `run` runs a program.
    """
    upper = workspace.UPPER if source is None else _upper_of(source)
    os.makedirs(_LAYERS, mode=0o711, exist_ok=True)
    if os.listdir(upper):
        _copy(upper, frozen, run)
    else:
        # Most runs that fan out do so before they change anything, and a program to copy nothing takes long to start.
        workspace.make_folder(frozen, os.stat(upper).st_mode & 0o7777)


def make(view, copies):
    """Mounts a view over copies, the topmost first; paths for the agent.

    What was begun when it raises is for `unmount` to end.
    """
    layers = f'{_LAYERS}/{view}'
    os.mkdir(layers, 0o711)
    upper, work = _upper_of(view), f'{layers}/work'
    workspace.make_folder(upper, os.stat(copies[0]).st_mode & 0o7777)
    workspace.make_folder(work, 0o755)
    lower = f'lowerdir={":".join(copies)}:{workspace.BASE},redirect_dir=on'
    place = workspace.place_of(view)
    for target in (place, f'{place}.start'):
        os.makedirs(target, exist_ok=True)
    system.mount('view', place, 'overlay', _FLAGS, f'{lower},upperdir={upper},workdir={work},volatile')
    system.mount('view', f'{place}.start', 'overlay', _FLAGS | MS_RDONLY, lower)
    return {'path': place, 'start': f'{place}.start', 'upper': upper}


def unmount(view):
    """Ends both mounts, as far as they are there; the place of the view's own layers, for its removal."""
    place = workspace.place_of(view)
    for target in (f'{place}.start', place):
        if os.path.ismount(target):
            workspace.unmount_when_free(target)
        if os.path.isdir(target):
            os.rmdir(target)
    return f'{_LAYERS}/{view}'


def _upper_of(view):
    return f'{_LAYERS}/{view}/upper'


def _copy(upper, frozen, run):
    try:
        # Programs that write meanwhile would leave a mixture, and a directory that becomes a link would lead root astray.
        with cgroup.FrozenCalls():
            _copy_layer(upper, frozen, run)
    except TimeoutError as error:
        raise workspace.WorkspaceError('busy', f'{error}; ask again') from None


def _copy_layer(source, target, run):
    """With whiteouts, marks (extended attributes), modes, owners, times and hard links; they are what an overlay consists of."""
    for _ in range(_COPY_ATTEMPTS):
        # The agent itself may write meanwhile: a file that it renames is found the next time.
        if run(('/usr/bin/cp', '-a', '--no-target-directory', source, target)):
            return
        space = os.statvfs(target if os.path.isdir(target) else source)
        if space.f_bavail * space.f_frsize < _FULL_BYTES or space.f_favail == 0:
            raise workspace.WorkspaceError('no_space', 'the disk has no room for a copy of what was changed so far')
        run(('/usr/bin/rm', '-rf', target))
    raise workspace.WorkspaceError('internal', 'what was changed so far could not be copied; is it nested too deep?')
