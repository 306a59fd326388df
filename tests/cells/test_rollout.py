"""A draw depends on nothing but its place, and the table holds what was sampled."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scripted import Duel, Duet, Ladder, by_nth, by_side, lines, play, same_draws, team_of
from small import KINDS, Relay, make_team

import mas_lab
from mas_lab.cells.credits import own_return
from mas_lab.cells.plans import episodes, joint, tree, without
from mas_lab.cells.rollout import rollout
from mas_lab.env import EnvError
from mas_lab.table import column
from mas_lab.team import Sampling

# Turns


def test_max_turns_bounds_an_env_that_is_no_dataclass_and_has_no_end_of_its_own():
    """It counts an agent's own turns."""

    class Endless:
        agents, max_turns, max_return, pocket, max_tokens = ("planner", "executor"), 2, 1.0, "", 8
        tasks, start, acting, observe = Ladder.tasks, Ladder.start, Ladder.acting, Ladder.observe

        def step(self, state, actions):
            return replace(Ladder.step(self, state, actions), done=False)

    env = Endless()
    turns = play(env, by_nth, tree(2))
    assert turns.groupby("agent")["turn"].max().to_dict() == {"planner": 1, "executor": 1}
    assert len(play(env, by_nth, episodes(1), max_turns=1)) == 2 and env.max_turns == 2
    assert play(Ladder(max_turns=5), by_nth, episodes(1), max_turns=3)["done"].tolist() == [False] * 5 + [True]
    with pytest.raises(ValueError, match=r"max_turns=0 .*1 or more"):
        play(env, by_nth, episodes(1), max_turns=0)


# Real draws


RELAY = Relay()
TASKS = RELAY.tasks(4, "train", 0)


@pytest.mark.parametrize("kind, plan", zip(KINDS, [tree(3, follow=1), joint(2), without(2), episodes(2)], strict=True))
def test_a_draw_depends_on_its_place_alone(kind, plan, models):
    """Twice, in threads, in another order, and each task alone: the same tokens."""
    team, env = make_team(kind, models), Relay(together=isinstance(plan, joint))
    turns = rollout(env, team, TASKS, plan, seed=7, step=2)
    assert same_draws(turns, rollout(env, team, TASKS, plan, seed=np.int64(7), step=np.int64(2), workers=4))
    assert same_draws(turns, rollout(env, team, TASKS[::-1], plan, seed=7, step=2))
    alone = rollout(env, team, TASKS[2:3], plan, seed=7, step=2)
    assert same_draws(turns[turns["task"] == TASKS[2].id], alone)


def test_seed_step_and_candidate_change_the_draws(models):
    team = make_team("shared", models)
    turns = rollout(RELAY, team, TASKS, tree(6))
    first = turns[turns["depth"] == 0]
    assert first.groupby("node")["completion"].nunique().min() > 1
    assert first.groupby("candidate")["completion"].nunique().min() > 1
    for other in ({"seed": 1}, {"step": 1}):
        again = rollout(RELAY, team, TASKS, tree(6), **other)
        assert again[again["depth"] == 0]["completion"].tolist() != first["completion"].tolist()


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_traps_3_to_6_the_table_holds_what_was_sampled(temperature, models):
    """EOS once, last, iff it ended the text; log-probabilities are the full distribution's at T, by the plain model.

    Nothing is read back from text: ids that the tokenizer would not give again are there as they were sampled.
    """
    team = make_team("unlike", models).with_sampling(Sampling(temperature=temperature))
    turns = rollout(RELAY, team, RELAY.tasks(8, "train", 0), tree(4), seed=1)
    changed = 0
    for row in turns.itertuples():
        policy = team[row.agent]
        eos = policy.tokenizer.eos_token_id
        assert (row.finish == "eos") == (row.completion_ids[-1] == eos) and eos not in row.completion_ids[:-1]
        assert row.finish == "eos" or len(row.completion_ids) == RELAY.max_tokens
        assert row.temperature == temperature
        ids = torch.tensor([row.prompt_ids + row.completion_ids])
        with torch.no_grad():
            logits = policy.model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1].double()
        expected = (logits / temperature).log_softmax(-1).gather(1, ids[0, len(row.prompt_ids) :, None])[:, 0]
        assert row.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
        changed += policy.tokenizer(row.completion)["input_ids"] != row.completion_ids
    assert set(turns["finish"]) == {"eos", "length"}
    assert 0 < changed < len(turns)


