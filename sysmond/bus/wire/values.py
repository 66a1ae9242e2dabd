# SPDX-License-Identifier: Apache-2.0
"""Values as the bus part gives and takes them: a value with its type, a text that can be carried.

The library has a type of its own for the first, which ``adapter`` alone makes of it, and it of that: who is answered
without a bus loads no library.
"""

from typing import Any, NamedTuple

# Whoever wants more asks for a descriptor.
ANSWER_BYTES_MAX = 256 * 1024


class Variant(NamedTuple):
    """A value that says of which type it is, as a signature of D-Bus."""

    signature: str
    value: Any


def clean(text: str) -> str:
    """Make any text one that D-Bus carries: what is not Unicode, as in names of files, becomes a question mark."""
    return text.encode("utf-8", "replace").decode().replace("\0", "?")
