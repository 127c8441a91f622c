"""`tuner completion bash|zsh|fish`: a script that completes the command line in a shell, made from the parser."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.cli import output

SHELLS = ("bash", "zsh", "fish")

DESCRIPTION = """\
Prints a script for the shell. To use it now and in every shell that is
opened later:
  bash:  echo 'eval "$(tuner completion bash)"' >> ~/.bashrc
  zsh:   echo 'eval "$(tuner completion zsh)"' >> ~/.zshrc      (after compinit)
  fish:  tuner completion fish > ~/.config/fish/completions/tuner.fish"""

NAMES = "${TUNE_RESULT_DIR:-$HOME/tuner_results}"
"""Where the names of experiments are looked for, as a shell reads it: no Python has to start for them."""


def add(verbs: Any) -> None:
    verb: argparse.ArgumentParser = verbs.add_parser(
        "completion",
        help="print what completes this command in a shell",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verb.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    verbs = dict(described(arguments.top))
    output.say(SCRIPTS[arguments.shell](verbs))
    return 0


@dataclass(frozen=True, slots=True)
class ShellOption:
    """An option of a verb."""

    names: Sequence[str]
    help: str
    takes: bool
    """Whether a value follows."""
    choices: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ShellVerb:
    """What can be typed after a verb."""

    help: str
    options: Sequence[ShellOption]
    choices: Sequence[str]
    """Of its positional arguments, where these are closed."""
    experiments: bool
    """Whether it takes the name of an experiment."""


def described(top: argparse.ArgumentParser) -> Iterator[tuple[str, ShellVerb]]:
    """The verbs of a command, by name."""
    (verbs,) = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    helps = {action.dest: action.help or "" for action in verbs._choices_actions}
    for name, parser in verbs.choices.items():
        options, choices, experiments = [], [], False
        for action in parser._actions:
            allowed = [str(choice) for choice in action.choices or ()]
            if action.option_strings:
                text = "" if action.help in (None, argparse.SUPPRESS) else str(action.help)
                options.append(ShellOption(action.option_strings, text, action.nargs != 0, allowed))
            else:
                choices += allowed
                experiments = experiments or action.metavar in EXPERIMENTS
        yield name, ShellVerb(helps.get(name, ""), options, choices, experiments)


EXPERIMENTS = ("EXPERIMENT", "SRC", "A", "B")
"""What arguments are called that an experiment's name can stand for."""


def _bash(verbs: Mapping[str, ShellVerb]) -> str:
    cases = []
    for name, verb in verbs.items():
        words = [*verb.choices, *(flag for option in verb.options for flag in option.names)]
        values = "".join(
            f"        {'|'.join(option.names)}) words={shlex.quote(' '.join(option.choices))}; only=1;;\n"
            for option in verb.options
            if option.takes
        )
        cases.append(
            f"    {name})\n      words={shlex.quote(' '.join(words))} names={int(verb.experiments)}\n"
            f'      case "$before" in\n{values}        *) ;;\n      esac;;\n'
        )
    return f"""\
_tuner() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words= names=0 only=0
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {shlex.quote(" ".join([*verbs, "--help", "--version"]))} -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{"".join(cases)}  esac
  if [ "$only" = 1 ] && [ -z "$words" ]; then
    COMPREPLY=($(compgen -f -- "$word")); return
  fi
  if [ "$only" = 1 ] || [ "${{word#-}}" != "$word" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$word")); return
  fi
  COMPREPLY=($(compgen -W "$(for one in $words; do [ "${{one#-}}" = "$one" ] && echo "$one"; done)" -- "$word"))
  if [ "$names" = 1 ] && [ -d "{NAMES}" ]; then
    COMPREPLY+=($(cd "{NAMES}" && compgen -d -- "$word"))
  fi
  COMPREPLY+=($(compgen -f -- "$word"))
}}
complete -o filenames -F _tuner tuner"""


def _zsh(verbs: Mapping[str, ShellVerb]) -> str:
    said = "\n".join(f"    {_zsh_word(f'{name}:{verb.help}')}" for name, verb in verbs.items())
    cases = []
    for name, verb in verbs.items():
        specs = [_zsh_option(option, flag) for option in verb.options for flag in option.names]
        rest = f"({' '.join(verb.choices)})" if verb.choices else "_tuner_names" if verb.experiments else "_files"
        lines = " \\\n        ".join([*map(_zsh_word, specs), _zsh_word(f"*:argument:{rest}")])
        cases.append(f"      {name}) _arguments -s \\\n        {lines};;")
    return f"""\
#compdef tuner
_tuner_names() {{
  local -a found
  found=("{NAMES}"/*(N/:t))
  compadd -a found
  _files
}}
_tuner() {{
  local -a verbs
  verbs=(
{said}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
  else
    shift words; (( CURRENT-- ))
    case "$words[1]" in
{chr(10).join(cases)}
    esac
  fi
}}
compdef _tuner tuner"""


def _zsh_option(option: ShellOption, flag: str) -> str:
    text = option.help.replace("[", r"\[").replace("]", r"\]").replace(":", r"\:")
    if not option.takes:
        return f"{flag}[{text}]"
    return f"{flag}[{text}]:value:{f'({chr(32).join(option.choices)})' if option.choices else '_files'}"


def _zsh_word(text: str) -> str:
    return shlex.quote(text.replace("\n", " "))


def _fish(verbs: Mapping[str, ShellVerb]) -> str:
    lines = ["complete -c tuner -f"]
    for name, verb in verbs.items():
        lines.append(f"complete -c tuner -n __fish_use_subcommand -a {name} -d {_fish_word(verb.help)}")
        after = f"complete -c tuner -n {_fish_word(f'__fish_seen_subcommand_from {name}')}"
        for option in verb.options:
            flags = " ".join(f"-{'s' if len(flag) == 2 else 'l'} {flag.lstrip('-')}" for flag in option.names)
            values = f" -a {_fish_word(' '.join(option.choices))}" if option.choices else " -F" if option.takes else ""
            required = " -r" if option.takes else ""
            lines.append(f"{after} {flags}{required}{values} -d {_fish_word(option.help)}")
        if verb.choices:
            lines.append(f"{after} -a {_fish_word(' '.join(verb.choices))}")
        else:
            lines.append(f"{after} -F")
        if verb.experiments:
            lines.append(f"{after} -a '(__tuner_names)'")
    return "\n".join([FISH_NAMES, *lines])


FISH_NAMES = """\
function __tuner_names
    set -l place $TUNE_RESULT_DIR
    test -n "$place"; or set place ~/tuner_results
    test -d "$place"; and command ls -p "$place" | string match -r '.*/$' | string trim -r -c /
end"""


def _fish_word(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", " ")
    return f"'{escaped}'"


SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
