"""Fast dataclasses share their methods and behave like frozen ones, but for assignments."""

import pickle
from dataclasses import dataclass, field, replace

from millstream.common.fast_dataclass import fast_dataclass


@fast_dataclass
class Place:
    name: str
    position: int = field(default=0, compare=False, kw_only=True, repr=False)


@fast_dataclass
class Town(Place):
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
    here, there = Town("Ulm", (1, 2), position=3), Town("Ulm", (1, 2), position=9)

    assert here == there and hash(here) == hash(there)
    assert here != replace(here, name="Bonn") and here != Place("Ulm") and here != "Ulm"  # type: ignore[comparison-overlap]
    assert repr(here) == repr(TownAsDataclass("Ulm", people=(1, 2))).replace("TownAsDataclass", "Town")
    assert pickle.loads(pickle.dumps(here)) == here
    assert Nothing() == Nothing() and len({Nothing(), Nothing()}) == 1
    assert repr(Nothing()) == "Nothing()"
    match here:
        case Town(name, people):
            assert (name, people) == ("Ulm", (1, 2))
