# SPDX-License-Identifier: Apache-2.0
"""The bytes of a ring: its header, its frames and their payloads, as ``docs/format.md`` has them.

Standard library only: the real-time sampler writes these.
"""

import json
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from sysmond.base.clock import Relation
from sysmond.base.model import ABSENT, Cause, Metric, Semantics, Sensitivity, Table, packing_of
from sysmond.errors import CorruptError, ForeignError
from sysmond.machine import note

MAGIC = b"SYSMRING"
VERSION = 1
# Versions that readers accept: after an upgrade, rings of the version before are sealed. A new one is added here.
VERSIONS_READ = (VERSION,)
HEADER_BYTES = 4096
RING_BYTES_MIN = 64 * 1024
SUFFIX = ".ring"

# magic, version, header bytes, capacity, boot, writer, sensitivity, pid, start
HEADER = Struct("=8sIIQ32s16s16sqq")
# Live words of the header, as indexes of 8-byte words; each is stored in one machine instruction.
HEAD, TAIL, CLOSED, MARK, DROPPED = range(32, 37)

# The header stands twice: the copy is so many bytes and words after the first, in another sector.
MIRROR_BYTES = 2048
MIRROR = MIRROR_BYTES // 8
# The copy's value of ``closed``: no flipped bit makes it of another word.
CLOSED_MIRRORED = int.from_bytes(b"in order", "little")

# A frame opens with its length, and the CRC-32 of what follows: kind, length of the payload modulo 8, id, logical
# offset, tick, payload.
START, REST = Struct("=II"), Struct("=HHIQq")
OPENING = Struct(START.format + REST.format[1:])
OPENING_FIELDS = ("length", "crc", "kind", "remainder", "ident", "offset", "tick_ns")
CRC_START = START.size
FRAME_BYTES = OPENING.size
CLOCK = Struct("=qqq")
U32 = Struct("=I")
# number of records, flags, records that were lost, records that exist
RECORDS_HEAD = Struct("=IIQQ")
# Flags of records: the reading is full; more frames of the same reading follow.
FULL, MORE = 1, 2
_INSTANCES = Struct("=II")
I64 = Struct("=q")

DETAIL_BYTES_MAX = 200
TEXT_BYTES_MAX = 4096
EVENT_BYTES_MAX = 1024
# Of an event with more than a line: detail, known_from, happened.
EVENT_DETAIL_BYTES_MAX = 2048
EVENT_FIELDS_MORE = 3
TEXTS_MAX = 1024
# So many declarations a reader has decoded at once: rings repeat them, and a screen reads rings every second.
_LAYOUTS_DECODED_MAX = 256
# Half of 64 bits, so that the difference of any two values fits as well; larger ones are a kernel's "no limit".
VALUE_MAX = 2**62 - 1


# Kinds of frames. Plain integers: comparing with an IntEnum takes longer than all other work on a frame.
PAD, LAYOUT, NAMES, ROWS, ABSENCE, TEXT, RELATION, EVENT, RECORDS = range(9)
# Frames that explain others, and frames that need them.
EXPLAINING, EXPLAINED = frozenset((LAYOUT, NAMES, TEXT, RELATION)), frozenset((ROWS, ABSENCE, EVENT, RECORDS))


class Layout(NamedTuple):
    """A table as a ring or file carries it: its columns and how often it is read."""

    table: Table
    interval_ns: int


class Identity(NamedTuple):
    """Who wrote a ring: boot, part, class, process, and when it started."""

    boot: str
    writer: str
    sensitivity: Sensitivity
    pid: int
    started_ns: int


def frame_bytes(payload_bytes: int) -> int:
    """The length of the frame of a payload."""
    return (FRAME_BYTES + payload_bytes + 7) & ~7


def cut(encoded: bytes, limit: int) -> bytes:
    """Shorten UTF-8 to whole characters, without NULs at the end, which no file keeps."""
    if len(encoded) > limit:
        for _ in range(3):  # A character has at most three bytes that continue it.
            if encoded[limit] & 0xC0 != 0x80:  # noqa: PLR2004  the mark of such a byte
                break
            limit -= 1
    return encoded[:limit].rstrip(b"\0")


def encode_header(identity: Identity, capacity: int) -> bytes:
    """Encode the part of the header that never changes, with its checksum."""
    header = HEADER.pack(
        MAGIC,
        VERSION,
        HEADER_BYTES,
        capacity,
        identity.boot.encode(),
        identity.writer.encode(),
        identity.sensitivity.encode(),
        identity.pid,
        identity.started_ns,
    )
    return header + U32.pack(crc32(header))


def read_header(header: bytes, path: str) -> tuple[Identity, int]:
    """Read who wrote a ring, and its capacity.

    :raises ForeignError: where it is no ring of this version. :raises CorruptError: where it is damaged, twice.
    """
    if len(header) >= HEADER_BYTES and not _is_whole(header, 0) and is_mirrored(header):
        header = header[MIRROR_BYTES:]
    elif len(header) < HEADER_BYTES or header[: len(MAGIC)] != MAGIC:
        raise ForeignError(f"{path}: not a ring")
    _, version, header_bytes, capacity, boot, writer, sensitivity, pid, started_ns = HEADER.unpack_from(header)
    if version not in VERSIONS_READ or header_bytes != HEADER_BYTES:
        raise ForeignError(
            f"{path}: a ring of version {version}; this program reads {', '.join(map(str, VERSIONS_READ))}"
        )
    if not _is_whole(header, 0):
        raise CorruptError(f"{path}: its header is damaged")
    try:
        boot_id, part, of_class = (field.rstrip(b"\0").decode() for field in (boot, writer, sensitivity))
        identity = Identity(boot_id, part, Sensitivity(of_class), pid, started_ns)
    except ValueError as problem:
        raise CorruptError(f"{path}: its header makes no sense: {problem}") from problem
    if capacity < RING_BYTES_MIN or capacity & 7:
        raise CorruptError(f"{path}: its header makes no sense: a capacity of {capacity} bytes")
    return identity, capacity


