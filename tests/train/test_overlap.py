"""Overlapping rollouts and updates: which version samples what, on which clock, and that a run goes on bit for bit."""

import shutil
import sys
from dataclasses import dataclass, field, replace

import pandas as pd
import pytest
import small
import torch
from backends.drawn import same, weights
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_backend import BigramPolicy

import mas_lab as lab
from mas_lab.policy import samples_of
from mas_lab.train.overlap import TIMES

SLOW = lab.Costs(update=1.0)
"""Updates take longer than rollouts, so ages rise to the staleness."""
AGES = [0, 1, 2, 2, 2]
"""Ages of five steps at staleness 2 under `SLOW`."""
SETTINGS = small.SETTINGS | {"minibatches": 1, "schedule": "constant"}


def start(models, kind="per_agent", steps=5, recipe=small.RECIPE, team=None, overlap=None, **options):
    overlap = lab.overlap(2, SLOW) if overlap is None else overlap
    team = team or small.make_team(kind, models)
    return team, lab.train(small.Relay(), team, recipe, steps, overlap=overlap, **SETTINGS | options)


def trained(models, kind="per_agent", **options):
    team, training = start(models, kind, **options)
    return team, list(training)


def ages(reports) -> dict[str, list[int]]:
    """The age of each policy's rows, step by step; a policy has one version in a step."""
    rows = pd.concat([report.turns for report in reports])
    assert (rows.groupby(["step", "policy"])["policy_version"].nunique() == 1).all()
    age = (rows["step"] - rows["policy_version"]).groupby([rows["policy"], rows["step"]]).first()
    return {policy: own.tolist() for policy, own in age.groupby("policy")}


# The clock


def typed(*calls) -> pd.DataFrame:
    """A table of calls (policy, depth, prompt, tokens of the completion, advantage); a prompt has ten tokens."""
    rows = [
        {"policy": policy, "agent": policy, "depth": depth, "prompt_ids": [ord(prompt)] * 10,
         "completion_ids": [1] * tokens, "advantage": advantage}
        for policy, depth, prompt, tokens, advantage in calls
    ]  # fmt: skip
    return pd.DataFrame(rows)


STEP = typed(
    ("a", 0, "p", 3, 1.0), ("a", 0, "p", 5, -1.0), ("b", 0, "q", 2, 0.0),  # one wave: two calls share a prompt
    ("b", 1, "q", 4, 0.5), ("b", 1, "r", 1, 0.0),
)  # fmt: skip
COSTS = lab.Costs(prompt=1, decode=100, token=10, update=1000, train=7)


def test_seconds_of_a_step_by_hand():
    """a: 1 prompt of 10, 8 tokens, the longest 5. b: 10 and 2, then two prompts and 5 tokens, the longest 4."""
    first_a, first_b, second_b = 10 + 80 + 500, 10 + 20 + 200, 20 + 50 + 400
    assert list(COSTS.waves(STEP)) == [{"a": first_a, "b": first_b}, {"b": second_b}]
    assert COSTS.updates(STEP) == {"a": 1000 + 7 * 18, "b": 1000 + 7 * 14}  # of b one row has an advantage
    assert COSTS.updates(STEP, epochs=2, minibatches=3) == {"a": 6000 + 14 * 18, "b": 6000 + 14 * 14}
    spread = replace(COSTS, sizes={"a": 0.5}, replicas={"b": 2})
    assert list(spread.waves(STEP)) == [{"a": first_a / 2, "b": 15 + 200}, {"b": 35 + 400}]
    assert spread.updates(STEP)["a"] == 500 + 7 * 9


def events_of(schedule: lab.overlap, table=STEP, steps=6) -> pd.DataFrame:
    events = []
    for step in range(steps):
        schedule, made = schedule.after(step, table, ["a", "b"], 1, 1)
        events.append(made)
    return pd.concat(events, ignore_index=True)


def times(events, policy, kind, step):
    rows = events.query("policy == @policy and kind == @kind and step == @step")
    return rows[["version", "start", "end"]].to_numpy().tolist()


