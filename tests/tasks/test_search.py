"""The search task: protocol, rewards by hand, what the released rules fall for, worlds, retrieval."""

import importlib.util
import sys

import pytest
from plays import in_turn

from mas_lab.check import check_env
from mas_lab.env import EnvError, Task, spec
from mas_lab.paths import data_dir
from mas_lab.tasks.search import Search, bm25, index
from mas_lab.tasks.shared import worlds
from mas_lab.tasks.shared.grading import plain_answer

WORLD = 7
FRIEND = worlds.facts(WORLD)["anna", "friend"]
CITY = worlds.facts(WORLD)[FRIEND, "city"]
OTHER = next(city for city in worlds.TRAITS["city"] if city != CITY)
TASK = {"question": "city of friend of anna", "answers": [CITY], "needed": ["anna friend", f"{FRIEND} city"]}
QUESTIONS, CORPUS = (str(data_dir() / "search" / name) for name in ("questions.jsonl", "corpus.jsonl"))
needs_bm25s = pytest.mark.skipif(importlib.util.find_spec("bm25s") is None, reason="pip install bm25s")


def play(env, *texts, data=TASK | {"world": WORLD}):
    return in_turn(env, Task("t", data), texts)


def earned(steps):
    return [(agent, step.team_reward, step.local_rewards[agent], step.valid[agent], step.done) for agent, step in steps]


def find(query):
    """A retriever of one's own, which knows one thing."""
    return [{"title": "Orra", "text": "Orra is an island.", "score": 1.5}] if "Orra" in query else []


def test_two_facts_are_searched_and_the_answer_pays_once():
    steps = play(Search(), "search", "anna friend", "search", f"{FRIEND} city", "answer", CITY)
    right = [(agent, 0.0, 1.0, True, False) for agent in ["verifier", "searcher"] * 2 + ["verifier"]]
    assert earned(steps) == [*right, ("answerer", 1.0, 1.0, True, True)]
    assert [step.success for _, step in steps] == [False] * 5 + [True]
    assert steps[1][1].info == {"query": "anna friend", "found": ["anna friend"]}


def test_an_early_answer_and_a_useless_search_earn_nothing():
    early = play(Search(), "answer", OTHER)
    assert earned(early) == [("verifier", 0.0, 0.0, True, False), ("answerer", 0.0, 0.0, True, True)]
    again = play(Search(), "search", "anna friend", "search", "anna friend", "search", "anna boss")
    assert [step.local_rewards["searcher"] for _, step in again[1::2]] == [1.0, 0.0, 0.0], "a fact pays once"
    idle = play(Search(), "search", "anna friend", "search", f"{FRIEND} city", "search")
    assert earned(idle)[-1] == ("verifier", 0.0, 0.0, True, False)


def test_the_last_turn_without_an_answer_scores_nothing():
    env = Search(max_turns=2)
    steps = play(env, "search", "anna friend", "search", f"{FRIEND} city")
    assert earned(steps)[-2:] == [("verifier", 0.0, 0.0, True, False), ("searcher", 0.0, 1.0, True, True)]
    assert env.acting(steps[-1][1].state) == () and not steps[-1][1].success
    guessed = play(env, "search", "anna friend", "answer", CITY)
    assert earned(guessed)[-2:] == [("verifier", 0.0, 1.0, True, False), ("answerer", 1.0, 1.0, True, True)]


def test_what_cannot_be_read_is_invalid_and_finds_nothing():
    steps = play(Search(), "hmm", "friend anna", "search answer", "anna", "answer", "oslo lima")
    unread = [(agent, 0.0, 0.0, False, False) for agent in ["verifier", "searcher"] * 2]
    assert earned(steps) == [*unread, ("verifier", 0.0, 0.0, True, False), ("answerer", 0.0, 0.0, False, True)]
    assert [look.found for look in steps[-1][1].state.looks] == [(), ()]


def test_a_single_agent_searches_and_answers():
    steps = play(Search(single_agent=True), "anna friend", f"{FRIEND} city", "what", CITY)
    assert earned(steps)[:2] == [("solo", 0.0, 1.0, True, False)] * 2
    assert earned(steps)[2:] == [("solo", 0.0, 0.0, False, False), ("solo", 1.0, 1.0, True, True)]
    assert earned(play(Search(single_agent=True), *["anna boss"] * 4))[-1] == ("solo", 0.0, 0.0, True, True)


def test_published_a_babbling_verifier_never_searches():
    for said in ("hmm", "search answer", ""):
        for env, next_one in ((Search(), "searcher"), (Search(rewards="published"), "answerer")):
            assert env.acting(play(env, said)[0][1].state) == (next_one,)
    full = Search(size="full", rewards="published"), Search(size="full")
    both = "<verdict>search</verdict> or <verdict>answer</verdict>"
    assert [env.acting(play(env, both)[0][1].state) for env in full] == [("answerer",), ("searcher",)]


def test_published_the_first_of_several_queries_counts():
    said = "<search>Orra</search> <search>Kelda</search>"
    more = "<verdict>search</verdict>"
    read = [play(Search(size="full", rewards=rewards, retriever=find), more, said)[-1][1].state.looks[0].query
            for rewards in ("published", "ours")]  # fmt: skip
    assert read == ["Orra", None]
    assert earned(play(Search(), "search", CITY))[-1] == ("searcher", 0.0, 0.0, False, False), "it may not answer"


