"""Masking of secrets: passwords, tokens and keys in texts that are printed, logged or stored.

A text may be anything: a setting in an error, a command that failed, what a library or a server said. What looks like
a secret goes, rather too much than too little; the name beside it stays, so that a person sees which one it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

MASK = "***"

_COMPOUND = (
    r"[A-Za-z0-9_.-]{0,64}(?:password|passwd|passphrase|pwd)"
    r"|(?:[A-Za-z0-9_.-]{0,64}[_.-])(?:secret|token|credentials?|signature|(?-i:PASS))"
    r"|(?:[A-Za-z0-9_.-]{0,64}[_.-])?(?:access|account|api|auth|encryption|private|secret|shared|sharedaccess|signing"
    r"|storage)[_.-]?(?:key|signature|secret|token)"
    r"|(?:[A-Za-z0-9_.-]{0,64}[_.-])?(?:authorization|set-cookie)"
)
"""Names that say what they hold: `api_token` does, `max_tokens` and `token_count` do not."""
_NAME = rf"(?:{_COMPOUND}|token|secret|credentials?|signature|cookie|pw|sig|sas)"
"""And those that do where something is assigned to them, but may as well be a word in a sentence."""
_BARE = r"""[^\s"'&;,<>(){}\[\]|\\]{1,4096}"""
_VALUE = rf"""(?:(?P<open>\\{{0,4}}["'])(?P<held>.{{0,4096}}?)(?P=open)|(?:bearer\s+|basic\s+)?{_BARE})"""
_START = r"(?<![A-Za-z0-9_.-])"


def _keep_name(found: re.Match[str]) -> str:
    quote = found["open"] or ""
    return f"{found['name']}{quote}{MASK}{quote}"


def _keep_path(found: re.Match[str]) -> str:
    """As `_keep_name`, but what a path ends with is a file's name: `/etc/passwd: File exists`."""
    before = _PATH_BEFORE.search(found.string, max(0, found.start() - 4096), found.start())
    return found[0] if before is not None else _keep_name(found)


_PATH_BEFORE = re.compile(r"(?<![\w.~/-])[.~]{0,2}/[\w./~-]{0,4096}\Z")


def _uri(found: re.Match[str]) -> str:
    """An address without the password of its user, which may have any character in it: it ends at the last `@`."""
    scheme, rest = found["scheme"], found["rest"]
    if not _NO_PASSWORD.match(rest):
        told, question, options = rest.partition("?")
        if "@" not in told:
            told, question, options = rest, "", ""  # the question mark is the password's
        user, at, host = told.rpartition("@")
        name, colon, _ = user.partition(":")
        if colon:
            rest = f"{name}:{MASK}@{host}{question}{options}"
    return scheme + _IN_QUERY.sub(rf"\g<name>{MASK}", rest)


_NO_PASSWORD = re.compile(
    r"""(?:[^:@/?]*@)?(?:\[[^\]@/?]*\]|[^:@/?\[]*)(?::\d{1,5})?(?=[/?#)\],;"'.!:]|$)(?!:[^\s/])"""
)
"""What stands before a path: perhaps a user, a host, perhaps its port."""
_IN_QUERY = re.compile(
    r"(?P<name>[?&;](?:[^=&;?\s]{0,64}[_.-])?(?:[a-z]*key|[a-z]*token|sig|[a-z]*secret|pass[a-z]*|pwd|[a-z]*credential"
    r"|[a-z]*signature)=)[^&;\s\"'<>)\]},]+",
    re.IGNORECASE,
)


@cache
def _rules() -> Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]]:
    """Made when they are first needed: a thirtieth of what it takes to import a run is not to be paid by all."""
    return (
        (
            re.compile(
                r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
            ),
            lambda found: MASK,
        ),
        (re.compile(r"(?P<scheme>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?P<rest>\S+)"), _uri),
        (
            re.compile(rf"(?P<name>{_START}(?:--?)?{_NAME}(?:\\{{0,4}}[\"'])?\s{{0,4}}=\s{{0,4}}){_VALUE}", re.I),
            _keep_name,
        ),
        (re.compile(rf"(?P<name>{_START}{_NAME}\\{{0,4}}[\"']\s{{0,4}}:\s{{0,4}}){_VALUE}", re.I), _keep_path),
        (re.compile(rf"(?P<name>{_START}(?:{_COMPOUND}|cookie):\s{{0,4}}(?!//)){_VALUE}", re.I), _keep_path),
        # Options of programs; of some the name does not say what they hold.
        (re.compile(rf"(?P<name>(?<!\S)--?{_NAME}\s{{1,4}})(?!-){_VALUE}", re.I), _keep_name),
        (re.compile(rf"(?P<name>\bsshpass\s{{1,4}}-p\s{{0,4}}){_VALUE}"), _keep_name),
        (re.compile(rf"(?P<name>(?<!\S)(?:-u|--user)[\s=]{{1,4}}[^\s:'\"]{{1,64}}:){_VALUE}"), _keep_name),
        (re.compile(r"(?P<name>\b(?:bearer|basic)\s{1,4})(?P<open>)[A-Za-z0-9+/=_.~-]{12,4096}", re.I), _keep_name),
        # user:password@host without a scheme
        (
            re.compile(
                r"(?P<name>(?<![\w.%+:@/-])[A-Za-z0-9][\w.%+-]{0,63}:(?!//))(?P<open>)[^\s:@\"'<>]{1,256}(?=@[A-Za-z0-9\[])"
            ),
            _keep_name,
        ),
        # Tokens that say by their form whose they are.
        (
            re.compile(
                r"\b(?:(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[abeoprs]-|sk-|pypi-|npm_|AIza)[A-Za-z0-9_-]{16,4096}"
                r"|eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{0,4096})"
            ),
            lambda found: MASK,
        ),
    )


def masked(text: str) -> str:
    """`text` without the secrets in it. What is masked already stays as it is.

    >>> masked("cannot open postgresql://me:hunter2@db/studies")
    'cannot open postgresql://me:***@db/studies'
    >>> masked("upload --token abc --to az://box?sig=def AccountKey=ghi;x=1")
    'upload --token *** --to az://box?sig=*** AccountKey=***;x=1'
    """
    for pattern, replacement in _rules():
        text = pattern.sub(replacement, text)
    return text
