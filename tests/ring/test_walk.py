# SPDX-License-Identifier: Apache-2.0
"""The walk over frames: it gives whole ones only, and finds the next one behind what is none."""

from zlib import crc32

import pytest

from sysmond.ring.frame import FRAME_BYTES, REST, ROWS, START, TEXT, frame_bytes
from sysmond.ring.walk import end_of, frame_at, next_whole, whole_frames

BEGIN = 4096


def frame(place: int, payload: bytes, kind: int = ROWS, length: int | None = None, cut: int = 0) -> bytes:
    """A frame as it lies at a place; ``cut``: so many bytes at its end are not there, and the checksum knows."""
    padded = payload + bytes(-len(payload) & 7)
    rest = REST.pack(kind, len(payload) & 7, 7, BEGIN + place, 10**9) + padded[: len(padded) - cut]
    return START.pack(frame_bytes(len(payload)) if length is None else length, crc32(rest)) + rest


def test_frames_that_follow_each_other_are_given_with_where_their_payload_ends() -> None:
    image = frame(0, b"12345")
    image += frame(len(image), b"12345678", TEXT)
    walked = list(whole_frames(image, BEGIN))
    assert walked == [(0, FRAME_BYTES + 5, ROWS, 7, 10**9), (40, 40 + FRAME_BYTES + 8, TEXT, 7, 10**9)]
    assert [frame_at(image, place) for place, *_ in walked] == walked
    assert [end_of(stop) for _, stop, *_ in walked] == [40, 80]


@pytest.mark.parametrize(
    "broken",
    [
        frame(48, b"12345678"),
        frame(40, b"12345678", length=FRAME_BYTES - 8),
        frame(40, b"12345678", length=44),
        frame(40, b"12345678")[:-1] + b"9",
        frame(40, bytes(64), cut=40),
        b"",
    ],
    ids=["of another place", "too short", "of half words", "of another checksum", "cut short", "none"],
)
def test_the_walk_ends_at_what_is_no_whole_frame(broken: bytes) -> None:
    image = frame(0, b"") + bytes(8) + broken
    assert [place for place, *_ in whole_frames(image, BEGIN, 40)] == []
    behind = len(image)
    assert next_whole(image, BEGIN, 8) == behind
    assert next_whole(image + frame(behind, b"x"), BEGIN, 8) == behind


def test_what_lies_before_an_offset_is_checked_only_where_it_explains() -> None:
    damaged = [frame(0, b"1" * 8, kind)[:-1] + b"2" for kind in (ROWS, TEXT)]
    assert [len(list(whole_frames(image, BEGIN, since=BEGIN + 40))) for image in damaged] == [1, 0]
    assert [len(list(whole_frames(image, BEGIN, since=BEGIN + 39))) for image in damaged] == [0, 0]
