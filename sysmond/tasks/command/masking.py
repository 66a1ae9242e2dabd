# SPDX-License-Identifier: Apache-2.0
r"""Command lines as one line of text, with what looks like a secret masked. Pure.

Arguments are spelled as a shell would read them: quoted where they have to be, and as ``$'…'`` with ``\n``, ``\xNN``,
``\uNNNN`` (bash, zsh) where they hold what does not print or is not UTF-8. So a line can be read back, and two signs
stand for nothing but themselves, because an argument that held them would be quoted: ``***`` for what was masked, and
``…`` at the end for what was cut.

What is masked, in doubt too much: the value after a name that means a secret (``--password X``, ``PGPASSWORD=X``,
``Authorization: X``, ``"api_key": "X"``), the options that mean one to well-known programs (``mysql -pX``), the
password in a URL, and words in the shape of a well-known kind of key. From where a secret begins, the rest of its
argument goes with it, but in the script of ``sh -c``, as long as that has no quotes. Positional secrets of unknown
programs cannot be told from other words: this is a courtesy, and the table stays restricted.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from sysmond.base.terminal import escape

COMMAND_BYTES_MAX = 1024
"""A command line is cut to so many bytes."""
# How much of a command line is read; masking takes time in proportion to it.
RAW_BYTES_MAX = 4096
MASK = "***"
CUT = "…"

_WORD = re.compile(r"""[^\s"'`;&|()<>\[\]{},]+""")
_NAME = re.compile(r"[\w.-]+")
_SECRET_NAME = re.compile(
    r"passw(?:or)?[dt]|passphrase|passcode|secret|token(?!iz|s(?:\W|_|$))|credential|authorization|cookie|bearer"
    r"|(?:api|access|private|auth|encryption|master|signing|account|shared|storage|client|license)[-_.]?key"
    r"|(?<!by)(?<!com)pass$|pwd$|psk$|pin$(?<=[-_.]pin)",
    re.IGNORECASE,
)
# A name that ends like these, or is one of these, mentions a secret, but the value after it is none.
_HARMLESS_NAME = re.compile(
    r"(?:^|[-_.])(?:file|path|fd|stdin|store|prompt|dir|jar|url|ttl|type|length|policy|env|name)$|^-*(?:old)?pwd$",
    re.IGNORECASE,
)
_KEY_NAME = re.compile(r"[-_.]key$", re.IGNORECASE)
_SEPARATOR = re.compile(r"""(\\*+["']?\]?\s*+)(=>|:=|[=:])\s*+\\*+["']?|>""")
_SPACE = re.compile(r"\s++")
# A value whose end a shell sees without quotes.
_PLAIN_VALUE = re.compile(r"""[^-\s"'\\`;&|<>(){},][^\s"'\\`;&|<>(){},]*+(?=[\s;&|]|$)""")
_QUOTING = re.compile(r"""["'\\`]""")
_SCRIPT_OPTION = re.compile(r"-[A-Za-z]*c")
_CLUSTER = re.compile(r"-[A-Za-z]+")
_BEARER = "bearer"
_SCHEMES = frozenset((_BEARER, "basic", "digest", "negotiate"))
_SHAPES = re.compile(
    r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{4,}|gh[pousr]_\w{4,}|github_pat_\w+|glpat-[\w-]+|xox[a-z]-[\w-]+|[sr]k_live_\w+"
    r"|AIza[\w-]{8,}|eyJ[\w-]{4,}\.[\w.-]*)"
)


class _Options(NamedTuple):
    """Options of a program that take secrets: ``glued`` to the secret, or ``apart``, with it in the next argument."""

    glued: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


def _either(*options: str) -> _Options:
    return _Options(options, options)


