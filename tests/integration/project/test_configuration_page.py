"""docs/reference/configuration.md has every option, with the keys, types and defaults of the code."""

from __future__ import annotations

import re

from tests.documentation.configuration import (
    COMPUTED,
    PAGE,
    all_settings,
    declared,
    documented,
    options_with_effect,
    page,
)
from tests.pyflink.option_keys import KEYS, read


def test_configuration_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run `make config-docs`"


def test_configuration_page_has_every_option_with_an_effect() -> None:
    spellings = {key: {main, *others} for main, others in read(KEYS.read_text()).items() for key in (main, *others)}
    names = documented()
    missing = [key for key in sorted(options_with_effect()) if not spellings.get(key, {key}) & names]
    assert missing == [], "add a row with the meaning to the page, then run `make config-docs`"


def test_configuration_page_has_each_option_once() -> None:
    keys = re.findall(r"^\| `([^`]+)`(?: \(.*?\))? \| .* \| .* \| .* \|$", PAGE.read_text(), re.MULTILINE)
    assert len(keys) > 150 and sorted(keys) == sorted(set(keys))
    assert set(keys) >= set(all_settings())


def test_computed_defaults_are_of_declared_options() -> None:
    assert set(COMPUTED) - set(declared()) == set()