def is_mirrored(header: bytes) -> bool:
    """Whether a header has its second copy; rings of earlier releases have none."""
    return _is_whole(header, MIRROR_BYTES)


def _is_whole(header: bytes, at: int) -> bool:
    (said,) = U32.unpack_from(header, at + HEADER.size)
    return bool(said == crc32(header[at : at + HEADER.size]))


def text_id(encoded: bytes) -> int:
    """FNV-1a over 64 bits, less the upper two: hashlib would cost the sampler megabytes of locked memory."""
    value = 0xCBF29CE484222325
    for byte in encoded:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value & VALUE_MAX


def encode_layout(layout: Layout) -> bytes:
    """Encode a layout as the JSON of a layout frame."""
    table = layout.table
    spelled = [layout.interval_ns, table.name, table.per, table.doc, [list(metric) for metric in table.metrics]]
    return json.dumps([*spelled, table.packing] if table.packing else spelled, separators=(",", ":")).encode()


@lru_cache(_LAYOUTS_DECODED_MAX)
def decode_layout(payload: bytes) -> Layout:
    """Decode the payload of a layout frame.

    :raises ValueError: where it cannot be decoded; so do the functions below.
    """
    return note.parse(payload, _layout, "a layout")


def _layout(fields: list[Any]) -> Layout:
    interval_ns, name, per, doc, metrics, *packed = fields
    if type(interval_ns) is not int or interval_ns <= 0:
        raise ValueError(f"an interval of {interval_ns!r} ns")
    columns = tuple(
        Metric(column, unit, Semantics(semantics), said, scale, origin)
        for column, unit, semantics, said, scale, origin in metrics
    )
    texts = [name, per, doc, *(field for one in columns for field in (one.name, one.unit, one.doc, one.origin))]
    if not all(type(text) is str for text in texts) or not all(type(one.scale) is int for one in columns):
        raise ValueError("a declaration with other than texts and whole numbers")
    return Layout(Table(name, columns, per, doc, packing_of(*packed or [None])), interval_ns)


def encode_instances(table: int, names: tuple[str, ...]) -> bytes:
    """Encode the names of instances as the payload of an instances frame."""
    return _INSTANCES.pack(table, len(names)) + "\0".join(names).encode("utf-8", "surrogateescape")


def decode_instances(payload: bytes) -> tuple[int, tuple[str, ...]]:
    """Decode the payload of an instances frame: the layout they belong to, and their names."""
    table, count = _INSTANCES.unpack_from(payload)
    names = payload[_INSTANCES.size :].decode("utf-8", "surrogateescape").split("\0") if count else []
    if len(names) != count:
        raise ValueError(f"{len(names)} names of {count} instances")
    return table, tuple(names)


def decode_absence(payload: bytes) -> tuple[Cause, str]:
    """Decode the payload of an absence frame."""
    cause, _, detail = payload.partition(b"\0")
    return Cause(cause.decode()), detail.decode("utf-8", "replace")


def decode_text(payload: bytes) -> tuple[int, str]:
    """Decode the payload of a text frame: its id and the text."""
    return I64.unpack_from(payload)[0], payload[I64.size :].decode("utf-8", "surrogateescape")


def decode_clock(payload: bytes) -> Relation:
    """Decode the payload of a clock frame."""
    return Relation(*CLOCK.unpack(payload))


def encode_event(
    kind: str, subject: str, text: str, detail: str = "", happened_ns: int = ABSENT, known_from: str = ""
) -> bytes:
    """Encode an event as the payload of its frame: none of these has a NUL; what is too long is cut."""
    sized = [(kind, DETAIL_BYTES_MAX), (subject, DETAIL_BYTES_MAX), (text, EVENT_BYTES_MAX)]
    if detail or known_from or happened_ns != ABSENT:
        happened = "" if happened_ns == ABSENT else str(happened_ns)
        sized += [(detail, EVENT_DETAIL_BYTES_MAX), (known_from, DETAIL_BYTES_MAX), (happened, DETAIL_BYTES_MAX)]
    return b"\0".join(cut(part.encode("utf-8", "surrogateescape"), limit) for part, limit in sized)


def decode_event(payload: bytes) -> tuple[str, str, str, str, int, str]:
    """Decode the payload of an event frame: kind, subject, text, detail, when it happened in UTC, who told of it."""
    kind, subject, text, *more = payload.decode("utf-8", "surrogateescape").split("\0")
    if len(more) != EVENT_FIELDS_MORE:  # Texts of before may have NULs.
        return kind, subject, "\0".join([text, *more]), "", ABSENT, ""
    detail, known_from, happened = more
    return kind, subject, text, detail, int(happened) if happened else ABSENT, known_from
