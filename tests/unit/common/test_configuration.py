from __future__ import annotations

import pytest

from millstream.common import Configuration
from millstream.common.configuration import parse_duration_ms
from millstream.common.errors import InvalidProgramError


def test_configuration_converts_values_by_type() -> None:
    config = Configuration.from_dict({"n": "3", "yes": "true", "x": "1.5", "t": "10 s"})
    assert config.get_integer("n", 0) == 3
    assert config.get_boolean("yes", False) is True
    assert config.get_float("x", 0) == 1.5
    assert config.get_millis("t", 0) == 10_000
    assert config.get_string("none", "default") == "default"


def test_configuration_error_names_the_key_of_a_bad_value() -> None:
    config = Configuration.from_dict({"n": "three", "b": "maybe", "t": "soon"})
    for read in (lambda: config.get_integer("n", 0), lambda: config.get_boolean("b", False)):
        with pytest.raises(InvalidProgramError, match="Configuration (n|b)="):
            read()  # type: ignore[no-untyped-call]
    with pytest.raises(InvalidProgramError, match="t: 'soon' is not a duration"):
        config.get_millis("t", 0)


def test_configuration_merge_equality_and_removal() -> None:
    a, b = Configuration().set_string("k", "1"), Configuration().set_integer("k", 1)
    assert a != b
    assert a == Configuration(a) and hash(a) == hash(Configuration(a))
    b.add_all(Configuration.from_dict({"x": "y"}), prefix="p.")
    assert b.to_dict() == {"k": "1", "p.x": "y"}
    assert b.remove_config("p.x")
    assert not b.contains_key("p.x")


@pytest.mark.parametrize(("text", "ms"), [("1 min", 60_000), ("250", 250), ("2h", 7_200_000), ("1 d", 86_400_000)])
def test_parse_duration_accepts_flink_units(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms
