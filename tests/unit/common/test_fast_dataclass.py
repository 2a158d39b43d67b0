"""Fast dataclasses share their methods, and behave like frozen dataclasses except for assignments."""

import pickle
from dataclasses import dataclass, field, replace

from millstream.common.fast_dataclass import fast_dataclass


@fast_dataclass
class Location:
    name: str
    position: int = field(default=0, compare=False, kw_only=True, repr=False)


@fast_dataclass
class Town(Location):
    people: tuple[int, ...] = ()


@fast_dataclass
class Nothing:
    pass


@dataclass(frozen=True)
class TownAsDataclass:
    name: str
    position: int = field(default=0, compare=False, kw_only=True, repr=False)
    people: tuple[int, ...] = ()


def test_fast_dataclass_behaves_like_a_dataclass() -> None:
    first, second = Town("Ulm", (1, 2), position=3), Town("Ulm", (1, 2), position=9)

    assert first == second and hash(first) == hash(second)
    assert first != replace(first, name="Bonn") and first != Location("Ulm") and first != "Ulm"  # type: ignore[comparison-overlap]
    assert repr(first) == repr(TownAsDataclass("Ulm", people=(1, 2))).replace("TownAsDataclass", "Town")
    assert pickle.loads(pickle.dumps(first)) == first
    assert Nothing() == Nothing() and len({Nothing(), Nothing()}) == 1
    assert repr(Nothing()) == "Nothing()"
    match first:
        case Town(name, people):
            assert (name, people) == ("Ulm", (1, 2))
