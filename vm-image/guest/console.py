"""One line at a time to the VM's console, which is all that a host sees of a guest that does not start.

Owns the two forms that the host looks for (`caisson: …`, `caisson: ERROR phase=… …`); refuses control characters, so that
a file name or a program's output cannot imitate a line of its own.
"""
import os
import time


def say(text):
    """Prints `caisson: TEXT`; a console that is gone is no reason to fail."""
    _write(f'caisson: {text}')


def report_error(phase, text):
    """Prints a failure: `phase` is one word, `text` says what was expected, what was seen, what to do."""
    _write(f'caisson: ERROR phase={phase} {text}')


def uptime_seconds():
    """Seconds since the kernel started, by the clock that a set time of day does not move."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _write(line):
    safe = ''.join(character if character.isprintable() else '?' for character in line[:2000])
    try:
        os.write(1, safe.encode('utf-8', 'replace') + b'\n')
    except OSError:
        pass
