# SPDX-License-Identifier: Apache-2.0
"""Command lines, as all programs have them: what is wrong is one line, and pins and marks are spelled alike."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Any, NoReturn

from sysmond.errors import UsageError, expected, nearest

# argparse words this differently from one Python to the next, but the wrong word is always quoted first.
_WRONG_CHOICE = re.compile(r"argument (?P<what>.+?): invalid choice: '(?P<word>.*?)'")
_COMMAND = "COMMAND"
_WRONG_NUMBER = re.compile(r"argument (.+?): invalid (int|float) value: (.*)", re.DOTALL)
_NO_VALUE = re.compile(r"argument (.+?): expected (?:one|at least one) argument$")
_REQUIRED = "the following arguments are required: "


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with what comes nearest. What begins with ``-`` and a digit is a time.

    ``without_command``: what else to say where a command is not known.
    """

    without_command = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401  as argparse has them
        super().__init__(*arguments, **options)
        self._negative_number_matcher = re.compile(r"^-\d")

        self._words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        """Remember the words, to speak of a mistake in them."""
        self._words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """:raises UsageError: always."""
        if message.startswith("unrecognized arguments:"):
            words = message.split()[2:]
            self.refuse_unknown(words)
            refuse_unquoted(words)
            raise UsageError(f"{words[0]!r}: one argument too many; '{self._asked()} --help' says what is expected")
        if match := _WRONG_CHOICE.match(message):
            what, word, known = match["what"], match["word"], self._known(match["what"])
            said = f"{what} {word!r}: not known"
            if what == _COMMAND or what.islower():
                said = f"there is no {what.lower()} {word!r}"
            instead = self.without_command if what == _COMMAND else ""
            raise UsageError(f"{said}{nearest(word, known, expected(known))}{instead}")
        if match := _WRONG_NUMBER.match(message):
            what, kind, word = match.groups()
            raise UsageError(f"{what} {word}: expected a {'whole ' * (kind == 'int')}number")
        if message.startswith(_REQUIRED):
            self.refuse_misspelled(self._words)
            names = message.removeprefix(_REQUIRED).split(", ")
            form = "" if names == [_COMMAND] else f"; expected {self._form()!r}"
            raise UsageError(f"missing: {', '.join(self._described(names))}{form}")
        if (match := _NO_VALUE.match(message)) and (option := self._spelled(match[1])):
            raise UsageError(f"{match[1]}: has no value; expected {option}")
        raise UsageError(message.removeprefix("argument "))

    def _asked(self) -> str:
        """The program, with the command of it that is asked for."""
        commands = dict(subparsers(self))
        command = next((word for word in self._words if word in commands), "")
        return commands[command].prog if command else self.prog

    def _form(self) -> str:
        """The shortest command line that is right: what has to be there."""
        words = [self.prog]
        for action in self._actions:
            metavar = action.metavar if isinstance(action.metavar, str) else action.dest
            if action.required:
                words.append(f"{action.option_strings[0]} {metavar}" if action.option_strings else metavar)
        return " ".join(words)

    def _spelled(self, name: str) -> str:
        """How an option is written with its value: ``--from=TIME``; nothing for what is none, or takes none."""
        action = next((one for one in self._actions if name == "/".join(one.option_strings)), None)
        if action is None or not isinstance(action.metavar, str):
            return ""
        option = next((one for one in action.option_strings if one.startswith("--")), action.option_strings[0])
        return f"{option}={action.metavar}"

    def _described(self, names: Iterable[str]) -> Iterator[str]:
        """Arguments that are missing, each with its choices, or else with what it is."""
        left = list(self._actions)
        for name in names:
            spelled = ({one.metavar, one.dest, "/".join(one.option_strings)} for one in left)
            place = next((place for place, names_there in enumerate(spelled) if name in names_there), None)
            action = left.pop(place) if place is not None else None
            if action is not None and list(action.choices or ()) == [name]:  # A word that may be left out.
                continue
            said = ", ".join(map(str, action.choices or ())) or action.help if action else ""
            yield f"{name} ({said})" if said else name

    def refuse_unknown(self, words: list[str]) -> None:
        """Refuse the first option among words that nobody knows.

        :raises UsageError: naming those that come nearest.
        """
        for word in words:
            if word.startswith("-"):
                option = word.partition("=")[0]
                known = f"; '{self._asked()} --help' lists the options"
                raise UsageError(f"unknown option {option!r}{nearest(option, self._option_string_actions) or known}")

    def refuse_misspelled(self, words: Sequence[str]) -> None:
        """Refuse an option that neither this program nor a command of it knows: what follows it is no command.

        :raises UsageError: naming those that come nearest.
        """
        self._words = words
        of_commands = (command._option_string_actions for _, command in subparsers(self))  # noqa: SLF001  as there
        known = {*self._option_string_actions, *chain.from_iterable(of_commands)}
        options = [word for word in takewhile(lambda word: word != "--", words) if word.startswith("--")]
        self.refuse_unknown([word for word in options if word.partition("=")[0] not in known])

    def own_options(self) -> frozenset[str]:
        """The options of this program itself, as they are spelled."""
        return frozenset(self._option_string_actions)

    def _known(self, what: str) -> list[str]:
        named = (action for action in self._actions if what in {action.metavar, action.dest})
        return [str(choice) for action in named for choice in action.choices or ()]


def refuse_unquoted(words: Sequence[str]) -> None:
    """Refuse a time that the shell took apart: ``--from 10 minutes ago``.

    :raises UsageError: where the last word of one is there alone.
    """
    if "ago" in words:
        raise UsageError("'ago': a time of several words needs quotes, such as --from='10 minutes ago'")


def subparsers(made: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The commands of a parser, by name."""
    for action in made._actions:  # noqa: SLF001  argparse offers no other list of what it was told
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  as above
            yield from action.choices.items()


def add_remembering(command: Callable[[str, str], Parser]) -> None:
    """Add the commands by which people keep what happened: ``mark``, ``pin``, ``unpin``.

    ``command``: makes the parser of a command of that name, which does what the second text says.
    """
    mark = command("mark", "put a mark into the recording")
    mark.add_argument("text", metavar="TEXT", nargs="+", help="a line that says what happened")
    mark.add_argument(
        "--pin",
        action="store_true",
        help="also pin the five minutes before and after it, and read threads more often for 30 s",
    )
    pin = command("pin", "keep a span of time as it was recorded, whatever else is removed")
    pin.add_argument("start", metavar="FROM", help="start of the span, such as -10min or 14:30")
    pin.add_argument("end", metavar="TO", help="end of the span, such as now; not included")
    pin.add_argument("--why", metavar="TEXT", default="", help="what happened then")
    unpin = command("unpin", "undo pins: those spans are removed when they are old")
    unpin.add_argument("at", metavar="T", nargs="?", help="a moment: unpin the spans that contain it")
    unpin.add_argument("--all", action="store_true", help="unpin everything")


def spelled_mark(text: str, *, is_pinned: bool) -> str:
    """Say that a moment was marked."""
    return f"marked {text!r}" + ("; five minutes before and after it are pinned" if is_pinned else "")
