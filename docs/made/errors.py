"""Every error class, with its cause and what helps, as `tuner explain` has them."""

from __future__ import annotations

from tuner.cli.explain import cause, classes, kinds, remedies


def sections() -> str:
    """A section for each class, whose anchor is its name in lower case."""
    helps = remedies()
    return "\n".join(
        f"## {name}\n\n`{kind.__module__}.{name}`, an error of the kinds "
        f"{' and '.join(f'`{each}`' for each in kinds(kind))}.\n\n"
        f"**Cause.** {cause(kind)}\n\n**What helps.** {helps[name]}\n"
        for name, kind in classes().items()
    )
