# SPDX-License-Identifier: Apache-2.0
"""Writes what a package installs beside the programs: their manual pages, and completion for bash, zsh and fish.

``make manuals`` puts them below ``build/share``, where each lies as it will below ``/usr/share``. They are made
when they are needed and not kept: argparse words them differently from one Python to the next.
"""

import argparse
import re
import sys
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from docs.generate import PROGRAMS, parser_of
from sysmond import __version__

HERE = Path(__file__).resolve().parent
COMPLETIONS = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/vendor-completions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}


def main(folder: Path) -> int:
    """Write them below a folder."""
    for program, module in PROGRAMS:
        for name, content in files(program, parser_of(module)).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    print(f"{folder}: manual pages and completions of {', '.join(program for program, _ in PROGRAMS)}")
    return 0


def files(program: str, parser: argparse.ArgumentParser) -> dict[str, str]:
    """What a program has, by its path below ``/usr/share``."""
    # An older shtab (Debian 13) does not know fish.
    shells = {shell: name for shell, name in COMPLETIONS.items() if shell in shtab.SUPPORTED_SHELLS}
    made = {name.format(program): shtab.complete(parser, shell=shell) for shell, name in shells.items()}
    return {f"man/man1/{program}.1": manual(program, parser), **made}


def manual(program: str, parser: argparse.ArgumentParser) -> str:
    """Spell a manual page. Its date is that of the sources where SOURCE_DATE_EPOCH gives it."""
    parser.prog = program
    summary = (parser.description or "").strip().splitlines()[0]
    facts = {
        "prog": program,
        "project_name": "sysmond",
        "version": __version__,
        "description": summary.rstrip("."),
        "manual_title": "System monitoring",
    }
    # At the start of a line an apostrophe is a request to troff.
    return re.sub("^'", r"\\&'", str(Manpage(parser, _data=facts)), flags=re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else HERE.parent / "build" / "share"))
