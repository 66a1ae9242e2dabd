# SPDX-License-Identifier: Apache-2.0
"""What is suggested for a wrong word: what it means, else what it begins, else what is spelled nearly so."""

import argparse

import pytest

from sysmon_tools import ctl, extract, presets, sysmon
from sysmond.answers.rows.columns import offer
from sysmond.errors import nearest
from sysmond.synonyms import MEANT
from sysmond.tasks.tables import PROCESS
from tests.tools.test_presets import documented


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("usage", ["user", "steal", "busy"], "; did you mean busy?"),
        ("ram", ["process", "memory"], "; did you mean memory?"),
        ("--json", ["--version", "--format", "--since"], "; did you mean --format=json?"),
        ("--json", ["--version", "--json", "--format"], "; did you mean --json?"),
        ("disks", ["disk", "ksm", "qdisc"], "; did you mean disk?"),
        ("util", ["until", "utilisation_of_it"], "; did you mean utilisation_of_it?"),
        ("batery", ["memory", "battery"], "; did you mean battery?"),
        ("foo", ["boot", "now"], ""),
        ("oi", ["io", "policy"], "; did you mean io?"),
        ("rss_anom", ["rss", "pid"], "; did you mean rss?"),
        ("", ["cpu"], ""),
    ],
)
def test_meaning_comes_before_spelling(word: str, known: list[str], said: str) -> None:
    assert nearest(word, known) == said


def test_what_stands_before_a_word_is_said_with_it() -> None:
    assert nearest("usr", ["user"], "expected one", before="cpu/") == "; did you mean cpu/user? (expected one)"


def test_all_that_words_may_mean_is_there() -> None:
    tables_and_columns = {part for path in documented() for part in path.split("/")}
    known = tables_and_columns | set(offer(PROCESS).specs) | set(presets.PRESETS)
    for made in (extract.parser(), ctl.parser(), sysmon.parser()):
        known |= set(options_of(made))
    for word, names in MEANT.items():
        assert {name.partition("=")[0] for name in names} <= known, word


def options_of(made: argparse.ArgumentParser) -> list[str]:
    options = [*made._option_string_actions]
    for action in made._actions:
        if isinstance(action, argparse._SubParsersAction):
            options += [name for command in action.choices.values() for name in options_of(command)]
    return options
