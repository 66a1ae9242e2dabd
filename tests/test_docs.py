# SPDX-License-Identifier: Apache-2.0
"""The documents agree with the code: generated ones are current, links lead somewhere, words are used."""

import difflib
import re
from pathlib import Path

import pytest

from docs import generate

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENTS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]

FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
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