def test_trap_6_nothing_is_cut_from_the_distribution(models):
    team = make_team("shared", models).with_sampling(Sampling(temperature=50.0))
    turns = rollout(RELAY, team, RELAY.tasks(8, "train", 0), tree(24))
    vocabulary = team["asker"].model.config.vocab_size
    counts = np.bincount(np.concatenate(turns["completion_ids"].tolist()), minlength=vocabulary)
    assert (counts > 0.5 * counts.sum() / vocabulary).all()


def test_a_text_is_bounded_by_the_env_or_by_the_teams_settings(models):
    team = make_team("shared", models).with_sampling({"doer": Sampling(max_tokens=1)})
    turns = rollout(RELAY, team, TASKS, episodes(2))
    longest = turns["completion_ids"].map(len).groupby(turns["agent"]).max()
    assert longest.to_dict() == {"asker": RELAY.max_tokens, "doer": 1}


def test_what_is_trained_on_is_drawn_from_the_full_distribution():
    env = Ladder()
    team = team_of(env, by_nth).with_sampling(Sampling(top_p=0.9))
    with pytest.raises(ValueError, match=r"agent 'planner' samples with top_p=.*training moves.*evaluate"):
        rollout(env, team, env.tasks(1, "train", 0), episodes(1))


# What a step records, and pays to those who did not act


def test_what_a_step_tells_is_a_column_that_credits_read():
    turns = play(Duel(), by_side, episodes(2))
    assert turns["info"].tolist() == [{}, {"said": [3, 4]}] * 2

    @dataclass(frozen=True)
    class told:
        def __call__(self, turns):
            return column(turns, "info").map(lambda info: float(sum(info.get("said", ()))))

    credits = mas_lab.group(turns, ("task", "agent"), told())["credit"]
    assert credits.tolist() == [0.0, 7.0] * 2
    assert told()(turns.drop(columns="info")).tolist() == [0.0] * 4


def test_a_completion_of_several_joint_actions_lists_what_each_told():
    class Tells(Duet):
        def step(self, state, actions):
            return replace(super().step(state, actions), info={"both": "".join(actions.values())})

    turns = play(Tells(max_turns=1), by_nth, joint(2, mode="cross"))
    first = turns[(turns["agent"] == turns["agent"].iloc[0]) & (turns["candidate"] == 0)]
    assert first["info"].tolist() == [[{"both": "11"}, {"both": "12"}]]


def test_whole_episodes_pay_who_did_not_act_at_its_last_call():
    turns = play(Duel(), by_side, episodes(2))
    paid = [("left", -1.0, 0.0), ("right", 1.0, 0.0)] * 2
    assert lines(turns, ["agent", "local_reward", "team_reward"]) == paid
    assert own_return()(turns).tolist() == [-1.0, 1.0] * 2


def test_a_reward_for_a_call_long_past_goes_to_its_last_one_on_the_path():
    class Late(Ladder):
        """Pays the planner with the executor's last words, too."""

        def step(self, state, actions):
            step = super().step(state, actions)
            both = {**step.local_rewards, "planner": 10.0} if step.done else step.local_rewards
            return replace(step, local_rewards=both)

    plain, late = (play(env, lambda *asked: "1", episodes(2)) for env in (Ladder(), Late()))
    more = late["local_reward"] - plain["local_reward"]
    assert more.tolist() == [0.0, 0.0, 10.0, 0.0] * 2
    assert set(late["agent"][more > 0]) == {"planner"}


@pytest.mark.parametrize("plan", [tree(2), joint(2)])
def test_where_candidates_are_compared_nobody_else_is_paid(plan):
    with pytest.raises(EnvError, match=r"pays agent 'left', which did not act, in task 'train0-0' .* episodes\(n\)"):
        play(Duel(), by_nth, plan)


@pytest.mark.parametrize("who, words", [
    ("right", "pays agent 'right' in task 'train0-0' at .*, but the agent has not acted"),
    ("referee", "pays 'referee' for task 'train0-0', agent 'left', turn 0; the env plays"),
])  # fmt: skip
def test_who_has_not_spoken_or_is_a_stranger_cannot_be_paid(who, words):
    class Early(Duel):
        def step(self, state, actions):
            return replace(super().step(state, actions), local_rewards={"left": 0.0, who: 1.0})

    with pytest.raises(EnvError, match=words):
        play(Early(), by_nth, episodes(1))
