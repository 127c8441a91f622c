"""Place holders of a command: how its text becomes arguments, each value one argument and no more.

The text is split first and place holders are replaced then, so that no value can become two arguments or an option.
"""

from __future__ import annotations

import json
import re
import shlex
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainables.errors import InvalidSettingError
from trainables.quick_dataclass import dataclass
from trainables.validation import nearest_name

CHECKPOINT = "checkpoint"
PLACE_HOLDERS = {
    "config_json": "a file with the config as JSON",
    "config_file": "the config file that was edited",
    "trial_dir": "the trial's directory",
    "checkpoint_dir": "an empty directory for what this life of the command saves",
    CHECKPOINT: "what to continue from; the part in [[ ]] around it is left out where there is nothing",
    "trial_id": "the trial's id",
    "seed": "a seed for this life of the command",
}
"""What can stand in braces beside the names of the config, which come first."""

_NAME = re.compile(r"([^\[\]{}!:]+)((?:\[[^\[\]{}]+\])*)")
_OPTIONAL = re.compile(r"\[\[((?:(?!\]\]).)*\{checkpoint\}(?:(?!\]\]).)*)\]\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Field:
    """One place holder: `{optimizer[lr]}` is the value `lr` of `optimizer`."""

    name: str
    below: tuple[str, ...]
    spec: str
    """How a number is written, as in Python: `{lr:.3g}`."""

    def __str__(self) -> str:
        return "{" + self.name + "".join(f"[{key}]" for key in self.below) + "}"


Piece = str | Field
Argument = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ArgumentPart:
    """Arguments that stand, or are left out, together."""

    arguments: tuple[Argument, ...]
    optional: bool
    """Left out where there is no checkpoint."""


def parse(command: str | Sequence[str], *, shell: bool) -> tuple[ArgumentPart, ...]:
    """The parts of a command; for a shell each is one text. Raises InvalidSettingError for what cannot be one."""
    if isinstance(command, str):
        return tuple(_of_text(command, shell))
    if shell:
        raise InvalidSettingError(f"Command: shell=True needs the command as one text, not {list(command)!r}")
    return tuple(_of_list(list(command)))


def _of_text(text: str, shell: bool) -> Iterator[ArgumentPart]:
    at = 0
    for found in _OPTIONAL.finditer(text):
        yield from _split(text[at : found.start()], False, shell)
        yield from _split(found[1], True, shell)
        at = found.end()
        if not shell and not (_ends_apart(text[: found.start()][-1:]) and _ends_apart(text[at : at + 1])):
            raise InvalidSettingError(f"Command: {found[0]!r} has to stand between spaces: it is whole arguments")
    yield from _split(text[at:], False, shell)


def _ends_apart(beside: str) -> bool:
    return not beside or beside.isspace()


def _split(text: str, optional: bool, shell: bool) -> Iterator[ArgumentPart]:
    try:
        words = [text] if shell else shlex.split(text)
    except ValueError as error:
        raise InvalidSettingError(f"Command: {text!r} cannot be split into arguments: {error}") from None
    if words:
        yield ArgumentPart(tuple(_argument(word) for word in words), optional)


def _of_list(words: list[str]) -> Iterator[ArgumentPart]:
    inside: list[str] | None = None
    for word in words:
        if not isinstance(word, str):
            raise InvalidSettingError(f"Command: the argument {word!r} is no text")
        if inside is None and word.startswith("[["):
            inside, word = [], word[2:]
        if inside is None:
            yield ArgumentPart((_argument(word),), optional=False)
            continue
        ended = word.endswith("]]")
        inside.append(word[:-2] if ended else word)
        if ended:
            yield ArgumentPart(tuple(_argument(each) for each in inside if each), optional=True)
            inside = None
    if inside is not None:
        raise InvalidSettingError(f"Command: '[[' before {inside[0]!r} is never closed by ']]'")


def _argument(word: str) -> Argument:
    try:
        parsed = list(string.Formatter().parse(word))
    except ValueError:
        raise InvalidSettingError(f"Command: {word!r} has a single brace; write {{{{ or }}}} for one") from None
    pieces: list[Piece] = []
    for literal, name, spec, conversion in parsed:
        if literal:
            pieces.append(literal)
        if name is not None:
            pieces.append(_field(word, name, spec or "", conversion))
    return tuple(pieces)


def _field(word: str, name: str, spec: str, conversion: str | None) -> Field:
    match = _NAME.fullmatch(name)
    if match is None or conversion is not None or "{" in spec:
        raise InvalidSettingError(
            f"Command: the place holder {{{name}}} in {word!r} is not accepted; accepted are {{name}} and "
            "{name[key]} of the config, with a number's format ({lr:.3g}), and {{ for a brace"
        )
    return Field(match[1], tuple(re.findall(r"\[([^\[\]]+)\]", match[2])), spec)


def fields_of(parts: Iterable[ArgumentPart]) -> list[Field]:
    """All place holders."""
    return [piece for part in parts for words in part.arguments for piece in words if isinstance(piece, Field)]


def filled(parts: Iterable[ArgumentPart], values: Mapping[str, Any], *, shell: bool) -> list[str]:
    """The arguments, or for a shell the one text. Raises InvalidSettingError for a place holder without a value."""
    words: list[str] = []
    for part in parts:
        if part.optional and values.get(CHECKPOINT) is None:
            continue
        for pieces in part.arguments:
            texts = [piece if isinstance(piece, str) else _text(piece, values, quoted=shell) for piece in pieces]
            _refuse_option(pieces, values)
            words.append("".join(texts))
    return ["".join(words)] if shell else words


def value_of(field: Field, values: Mapping[str, Any]) -> Any:
    """What stands for a place holder. Raises InvalidSettingError, which names the nearest that there is."""
    found: Any = values
    for key in (field.name, *field.below):
        if isinstance(found, list | tuple) and key.lstrip("-").isdigit() and -len(found) <= int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, Mapping) and (key in found):
            found = found[key]
        else:
            raise InvalidSettingError(_no_value(field, key, found))
    return found


