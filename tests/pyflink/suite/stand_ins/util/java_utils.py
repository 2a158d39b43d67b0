"""PyFlink's helpers for Java objects: only the settings of an environment are supported."""

from __future__ import annotations

from typing import Any

from pyflink.java_gateway import NeedsJava


class JavaConfiguration:
    """The settings of an environment, with the methods of Java's Configuration."""

    def __init__(self, configuration: Any) -> None:
        self.configuration = configuration

    def setString(self, key: str, value: str) -> None:
        self.configuration.set_string(key, value)

    def setInteger(self, key: str, value: int) -> None:
        self.configuration.set_integer(key, value)

    def getString(self, key: str, default: str | None = None) -> str:
        value = self.configuration.get_string(key, default)
        if value is None:
            raise NeedsJava(f"no setting {key}")
        return str(value)

    def removeKey(self, key: str) -> None:
        self.configuration.remove_config(key)

    def __getattr__(self, name: str) -> Any:
        raise NeedsJava(f"Configuration.{name}")


def get_j_env_configuration(env: Any) -> JavaConfiguration:
    return JavaConfiguration(env.get_configuration())


def _needs_java(name: str) -> Any:
    def raise_error(*args: Any) -> Any:
        raise NeedsJava(name)

    return raise_error


for _name in ("to_jarray", "is_instance_of", "get_field", "get_field_value", "load_java_class"):
    globals()[_name] = _needs_java(_name)