def test_the_clock_by_hand():
    """A rollout takes 590 + 470, an update of a 1126 and one of b 1098."""
    waits, ahead = events_of(lab.overlap(0, COSTS)), events_of(lab.overlap(1, COSTS))
    assert times(waits, "b", "sample", 0) == [[0, 0, 230], [0, 590, 1060]]
    assert times(waits, "a", "learn", 0) == [[1, 1060, 2186]] and times(waits, "b", "learn", 0) == [[1, 1060, 2158]]
    assert times(waits, "a", "sample", 1) == [[1, 2186, 2776]]
    assert times(ahead, "a", "sample", 1) == [[0, 1060, 1650]]  # no update is made yet
    assert times(ahead, "a", "learn", 1) == [[2, 2186, 3312]]
    assert times(ahead, "a", "sample", 2) == [[1, 2186, 2776]]  # it has waited for a's update of step 0
    assert times(ahead, "b", "sample", 2)[0][:2] == [1, 2186]
    slower = events_of(lab.overlap(3, replace(COSTS, sizes={"a": 4.0})))
    assert times(slower, "a", "sample", 4)[0][0] < times(slower, "b", "sample", 4)[0][0]  # b has published more often


def test_shared_engines_take_turns():
    events = events_of(lab.overlap(0, replace(COSTS, shared=True)))
    assert times(events, "b", "sample", 0) == [[0, 590, 820], [0, 820, 1290]]
    assert times(events, "b", "learn", 0) == [[1, 1290 + 1126, 1290 + 1126 + 1098]]


SECONDS = st.floats(0, 10, allow_nan=False)


@settings(max_examples=25)
@given(st.integers(0, 4), SECONDS, SECONDS, SECONDS, st.floats(0.1, 10), st.booleans())
def test_laws_of_the_clock(staleness, decode, update, train, size, shared):
    """No version is too old or not made yet, none goes back, and no engine does two things at a time."""
    costs = lab.Costs(decode=decode, update=update, train=train, sizes={"a": size}, shared=shared)
    events = events_of(lab.overlap(staleness, costs))
    begins = events[events["kind"] == "sample"].groupby("step")["start"].min()
    for policy, own in events.groupby("policy"):
        sampled, made = (own[own["kind"] == kind].set_index("step") for kind in ("sample", "learn"))
        versions = sampled.groupby(level=0)["version"].first()
        assert (versions.index - versions).between(0, staleness).all() and versions.is_monotonic_increasing
        ready = made.set_index("version")["end"]
        assert all(ready.get(version, 0.0) <= begins[step] for step, version in versions.items()), policy
    for _, lane in events.groupby(["kind"] if shared else ["kind", "policy"]):
        lane = lane.sort_values(["start", "end"])
        assert (lane["start"].to_numpy()[1:] >= lane["end"].to_numpy()[:-1]).all()


# The training


@pytest.mark.parametrize("kind", ["per_agent", "lora"])
def test_staleness_0_is_the_training_without_a_schedule_bit_for_bit(models, kind):
    plain = small.make_team(kind, models)
    expected = list(lab.train(small.Relay(), plain, small.RECIPE, 3, **SETTINGS))
    team, reports = trained(models, kind, steps=3, overlap=lab.overlap(0))
    assert all(same(weights(plain[agent]), weights(team[agent])) for agent in team)
    for one, other in zip(expected, reports, strict=True):
        pd.testing.assert_frame_equal(other.turns.drop(columns="policy_version"), one.turns)
        pd.testing.assert_frame_equal(other.stats.drop(columns=["age", *TIMES]), one.stats)
        assert (other.turns["policy_version"] == other.step).all() and (other.stats["age"] == 0).all()


