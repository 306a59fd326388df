"""Games: self-play against an earlier self, judged by each player's own return."""

from dataclasses import dataclass

import small
from backends.drawn import same, weights
from scripted import Duel

import mas_lab as lab

QUICK = {"tasks": 4, "check": False, "save_every": 1}
SELF_PLAY = lab.Recipe("self_play", lab.episodes(8), ("task", "agent"), lab.own_return())


@dataclass(frozen=True)
class Words(Duel):
    """A duel in the eight words that small models know: w7 beats w0."""

    def observe(self, state, agent):
        return [{"role": "user", "content": {"left": "asker", "right": "doer"}[agent]}]

    def step(self, state, actions):
        ((agent, text),) = actions.items()
        return super().step(state, {agent: text[1:] if text in small.WORDS else text})


def test_a_player_learns_against_its_frozen_earlier_self(models, tmp_path):
    run, learner = tmp_path / "first", lab.load_policy(models / "a", lr=1e-2)
    first = lab.Team({"left": learner, "right": lab.load_policy(models / "b")}, frozen="right")
    [*_, last] = lab.train(Words(), first, SELF_PLAY, steps=2, run=run, **QUICK)
    assert last.turns["advantage"].any() and lab.load_run(run).recipe == SELF_PLAY
    assert {type(one) for one in last.turns["info"]} == {dict}
    assert lab.load_run(run).turns["info"].tolist()[-len(last.turns) :] == last.turns["info"].tolist()

    earlier = lab.load_run(run).team()["left"]
    second = lab.Team({"left": learner, "right": earlier}, frozen="right")
    before = weights(earlier)
    assert same(weights(learner), before)
    list(lab.train(Words(), second, SELF_PLAY, steps=3, **QUICK))
    assert same(weights(earlier), before) and not same(weights(learner), before)


def test_evaluation_reports_what_each_player_won(models):
    team = lab.Team.per_agent(lambda agent: lab.load_policy(models / "a"), Words.agents)
    env = Words()
    scores = lab.evaluate(env, team, env.tasks(6, "test", 0), k=8)
    own = scores.pivot(index="task", columns="agent", values="own_return")
    assert (own["left"] == -own["right"]).all() and own["left"].any() and (scores["return"] == 0).all()
    wins = scores[scores["agent"] == "left"].set_index("task")["success"]
    assert (own["left"] <= wins).all() and wins.max() > 0
