"""`tuner --help --json`: every verb with its arguments, for programs, made of the parsers themselves."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

EXIT_STATUSES = {
    0: "it was done",
    1: "something was found: trials failed, an order was refused or not done in time, two things differ, files are "
    "damaged, a copy lacks something, nothing was agreed to",
    2: "the command or its settings are not accepted, or what it names is not there; nothing was touched",
    130: "interrupted by Ctrl-C",
}
"""Of every verb."""
_HELP = ("-h", "--help")


def asked_for(words: Sequence[str]) -> bool:
    """Whether help is wanted as JSON."""
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own and any(word in own for word in _HELP)


def of(top: argparse.ArgumentParser, words: Sequence[str], version: str) -> dict[str, Any]:
    """All verbs, or the one that `words` name."""
    (verbs,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    helps = {each.dest: each.help or "" for each in verbs._choices_actions}
    named = next((word for word in words if word in verbs.choices), None)
    wanted: Mapping[str, argparse.ArgumentParser] = verbs.choices
    made = [_verb(name, parser, helps.get(name, "")) for name, parser in wanted.items() if named in (None, name)]
    statuses = {str(status): meaning for status, meaning in EXIT_STATUSES.items()}
    return {"program": "tuner", "version": version, "verbs": made, "exit_statuses": statuses}


def epilog() -> str:
    """The same statuses for people."""
    return "exit status: " + "; ".join(f"{status}: {meaning}" for status, meaning in EXIT_STATUSES.items())


def _verb(name: str, parser: argparse.ArgumentParser, said: str) -> dict[str, Any]:
    groups = [[action.dest for action in group._group_actions] for group in parser._mutually_exclusive_groups]
    return {
        "name": name,
        "help": said,
        "description": parser.description or "",
        "arguments": list(_arguments(parser)),
        "at_most_one_of": groups,
    }


def _arguments(parser: argparse.ArgumentParser) -> Iterator[dict[str, Any]]:
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        takes = 0 if action.nargs == 0 else "any" if action.nargs in ("*", "+", "...") else 1
        yield {
            "name": action.dest if not action.option_strings else action.option_strings[-1],
            "names": list(action.option_strings),
            "metavar": action.metavar if isinstance(action.metavar, str) else None,
            "help": (action.help or "").replace("%%", "%"),
            "takes": takes,
            "required": action.required and action.nargs != "*",
            "repeatable": isinstance(action, argparse._AppendAction),
            "choices": None if action.choices is None else [str(each) for each in action.choices],
            "default": action.default if isinstance(action.default, (str, int, float)) else None,
        }
