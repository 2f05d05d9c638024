"""Packs a folder into an .tar.xz: sorted, without owners and times, so that the same files give the same bytes.

usage: pack.py FOLDER ARCHIVE
"""
import lzma
import os
import sys
import tarfile


def forget(entry):
    """Keeps of an entry what is in the files themselves."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ''
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


def main(folder, archive):
    """Adds every file below `folder` in the order of their names."""
    with tarfile.open(archive, 'w:xz', format=tarfile.GNU_FORMAT, preset=9 | lzma.PRESET_EXTREME) as packed:
        for place, folders, files in os.walk(folder):
            folders.sort()
            for name in sorted(files):
                path = os.path.join(place, name)
                packed.add(path, os.path.relpath(path, folder), filter=forget)


main(*sys.argv[1:])
