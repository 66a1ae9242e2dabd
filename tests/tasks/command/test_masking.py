# SPDX-License-Identifier: Apache-2.0
"""Command lines: a shell reads back what was spelled, a secret never survives, and nothing takes long."""

import shlex
import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysmond.tasks.command import masking
from sysmond.tasks.command.masking import COMMAND_BYTES_MAX, CUT, MASK, RAW_BYTES_MAX, command_line, is_secret_name
from tests.support.waiting import HANG_S

MARKER = "Qx7Zr"


def raw(*arguments: str | bytes) -> bytes:
    return b"".join(
        (each if isinstance(each, bytes) else each.encode("utf-8", "surrogateescape")) + b"\0" for each in arguments
    )


def line(*arguments: str | bytes, mask: bool = True, is_cut: bool = False) -> str:
    return command_line(raw(*arguments), mask=mask, is_cut=is_cut).decode()


# What hides at the place of a secret: anything an argument can be, with a mark at its end to be found by.
anything = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40).map(lambda text: text + MARKER)
# In a URL a password has no blanks, and in the shell's own words it is quoted.
without_blanks = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), max_size=40).map(
    lambda text: text + MARKER
)

Arguments = Callable[[str], list[str]]

WHOLE: list[Arguments] = [
    lambda x: ["tool", "--password", x, "behind"],
    lambda x: ["tool", f"--password={x}", "behind"],
    lambda x: ["tool", f"--PassWord={x}"],
    lambda x: ["tool", "--token", x],
    lambda x: ["tool", f"--github-token={x}"],
    lambda x: ["tool", "--secret", x],
    lambda x: ["tool", "-secret", x],
    lambda x: ["tool", "--api-key", x],
    lambda x: ["tool", f"--apikey={x}"],
    lambda x: ["gpg", "--batch", "--passphrase", x],
    lambda x: ["tool", "--password", "--token", x],
    lambda x: ["mount", "-o", f"user=me,pass={x},uid=5"],
    lambda x: ["env", f"PASSWORD={x}", "tool"],
    lambda x: ["env", f"MYSQL_ROOT_PASSWORD={x}"],
    lambda x: ["env", f"TOKEN={x}", f"AWS_SECRET_ACCESS_KEY={x}"],
    lambda x: ["env", f"SECRET={x}", f"MY_ENCRYPTION_KEY={x}", f"SOME_KEY={x}"],
    lambda x: ["curl", "-H", f"Authorization: Bearer {x}", "https://host/"],
    lambda x: ["curl", "-H", f"authorization:Basic {x}"],
    lambda x: ["curl", f"-HX-Api-Key: {x}"],
    lambda x: ["tool", "Authorization:", "Bearer", x],
    lambda x: ["curl", "-u", x, "https://host/"],
    lambda x: ["curl", f"-u{x}"],
    lambda x: ["curl", "-sku", x],
    lambda x: ["curl", f"--user={x}"],
    lambda x: ["curl", "-d", f'{{"user": "me", "password": "{x}"}}'],
    lambda x: ["curl", f"https://host/?a=b&access_token={x}"],
    lambda x: ["/usr/bin/mysqldump", "-ume", f"-p{x}", "base"],
    lambda x: ["sudo", "mysql", f"-p{x}"],
    lambda x: ["sshpass", "-p", x, "ssh", "host"],
    lambda x: ["sshpass", f"-p{x}", "ssh", "host"],
    lambda x: ["openssl", "rsa", "-passin", f"pass:{x}"],
    lambda x: ["openssl", "enc", "-k", x],
    lambda x: ["docker", "login", "-u", "me", "-p", x],
    lambda x: ["nmcli", "dev", "wifi", "connect", "net", "password", x],
    lambda x: ["xfreerdp", f"/p:{x}"],
    lambda x: ["python", "-c", f"password = {x!r}; connect()"],
    lambda x: ["chrome --type=renderer --password=" + x],
    lambda x: ["tool", f"<password>{x}</password>"],
    lambda x: ["sh", "-c", f"mysql -ume -p{shlex.quote(x)} base"],
    lambda x: ["bash", "-ec", f"PGPASSWORD={shlex.quote(x)} psql -c 'select 1'"],
    lambda x: ["sh", "-c", f"tool --password {shlex.quote(x)}; other"],
    lambda x: ["sh", "-c", shlex.join(["sh", "-c", f"tool --password {shlex.quote(x)}; other"])],
    lambda x: ["ssh", "host", f"tool --token {shlex.quote(x)} more"],
]
IN_URLS: list[Arguments] = [
    lambda x: ["git", "clone", f"https://me:{x}@host/x.git"],
    lambda x: ["tool", "--db", f"dsn=postgres://me:{x}@host:5432/x?a=b", "behind"],
    lambda x: ["tool", f"first https://one:1@host then redis://:{x}@host"],
]


@given(st.sampled_from(WHOLE), anything)
def test_a_secret_never_survives(arguments: Arguments, secret: str) -> None:
    found = line(*arguments(secret))
    assert MARKER not in found
    assert MASK in found
    assert MARKER in line(*arguments(secret), mask=False)


@given(st.sampled_from(IN_URLS), without_blanks)
def test_no_password_in_a_url_survives(arguments: Arguments, secret: str) -> None:
    assert MARKER not in line(*arguments(secret))


