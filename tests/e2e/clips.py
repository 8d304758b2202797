"""A small clip made from nothing, as PNG files and as an animated GIF of the same pixels.

Standard library alone: the GIF's LZW codes are never grown, so it is large and any decoder reads it.
"""
# SPDX-License-Identifier: Apache-2.0

import struct
import zlib

PALETTE = [(255, 255, 255), (200, 30, 30)]  # background, square
SIDE, SQUARE, STEP = 128, 40, 24
CODE_BITS, CLEAR, END = 9, 256, 257
RUN = 250  # literals between clear codes: fewer than would widen the codes to ten bits


def moving_square(frames):
    """Frames of palette indices, row after row: a square that moves down."""

    def pixel(frame, y, x):
        return int(frame * STEP <= y < frame * STEP + SQUARE and 44 <= x < 44 + SQUARE)

    return [[pixel(f, y, x) for y in range(SIDE) for x in range(SIDE)] for f in range(frames)]


def png_chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, rgb):
    """An 8-bit RGB PNG; fewer bytes of pixels than width and height announce make a damaged one."""
    rows = b"".join(b"\0" + rgb[at:at + 3 * width] for at in range(0, len(rgb), 3 * width))
    return (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b""))


def frame_png(frame):
    return png(SIDE, SIDE, b"".join(bytes(PALETTE[index]) for index in frame))


def lzw(indices):
    codes = [CLEAR]
    for at in range(0, len(indices), RUN):
        codes += [*indices[at:at + RUN], CLEAR]
    bits = "".join(format(code, f"0{CODE_BITS}b")[::-1] for code in [*codes, END])
    return bytes(int(bits[at:at + 8][::-1], 2) for at in range(0, len(bits), 8))


def blocks(data):
    return b"".join(bytes([len(data[at:at + 255])]) + data[at:at + 255] for at in range(0, len(data), 255)) + b"\0"


def gif(frames, fps):
    """Each frame is shown for 1 / fps seconds, which must be a multiple of 10 ms."""
    table = b"".join(map(bytes, PALETTE)).ljust(768, b"\0")
    out = b"GIF89a" + struct.pack("<HHBBB", SIDE, SIDE, 0xF7, 0, 0) + table
    for frame in frames:
        out += b"\x21\xf9\x04" + struct.pack("<BHBB", 0, round(100 / fps), 0, 0)
        out += b"\x2c" + struct.pack("<HHHHB", 0, 0, SIDE, SIDE, 0)
        out += b"\x08" + blocks(lzw(frame))
    return out + b"\x3b"