_MYSQL = "mysql mysqldump mysqladmin mysqlimport mysqlshow mysqlcheck mysqlslap mysqlsh mysqlbinlog mycli"
_MARIADB = "mariadb mariadb-dump mariadb-admin mariadb-import mariadb-show mariadb-check mariadb-backup mariadb-binlog"
_BY_PROGRAMS = (
    (f"{_MYSQL} {_MARIADB}", _Options(glued=("-p",))),
    ("mongo mongosh mongodump mongorestore mongoexport mongoimport mongostat", _either("-p")),
    # "login" stands behind docker, podman, az, oc.
    ("sshpass useradd usermod rdesktop login", _either("-p")),
    ("ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldapcompare", _either("-w")),
    ("ldappasswd", _either("-w", "-a", "-s")),
    ("snmpget snmpwalk snmpset snmpgetnext snmpbulkwalk", _either("-c", "-A", "-X")),
    ("smbclient rpcclient smbget sqlcmd bcp", _either("-U", "-P")),
    ("zip unzip", _either("-P")),
    ("7z 7za 7zr 7zz rar unrar", _Options(glued=("-p", "-hp"))),
    ("xfreerdp wlfreerdp xfreerdp3 sdl-freerdp", _Options(glued=("/p:",))),
    ("kubectl oc", _either("--from-literal")),
    ("curl", _Options(("-u", "-U", "-b", "--user=", "--proxy-user="), ("-u", "-U", "-b", "--user", "--proxy-user"))),
    ("redis-cli", _Options(apart=("-a",))),
    ("ipmitool", _either("-P", "-k", "-y")),
    ("openssl", _Options(("key:", "hexkey:"), ("-k", "-K"))),
    ("nmcli wpa_cli", _Options(apart=("password", "psk", "wifi-sec.psk", "802-1x.password"))),
    ("aws", _Options(apart=("aws_secret_access_key", "aws_session_token"))),
)
_PROGRAMS = {program: options for programs, options in _BY_PROGRAMS for program in programs.split()}

# Most command lines have none of these, and so no secret: checking that takes a tenth of the work.
_HINTS = tuple(
    b"pass pwd psk pin secret token credential authorization cookie bearer key :// akia asia"
    b" ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xox k_live_ aiza eyj".split()
)
_PROGRAM_HINTS = frozenset(program.encode() for program in _PROGRAMS)
_SEPARATORS = b"\0 \t\n\v\f\r\x1c\x1d\x1e\x1f\"'`;&|()<>[]{},"
_TO_SLASHES = bytes.maketrans(_SEPARATORS, b"/" * len(_SEPARATORS))

_Span = tuple[int, int]


def command_line(raw: bytes, *, mask: bool = True, is_cut: bool = False) -> bytes:
    """Spell a command line, at most ``COMMAND_BYTES_MAX`` bytes of UTF-8; empty where there is none.

    ``raw``: arguments as /proc/PID/cmdline has them, each ended by a NUL. ``is_cut``: there was more.
    More than one empty argument at the end is the padding of a title that a process gave itself, and left out.
    """
    if len(raw) > RAW_BYTES_MAX:
        raw, is_cut = raw[:RAW_BYTES_MAX], True
    stripped = raw.rstrip(b"\0")
    if not stripped:
        return b""
    padding = len(raw) - len(stripped)
    arguments = [argument.decode("utf-8", "surrogateescape") for argument in stripped.split(b"\0")]
    if padding == 2:  # noqa: PLR2004  The end of the last argument, and an empty one.
        arguments.append("")
    masker = _Masker(is_cut=is_cut and padding == 0)
    words = masker.words(arguments) if mask and _is_suspect(raw) else map(_quote, arguments)
    line = " ".join(words).encode()
    room = COMMAND_BYTES_MAX - len(CUT.encode()) - 1
    if len(line) > COMMAND_BYTES_MAX or (is_cut and len(line) > room):
        return line[:room].decode("utf-8", "ignore").encode() + CUT.encode()
    return line + f" {CUT}".encode() if is_cut else line


def _is_suspect(raw: bytes) -> bool:
    """Whether there may be a secret."""
    lowered = raw.lower()
    for hint in _HINTS:
        if hint in lowered:
            return True
    return not _PROGRAM_HINTS.isdisjoint(lowered.translate(_TO_SLASHES).split(b"/"))


