# SPDX-License-Identifier: Apache-2.0
"""Writes what a package installs beside the programs: their manual pages, and completion for bash, zsh and fish.

``make manuals`` puts them below ``build/share``, where each lies as it will below ``/usr/share``. They are made
when they are needed and not kept: argparse words them differently from one Python to the next.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from docs.generate import PROGRAMS, parser_of
from sysmond import __version__
from sysmond.machine.commandline import subparsers

HERE = Path(__file__).resolve().parent
COMPLETIONS = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/vendor-completions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
# What shells run for names that only a running recorder knows. Bash breaks words at some signs of a path, and replaces
# what is behind the last of them only, or from it on where it is an @.
PREAMBLES = {
    "bash": """\
_sysmond_complete() {
  local line=${COMP_LINE:0:COMP_POINT} word before="" name user=""
  word=${line##*[[:space:]]}
  [[ " $line " == *" --user "* ]] && user=--user
  local breaks=${COMP_WORDBREAKS//[^@:=]/}
  [[ -n $breaks && $word == *["$breaks"]* ]] && before=${word%"${word##*["$breaks"]}"}
  before=${before%@}
  while IFS= read -r name; do printf '%s\\n' "${name#"$before"}"; done < <(
    sysmonctl complete $user "$1" -- "$word" 2>/dev/null)
}
_sysmond_complete_probes() { _sysmond_complete probes; }
_sysmond_complete_paths() { _sysmond_complete paths; }
""",
    "zsh": """\
_sysmond_complete() {
  local -a names
  names=("${(@f)$(sysmonctl complete ${${(z)BUFFER}[(r)--user]} $1 -- "$PREFIX" 2>/dev/null)}")
  compadd -- ${names:#}
}
_sysmond_complete_probes() { _sysmond_complete probes }
_sysmond_complete_paths() { _sysmond_complete paths }
""",
    "fish": """\
function _sysmond_complete
  set -l user
  contains -- --user (commandline -opc); and set user --user
  sysmonctl complete $user $argv[1] -- (commandline -ct) 2>/dev/null
end
""",
}
# By the metavar of a positional argument.
RECORDED = {"NAME": "probes", "METRIC": "paths", "PATH": "paths"}


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
    for positional in _positionals(parser):
        if (kind := RECORDED.get(str(positional.metavar))) is not None:
            function = f"_sysmond_complete_{kind}"
            commands = {"bash": function, "zsh": function, "fish": f"(_sysmond_complete {kind})"}
            vars(positional)["complete"] = commands  # Where shtab looks for it.
    made = {
        name.format(program): shtab.complete(parser, shell=shell, preamble=PREAMBLES[shell])
        for shell, name in shells.items()
    }
    if zsh := made.get(COMPLETIONS["zsh"].format(program)):  # What may be repeated is not the last word for shtab only.
        made[COMPLETIONS["zsh"].format(program)] = re.sub(r'"\(\*\):(?!:)', '"*:', zsh)
    return {f"man/man1/{program}.1": manual(program, parser), **made}


def _positionals(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The positional arguments of a program and of its commands."""
    for each in (parser, *(command for _, command in subparsers(parser))):
        yield from (action for action in each._actions if not action.option_strings)  # noqa: SLF001  argparse has no list


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
        "date": _date(),
    }
    # At the start of a line an apostrophe is a request to troff.
    return re.sub("^'", r"\\&'", str(Manpage(parser, _data=facts)), flags=re.MULTILINE)


def _date() -> str:
    """The day of the sources, in every time zone the same; the library's own is that of the zone."""
    epoch_s = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    return datetime.fromtimestamp(epoch_s, UTC).date().isoformat()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else HERE.parent / "build" / "share"))
