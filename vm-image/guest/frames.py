"""Frames of the helper socket: u32 big-endian length of what follows, one byte of kind, payload.

Owns the bounds; refuses, for good, whatever is not such a frame. Pure: bytes in, frames out, no socket.
"""
import json
import struct

JSON = 0x4A
STDIN = 0x30
STDOUT = 0x31
STDERR = 0x32
WINDOW_SIZE = 0x57

# Length counts the kind byte and the payload.
MAX_LENGTH = 1024 * 1024
_HEADER = struct.Struct('>IB')
_KINDS = frozenset((JSON, STDIN, STDOUT, STDERR, WINDOW_SIZE))


class FrameError(Exception):
    """The other side does not speak this protocol; what was expected and what was seen."""


def encode(kind, payload):
    """One frame. Raises ValueError for a payload beyond the bound: that is our own mistake."""
    if len(payload) + 1 > MAX_LENGTH:
        raise ValueError(f'payload of {len(payload)} bytes exceeds {MAX_LENGTH - 1}')
    return _HEADER.pack(len(payload) + 1, kind) + payload


def encode_json(value):
    """One JSON frame."""
    return encode(JSON, json.dumps(value, separators=(',', ':')).encode())


class FrameReader:
    """Cuts bytes into frames, however they arrive; holds less than one frame and one piece."""

    def __init__(self):
        self._buffer = bytearray()
        self._kept = []

    def feed(self, piece):
        """The frames that `piece` completes, as a list of (kind, payload). Raises FrameError."""
        self._buffer += piece
        frames, self._kept = self._kept, []
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            length, kind = _HEADER.unpack_from(self._buffer, start)
            if not 1 <= length <= MAX_LENGTH:
                raise FrameError(f'expected a length of 1 to {MAX_LENGTH}, saw {length}')
            if kind not in _KINDS:
                raise FrameError(f'expected a known kind, saw 0x{kind:02x}')
            end = start + 4 + length
            if len(self._buffer) < end:
                break
            frames.append((kind, bytes(self._buffer[start + _HEADER.size:end])))
            start = end
        del self._buffer[:start]
        return frames

    def put_back(self, frames):
        """Keeps frames that came too early; the next `feed` returns them first."""
        self._kept = frames + self._kept
