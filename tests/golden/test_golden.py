# SPDX-License-Identifier: Apache-2.0
"""What is frozen in ``tests/golden`` is what comes of the same inputs now; docs/design/0007-rooms.md tells of it."""

import gzip
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.golden import asking, frozen, inputs
from tests.golden.asking import Asked, Question
from tests.golden.freeze import ANSWERS, DECODED, FILES, LIBRARIES, LISTED
from tests.golden.questions import QUESTIONS

HDF5 = sorted(frozen.names(FILES, (".h5",)))
RINGS = sorted(frozen.names(FILES, (".gz",)))


@pytest.fixture(scope="module")
def images() -> Mapping[str, bytes]:
    """All files, made now."""
    return inputs.images()


@pytest.fixture(scope="module")
def decoded() -> dict[str, Any]:
    """What readers made of each file when it was frozen."""
    found: dict[str, Any] = json.loads(DECODED.read_text(encoding="utf-8"))
    return found


def test_every_file_that_is_made_is_frozen(images: Mapping[str, bytes]) -> None:
    assert {name.removesuffix(".gz") for name in (*HDF5, *RINGS)} == set(images)


@pytest.mark.parametrize("name", HDF5)
def test_the_same_inputs_are_encoded_alike(images: Mapping[str, bytes], name: str) -> None:
    expected = (FILES / name).read_bytes()
    assert frozen.some(frozen.file_differences(expected, images[name]), name) == []


@pytest.mark.parametrize("name", HDF5)
def test_what_is_frozen_is_read_alike(decoded: dict[str, Any], name: str) -> None:
    assert frozen.some(frozen.differences(decoded[name], frozen.decoded(FILES / name)), name) == []


def test_the_same_libraries_write_the_same_bytes(images: Mapping[str, bytes]) -> None:
    named, ours = json.loads(LIBRARIES.read_text(encoding="utf-8")), frozen.libraries()
    if named != ours:
        pytest.skip(f"the files were written with {named}, these are {ours}")
    assert [name for name in HDF5 if (FILES / name).read_bytes() != images[name]] == []


@pytest.mark.skipif(sys.byteorder != "little", reason="rings are in the byte order of their machine")
@pytest.mark.parametrize("name", RINGS)
def test_the_same_rows_are_the_same_ring(images: Mapping[str, bytes], name: str) -> None:
    expected, found = gzip.decompress((FILES / name).read_bytes()), images[name.removesuffix(".gz")]
    assert len(found) == len(expected)
    assert next((at for at, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]), None) is None


def expected(archive: str, name: str) -> Any:
    """What was told when it was frozen."""
    return json.loads((ANSWERS / archive / f"{name}.json").read_text(encoding="utf-8"))


def test_every_question_is_frozen_and_there_are_enough() -> None:
    asked = {f"{archive}/{each.name}.json" for archive, questions in QUESTIONS.items() for each in questions}
    assert frozen.names(ANSWERS, (".json",)) == asked | {f"{archive}/{LISTED}.json" for archive in QUESTIONS}
    assert len(asked) >= 80


@pytest.mark.parametrize("archive", QUESTIONS)
def test_the_same_is_there(frozen_archive: Callable[[str], Asked], archive: str) -> None:
    found = asking.listed(frozen_archive(archive))
    assert frozen.some(frozen.differences(expected(archive, LISTED), found), archive) == []


@pytest.mark.parametrize(
    ("archive", "question"),
    [
        pytest.param(archive, each, id=f"{archive}-{each.name}", marks=[pytest.mark.long] if number % 6 else [])
        for archive, questions in QUESTIONS.items()
        for number, each in enumerate(questions)
    ],
)
def test_questions_are_answered_alike(frozen_archive: Callable[[str], Asked], archive: str, question: Question) -> None:
    found = asking.answers(frozen_archive(archive), question)
    assert frozen.some(frozen.differences(expected(archive, question.name), found), question.name) == []
