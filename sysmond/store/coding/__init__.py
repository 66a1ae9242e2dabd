# SPDX-License-Identifier: Apache-2.0
"""Numbers in few bytes, and back; rows into buckets. Arrays alone: no file, no ring.

Comes in: int64. Goes out: codes in the fewest bytes, with what is absent as a sentinel. Called by all of ``store``.

``integers`` narrows and takes differences, ``dense_coding`` and ``sparse_coding`` are the two forms that docs/format.md
specifies, and ``statistics`` makes buckets of rows, and longer buckets of these, without any loss.
"""
