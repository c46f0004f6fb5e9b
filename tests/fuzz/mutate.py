"""Damaged and hostile inputs, made from good ones: the same for the same name, on any machine."""

import random
from collections.abc import Sequence

# What readers stumble over: numbers at the ends of their ranges, signs and words in the wrong place, deep nesting.
WORDS = [
    b"-1",
    b"0",
    b"999999999",
    b"99999999999999999999999999",
    b"1e300",
    b"1e309",
    b"-1e309",
    b"nan",
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
    b'""',
    b"{}",
    b"[]",
    b"[" * 3000,
    b'{"a":' * 3000,
    b",",
    b"\n",
    b"\r\n",
    b"\x00",
    b"\xff\xfe",
    b'"',
    b"../../etc/passwd",
    b"\x1b[31m",
    b"'; DROP TABLE",
    b"2024-02-30T25:61:61Z",
    b"0001-01-01",
    b"9999-12-31T23:59:59Z",
    b"\xf0\x9f\x98\x80",
    b"a" * 5000,
]
LARGEST = 2**20  # bytes of an input that is made


def mutated(name: str, seeds: Sequence[bytes]) -> bytes:
    """One input: a good one with one to eight changes; in one case of thirty nothing but noise."""
    draw = random.Random(name)
    if draw.random() < 1 / 30:
        return draw.randbytes(draw.choice([0, 1, 8, 100, 5000]))
    content = bytearray(draw.choice(seeds))
    for _ in range(draw.choice([1, 1, 1, 2, 3, 8])):
        content = _changed(content, draw, seeds)
    return bytes(content[:LARGEST])


def _changed(content: bytearray, draw: random.Random, seeds: Sequence[bytes]) -> bytearray:
    at = draw.randrange(len(content) + 1)
    end = min(len(content), at + draw.choice([1, 2, 4, 16, 200]))
    kind = draw.randrange(9)
    if kind == 0 and content:  # a bit
        n = draw.randrange(len(content))
        content[n] ^= 1 << draw.randrange(8)
    elif kind == 1:  # some bytes
        content[at:end] = draw.randbytes(end - at)
    elif kind == 2:  # something is missing
        del content[at:end]
    elif kind == 3:  # the rest is missing
        del content[at:]
    elif kind == 4:  # something is there twice
        content[at:at] = content[at:end] * draw.choice([1, 2, 50])
    elif kind == 5:
        content[at:at] = draw.choice(WORDS)
    elif kind == 6:
        content[at:end] = draw.choice(WORDS)
    elif kind == 7:  # a number becomes another
        places = [n for n, byte in enumerate(content) if 48 <= byte <= 57]
        if places:
            n = draw.choice(places)
            stop = n
            while stop < len(content) and 48 <= content[stop] <= 57:
                stop += 1
            content[n:stop] = draw.choice(WORDS[:9])
    else:  # the beginning of one, the end of another
        other = draw.choice(seeds)
        content[at:] = other[draw.randrange(len(other) + 1) :]
    return content
