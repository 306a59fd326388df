"""The cells with their weights behind SkyRL's server: what is sampled, trained, refused, lost and found again."""

import pytest
from backends.drawn import old_logprobs
from small import AGENTS, LENGTH, Relay

import mas_lab as lab
from mas_lab.policy import PolicyError, Request, Sample

pytestmark = pytest.mark.engines
SETTINGS = {"seed": 5, "tasks": 2, "save_every": 1, "check": False, "max_norm": None}
RECIPES = {
    "grpo": lab.RECIPES["grpo"].replace(plan=lab.episodes(3)),
    "dr_mas": lab.RECIPES["dr_mas"].replace(plan=lab.episodes(3)),
    "magrpo": lab.RECIPES["magrpo"].replace(plan=lab.joint(2)),
}


def base_of(server, models, **options):
    told = {"url": server.url, "rank": 4, "lr": 1e-2} | options
    return lab.load_base(models / "a", backend="tinker", adapters=2, **told)


@pytest.fixture(scope="module")
def team(server, models):
    return lab.Team.per_agent(base_of(server, models).adapter, AGENTS)


def judged(team):
    return RECIPES["dr_mas"].advantages(lab.rollout(Relay(), team, Relay().tasks(1, "train", 0), lab.episodes(3)))


def rows(turns):
    return [Sample(row.prompt_ids, row.completion_ids, row.logprobs, 1.0, 0.0, 1.0) for row in turns.itertuples()]


def test_what_is_sampled_is_what_is_trained_and_two_adapters_part(team, models):
    """Before training an adapter says what its base does, to 1e-4; afterwards the two say different things, and the
    server's sampler and trainer the same."""
    turns = lab.rollout(Relay(), team, Relay().tasks(2, "train", 0), lab.episodes(3))
    samples = rows(turns)
    here = lab.load_policy(models / "a").forward(samples).logprobs_N
    assert (here - old_logprobs(samples)).abs().max() < 1e-4
    assert (turns["completion_ids"].map(len) <= LENGTH + 1).all() and set(turns["finish"]) <= {"eos", "length"}
    reports = list(lab.train(Relay(), team, RECIPES["dr_mas"], 2, **SETTINGS))
    stats = reports[-1].stats
    assert (stats["mismatch"] < 1e-4).all() and stats["grad_norm"].gt(0).all()
    for column in ("grad_norm", "policy_norm_clipped"):
        assert (stats[column] == stats["policy_norm"]).all()
    one, other = (team[agent].forward(samples[:1]).logprobs_N for agent in AGENTS)
    assert (one - other).abs().max() > 1e-4


@pytest.mark.parametrize("name", ["grpo", "magrpo"])
def test_other_recipes_train(name, team):
    env = Relay(together=name == "magrpo")
    playing = lab.Team.shared(team["asker"], AGENTS) if name == "grpo" else team
    [report] = lab.train(env, playing, RECIPES[name], 1, **SETTINGS)
    assert (report.stats["mismatch"] < 1e-4).all() and report.stats["policy_norm"].gt(0).all()
    if name == "grpo":  # two agents in one gradient, which lies elsewhere
        assert report.stats["grad_norm"].isna().all()


def test_the_norm_is_that_of_our_own_gradient(team):
    """Its A is drawn there. What is known: the loss is homogeneous, and a sum over rows is a sum."""
    policy = team["asker"]
    request = Request(tuple(policy.encode([{"role": "user", "content": "asker now w1"}])), 3, 1.0, 7)
    said = policy.sample([request])[0]
    row = Sample(request.prompt_ids, said.ids, said.logprobs, 1.0, 1.0, 0.5)
    norms = []
    for batch in ([row], [row, row], [row, Sample(*[*vars(row).values()][:4], 3.0, 0.5)]):
        policy.forward_backward(batch, lab.clipped(0.2))
        norms.append(policy.shared.step(policy.client, 0.0, None))  # at rate 0 no weight moves
        policy._pending = False
    assert norms[1] == pytest.approx(2 * norms[0], rel=1e-3) and norms[2] == pytest.approx(4 * norms[0], rel=1e-3)