def _no_value(field: Field, key: str, among: Any) -> str:
    if not isinstance(among, Mapping):
        return f"Command: the place holder {field} has no value: {among!r} has no {key!r}"
    near = nearest_name(key, [str(name) for name in among])
    hint = f"; did you mean {near!r}?" if near else "."
    return (
        f"Command: the place holder {field} has no value{hint} There are {', '.join(map(str, among)) or 'none'}; "
        "a brace that is none is written {{"
    )


def as_text(value: Any) -> str:
    """A value as a program reads it: texts and numbers as they are, everything else as JSON (true, null, [1, 2])."""
    if isinstance(value, str):
        return value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()  # a scalar of numpy's
    if isinstance(value, float | int) and not isinstance(value, bool):
        return repr(value)
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        raise InvalidSettingError(
            f"Command: {value!r} ({type(value).__name__}) cannot be an argument; accepted are texts, numbers, "
            "booleans, None, and lists and dicts of them"
        ) from None


def _text(field: Field, values: Mapping[str, Any], *, quoted: bool) -> str:
    value = value_of(field, values)
    if value is None and field.name == CHECKPOINT:
        raise InvalidSettingError(
            "Command: {checkpoint} has no value in a trial's first life: put the part that needs it into [[ ]]"
        )
    try:
        text = format(value, field.spec) if field.spec else as_text(value)
    except (TypeError, ValueError) as error:
        raise InvalidSettingError(
            f"Command: {field} is {value!r}, which has no format {field.spec!r}: {error}"
        ) from None
    if "\0" in text:
        raise InvalidSettingError(f"Command: {field} is {text!r}: an argument cannot hold a null character")
    return shlex.quote(text) if quoted else text


def _refuse_option(pieces: Argument, values: Mapping[str, Any]) -> None:
    """A text that begins with '-' would be read as an option where it is an argument of its own."""
    if not pieces or not isinstance(first := pieces[0], Field):
        return
    value = value_of(first, values)
    if isinstance(value, str) and value.startswith("-"):
        raise InvalidSettingError(
            f"Command: {first} is {value!r}, which would be read as an option: write --name={first}, as one argument"
        )