@pytest.mark.parametrize("kind", ["shared", "per_agent", "lora"])
def test_rows_are_sampled_by_the_version_that_they_name(models, kind):
    """By copies of the weights that this test makes itself; and the loss compares with their log-probabilities."""
    team, training = start(models, kind)
    names = {name: agents[0] for name in team.policies if (agents := team.learners(name))}
    copies = [{name: weights(team[agent]) for name, agent in names.items()}]
    reports = []
    for report in training:
        reports.append(report)
        copies.append({name: weights(team[agent]) for name, agent in names.items()})
    assert ages(reports) == dict.fromkeys(names, AGES)
    old = 0
    for report in reports:
        for name, rows in report.turns.groupby("policy"):
            ratios = {}
            for version in {rows["policy_version"].iloc[0], report.step}:
                policy = team.policies[name]
                policy.kept = {0: copies[version][name]}
                with policy.at_version(0):
                    found_N = policy.forward(samples_of(rows, weight=0.0)).logprobs_N
                ratios[version] = (found_N - torch.tensor([p for row in rows["logprobs"] for p in row])).exp()
            sampled, learned = ratios[rows["policy_version"].iloc[0]], ratios[report.step]
            assert (sampled - 1).abs().max() < 1e-4
            old += (learned - 1).abs().max() > 0.01
            used = rows["advantage"].repeat(rows["completion_ids"].map(len)).to_numpy() != 0
            stats = report.stats[report.stats["policy"] == name]
            assert stats["max_ratio"].max() == pytest.approx(learned[torch.from_numpy(used)].max().item(), rel=1e-4)
            assert (stats["age"] == report.step - rows["policy_version"].iloc[0]).all()
    assert old >= 3


def test_every_policy_has_its_own_age(models):
    """Rollouts take no time, the asker's updates 1 s and the doer's 0.1 s; from step 3 on rollouts wait."""
    costs = lab.Costs(prompt=0, decode=0, token=0, update=1, train=0, sizes={"doer": 0.1})
    _, reports = trained(models, overlap=lab.overlap(2, costs))
    assert ages(reports) == {"asker": AGES, "doer": [0, 1, 2, 0, 0]}


def test_weights_that_never_learn_have_version_0(models):
    team = lab.Team(dict(small.make_team("per_agent", models)), frozen=("doer",))
    _, reports = trained(models, team=team)
    assert all((report.turns.query("agent == 'doer'")["policy_version"] == 0).all() for report in reports)
    assert ages(reports)["asker"] == AGES and set(reports[-1].stats["agent"]) == {"asker"}


def test_held_out_scores_are_those_of_the_newest_weights(models):
    small.assert_newest_weights_are_scored(*start(models, score_every=1, score_tasks=3, score_episodes=2))


@dataclass(frozen=True)
class kept_weights:
    """A credit that checks that the team has the weights that sampled the rows."""

    needs_team = True

    def __call__(self, turns, team):
        for name, rows in turns.groupby("policy"):
            found_N = team.policies[name].forward(samples_of(rows, advantage=0.0, weight=0.0)).logprobs_N
            assert (found_N - torch.tensor([p for row in rows["logprobs"] for p in row])).abs().max() < 1e-4
        return lab.mixed()(turns)


def test_a_part_that_needs_the_team_gets_the_weights_that_sampled(models):
    _, reports = trained(models, recipe=small.RECIPE.replace(credit=kept_weights()))
    assert ages(reports)["asker"] == AGES


# Keeping


@pytest.fixture(scope="module")
def straight(models, tmp_path_factory):
    run = tmp_path_factory.mktemp("overlap") / "straight"
    trained(models, "lora", run=run, save_every=100)
    return run


@pytest.mark.parametrize("cut", [1, 3])
def test_a_run_goes_on_bit_for_bit(models, straight, tmp_path, cut):
    trained(models, "lora", run=tmp_path / "run", steps=cut)
    trained(models, "lora", run=tmp_path / "run")
    assert small.bits(tmp_path / "run") == small.bits(straight)
    with pytest.raises(lab.RunError, match=r"settings\.overlap\.staleness differs: the run has 2, this call has 1"):
        trained(models, "lora", run=tmp_path / "run", overlap=lab.overlap(1, SLOW))


STOPS = []


@dataclass(frozen=True)
class stopping:
    """A credit that breaks off the fourth step, while the team has earlier weights."""

    def __call__(self, turns):
        if STOPS and turns["step"].iloc[0] == 3:
            raise KeyboardInterrupt
        return lab.mixed()(turns)