def test_what_the_server_has_not_is_refused_with_the_reason_before_anything_is_sent(team):
    turns = judged(team)
    refused = {"kl=0.1": lab.clipped(0.2, kl=0.1), "entropy=0.01": lab.clipped(0.2, entropy=0.01),
               "tis=2.0": lab.reinforce(tis=2.0), "dual=3": lab.clipped(0.2, dual=3.0),
               "ratio='sequence'": lab.clipped(0.2, ratio="sequence")}  # fmt: skip
    for named, loss in refused.items():
        with pytest.raises(PolicyError, match=f"policy 'asker'.*{named}.*not possible"):
            lab.update(team, turns, loss=loss, aggregate="turn", max_norm=None)
    with pytest.raises(PolicyError, match=named):
        lab.train(Relay(), team, RECIPES["dr_mas"].replace(loss=loss, aggregate="turn"), 1, **SETTINGS)
    with pytest.raises(PolicyError, match=r"may not clip: pass max_norm=None"):
        lab.update(team, turns)
    lab.update(team, turns, max_norm=None)  # nothing was lost


def test_shares_stop_at_the_agent_and_other_temperatures_are_for_scoring_alone(team):
    turns = judged(team)
    with pytest.raises(PolicyError, match="lies on the Tinker server, which returns its norm alone"):
        lab.attribute(team, turns)
    with pytest.raises(PolicyError, match=r"SpikeWatch looks at the gradient, which its back end keeps"):
        lab.update(team, turns, max_norm=None, watch=lab.SpikeWatch())
    stats = lab.update(team, turns, max_norm=None)
    assert list(lab.SpikeInspector(stats).scores["norm"]) == stats["grad_norm"].tolist()
    warm = team.with_sampling(lab.Sampling(temperature=0.7))
    with pytest.raises(PolicyError, match=r"temperature 0\.7"):
        lab.update(warm, judged(warm).assign(advantage=1.0), max_norm=None)
    lab.evaluate(Relay(), team, Relay().tasks(2, "test", 0), sampling=lab.Sampling(temperature=0))


def test_bad_addresses_and_names_are_refused(server, models):
    with pytest.raises(PolicyError, match=r"no Tinker server answers at http://127.0.0.1:9 "):
        base_of(server, models, url="http://127.0.0.1:9")
    with pytest.raises(PolicyError, match=r"has no model '.*/b'; it has .*/a"):
        lab.load_base(models / "b", backend="tinker", url=server.url)
    with pytest.raises(PolicyError, match="give lora="):
        lab.load_policy(models / "a", backend="tinker", url=server.url)


@pytest.fixture(scope="module")
def killed(server, models, tmp_path_factory):
    """A run of one step whose server is killed before the second, and the error of it."""
    run = tmp_path_factory.mktemp("killed") / "run"
    team = lab.Team.per_agent(base_of(server, models).adapter, AGENTS)
    loop = lab.train(Relay(), team, RECIPES["dr_mas"], 3, run=run, **SETTINGS)
    next(loop)
    server.stop()
    with pytest.MonkeyPatch.context() as patch, pytest.raises((PolicyError, RuntimeError)) as stopped:
        patch.setattr("mas_lab.contrib.tinker.service.LOST", 3.0)
        patch.setattr("mas_lab.contrib.tinker.service.SLICE", 1.0)
        list(loop)
    return run, stopped


def test_a_killed_server_is_named_and_the_steps_before_are_kept(killed):
    run, stopped = killed
    assert stopped.match(r"no Tinker server answers at .*; start it")
    assert lab.load_run(run).steps == 1


@pytest.mark.full
def test_a_run_goes_on_when_its_server_is_back(killed, server, models):
    run, _ = killed
    server.start()
    team = lab.Team.per_agent(base_of(server, models).adapter, AGENTS)
    reports = list(lab.train(Relay(), team, RECIPES["dr_mas"], 3, run=run, **SETTINGS))
    assert [report.step for report in reports] == [1, 2] and (reports[-1].stats["mismatch"] < 1e-4).all()
    again = lab.load_run(run).team()
    turns = lab.rollout(Relay(), again, Relay().tasks(1, "train", 0), lab.episodes(2))
    samples = rows(turns[turns["agent"] == "doer"])
    one, other = (policies["doer"].forward(samples).logprobs_N for policies in (again, team))
    assert (one - other).abs().max() < 1e-5
