# SPDX-License-Identifier: Apache-2.0
"""Freezes anew: ``python tests/golden/freeze.py`` writes what is made now over what is frozen, and names what changed.

Whoever changes a meaning on purpose runs it, reads the difference, and says in the commit what changed.
"""

import gzip
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from tests.golden import asking, frozen, inputs
from tests.golden.archives import ARCHIVES
from tests.golden.questions import QUESTIONS

FOLDER = Path(__file__).parent
FILES, LIBRARIES, DECODED = FOLDER / "files", FOLDER / "libraries.json", FOLDER / "decoded.json"
ANSWERS, LISTED = FOLDER / "answers", "what-there-is"


def put(path: Path, content: bytes) -> None:
    """Write a file where it is not as it was, and say so."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        print(path.relative_to(FOLDER))


def put_json(path: Path, told: object) -> None:
    """The same of JSON."""
    put(path, frozen.spelled(told).encode() + b"\n")


def remove_others(folder: Path, kept: set[str]) -> None:
    """Take away what is frozen of what there is no more."""
    for name in frozen.names(folder, (".h5", ".gz", ".json")) - kept:
        (folder / name).unlink()
        print(f"{name}: removed")


def files() -> None:
    """Freeze the encoded files, and what readers make of them."""
    kept: dict[str, bytes] = {}
    for name, image in inputs.images().items():
        is_ring = name.endswith(".ring")
        kept[f"{name}.gz" if is_ring else name] = gzip.compress(image, mtime=0) if is_ring else image
    for name, content in kept.items():
        put(FILES / name, content)
    remove_others(FILES, set(kept))
    put_json(LIBRARIES, frozen.libraries())
    put_json(DECODED, {name: frozen.decoded(FILES / name) for name in sorted(kept) if name.endswith(".h5")})


def answers() -> None:
    """Freeze what the archives answer."""
    kept = set()
    for name, build in ARCHIVES.items():
        with asking.made(build) as asked:
            told = {question.name: asking.answers(asked, question) for question in QUESTIONS[name]}
            told[LISTED] = asking.listed(asked)
        for question, answer in told.items():
            kept.add(f"{name}/{question}.json")
            put_json(ANSWERS / name / f"{question}.json", answer)
    remove_others(ANSWERS, kept)


if __name__ == "__main__":
    files()
    answers()