@pytest.mark.parametrize("where", ["while earlier weights sample", "in the update"])
def test_an_interrupt_leaves_the_newest_weights_and_goes_on_bit_for_bit(models, tmp_path, monkeypatch, where):
    def run(name):
        recipe = small.RECIPE.replace(credit=stopping())
        return start(models, "lora", run=tmp_path / name, recipe=recipe, save_every=100)[1]

    list(run("straight"))
    training = run("run")
    reports = [next(training) for _ in range(3)]
    assert ages(reports)["asker"] == AGES[:3]
    if where == "while earlier weights sample":
        monkeypatch.setattr(sys.modules[__name__], "STOPS", [3])
    else:
        monkeypatch.setattr("mas_lab.cells.update.clip_and_step", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        next(training)
    monkeypatch.undo()
    assert lab.load_run(tmp_path / "run").checkpoint().step == 3
    list(run("run"))
    assert small.bits(tmp_path / "run") == small.bits(tmp_path / "straight")


MOMENTS = []


@dataclass(frozen=True)
class Copied(small.Relay):
    """It copies the run in MOMENTS whenever the tasks of a step are drawn: what a kill would leave at that moment."""

    def tasks(self, n, split, seed):
        if MOMENTS:
            MOMENTS.append(shutil.copytree(MOMENTS[0], MOMENTS[0].with_name(f"killed{len(MOMENTS)}")))
        return super().tasks(n, split, seed)


def test_a_run_that_is_killed_between_checkpoints_goes_on_bit_for_bit(models, straight, tmp_path, monkeypatch):
    def run(folder):
        options = SETTINGS | {"overlap": lab.overlap(2, SLOW), "save_every": 2}
        list(lab.train(Copied(), small.make_team("lora", models), small.RECIPE, len(AGES), run=folder, **options))

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "MOMENTS", moments := [tmp_path / "run"])
        run(moments[0])
    for killed, kept in zip(moments[1:], (0, 0, 2, 2, 4), strict=True):
        assert lab.load_run(killed).checkpoint().step == kept
        run(killed)
        assert small.bits(killed) == small.bits(straight)


def test_a_fork_goes_on_bit_for_bit_and_another_staleness_begins_anew(models, straight, tmp_path):
    trained(models, "lora", run=tmp_path / "a", steps=3)
    trained(models, "lora", run=tmp_path / "same", fork=tmp_path / "a")
    assert small.bits(tmp_path / "same") == small.bits(straight)
    _, reports = trained(models, "lora", run=tmp_path / "other", fork=tmp_path / "a", overlap=lab.overlap(3, SLOW))
    assert ages(reports)["asker"] == [0, 1] and "overlap learns from here on" in str(
        lab.load_run(tmp_path / "other").config["forked"]["changed"]
    )
    list(lab.train(small.Relay(), small.make_team("lora", models), small.RECIPE, 4, run=tmp_path / "none",
                   fork=tmp_path / "a", **SETTINGS))  # fmt: skip
    assert not list((tmp_path / "none" / "checkpoints" / "000004").rglob("kept.safetensors"))


def test_no_earlier_weights_are_left_when_a_training_has_ended(models):
    team, _ = trained(models)
    assert all(policy.kept == {} for policy in team.policies.values())


# Replaying


def test_a_replay_has_the_versions_and_the_bits_of_its_run(models, straight, tmp_path):
    again = lab.overlap(2, SLOW, replay=straight)
    trained(models, "lora", overlap=again, run=tmp_path / "run", steps=3, save_every=100)
    trained(models, "lora", overlap=again, run=tmp_path / "run", save_every=100)
    one, other = small.bits(tmp_path / "run"), small.bits(straight)
    assert {name: bits for name, bits in one.items() if "state.json" not in name} == {
        name: bits for name, bits in other.items() if "state.json" not in name
    }


def test_a_policy_that_nobody_called_in_a_step_can_be_replayed():
    """It samples nothing there, so any version will do: the oldest that is kept."""
    recorded = [{"a": 0, "b": 0}, {"a": 0}, {"a": 1, "b": 0}]
    schedule = lab.overlap(2, COSTS, replay="a run", recorded=recorded)
    for step, expected in enumerate([{"a": 0, "b": 0}, {"a": 0, "b": 0}, {"a": 1, "b": 0}]):
        assert schedule.begin(step, ["a", "b"])[1] == expected
        schedule, _ = schedule.after(step, STEP, ["a", "b"], 1, 1)


