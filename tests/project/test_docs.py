# SPDX-License-Identifier: Apache-2.0
"""The documents agree with the code: generated ones are current, links lead somewhere, tests they name exist."""

import ast
import difflib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs import generate

REPOSITORY = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]

FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PROGRAM = re.compile(r"\b(?:tests|benchmarks)/[\w/]+\.py(?:::(\w+))?")
CHOICE = re.compile(r"pytest ([^`]*?) -k \"?([\w ]+)")
MODULE = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.py)`")
DEFINITION = re.compile(r"^\*\*([^*]+)\*\*:", re.MULTILINE)
# More words than these nobody learns before reading.
GLOSSARY_MAX = 45
ELSEWHERE = ("https://", "http://", "mailto:")


def name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


@pytest.mark.parametrize("document", generate.DOCUMENTS)
def test_a_generated_document_is_current(document: str) -> None:
    path = REPOSITORY / "docs" / document
    there = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    difference = "\n".join(
        difflib.unified_diff(there, generate.DOCUMENTS[document]().splitlines(), "there", "generated", lineterm="", n=0)
    )
    assert not difference, f"docs/{document}: 'make docs' brings it up to date\n{difference}"


def test_every_probe_of_ours_is_in_the_catalogue() -> None:
    files = {path.stem for path in (REPOSITORY / "probes").glob("[a-z]*.py")}
    offering = {name.rpartition(".")[2] for name, plugin in generate.own_plugins().items() if generate.offered(plugin)}
    assert files - offering == set(), "these offer no probe, or have no entry point in pyproject.toml"


def test_every_metric_says_what_it_is_and_where_it_comes_from() -> None:
    unsaid = [
        f"{probe.table.name}/{metric.name}"
        for probe in generate.catalogue()
        for metric in probe.table.metrics
        if not (metric.doc and metric.origin and probe.table.doc)
    ]
    assert unsaid == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    prose = FENCE.sub("", path.read_text(encoding="utf-8"))
    broken = [target for target in LINK.findall(prose) if not target.startswith(ELSEWHERE) and not leads(path, target)]
    assert broken == []


def leads(source: Path, target: str) -> bool:
    """Whether a link's file exists, and its heading in it."""
    file, _, anchor = target.partition("#")
    path = source.parent / file if file else source
    if not path.exists():
        return False
    return not anchor or anchor in anchors(path)


def anchors(path: Path) -> set[str]:
    """The headings of a document as links spell them: lower case, hyphens for spaces, no punctuation."""
    headings = HEADING.findall(FENCE.sub("", path.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_every_test_and_program_that_is_named_exists(path: Path) -> None:
    assert list(missing(path.read_text(encoding="utf-8"))) == []


def missing(text: str) -> Iterator[str]:
    """The programs, tests and choices of tests (``-k``) that a document names and that are not there."""
    for match in PROGRAM.finditer(text):
        program = match[0].partition("::")[0]
        if not (REPOSITORY / program).exists() or (match[1] and match[1] not in functions(program)):
            yield match[0]
    for files, words in CHOICE.findall(text):
        said = " ".join(" ".join(functions(file)) + chosen(file) for file in files.split()).lower()
        yield from (f"{files} -k {word}" for word in re.split(r" (?:or|and) ", words) if word.lower() not in said)


def functions(file: str) -> list[str]:
    return [node.name for node in ast.walk(parsed(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def chosen(file: str) -> str:
    """The texts in a test file that may be ids of its cases."""
    return " ".join(
        node.value for node in ast.walk(parsed(file)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        "`tests/test_nowhere.py`",
        "`tests/project/test_docs.py::test_nothing_of_that_name`",
        "`benchmarks/nowhere.py`",
        "`.venv/bin/pytest tests/project/test_style.py -k nothing_of_that_name`",
        '`.venv/bin/pytest tests/project/test_style.py -k "network or nothing_of_that_name"`',
    ],
)
def test_what_is_not_there_is_missed(text: str) -> None:
    assert list(missing(text)) != []


def test_what_make_test_leaves_to_check_all_is_in_the_table_of_both() -> None:
    shared = r"^from tests\.support\.order import .*\b(?:first|rounds)\b"
    moves = re.compile(rf"{shared}|\bpytest\.mark\.long\b", re.MULTILINE)
    moved = {path.name for path in (REPOSITORY / "tests").rglob("test_*.py") if moves.search(path.read_text("utf-8"))}
    said = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = said.split("| what | `make test` | `make check-all` |\n|---|---|---|\n")[1].split("\n\n")[0]
    assert {test for row in table.splitlines() for test in re.findall(r"\btest_\w+\.py", row.split("|")[1])} == moved


def test_every_promise_about_security_names_a_test() -> None:
    text = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8").partition("## What is promised")[2]
    rows = [line.strip("|").split("|") for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    promises = {promise.strip(): tests for promise, tests in rows[1:] if not promise.strip().startswith("**")}
    assert len(promises) > 20
    assert [promise for promise, tests in promises.items() if "::test_" not in tests] == []


def test_modules_that_the_architecture_names_are_there() -> None:
    named = MODULE.findall((REPOSITORY / "docs" / "architecture.md").read_text())
    assert len(named) > 40
    assert [each for each in named if not any((REPOSITORY / top / each).is_file() for top in ("", "sysmond"))] == []


def test_the_glossary_has_few_words_and_each_once() -> None:
    words = DEFINITION.findall((REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8"))
    assert words
    assert len(words) == len(set(words)) <= GLOSSARY_MAX
