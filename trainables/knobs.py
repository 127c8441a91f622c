"""The only place of `trainables` that reads environment variables: one function per knob."""

from __future__ import annotations