def test_a_replay_needs_the_weights_that_it_names():
    """A training that begins at step 2, as a fork may, has no earlier weights."""
    schedule = lab.overlap(2, replay="a run", recorded=[{"a": 0}, {"a": 0}, {"a": 0}])
    with pytest.raises(ValueError, match=r"has age 2 for policy 'a' in step 2, .* from its start"):
        schedule.begin(2, ["a"])


def test_a_replay_has_the_times_of_its_run():
    made, schedule = [], lab.overlap(2, replace(COSTS, sizes={"a": 3.0}))
    for step in range(6):
        schedule, events = schedule.after(step, STEP, ["a", "b"], 1, 1)
        made.append(events)
    sampled = pd.concat(made).query("kind == 'sample'").groupby(["step", "policy"])["version"].first().unstack()
    again = events_of(lab.overlap(2, replace(COSTS, sizes={"a": 3.0}), "a run", recorded=sampled.to_dict("records")))
    pd.testing.assert_frame_equal(again, pd.concat(made, ignore_index=True))


def test_a_fork_whose_first_steps_had_no_schedule_can_be_replayed(models, tmp_path):
    """Step 0 of the fork took turns: the weights after 0 steps sampled it."""
    start_of = small.make_team("lora", models)
    list(lab.train(small.Relay(), start_of, small.RECIPE, 1, run=tmp_path / "a", **SETTINGS))
    trained(models, "lora", steps=4, run=tmp_path / "b", fork=tmp_path / "a")
    sampled = lab.load_run(tmp_path / "b").turns.groupby("step")["policy_version"].first()
    assert lab.overlap(2, SLOW, replay=tmp_path / "b").loaded().recorded == [
        {"asker": version, "doer": version} for version in (0, *sampled[1:])
    ]
    trained(models, "lora", steps=4, overlap=lab.overlap(2, SLOW, replay=tmp_path / "b"))


def test_versions_that_a_clock_would_not_choose_can_be_replayed(models, straight):
    """Free updates: the clock would let every rollout have the newest weights."""
    _, reports = trained(models, "lora", overlap=lab.overlap(2, lab.Costs(update=0.0, train=0.0), replay=straight))
    assert ages(reports)["asker"] == AGES


def test_a_replay_that_is_not_recorded_is_refused(models, straight, tmp_path):
    with pytest.raises(ValueError, match=r"has age 2 for policy 'asker' in step 2, of 5 steps; .*\(here 1\)"):
        trained(models, "lora", overlap=lab.overlap(1, replay=straight))
    with pytest.raises(ValueError, match=r"does not say who sampled policy 'asker' in step 5, of 5 steps"):
        trained(models, "lora", overlap=lab.overlap(2, replay=straight), steps=6)
    with pytest.raises(ValueError, match=r"does not say who sampled policy 'shared' in step 0"):
        trained(models, "shared", overlap=lab.overlap(2, replay=straight))
    list(lab.train(small.Relay(), small.make_team("lora", models), small.RECIPE, 1, run=tmp_path / "run", **SETTINGS))
    with pytest.raises(lab.RunError, match=r"its turns have no column 'policy_version'"):
        start(models, overlap=lab.overlap(2, replay=tmp_path / "run"))
    with pytest.raises(lab.RunError, match="no run at"):
        start(models, overlap=lab.overlap(2, replay=tmp_path / "nothing"))


# Rows of other weights


def test_update_refuses_rows_that_the_named_version_did_not_sample(models):
    team = small.make_team("per_agent", models, lr=0.1)
    tasks = small.Relay().tasks(4, "train", 0)
    table = small.RECIPE.advantages(lab.rollout(small.Relay(), team, tasks, small.RECIPE.plan))
    old = {agent: team[agent].copy_weights() for agent in team}
    lab.update(team, table)
    between = {agent: team[agent].copy_weights() for agent in team}
    lab.update(team, table, off_policy=True)
    for agent in team:
        team[agent].kept = {0: old[agent], 1: between[agent]}
    before = {agent: weights(team[agent]) for agent in team}
    with pytest.raises(lab.UpdateError, match=r"agent 'asker' .*: its rows say policy_version 1, and other weights"):
        lab.update(team, table.assign(step=2, policy_version=1))
    with pytest.raises(lab.UpdateError, match="these rows were sampled before the last update"):
        lab.update(team, table.assign(step=2, policy_version=2))  # the present weights
    with pytest.raises(lab.UpdateError, match=r"several versions .* agent 'asker', turn 0, .*an update has cut"):
        lab.update(team, table.assign(policy_version=table["candidate"]))
    assert all(same(before[agent], weights(team[agent])) for agent in team)
    stats = lab.update(team, table.assign(policy_version=0, step=2))
    assert (stats["age"] == 2).all() and stats["mismatch"].min() > 0.01
    assert not any(same(before[agent], weights(team[agent])) for agent in team)


