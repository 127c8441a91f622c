"""Arguments of an upload to S3 that users set: names as in boto3's `ExtraArgs`, and the headers that they become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainables.validation import invalid

HEADERS = {
    "ACL": "x-amz-acl",
    "BucketKeyEnabled": "x-amz-server-side-encryption-bucket-key-enabled",
    "CacheControl": "cache-control",
    "GrantFullControl": "x-amz-grant-full-control",
    "GrantRead": "x-amz-grant-read",
    "GrantReadACP": "x-amz-grant-read-acp",
    "GrantWriteACP": "x-amz-grant-write-acp",
    "SSEKMSEncryptionContext": "x-amz-server-side-encryption-context",
    "SSEKMSKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "StorageClass": "x-amz-storage-class",
    "Tagging": "x-amz-tagging",
}
"""Argument -> its header. `Metadata` becomes several."""
METADATA = "x-amz-meta-"


def checked_extra_args(name: str, value: Any) -> dict[str, Any]:
    """Return the arguments as a dict of their own. Raises InvalidSettingError, which names what is wrong."""
    accepted = f'None, or a dict like {{"ServerSideEncryption": "aws:kms"}} with {", ".join([*HEADERS, "Metadata"])}'
    if not isinstance(value, Mapping):
        raise invalid(name, value, accepted)
    for key, item in value.items():
        if key in ("SSECustomerKey", "SSECustomerKeyMD5", "SSECustomerAlgorithm"):
            key_of_its_own = "a key of your own would be stored with the experiment; SSEKMSKeyId names a key of KMS"
            raise invalid(f"{name}: the argument", key, f"{accepted} ({key_of_its_own})")
        if key not in HEADERS and key != "Metadata":
            raise invalid(f"{name}: the argument", key, accepted)
        if key == "Metadata":
            if not isinstance(item, Mapping) or not all(_is_token(each) for each in item):
                raise invalid(f"{name}: Metadata", item, "a dict of texts, whose names are letters, digits, - and _")
            for each, text in item.items():
                _check_text(f"{name}: Metadata: {each}", text)
        elif key == "BucketKeyEnabled":
            if not isinstance(item, bool):
                raise invalid(f"{name}: {key}", item, "True or False")
        else:
            _check_text(f"{name}: {key}", item)
    return {key: dict(item) if key == "Metadata" else item for key, item in value.items()}


def headers_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers of those of these arguments of a request that are extra ones.

    >>> headers_of({"Bucket": "b", "BucketKeyEnabled": True, "Metadata": {"Team": "a"}})
    {'x-amz-server-side-encryption-bucket-key-enabled': 'true', 'x-amz-meta-team': 'a'}
    """
    found = {
        header: str(arguments[key]).lower() if key == "BucketKeyEnabled" else arguments[key]
        for key, header in HEADERS.items()
        if key in arguments
    }
    return found | {f"{METADATA}{key.lower()}": text for key, text in arguments.get("Metadata", {}).items()}


def for_copy(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a copy, which would keep the source's metadata and tags."""
    replaces = {"Metadata": "MetadataDirective", "Tagging": "TaggingDirective"}
    return {**arguments, **{replaces[key]: "REPLACE" for key in arguments if key in replaces}}


def _is_token(name: Any) -> bool:
    return isinstance(name, str) and name.isascii() and name.replace("-", "").replace("_", "").isalnum()


def _check_text(name: str, value: Any) -> None:
    """Refuse what is no value of a header."""
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or value != " ".join(value.split()):
        raise invalid(name, value, "a text of printable ASCII characters")
