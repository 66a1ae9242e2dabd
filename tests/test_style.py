# SPDX-License-Identifier: Apache-2.0
"""The yardsticks of the project, measured: openings, lengths, words, and who speaks to which library."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PRODUCT = ("sysmond", "sysmon_tools", "probes", "docs")

SPDX = "# SPDX-License-Identifier: Apache-2.0"
FUNCTION_LINES_MAX = 70
# Each of these says nothing about what a thing is or does.
EMPTY_WORDS = {"manager", "handler", "helper", "helpers", "data", "info", "util", "utils", "misc"}
# Spoken in one file each, so that one file changes when the library does.
ONE_FILE_LIBRARIES = {"dbus_fast", "h5py", "pyudev", "textual", "yaml"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


every_source = pytest.mark.parametrize("path", sources(*PRODUCT, "tests", "benchmarks"), ids=name)
every_product_source = pytest.mark.parametrize("path", sources(*PRODUCT), ids=name)


@every_source
def test_a_module_opens_with_its_licence_and_a_sentence(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines()[:2] if not line.startswith("#!")]
    assert lines[:1] == [SPDX]
    docstring = ast.get_docstring(parse(path)) or ""
    opening = docstring.partition("\n\n")[0]
    assert re.match(r"\w.*[.:]$", opening, re.DOTALL), f"opens with {opening!r}, not with a sentence"


@every_product_source
def test_a_function_fits_one_screen(path: Path) -> None:
    lengths = {
        node.name: (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(parse(path))
        if isinstance(node, Function)
    }
    assert {function: lines for function, lines in lengths.items() if lines > FUNCTION_LINES_MAX} == {}


@every_source
def test_no_name_is_an_empty_word(path: Path) -> None:
    names = [path.stem]
    names += [node.name for node in ast.walk(parse(path)) if isinstance(node, Function | ast.ClassDef)]
    found = {name for name in names if EMPTY_WORDS & set(words(name))}
    if path.parts[-2] == "tests" or path.name.startswith("test_"):
        found = {name for name in found if not name.startswith("test_")}  # A test's name is a sentence.
    assert found == set()


def words(identifier: str) -> list[str]:
    """Split an identifier: ``HttpInfo`` and ``http_info`` are the same two words."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", identifier).lower().split("_")


def test_the_empty_words_are_found_in_both_spellings() -> None:
    assert words("DiskInfo") == ["disk", "info"]
    assert words("disk_info") == ["disk", "info"]


def test_a_foreign_library_is_spoken_in_one_file() -> None:
    speakers: defaultdict[str, set[str]] = defaultdict(set)
    for path in sources(*PRODUCT):
        for library in imported(parse(path)) & ONE_FILE_LIBRARIES:
            speakers[library].add(name(path))
    assert {library: files for library, files in speakers.items() if len(files) > 1} == {}


def imported(module: ast.Module) -> set[str]:
    packages: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            packages.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            packages.add(node.module.partition(".")[0])
    return packages
