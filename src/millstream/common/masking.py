"""Secrets among settings are never shown."""

from __future__ import annotations

from collections.abc import Mapping

HIDDEN = "******"

# Flink's list of what makes a key one of a secret.
_SECRETS = (
    "password", "secret", "fs.azure.account.key", "apikey", "api-key", "auth-params", "service-key", "token",
    "basic-auth", "jaas.config", "http-headers",
)  # fmt: skip


def is_secret(key: str) -> bool:
    """Tell whether the value of a key must not be shown."""
    lower = key.lower()
    return any(word in lower for word in _SECRETS)


def masked(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with their secrets hidden.

    Example:
        >>> masked({"s3.secret-key": "abc", "parallelism.default": "2"})
        {'s3.secret-key': '******', 'parallelism.default': '2'}
    """
    return {key: HIDDEN if is_secret(key) else str(value) for key, value in settings.items()}