# Bad input


@dataclass(frozen=True)
class learning_curriculum:
    state: dict = field(default_factory=dict)

    def __call__(self, env, n, split, seed):
        return env.tasks(n, split, seed)

    def after(self, report):
        return self


class newest(lab.tree):
    needs_newest = True


@pytest.mark.parametrize(("words", "options"), [
    (r"overlap: staleness=-1 .*whole number \(0 or more\)", {"overlap": {"staleness": -1}}),
    (r"overlap: staleness=1\.5 .*whole number", {"overlap": {"staleness": 1.5}}),
    (r"overlap: staleness=True", {"overlap": {"staleness": True}}),
    (r"overlap=2 \(int\); give overlap or a dict", {"overlap": 2}),
    (r"Costs: update=-1", {"overlap": {"costs": {"update": -1}}}),
    (r"Costs: sizes\['asker'\]=0", {"overlap": {"costs": {"sizes": {"asker": 0}}}}),
    (r"Costs: replicas\['doer'\]=0", {"overlap": {"costs": {"replicas": {"doer": 0}}}}),
    (r"curriculum=.*learns from the report of each step.*use staleness=0", {"curriculum": learning_curriculum()}),
    (r"plan=.* needs the newest weights.*use staleness=0", {"recipe": small.RECIPE.replace(plan=newest(3))}),
])  # fmt: skip
def test_what_makes_no_overlap_is_refused(models, words, options):
    with pytest.raises(ValueError, match=words):
        start(models, **options)


def test_a_curriculum_that_learns_waits_at_staleness_0(models):
    trained(models, steps=1, overlap=lab.overlap(0), curriculum=learning_curriculum())


def test_more_versions_than_memory_holds_are_refused(models, monkeypatch):
    size = sum(w.numel() * 4 for w in weights(small.make_team("shared", models)["asker"]).values())
    monkeypatch.setattr(sys.modules["mas_lab.train.overlap"], "free_bytes", lambda device: 8 * size)
    start(models, "shared", overlap=lab.overlap(7))
    words = r"staleness=8 keeps 9 copies of the trained weights on cpu, .* GiB each; 7 is the largest"
    with pytest.raises(ValueError, match=words):
        start(models, "shared", overlap=lab.overlap(8))
    with pytest.raises(ValueError, match="3 is the largest"):  # two sets of weights
        start(models, "per_agent", overlap=lab.overlap(8))


def test_a_back_end_that_keeps_no_versions_is_refused(models):
    with pytest.raises(ValueError, match=r"cannot keep earlier weights \(BigramPolicy\)"):
        start(models, team=lab.Team.shared(BigramPolicy(small.WORDS), small.AGENTS))


def test_several_ranks_are_refused(models, monkeypatch):
    monkeypatch.setattr(sys.modules["mas_lab.train.loop"], "_ranks", lambda team: object())
    with pytest.raises(ValueError, match="is for one process, and a launcher started several"):
        start(models)


def test_schedule_takes_an_overlap(models):
    """The name under which the learning rate has its own."""
    team = small.make_team("shared", models)
    options = SETTINGS | {"schedule": lab.overlap(2, SLOW)}
    assert ages(lab.train(small.Relay(), team, small.RECIPE, 3, **options)) == {"shared": [0, 1, 2]}
    with pytest.raises(TypeError, match=r"schedule= and overlap= both give an overlap"):
        lab.train(small.Relay(), team, small.RECIPE, 3, overlap=lab.overlap(1), **options)
