# SPDX-License-Identifier: Apache-2.0
"""Notes that somebody made up harm nobody who reads them."""

from tests.hostile import notes


def test_whatever_a_note_says_its_reader_gets_a_value_or_an_error_in_time() -> None:
    found = notes.run(3, 1)
    assert found["problems"] == []
    assert found["notes"] > 150
