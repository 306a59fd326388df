"""Search: a verifier calls a search agent until enough is known, then an answer agent (Dr. MAS, arXiv 2602.08847).

Pocket size has a closed world of 24 people for each task. Its questions need one or two facts, which are looked up one
at a time. Full size has questions for an instruction model over a corpus. Passages are found by BM25 over a JSONL file
(`bm25s`) with `{"title": ..., "text": ...}` in each line, or by a function of the user. Embeddings, and servers that
hold a corpus, are left out; a function that asks one is a retriever too. Worlds are in `worlds`, reading
files in `rows`, and comparing two answers in `grading`.
"""

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from mas_lab.env import EnvError, Message, Step, Task
from mas_lab.paths import data_dir
from mas_lab.tasks.shared import worlds
from mas_lab.tasks.shared.bases import PROMPTS, SizedTask, chat, tagged
from mas_lab.tasks.shared.grading import plain_answer
from mas_lab.tasks.shared.rows import draw, files_of, question_and_answers, read_jsonl, sample

VERDICTS = ("search", "answer")
ANSWERS = ("verdict", "answer")
KINDS = {"verifier": ("verdict",), "searcher": ("search",), "answerer": ("answer",), "solo": ("search", "answer")}
"""Kinds of output that each agent may give."""
Passage = Mapping[str, Any]
"""`{"title": text, "text": text}`, and other entries of its source."""
Retriever = Callable[[str], Sequence[Passage]]
"""Function from a query to passages, the best first; the same query gives the same passages."""


@dataclass(frozen=True)
class Look:
    """One search: its query (`None`: unreadable), and (title, text) of each passage that was found."""

    query: str | None
    found: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class State:
    task: str
    question: str
    answers: tuple[str, ...]
    """All accepted answers."""
    needed: tuple[str, ...]
    """Titles of the needed passages. If empty, a passage with an accepted answer is enough."""
    world: int | None
    calls: str
    """Agent that acts next; empty when the episode is over."""
    looks: tuple[Look, ...] = ()

    @property
    def missing(self) -> int:
        """Return how many of the needed passages have not been found yet.

        If no titles are named, it is 1 until a passage is found that has an accepted answer as whole words, then 0.
        """
        found = [passage for look in self.looks for passage in look.found]
        if self.needed:
            titles = {title.strip().casefold() for title, _ in found}
            return sum(title.strip().casefold() not in titles for title in self.needed)
        texts = [f" {plain_answer(f'{title} {text}')} " for title, text in found]
        return int(not any(f" {plain_answer(answer)} " in text for text in texts for answer in self.answers))


