"""What makes a guest that was resumed from a saved state unlike all others: random bytes and the time, both from the host.

Owns the port `caisson.root`, which root alone can open. It is served by a thread of PID 1, so that nothing has to be
started after a resume, where every new program costs emulation a tenth of a second.

A message is 80 bytes: `CAISSONF`, the time as microseconds since 1970 (u64, big-endian), and 64 random bytes; all zeros
mean that only the clock needs a correction. The answer is 16 bytes: `CAISSONF` and the guest's time once all was done.
"""
import os
import struct
import time

import console
import system

PORT = 'caisson.root'
_MAGIC = b'CAISSONF'
_MESSAGE = struct.Struct('>8sQ64s')
_ANSWER = struct.Struct('>8sQ')
_NO_SEED = bytes(64)
_EOF_PAUSE_SECONDS = 0.1


def serve(device):
    """Answers the host forever; for a thread of its own."""
    descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    # Once, and not in each copy.
    generator = system.open_generator()
    waiting = b''
    while True:
        piece = os.read(descriptor, _MESSAGE.size - len(waiting))
        read_at = time.monotonic_ns()
        if not piece:
            time.sleep(_EOF_PAUSE_SECONDS)  # The host's end is closed; without a pause this would spin.
            continue
        waiting += piece
        while not waiting.startswith(_MAGIC[:len(waiting)]):
            waiting = waiting[1:]
        if len(waiting) == _MESSAGE.size:
            message, waiting = waiting, b''
            _answer(descriptor, generator, message, read_at)


def _answer(descriptor, generator, message, read_at):
    _, microseconds, seed = _MESSAGE.unpack(message)
    try:
        # First the entropy: the jump of the clock makes generators in running programs draw from the kernel's anew.
        if seed != _NO_SEED:
            system.add_entropy(generator, seed)
        passed = time.monotonic_ns() - read_at
        time.clock_settime_ns(time.CLOCK_REALTIME, microseconds * 1000 + passed)
    except (OSError, OverflowError) as error:
        console.report_error('fresh', str(error))
        return
    os.write(descriptor, _ANSWER.pack(_MAGIC, time.time_ns() // 1000))
