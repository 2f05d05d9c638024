"""What makes a guest that was resumed from a saved state unlike all others: random bytes and the time, both from the host.

Owns the port `caisson.root`, which root alone can open. It is served by a thread of PID 1, so that nothing has to be
started after a resume, where every new program costs emulation a tenth of a second.

A message is 80 bytes: `CAISSONF`, the time as microseconds since 1970 (u64, big-endian), and 64 random bytes; all zeros
mean that only the clock needs a correction. The answer is 16 bytes: `CAISSONF` and the guest's time once all was done.

`CAISSONC`, a number and 64 zeros ask for a flush of the scratch disk, so that its state is a checkpoint. The answer is
`CAISSONC` and the number, with its highest bit set where the flush failed.
"""
import os
import struct
import time

import console
import system

PORT = 'caisson.root'
_MAGIC = b'CAISSONF'
_MESSAGE = struct.Struct('>8sQ64s')
_FLUSH = b'CAISSONC'
_ANSWER = struct.Struct('>8sQ')
# In the answer to a flush: it failed.
_FAILED = 1 << 63
_NO_SEED = bytes(64)
_EOF_PAUSE_SECONDS = 0.1


def serve(device, space):
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
        while waiting[:8] not in (_MAGIC[:len(waiting)], _FLUSH[:len(waiting)]):
            waiting = waiting[1:]
        if len(waiting) == _MESSAGE.size:
            message, waiting = waiting, b''
            if message.startswith(_FLUSH):
                _flush(descriptor, space, message)
            else:
                _answer(descriptor, generator, message, read_at)


def _flush(descriptor, space, message):
    _, number, _ = _MESSAGE.unpack(message)
    try:
        space.flush()
    except Exception as error:  # pylint: disable=broad-except
        console.report_error('flush', str(error))
        number |= _FAILED
    os.write(descriptor, _ANSWER.pack(_FLUSH, number))


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
