"""The settings of an environment as a mapping, for statements that look at them and change them."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

from millstream.common.configuration import Configuration


class SettingsMap(MutableMapping[str, str]):
    """A configuration as a mapping of texts."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def __getitem__(self, key: str) -> str:
        if not self._configuration.contains_key(key):
            raise KeyError(key)
        return str(self._configuration.get_string(key, ""))

    def __setitem__(self, key: str, value: str) -> None:
        self._configuration.set_string(key, value)

    def __delitem__(self, key: str) -> None:
        self._configuration.remove_config(key)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._configuration.key_set()))

    def __len__(self) -> int:
        return len(self._configuration.key_set())