@pytest.mark.parametrize(("agent", "text", "said"), [
    ("verifier", "so <verdict>\nAnswer </verdict>", ("verdict", "answer")),
    ("verifier", "<Verdict>SEARCH</Verdict>", ("verdict", "search")), ("verifier", "<verdict>maybe</verdict>", None),
    ("verifier", "<verdict>answer</verdict><verdict>answer</verdict>", None),
    ("searcher", "<search>who\n built it</search>", ("search", "who built it")),
    ("searcher", "<search> </search>", None), ("searcher", "<search>a</search> <search>b</search>", None),
    ("searcher", "<search>a", None), ("answerer", "<answer>A. B.</answer>", ("answer", "A. B.")),
    ("answerer", "<answer>a</answer> or <answer>b</answer>", None), ("answerer", "<search>a</answer>", None),
    ("solo", "<search>a</search>", ("search", "a")), ("solo", "<answer>a</answer>", ("answer", "a")),
    ("solo", "<search>a</search> <answer>b</answer>", None),
])  # fmt: skip
def test_full_size_texts(agent, text, said):
    assert Search(size="full", single_agent=agent == "solo").read(text, agent) == said


@pytest.mark.parametrize(("answer", "gold", "same"), [
    ("The  Lantern Bridge.", "lantern bridge", True), ("an apple a day", "apple day", True), ("U.S.", "us", True),
    ("theatre", "atre", False), ("1,884", "1884", True), ("bridge", "lantern bridge", False), ("The The", "a", False),
    ("A", "the", False), ("a", "A", True), ("...", "?", False), ("\u00dcber", "\u00fcber", True),
])  # fmt: skip
def test_answers_are_compared_as_usual(answer, gold, same):
    assert (plain_answer(answer) == plain_answer(gold)) is same


def test_a_retriever_is_recorded_by_its_name():
    env = Search(size="full", retriever=find)
    assert spec(env)["retriever"] == f"{__name__}:find"
    check_env(env, tasks=2)
    steps = play(env, "<verdict>search</verdict>", "<search>Orra?</search>", data=TASK | {"needed": ["orra "]})
    assert steps[-1][1].state.looks[0].found == (("Orra", "Orra is an island."),)
    assert earned(steps)[-1] == ("searcher", 0.0, 1.0, True, False)


@pytest.mark.parametrize(("found", "why"), [
    (ConnectionError("refused"), "retrieval failed: ConnectionError: refused"),
    ([{"title": "x"}], r"gave \"\[\{'title': 'x'\}\]\"; give a list of"),
])  # fmt: skip
def test_a_failed_retrieval_is_an_error_and_no_information(found, why):
    def fails(query):
        if isinstance(found, Exception):
            raise found
        return found

    env = Search(size="full", retriever=fails)
    with pytest.raises(EnvError, match=f"search, task 't', query 'who is it': .*{why}"):
        play(env, "<verdict>search</verdict>", "<search>who is it</search>")


def test_without_named_passages_one_with_the_answer_is_enough():
    data = {"question": "Which island?", "answers": ["Brannoch", "orra"], "needed": []}
    env = Search(size="full", retriever=find)
    more = "<verdict>search</verdict>"
    steps = play(env, more, "<search>x</search>", more, "<search>Orra</search>", "<verdict>answer</verdict>",
                 "<answer>The Orra</answer>", data=data)  # fmt: skip
    assert [step.local_rewards[agent] for agent, step in steps] == [1.0, 0.0, 1.0, 1.0, 1.0, 1.0]
    inside = data | {"answers": ["is"]}, data | {"answers": ["lan"]}
    assert [play(env, "<verdict>search</verdict>", "<search>Orra</search>", data=one)[-1][1].state.missing
            for one in inside] == [0, 1]  # fmt: skip


@needs_bm25s
def test_bm25_finds_what_shares_words_and_nothing_else():
    titles = [passage["title"] for passage in bm25(CORPUS, "lighthouse keepers", "search")]
    assert titles[:2] == ["The Salt Clock", "Sill Light"]
    assert bm25(CORPUS, "quantum", "search") == bm25(CORPUS, "", "search") == []
    assert len(bm25(CORPUS, "the islands of Halven", "search", 100)) < 40


@needs_bm25s
@pytest.mark.parametrize(("lines", "why"), [
    (["", '{"title": 1, "text": "b"}'], r"line 2: a passage needs title and text, it has \['text', 'title'\]"),
    ([], "give a JSONL file with title and text in each line"),
])  # fmt: skip
def test_a_broken_corpus_names_file_and_line(tmp_path, lines, why):
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(EnvError, match=rf"search: .*corpus\.jsonl.*{why}"):
        bm25(str(path), "a", "search")


@needs_bm25s
def test_a_changed_corpus_is_indexed_anew(tmp_path):
    path = tmp_path / "corpus.jsonl"
    for text in ("old tower", "new tower"):
        path.write_text(f'{{"title": "Orra", "text": "{text}"}}')
        assert [passage["text"] for passage in bm25(str(path), "tower", "search")] == [text]


def test_without_bm25s_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    index.cache_clear()
    with pytest.raises(EnvError, match="search: BM25 needs bm25s: pip install bm25s, or give a retriever"):
        Search(size="full").tasks(1, "train", 0)
    assert Search(size="full", retriever=find).tasks(1, "train", 0)
