"""What a step records, and pays to those who did not act."""

from dataclasses import dataclass, replace

import pytest
from scripted import Duel, Duet, Ladder, by_nth, by_side, lines, play

import mas_lab
import mas_lab.cells.plans
from mas_lab.cells.credits import own_return
from mas_lab.cells.plans import episodes, joint, tree
from mas_lab.env import EnvError
from mas_lab.table import column


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


def test_info_that_is_not_plain_is_refused_with_its_place():
    class Strange(Duel):
        def step(self, state, actions):
            return replace(super().step(state, actions), info={"said": {1, 2}})

    words = r"Strange.step: info\['said'\] is \{1, 2\} \(set\).*task 'train0-0', agent 'left'"
    with pytest.raises(EnvError, match=words):
        play(Strange(), by_nth, episodes(1))


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


@pytest.mark.parametrize("plan", [tree(2), tree(2, follow=1), joint(2), joint(2, mode="cross")])
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
