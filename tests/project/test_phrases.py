# SPDX-License-Identifier: Apache-2.0
"""What people read says things the way people say them: none of these phrases stands in a guide, a help or a metric."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# The command lines, metrics, events and interfaces are in docs/, written from the code.
READ = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "etc/sysmond.yaml")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "dbus").iterdir()),
]
# Translated word by word, old, or of lawyers; each has a plain way to be said.
PHRASES = (
    """
may everything|that did.|to be had|in its place|thereof|it may be that|what is to be|such a one|as of now
is no longer there|as the case may be|for the time being|is of use|that is why|be that as|in so far|insofar
on the other hand|in the meantime|amidst|whereof|wherein|whereby|thereby|therein|thereupon|whereupon|herein|hereby
hitherto|heretofore|notwithstanding|oftener|seldomer|apiece|forthwith|aforementioned|the aforesaid|what for
it holds that|as it were|of it all|who asks for|comes about|in want of|for want of|gives way|has no part|of late
nothing but what|all what|the same goes|, as Li-ion|, as ext4|, as schedutil|lets itself|makes itself|is possible to
respectively|e.g.|i.e.|aka|utilize|leverage|in order to|prior to|subsequent to|in the event that|due to the fact
it should be noted|please note|needless to say|basically|simply put|at this point in time|and/or|going forward
informations|softwares|datas|allows to|permits to|enables to|we recommend to|since when|like following
stand beside|so many times|is told by|came about|in the place of|does as well|who has no|for who|be it to|overrules
see and steer|are asked for|ever more seldom|more seldom|sees fit|, as eth0|and the like, as|of what it can
could not be had|as every reader knows|tells of trouble|those that tell of|where it hangs below|it is left to him
come or went|came or went|went away|in which nobody recorded|is no number|is no object|is no file|is no path|is no name
is no series|is no value|is no hook|is no regular|held against it|comes twice|is gone again|is not there with
""".replace("\n", "|")
    .strip("|")
    .split("|")
)


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_said_as_nobody_says_it(path: Path) -> None:
    text = path.read_text()
    found = [phrase for phrase in PHRASES if re.search(rf"(?<![\w`]){re.escape(phrase)}(?![\w`])", text)]
    assert found == []


def test_the_list_is_long_and_has_no_phrase_twice() -> None:
    assert len(PHRASES) >= 60
    assert len(set(PHRASES)) == len(PHRASES)