@dataclass(frozen=True)
class Search(SizedTask):
    """A verifier calls the search agent or the answer agent, in each of up to `max_turns` turns.

    An answer ends the episode. The last turn ends it too, and fails without an answer. `team_reward` is 1 for an answer
    that equals an accepted one (`plain_answer`), at that step alone, so `max_return` = 1.

    `local_reward` is 1 or 0. Verifier: 1 if it calls the answer agent after all needed passages were found, or the
    search agent before. In the last turn a search can no longer help, so only the answer agent gives 1. Searcher: 1 if
    its query finds a needed passage that was not found before. Answerer: 1 for a right answer.

    An unreadable verdict is invalid, earns 0 and calls the search agent. An unreadable query is invalid and finds
    nothing, and the turn is over. The recipe decides the cost of an invalid output:
    `episode_return(invalid=Search.invalid_penalty)`.

    Rewards "published" read texts as the released code does. One verdict "answer" calls the answer agent, even beside a
    "search", and so does an unreadable verdict. Of several queries or answers the first counts. Defect: a verifier that
    writes nonsense never searches.

    `size` is either "pocket" (30 % of the questions need one fact, the others two), "full", or the number of needed
    facts, 1 to 3.
    """

    max_turns: int = 4
    data: str | None = None
    """Full size: a file, a folder or a data set of the hub (`rows.read`; `rows.COLUMNS` lists its
    columns). `None` means the few questions in `data/search`, about its corpus."""
    corpus: str | None = None
    """Full size: JSONL file that BM25 searches, see above. `None` means the corpus in `data/search`."""
    retriever: Retriever | None = None
    """Full size: function from a query to passages, instead of BM25. A run records it by its module and name."""

    name = "search"
    paper = "Dr. MAS, arXiv 2602.08847"
    order = "verifier → searcher? or answerer?, up to 4 turns"
    words = (*worlds.WORDS, *"123456789", "left", "question", "search", "answer", *KINDS)
    roles = ("verifier", "searcher", "answerer")
    numbers = range(1, 4)
    unit = "facts"
    max_return = 1.0
    invalid_penalty = 0.01
    """Penalty of Dr. MAS: it is subtracted from the return of an invalid output."""
    errs = {"verifier": 0.15, "searcher": 0.3, "answerer": 0.25, "solo": 0.0}
    """Share of the outputs of `demonstrate` that are wrong, by role, at `mistakes` = 1. A single agent plays all three
    roles."""

    def __post_init__(self):
        super().__post_init__()
        sources = [name for name in ("data", "corpus", "retriever") if getattr(self, name) is not None]
        for name in sources:
            self.require(name, self.full, "it is for size='full'; pocket facts are looked up in the task's world")
        self.require("data", sources != ["data"], "give a corpus, or a retriever, that its questions are about")
        self.require("retriever", sources[-2:] != ["corpus", "retriever"], "give no corpus beside it")

    @property
    def max_tokens(self) -> int:
        return 512 if self.full else 4

    def problems(self, n: int, split: str, seed: int) -> list[tuple[str, dict]]:
        if self.full:
            data = self.data or str(data_dir() / "search" / "questions.jsonl")
            if self.retriever is None:
                bm25(self._corpus, "", self.name)  # build the index, or fail, before any episode starts
            found = sample(data, n, split, seed, question_and_answers, self.name)
            return [(text, {"question": text, "answers": right, "needed": titles}) for text, right, titles in found]
        found = []
        for world in draw(worlds.worlds(random.Random(f"search {self.size} {split} {seed}")), n, split, self.name):
            question = worlds.question(world, self.number)
            facts = worlds.chain(world, question)
            needed = [f"{person} {relation}" for person, relation, _ in facts]
            data = {"question": question, "answers": [facts[-1][-1]], "needed": needed, "world": world}
            found.append((f"{world} {question}", data))
        return found

    def start(self, task: Task) -> State:
        lists = (tuple(task.data[name]) for name in ("answers", "needed"))
        return State(task.id, task.data["question"], *lists, task.data.get("world"), calls=self.agents[0])

    def acting(self, state: State) -> tuple[str, ...]:
        return (state.calls,) if state.calls else ()

    def observe(self, state: State, agent: str) -> list[Message]:
        left = self.max_turns - len(state.looks)
        if not self.full:
            facts = [text for look in state.looks for _, text in look.found]
            parts = [*facts, "left", str(min(left, 9)), "question", state.question, agent]
            return chat(" ".join(parts))
        parts = [f"Question: {state.question}", *map(as_text, state.looks), f"Turns left, this one included: {left}"]
        return chat("\n\n".join(parts), PROMPTS[self.name][agent])

    def read(self, text: str, agent: str) -> tuple[str, str] | None:
        """Return the kind and the text of an output: ("verdict", "search"), ("search", query) or ("answer", answer).

        `None` means that nothing can be read, or (with rewards "ours") more than one thing.
        """
        found = (_tagged if self.full else _worded)(text, KINDS[agent])
        if self.published:
            return ANSWERS if ANSWERS in found else next(iter(found), None)
        alone = self.full or agent != "verifier" or len(text.split()) == 1
        return found[0] if len(found) == 1 and alone else None

    def act(self, state: State, actions: Mapping[str, str]) -> Step:
        (agent,) = self.acting(state)
        output = self.read(actions[agent], agent)
        if agent == "verifier":
            return self._route(state, output)
        if agent == "answerer" or (output is not None and output[0] == "answer"):
            right = output is not None and plain_answer(output[1]) in map(plain_answer, state.answers)
            local, valid = {agent: float(right)}, {agent: output is not None}
            return Step(replace(state, calls=""), float(right), local, valid, right, True)
        return self._look(state, agent, output)

    def _route(self, state: State, output: tuple[str, str] | None) -> Step:
        answers = output == ANSWERS if output else self.published
        after = replace(state, calls="answerer" if answers else "searcher")
        local = float(output is not None and answers == self._enough(state))
        return Step(after, 0.0, {"verifier": local}, {"verifier": output is not None}, False, False)

    def _enough(self, state: State) -> bool:
        """Return whether it is time to answer: nothing is missing, or this is the last turn."""
        return not state.missing or len(state.looks) + 1 == self.max_turns

    def _look(self, state: State, agent: str, output: tuple[str, str] | None) -> Step:
        look = Look(output[1], tuple(self._find(state, output[1]))) if output else Look(None)
        looks = (*state.looks, look)
        done = len(looks) == self.max_turns
        after = replace(state, looks=looks, calls="" if done else self.agents[0])
        info = {"query": look.query, "found": [title for title, _ in look.found]}
        local = float(after.missing < state.missing)
        return Step(after, 0.0, {agent: local}, {agent: output is not None}, False, done, info)

    @property
    def _corpus(self) -> str:
        return self.corpus or str(data_dir() / "search" / "corpus.jsonl")

    def _find(self, state: State, query: str) -> list[tuple[str, str]]:
        """Return (title, text) of each passage that a query finds; nothing is ever made up.

        Raises EnvError, with task and query, if the retriever fails or does not return passages.
        """
        if not self.full:
            return worlds.look_up(state.world, query)
        try:
            found = self.retriever(query) if self.retriever else bm25(self._corpus, query, self.name)
            if not all(map(_is_passage, found)):
                raise TypeError(f"it gave {str(found)[:80]!r}; give a list of {{'title': text, 'text': text}}")
        except Exception as error:
            place = f"{self.name}, task {state.task!r}, query {query!r}"
            raise EnvError(f"{place}: retrieval failed: {type(error).__name__}: {error}") from error
        return [(passage["title"], passage["text"]) for passage in found]

    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return an imperfect output to learn from: hasty or endless searches, a wrong person, a wrong value.

        In full size it has the right form: the query is the question itself, and the answer is right half of the time.
        """
        errs = rng.random() < self.errs[agent] * self.mistakes
        if agent == "solo":
            errs = rng.random() < self.errs["verifier"] * self.mistakes
            return self.demonstrate(state, "answerer" if self._enough(state) != errs else "searcher", rng)
        if agent == "verifier":
            verdict = VERDICTS[self._enough(state) != errs]
            return f"<verdict>{verdict}</verdict>" if self.full else verdict
        if self.full:
            answer = state.answers[0] if rng.random() < 0.5 else "unknown"
            return f"<search>{state.question}</search>" if agent == "searcher" else f"<answer>{answer}</answer>"
        known = [text for look in state.looks for _, text in look.found]
        return (worlds.ask if agent == "searcher" else worlds.answer)(state.world, state.question, known, errs, rng)


def _tagged(text: str, kinds: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return each text between tags of one of `kinds`, with its kind."""
    found = [(kind, " ".join(inner.split())) for kind, inner in tagged(text, *kinds)]
    found = [(kind, inner.lower() if kind == "verdict" else inner) for kind, inner in found]
    return [(kind, inner) for kind, inner in found if inner and (kind != "verdict" or inner in VERDICTS)]