@given(st.sampled_from(WHOLE + IN_URLS), st.integers(0, 200))
def test_no_secret_survives_a_cut(arguments: Arguments, length: int) -> None:
    whole = raw(*arguments(MARKER * 5))
    assert MARKER not in command_line(whole[:length], is_cut=True).decode()


@given(st.lists(st.binary(max_size=12).map(lambda each: each.replace(b"\0", b"")), min_size=1, max_size=8))
def test_a_shell_reads_back_what_was_spelled(arguments: list[bytes]) -> None:
    arguments = [b"printf", b"%s\\0", *arguments, b"end"]
    spelled = command_line(raw(*arguments), mask=False)
    result = subprocess.run(["bash", "-c", spelled], check=True, capture_output=True, env={"LC_ALL": "C.UTF-8"})
    assert result.stdout == raw(*arguments[2:])


@pytest.mark.parametrize(
    ("arguments", "spelled"),
    [
        (["tool", "--password=x", "a b"], "tool --password=*** 'a b'"),
        (["tool", "***", "…"], "tool '***' '…'"),
        (["tool", "a\n\x1b[31m\\'"], "tool $'a\\n\\x1b[31m\\\\\\''"),
        (["tool", b"\xff\xc3\xa4"], "tool $'\\xffä'"),
        (["curl", "-H", "Authorization: x"], "curl -H 'Authorization: '***"),
        (["git", "clone", "https://me:x@host/y"], "git clone https://me:***@host/y"),
        (["sh", "-c", "TOKEN=x run --more; PASSWORD=y z"], "sh -c TOKEN=***' run --more; PASSWORD='***' z'"),
        (["tool", "AKIAIOSFODNN7EXAMPLE", "ghp_abcdefghij"], "tool *** ***"),
        (["postgres: checkpointer "], "'postgres: checkpointer '"),
    ],
)
def test_a_line_reads_as_expected(arguments: list[str | bytes], spelled: str) -> None:
    assert line(*arguments) == spelled


@pytest.mark.parametrize(
    "arguments",
    [
        ["tool", "--password-file", "/run/x", "--token-file=/y", "--max-tokens=5", "--tokenizer", "z", "PWD=/home/x"],
        ["docker", "run", "-p", "80:80", "image"],
        ["tar", "-czpf", "x.tar", "compass=1", "bypass=2", "--sort-key", "name"],
        ["ssh", "-p", "22", "git@host", "https://host:8080/x", "ssh://git@host/x"],
        ["mysql", "-p", "--host", "x"],
        ["grep", "password", "file"],
        ["tool", "basic", "digest", "x"],
    ],
)
def test_what_is_no_secret_is_left_alone(arguments: list[str]) -> None:
    assert line(*arguments) == shlex.join(arguments)


def test_titles_lose_their_padding_and_nothing_stays_nothing() -> None:
    assert command_line(b"nginx: worker\0\0\0\0") == b"'nginx: worker'"
    assert command_line(b"postgres") == b"postgres"
    assert command_line(b"sh\0-c\0\0") == b"sh -c ''"
    assert command_line(b"") == command_line(b"\0\0\0") == b""


@given(st.lists(anything, min_size=1, max_size=60), st.booleans())
def test_a_line_is_bounded_and_says_where_it_was_cut(arguments: list[str], is_cut: bool) -> None:
    found = line("tool", *arguments, is_cut=is_cut)
    assert len(found.encode()) <= COMMAND_BYTES_MAX
    whole = line("tool", *arguments)
    assert found.endswith(CUT) == (is_cut or whole.endswith(CUT))
    assert found.removesuffix(CUT).rstrip() in whole or whole.endswith(CUT)


LONG_BYTES = 16 * RAW_BYTES_MAX
MASK_LONG = """
import sys
from sysmond.tasks.command import masking
masking.RAW_BYTES_MAX = int(sys.argv[1])
command = sys.stdin.buffer.read()
for start in (b"curl\\0mysql\\0", b"sh\\0-c\\0"):
    masking.command_line(start + command)
print("masked", end="")
"""


@pytest.mark.parametrize(
    "piece",
    [" ", "password ", "pass", "://a:", "a=:", "-", "- ", "a.", "password= ", '"', "\\", "\xff", "password\0", "-p "],
)
def test_masking_takes_no_longer_for_what_is_made_to_take_long(piece: str) -> None:
    """Of 16 times as much as is ever read: what takes 2 s of that, by its square, is killed before it is through."""
    command = (piece.encode("latin-1") * LONG_BYTES)[:LONG_BYTES]
    masked = [sys.executable, "-c", MASK_LONG, str(LONG_BYTES)]
    done = subprocess.run(masked, input=command, check=True, timeout=HANG_S, capture_output=True)
    assert done.stdout == b"masked"


@given(st.sampled_from(WHOLE + IN_URLS), without_blanks)
def test_looking_for_hints_first_changes_nothing(arguments: Arguments, secret: str) -> None:
    words = arguments(secret)
    whole = " ".join(masking._Masker(is_cut=False).words(words)).encode()
    assert len(whole) > COMMAND_BYTES_MAX or command_line(raw(*words)) == whole


def test_names_of_secrets() -> None:
    assert all(map(is_secret_name, ["--Passwd", "dbPassword", "DB_PWD", "x-auth-token", "client_secret", "--psk"]))
    assert not any(map(is_secret_name, ["PWD", "OLDPWD", "--token-url", "keyboard", "--secret-name", "tokenize"]))
