"""Each distinct chat is put into tokens once in a rollout; one that cannot be is named by its place."""

import pytest
from scripted import Ladder, Scripted

from mas_lab.cells.episode import RolloutError
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import rollout
from mas_lab.policy import PolicyError
from mas_lab.team import Team


class Batched(Scripted):
    """Notes the chats of each call, and refuses those in which `refused` stands."""

    def __init__(self, refused="nothing"):
        super().__init__(lambda prompt, nth, seed: str(nth % 2))
        self.refused, self.calls = refused, []

    def encode(self, messages):
        return self.encode_all([messages])[0]

    def encode_all(self, chats):
        self.calls.append([chat[-1]["content"] for chat in chats])
        if any(self.refused in content for content in self.calls[-1]):
            raise PolicyError("policy 'batched': not in this house")
        return [list(chat[-1]["content"].encode()) for chat in chats]


def play(policy):
    env = Ladder(max_turns=1)
    return rollout(env, Team.shared(policy, env.agents), env.tasks(2, "train", 0), episodes(4))


def test_a_wave_is_put_into_tokens_in_one_call_and_no_chat_twice():
    policy = Batched()
    turns = play(policy)
    heard = [f"executor hears {task} {said}" for task in ("t0", "t1") for said in "01"]
    assert policy.calls[0] == ["planner hears t0", "planner hears t1"]
    assert [sorted(call) for call in policy.calls[1:] if call] == [heard]
    assert [bytes(ids).decode() for ids in turns["prompt_ids"]] == turns["prompt"].str.removeprefix("user: ").tolist()


def test_of_a_wave_that_fails_the_one_at_fault_is_named():
    with pytest.raises(RolloutError, match=r"task 't1', agent 'executor', turn 0: policy 'batched': not in this"):
        play(Batched(refused="t1 1"))


def test_policies_of_one_team_do_not_share_tokens():
    class Upper(Batched):
        def encode_all(self, chats):
            return [list(chat[-1]["content"].upper().encode()) for chat in chats]

    class Alike(Ladder):
        def observe(self, state, agent):
            return [{"role": "user", "content": "all hear this"}]

    env = Alike(max_turns=1)
    team = Team(dict(zip(env.agents, (Batched(), Upper()), strict=True)))
    turns = rollout(env, team, env.tasks(1, "train", 0), episodes(1))
    assert [bytes(ids) for ids in turns["prompt_ids"]] == [b"all hear this", b"ALL HEAR THIS"]
