"""Draw closed worlds of people and facts about them, and questions that one fact or a chain of facts answers.

A world is its number. The facts of one world say nothing about another, so nobody can answer without looking them up.
The task decides who looks, and what that earns.
"""

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache

from mas_lab.tasks.shared.bases import WORD_LISTS

PEOPLE, TRAITS = WORD_LISTS["worlds"]["people"], WORD_LISTS["worlds"]["traits"]
"""People, and relations that lead to a value, which ends a chain."""
LINKS = ("boss", "friend", "neighbor")
"""Relations that lead to another person."""
RELATIONS = (*LINKS, *TRAITS)
VALUES = (*PEOPLE, *(value for values in TRAITS.values() for value in values))
"""Values that a fact can have."""
WORDS = (*VALUES, *RELATIONS, "of")
WORLDS = 2**32
ONE_HOP = 0.3
"""Share of the questions that a single fact answers, if the number of facts is not given."""


@lru_cache(maxsize=4096)
def facts(world: int) -> dict[tuple[str, str], str]:
    """Return (person, relation) -> value for all 24 people and 6 relations; nobody is linked to themselves."""
    rng, found = random.Random(f"world {world}"), {}
    for person in PEOPLE:
        others = [other for other in PEOPLE if other != person]
        for relation in RELATIONS:
            found[person, relation] = rng.choice(TRAITS.get(relation, others))
    return found


def question(world: int, hops: int | None = None) -> str:
    """Return the question of a world, such as `city of friend of anna`, with `hops` facts (`None`: one or two)."""
    rng = random.Random(f"question {world}")
    count = hops or (1 if rng.random() < ONE_HOP else 2)
    path = [rng.choice(RELATIONS), *rng.choices(LINKS, k=count - 1), rng.choice(PEOPLE)]
    return " of ".join(path)


def chain(world: int, question: str) -> list[tuple[str, str, str]]:
    """Return the facts (person, relation, value) that answer a question, in the order in which they can be found.

    The value of the last fact is the answer.
    """
    *relations, person = question.split(" of ")
    found = []
    for relation in reversed(relations):
        found.append((person, relation, facts(world)[person, relation]))
        person = found[-1][-1]
    return found


def worlds(rng: random.Random) -> Iterator[int]:
    """Yield random worlds without end."""
    while True:
        yield rng.randrange(WORLDS)


def look_up(world: int, title: str) -> list[tuple[str, str]]:
    """Return `[("anna friend", "anna friend boris")]` for the title `anna friend`, and nothing for an unknown title."""
    key = tuple(title.split())
    value = facts(world).get(key)
    return [] if value is None else [(" ".join(key), " ".join((*key, value)))]


def ask(world: int, question: str, known: Sequence[str], errs: bool, rng: random.Random) -> str:
    """Return the title to look up next: the first fact of the answer that is not `known`, or the last if all are.

    If it `errs`, it is a person that was met, with any relation of the question.
    """
    if not errs:
        titles = [f"{person} {relation}" for person, relation, _ in chain(world, question)]
        titles_known = {fact.rpartition(" ")[0] for fact in known}
        return next((title for title in titles if title not in titles_known), titles[-1])
    *relations, person = question.split(" of ")
    return f"{rng.choice([person, *_met(known, PEOPLE)])} {rng.choice(relations)}"


def answer(world: int, question: str, known: Sequence[str], errs: bool, rng: random.Random) -> str:
    """Return the answer if all its facts are `known`; otherwise, or if it `errs`, a guess."""
    links = chain(world, question)
    if not errs and {" ".join(link) for link in links} <= set(known):
        return links[-1][-1]
    return rng.choice([*_met(known, VALUES), rng.choice(TRAITS.get(links[-1][1], PEOPLE))])


def _met(known: Sequence[str], among: Sequence[str]) -> list[str]:
    return [value for value in (fact.split()[-1] for fact in known) if value in among]
