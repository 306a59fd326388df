"""The four cells on the real vLLM engine in this process: what it draws, what it is sent, and that it serves no stale
weights.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("vllm")

from backends.drawn import gap
from backends.smollm2 import learns
from notebooks.test_notebooks import printed, run_short

import mas_lab as lab
from mas_lab.policy import PolicyError, Request

pytestmark = pytest.mark.engines
torch.set_num_threads(1)
PROMPTS = ((4, 9, 10, 3), (5, 6), (7, 8, 9, 10, 11))


@pytest.fixture(scope="module")
def env():
    return lab.make_env("plan_path", size=5)


@pytest.fixture(scope="module")
def full():
    """The pocket model, all its weights."""
    return lab.load_policy("plan_path", backend="vllm", lr=1e-3, max_seqs=128, reproducible=True)


@pytest.fixture(scope="module")
def base():
    """Two adapters on one copy of it, which differ."""
    base = lab.load_base("plan_path", backend="vllm", adapters=2, rank=4, lr=1e-2, max_seqs=128, reproducible=True)
    for agent in ("planner", "executor"):
        disturb(base.adapter(agent))
    return base


def disturb(policy, by=0.05):
    """Change the weights, as a step does."""
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.add_(torch.randn_like(parameter) * by)
    policy.version += 1


def requests(n=24, max_tokens=6, temperatures=(0.7, 1.0, 1.6)):
    seeds = np.random.default_rng(0).integers(2**63, size=n).tolist()
    return [Request(PROMPTS[i % 3], max_tokens, temperatures[i % len(temperatures)], seed * 2 + 1)
            for i, seed in enumerate(seeds)]  # fmt: skip


@pytest.mark.parametrize("recipe", ["dr_mas", "at_grpo", "magrpo"])
def test_recipes_of_each_plan_learn(env, full, recipe):
    team, engine = lab.Team.shared(full, env.agents), full.engine
    before = engine.syncs["plan_path"]
    turns = 1 if isinstance(lab.RECIPES[recipe].plan, type(lab.joint(2))) else 2  # a joint tree grows with its depth
    steps = list(lab.train(env, team, recipe, steps=3, seed=1, tasks=2, max_turns=turns, check=False))
    assert [report.step for report in steps] == [0, 1, 2]
    for report in steps:
        assert report.stats["mismatch"].max() < 1e-4
    learned = sum(bool((report.turns["advantage"] != 0).any()) for report in steps)
    assert learned and engine.syncs["plan_path"] == before + learned


def test_two_adapters_answer_in_one_batch(base):
    policies, asked = [base.adapter("planner"), base.adapter("executor")], requests(12, max_tokens=8)
    engine = policies[0].engine
    alone = [policy.sample(asked) for policy in policies]
    tickets = [engine.submit(policy, asked) for policy in policies]
    answers, steps = {}, 0
    while len(answers) < 24:
        answers |= dict(engine.ready())
        steps += 1
    assert steps <= 8  # all 24 speak at once: a step each token
    for policy, own, expected in zip(policies, tickets, alone, strict=True):
        found = [answers[ticket] for ticket in own]
        assert [one.ids for one in found] == [one.ids for one in expected]
        assert gap(policy, asked, found) < 1e-4
    assert gap(policies[0], asked, alone[1]) > 0.01  # the other adapter's weights would be noticed


def test_a_seed_gives_the_same_draw_in_any_company_and_a_short_answer_does_not_wait_for_a_long_one(full):
    asked = requests(60)
    together = full.sample(asked)
    assert gap(full, asked, together) < 1e-4
    order = np.random.default_rng(1).permutation(len(asked))
    shuffled = full.sample([asked[i] for i in order])
    assert [together[i].ids for i in order] == [one.ids for one in shuffled]
    assert [full.sample([request])[0].ids for request in asked[:20]] == [one.ids for one in together[:20]]
    assert len({one.ids for one in together}) > 10
    engine = full.engine
    asked = [Request(PROMPTS[0], n, 1.0, seed) for seed, n in enumerate((100, 1))]
    long, short = (engine.submit(full, [request])[0] for request in asked)
    first = []
    while not first:
        first = engine.ready()
    assert [ticket for ticket, _ in first] == [short] and engine.streams
    engine.cancel([long])
    assert engine.ready() == [] and engine.sample(full, asked[1:])


def test_without_reproducible_no_request_is_seeded_and_the_draws_are_the_models_own(full, monkeypatch):
    asked, engine = requests(60), full.engine
    assert engine.sampling(asked[0])["seed"] == asked[0].seed % 2**63
    monkeypatch.setattr(engine, "options", replace(engine.options, reproducible=False))
    assert engine.sampling(asked[0])["seed"] is None
    found = [full.sample(asked) for _ in range(2)]
    assert max(gap(full, asked, one) for one in found) < 1e-4
    assert [one.ids for one in found[0]] != [one.ids for one in found[1]]


def test_completions_end_with_eos_or_the_token_that_completes_a_stop_string_or_at_their_own_length(full):
    asked = [replace(request, max_tokens=1 + i % 9) for i, request in enumerate(requests(90, temperatures=(1.5,)))]
    eos, ended = full.tokenizer.eos_token_id, 0
    for request, answer in zip(asked, full.sample(asked), strict=True):
        assert len(answer.ids) == len(answer.logprobs) and eos not in answer.ids[:-1]
        assert answer.text == full.decode(answer.ids)
        assert (answer.finish == "eos") == (answer.ids[-1] == eos)
        assert answer.finish == "eos" or len(answer.ids) == request.max_tokens
        ended += answer.finish == "eos"
    assert 0 < ended < 90
    asked = requests(30, max_tokens=12, temperatures=(2.0,))
    free = full.sample(asked)
    longest = max((answer.text.split() for answer in free), key=len)
    stop = longest[len(longest) // 2]
    stopped = full.sample([replace(request, stop=(stop,)) for request in asked])
    for whole, cut in zip(free, stopped, strict=True):
        assert cut.ids == whole.ids[: len(cut.ids)] and cut.text == full.decode(cut.ids)
        assert stop not in full.decode(cut.ids[:-1])
        assert cut.finish == ("stop" if stop in cut.text else whole.finish)
    assert {answer.finish for answer in stopped} > {"stop"}


def test_greedy_is_that_of_the_torch_back_end_and_top_k_and_top_p_leave_the_likeliest(full):
    asked, plain = requests(30, max_tokens=6, temperatures=(1.0,)), lab.load_policy(full.shared.weights, lr=1e-3)
    plain.model.load_state_dict(full.model.state_dict())
    greedy, expected = ([*map(vars, policy.sample([replace(request, temperature=0.0) for request in asked]))]
                        for policy in (full, plain))  # fmt: skip
    assert greedy == expected and {logprob for one in greedy for logprob in one["logprobs"]} == {0.0}
    for cut in ({"top_k": 1}, {"top_p": 1e-6}):
        found = full.sample([replace(request, **cut) for request in asked])
        assert [one.ids for one in found] == [one["ids"] for one in greedy]


def test_what_was_published_is_what_speaks(full, base):
    prompt = tuple(5 + i % 20 for i in range(100))  # several blocks of the cache of prefixes
    for policy in (full, base.adapter("planner")):
        asked = [*requests(), *(Request(prompt, 4, 1.0, seed) for seed in range(4))]
        before = policy.sample(asked)
        disturb(policy, 0.02)
        policy.sync_weights()
        after = policy.sample(asked)
        assert gap(policy, asked, after) < 1e-4 < 0.01 < gap(policy, asked, before)


def test_weights_that_did_not_change_are_not_sent_again(env, base):
    team = lab.Team.per_agent(base.adapter, env.agents, frozen=("planner",))
    syncs = team["planner"].engine.syncs
    turns = lab.rollout(env, team, env.tasks(2, "train", 0), lab.episodes(4), seed=0, max_turns=2)
    turns = lab.normalize(lab.group(turns, by=("task", "agent"), credit=lab.episode_return()))
    turns["advantage"] = np.where(turns.index % 2, 1.0, -1.0)
    before = dict(syncs)
    lab.update(team, turns)
    assert syncs - type(syncs)(before) == {"executor": 1}  # the planner is frozen
    before = dict(syncs)
    lab.update(team, turns.assign(advantage=0.0))  # all groups flat
    team["executor"].sync_weights()
    assert dict(syncs) == before


def test_weights_that_change_under_requests_and_what_vllm_cannot_do_are_refused(full):
    tickets = full.engine.submit(full, [Request(PROMPTS[0], 50, 1.0, 0)])
    disturb(full, 0.0)
    with pytest.raises(PolicyError, match="weights changed while 1 requests were in flight"):
        full.sync_weights()
    full.engine.cancel(tickets)
    full.sync_weights()
    with pytest.raises(PolicyError, match=r"250 prompt tokens \+ max_tokens 20 = 270 exceed the context of 256"):
        full.sample([Request((5,) * 250, 20, 1.0, 0)])
    for options, reason in (
        ({"sleep": True}, "no GPU works here"),
        ({"gpus": "1"}, "for a server that is started here"),
        ({"tensor_parallel": 2}, "outside this process: pass where='server'"),
    ):
        with pytest.raises(PolicyError, match=reason):
            lab.load_policy("plan_path", backend="vllm", **options)


def test_a_resumed_run_is_the_run_that_never_stopped_and_its_team_may_have_another_engine(env, tmp_path):
    def train(run, steps):
        base = lab.load_base("plan_path", backend="vllm", adapters=2, rank=4, lr=1e-2, max_seqs=128, reproducible=True)
        team = lab.Team.per_agent(base.adapter, env.agents)
        list(lab.train(env, team, "dr_mas", steps, seed=3, run=run, tasks=2, max_turns=2, check=False))
        return team

    train(tmp_path / "straight", 3)
    train(tmp_path / "halted", 2)
    team = train(tmp_path / "halted", 3)
    straight, halted = (lab.load_run(tmp_path / name) for name in ("straight", "halted"))
    columns = ["action", "agent", "completion", "advantage"]
    pd.testing.assert_frame_equal(straight.turns[columns], halted.turns[columns], rtol=1e-4)
    again = halted.team()
    for agent in env.agents:
        assert again[agent].shared.backend == "vllm" and again[agent].describe() == team[agent].describe()
        found, expected = (policies[agent].sample(requests(8)) for policies in (again, team))
        assert [one.ids for one in found] == [one.ids for one in expected]
    assert again["planner"].engine is again["executor"].engine is not team["planner"].engine
    here, elsewhere = (lab.load_policy("plan_path", backend="vllm", **more)
                       for more in ({}, {"where": "server", "max_seqs": 3, "prefix_caching": False}))  # fmt: skip
    assert elsewhere.describe() == here.describe() != lab.load_policy("plan_path").describe()


def test_the_notebook_runs_on_it():
    said = printed(run_short("11_many_gpus_vllm"))
    assert "sampled by vllm\n" in said


def test_smollm2_plays_in_words_and_learns():
    learns("vllm", dtype="bfloat16", max_seqs=64)
