"""The only place of `trainables` that reads environment variables: one function per knob."""

from __future__ import annotations

import os


def azure_storage() -> dict[str, str]:
    """What `AZURE_STORAGE_*` says about the account: CONNECTION_STRING, ACCOUNT_NAME, ACCOUNT_KEY, SAS_TOKEN,
    TENANT_ID, CLIENT_ID and CLIENT_SECRET, by these names in lower case; those that are set."""
    names = ("connection_string", "account_name", "account_key", "sas_token", "tenant_id", "client_id", "client_secret")
    found = {name: os.environ.get(f"AZURE_STORAGE_{name.upper()}", "") for name in names}
    return {name: value for name, value in found.items() if value}


def cache_dir() -> str:
    """TUNE_CACHE_DIR: where copies of what lies elsewhere are kept; default ~/.cache/tuner."""
    return os.environ.get("TUNE_CACHE_DIR") or "~/.cache/tuner"