def _quote(text: str) -> str:
    """Spell an argument as a shell reads it."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escape, text)) + "'"


def _escape(sign: str) -> str:
    return "\\" + sign if sign in "\\'" else escape(sign)


def is_secret_name(name: str) -> bool:
    """Whether a name of an option, a variable, a header or a field means a secret."""
    return _SECRET_NAME.search(name) is not None and _HARMLESS_NAME.search(name) is None


class _Masker:
    """Goes over the arguments of one command line; remembers the programs named, and whether a secret comes next."""

    def __init__(self, *, is_cut: bool) -> None:
        """Know no program yet. ``is_cut``: the last argument goes on."""
        self._is_cut = is_cut
        self._glued: dict[str, None] = {}
        self._apart: dict[str, None] = {}
        self._is_next = False

    def words(self, arguments: list[str]) -> Iterator[str]:
        """Spell the arguments."""
        before = ""
        last = len(arguments) - 1
        for number, argument in enumerate(arguments):
            if self._is_next:
                self._is_next = argument.strip().lower() in _SCHEMES or self._announces(argument)
                yield MASK
            else:
                is_script = _SCRIPT_OPTION.fullmatch(before) is not None
                spans = chain(
                    self._named(argument, is_script=is_script),
                    _urls(argument, is_cut=self._is_cut and number == last),
                    (match.span() for match in _SHAPES.finditer(argument)),
                )
                yield _spell(argument, sorted(spans))
            before = argument

    def _announces(self, argument: str) -> bool:
        """Whether the argument after this one is a secret."""
        text = argument.strip()
        if text.lower() == _BEARER or text in self._apart:
            return True
        if text[:1] == "-":
            is_whole = _NAME.fullmatch(text) is not None and not self._has_glued(text)
            return is_whole and (is_secret_name(text) or self._is_cluster(text))
        return text[-1:] == ":" and is_secret_name(text[:-1])

    def _has_glued(self, word: str) -> int:
        """The length of the option at the beginning of a word that holds its secret; 0 for none."""
        for option in self._glued:
            if word.startswith(option) and len(word) > len(option):
                return len(option)
        return 0

    def _is_cluster(self, word: str) -> bool:
        """Whether a word is several options in one, the last of which takes a secret."""
        return _CLUSTER.fullmatch(word) is not None and f"-{word[-1]}" in self._apart

    def _named(self, text: str, *, is_script: bool) -> Iterator[_Span]:
        """Find what follows a name or an option."""
        if self._announces(text):
            self._is_next = True
            return
        position = 0
        for word in _WORD.finditer(text):
            if word.start() < position:
                continue
            start = self._secret_in(text, word)
            if start is None:
                self._learn(word[0])
                continue
            position = self._end(text, start) if is_script else len(text)
            yield start, position

    def _learn(self, word: str) -> None:
        options = _PROGRAMS.get(word.rpartition("/")[2].lower())
        if options is not None:
            self._glued.update(dict.fromkeys(options.glued))
            self._apart.update(dict.fromkeys(options.apart))

    def _secret_in(self, text: str, word: re.Match[str]) -> int | None:
        """Where the secret begins that a word holds or announces; None at the very end of the argument."""
        spelled, start, end = word[0], word.start(), word.end()
        glued = self._has_glued(text if start == 0 else spelled + text[end : end + 1].strip())
        if glued:
            return start + glued
        is_announced = spelled in self._apart or spelled.lower() == _BEARER or self._is_cluster(spelled)
        if is_announced or (spelled[0] == "-" and _NAME.fullmatch(spelled) and is_secret_name(spelled)):
            space = _SPACE.match(text, end)
            if space is not None and space.end() < len(text):
                return space.end()
        for name in _NAME.finditer(text, start, end):
            separator = _SEPARATOR.match(text, name.end())
            if separator is None or separator.end() == len(text):
                continue
            if is_secret_name(name[0]) or (separator[2] in {"=", "=>"} and _KEY_NAME.search(name[0])):
                return separator.end()
        return None

    @staticmethod
    def _end(text: str, start: int) -> int:
        """Where a secret in a script ends: at the end of a plain assigned value, else at the end of the text."""
        value = _PLAIN_VALUE.match(text, start)
        lead = text[max(0, start - 2) : start]
        is_assigned = lead[-1:] == "=" or (lead[-1:].isspace() and ":" not in lead)
        if value is None or not is_assigned or _QUOTING.search(text, 0, start):
            return len(text)
        return value.end()


def _spell(text: str, spans: Iterable[_Span]) -> str:
    """Spell an argument, masking the spans, which are sorted and may overlap."""
    words: list[str] = []
    position = 0
    for start, end in spans:
        if end <= position:
            continue
        if start > position:
            words.append(_quote(text[position:start]))
        if start >= position or not words:
            words.append(MASK)
        position = end
    if position < len(text) or not words:
        words.append(_quote(text[position:]))
    return "".join(words)


def _urls(text: str, *, is_cut: bool) -> Iterator[_Span]:
    """Find the passwords in URLs, up to the last ``@``; ``is_cut``: there may be one in what is missing."""
    position = 0
    while (scheme := text.find("://", position)) >= 0:
        begin = scheme + 3
        space = _SPACE.search(text, begin)
        end = space.start() if space is not None else len(text)
        at = text.rfind("@", begin, end)
        if at < 0 and is_cut and end == len(text):
            at = end
        colon = text.find(":", begin, at) if at >= 0 else -1
        if colon >= 0:
            yield colon + 1, at
        position = end