def _worded(text: str, kinds: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the outputs of the given kinds in pocket words.

    A verdict is one of two words, a query is a person and a relation, and an answer is one value.
    """
    words = text.split()
    found = [("verdict", word) for word in words if word in VERDICTS]
    if len(words) == 2 and words[0] in worlds.PEOPLE and words[1] in worlds.RELATIONS:
        found.append(("search", " ".join(words)))
    if len(words) == 1 and words[0] in worlds.VALUES:
        found.append(("answer", words[0]))
    return [(kind, text) for kind, text in found if kind in kinds]


def as_text(look: Look) -> str:
    """Return a search as text for an instruction model."""
    found = "\n".join(f"[{number}] {title}: {text}" for number, (title, text) in enumerate(look.found, start=1))
    query = f"<search>{look.query}</search>" if look.query else "A search without a query that can be read."
    return f"{query}\n<information>\n{found or 'Nothing was found.'}\n</information>"


def _is_passage(found: Any) -> bool:
    return isinstance(found, Mapping) and all(isinstance(found.get(name), str) for name in ("title", "text"))


def bm25(corpus: str, query: str, env: str, most: int = 3) -> list[Passage]:
    """Return up to `most` passages of a corpus that share a word with the query, by their BM25 score."""
    tokenize, scored, passages = index(corpus, env, files_of(corpus))
    numbers, scores = scored.retrieve(tokenize([query]), k=min(most, len(passages)), show_progress=False)
    return [passages[number] for number, score in zip(numbers[0], scores[0], strict=True) if score > 0]


@lru_cache(maxsize=2)
def index(corpus: str, env: str, files: Hashable) -> tuple[Callable, Any, list[Passage]]:
    """Return the tokenizer, the index of a corpus, and its passages; a title counts as a part of its text.

    `files` is `files_of(corpus)`. Raises EnvError that names the file, and the line, if the corpus cannot be read.
    """
    try:
        import bm25s
    except ImportError:
        raise EnvError(f"{env}: BM25 needs bm25s: pip install bm25s, or give a retriever of your own") from None
    rows = list(read_jsonl(Path(corpus), env)) if Path(corpus).is_file() else []
    for number, row in rows:
        if not _is_passage(row):
            raise EnvError(f"{env}: {corpus}, line {number}: a passage needs title and text, it has {sorted(row)}")
    if not rows:
        raise EnvError(f"{env}: there is no corpus {corpus}; give a JSONL file with title and text in each line")
    passages, scored = [row for _, row in rows], bm25s.BM25()
    tokenize = partial(bm25s.tokenize, show_progress=False)
    scored.index(tokenize([f"{passage['title']} {passage['text']}" for passage in passages]), show_progress=False)
    return tokenize, scored, passages
