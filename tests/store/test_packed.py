# SPDX-License-Identifier: Apache-2.0
"""Chunks are unpacked as HDF5 does it, and only where they are whole."""

import random
import zlib
from io import BytesIO
from typing import Any

import h5py
import numpy as np
import pytest

from sysmond.store.files import packed

FILTERS: dict[str, Any] = {"compression": "gzip", "shuffle": True, "fletcher32": True}
KINDS = ("u1", "<i2", "<i4", "<i8", "S5", "S29", [("one", "<i8"), ("two", "S3"), ("three", "u1")])


def stored(content: bytes, kind: Any, count: int) -> bytes:
    """The chunk that HDF5 makes of this."""
    with h5py.File(BytesIO(), "w") as file:
        made = file.create_dataset("x", data=np.frombuffer(content, kind, count), chunks=(count,), **FILTERS)
        file.flush()
        mask, chunk = made.id.read_direct_chunk((0,))
    assert not mask
    found: bytes = chunk
    return found


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("count", [1, 2, 7, 60, 1023, 1024, 40_000])
@pytest.mark.parametrize("is_noise", [True, False])
def test_what_hdf5_packed_is_unpacked(kind: Any, count: int, *, is_noise: bool) -> None:
    size = np.dtype(kind).itemsize
    content = random.Random(count).randbytes(size * count) if is_noise else bytes(range(7)) * (size * count // 7 + 1)
    chunk = stored(content, kind, count)
    assert bytes(packed.unpack(chunk, size, count)) == content[: size * count]
    assert len(chunk) <= packed.stored_max(size * count, 1)


def test_the_checksum_is_that_of_hdf5_also_where_sums_wrap() -> None:
    for length in (1, 2, 255, 256, 257, 258, 65_535, 65_536, 65_538, 300_001):
        for content in (b"\xff" * length, bytes(length), random.Random(length).randbytes(length)):
            with h5py.File(BytesIO(), "w") as file:
                data = np.frombuffer(content, "u1")
                made = file.create_dataset("x", data=data, chunks=(length,), fletcher32=True)
                file.flush()
                _, chunk = made.id.read_direct_chunk((0,))
            assert packed.fletcher32(content).to_bytes(4, "little") == chunk[-4:], length


@pytest.mark.parametrize(
    "content", [b"", bytes(79), bytes(81), bytes(10**6)], ids=["empty", "short", "long", "very long"]
)
def test_what_has_another_length_is_refused(content: bytes) -> None:
    body = zlib.compress(content)
    with pytest.raises(ValueError, match="not of 80 bytes"):
        packed.unpack(body + packed.fletcher32(body).to_bytes(4, "little"), 8, 10)


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    chunk = stored(bytes(range(240)), "<i8", 30)
    for bit in range(len(chunk) * 8):
        damaged = bytearray(chunk)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="checksum is wrong"):
            packed.unpack(bytes(damaged), 8, 30)
    for length in range(len(chunk)):
        with pytest.raises(ValueError, match="a chunk"):
            packed.unpack(chunk[:length], 8, 30)


def test_what_ends_in_the_middle_is_refused_whatever_its_checksum_says() -> None:
    body = zlib.compress(random.Random(1).randbytes(240))[:-6]
    with pytest.raises(ValueError, match="not of 240 bytes"):
        packed.unpack(body + packed.fletcher32(body).to_bytes(4, "little"), 8, 30)
    body = b"no stream at all"
    with pytest.raises(ValueError, match="cannot be unpacked"):
        packed.unpack(body + packed.fletcher32(body).to_bytes(4, "little"), 8, 30)
