"""Hides secrets in settings and texts."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "******"

# Flink's list of substrings that mark a key as secret.
_SECRETS = (
    "password", "secret", "fs.azure.account.key", "apikey", "api-key", "auth-params", "service-key", "token",
    "basic-auth", "jaas.config", "http-headers",
)  # fmt: skip


# Secrets in texts: password=abc in an address or a list of options, 'password' = 'abc' in SQL, "password": "abc" in
# JSON, and user:password@ in an address. All repetitions are bounded: a text may be one long word.
_WORDS = r"(?:password|passwd|secret|token|api-?key|auth-params|service-key|basic-auth)[\w.-]{0,64}"
# A text without one of these has no secrets: most texts.
_HINTS = ("passw", "secret", "token", "api-key", "apikey", "auth-params", "service-key", "basic-auth", "://")
_IN_TEXT = re.compile(
    rf"""({_WORDS}=)(?![\s=])[^\s'",;&)\]}}]+"""
    rf"""|({_WORDS}['"]\s{{0,8}}[=:]\s{{0,8}}['"])[^'"]+"""
    r"""|(\w://[^\s:/@'"]{1,256}:)[^\s/@'"]{1,256}(?=@)""",
    re.IGNORECASE,
)


def is_secret(key: str) -> bool:
    """Return whether the value of a key must be hidden."""
    lower = key.lower()
    return any(word in lower for word in _SECRETS)


def masked(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with their secrets hidden.

    Example:
        >>> masked({"s3.secret-key": "abc", "parallelism.default": "2"})
        {'s3.secret-key': '******', 'parallelism.default': '2'}
    """
    return {key: HIDDEN if is_secret(key) else str(value) for key, value in settings.items()}


def masked_text(text: str) -> str:
    """Return a text with its named secrets hidden.

    Example:
        >>> masked_text("cannot reach jdbc:x://db/orders?user=ann&password=abc")
        'cannot reach jdbc:x://db/orders?user=ann&password=******'
        >>> masked_text("redis://ann:abc@host, 'properties.sasl.password' = 'abc', password = read()")
        "redis://ann:******@host, 'properties.sasl.password' = '******', password = read()"
    """
    lower = text.lower()
    if not any(hint in lower for hint in _HINTS):
        return text
    return _IN_TEXT.sub(lambda match: f"{match[1] or match[2] or match[3]}{HIDDEN}", text)
