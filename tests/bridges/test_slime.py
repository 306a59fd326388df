"""slime's hooks on stand-ins for its `Sample`, whose fields and flags are looked up in slime's own source where that is
installed or MAS_LAB_SLIME names a checkout."""

import ast
import asyncio
import importlib.util
import inspect
import json
import os
import re
import sys
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from elsewhere import ASKED, speaking, trained
from small import AGENTS, Relay

import mas_lab as lab
from mas_lab.bridges.export_reader import HandOverError
from mas_lab.bridges.slime import ROW, Aborted, Bridge, row_of, sglang

RECIPES = {
    "dr_mas": lab.RECIPES["dr_mas"].replace(plan=lab.episodes(3)),
    "at_grpo": lab.RECIPES["at_grpo"].replace(plan=lab.tree(3)),
    "selecting": lab.RECIPES["grpo"].replace(plan=lab.episodes(3), select=lab.not_flat()),
}
MEGATRONS = {"--clip-grad", "--lr", "--lr-decay-style", "--calculate-per-token-loss"}


@dataclass
class Sample:
    """What the bridge reads and writes of slime's."""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    tokens: list[int] = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    reward: float | None = None
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    remove_sample: bool = False
    metadata: dict = field(default_factory=dict)

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"

    status: Status = Status.PENDING


ARGS = SimpleNamespace(advantage_estimator="grpo", rollout_max_context_len=64)


@pytest.fixture(scope="module")
def handed(models, tmp_path_factory):
    """Recipe -> a bridge over a run's folder, whose sampler is the run's own policy."""
    root, made = tmp_path_factory.mktemp("slime"), {}
    for name, recipe in RECIPES.items():
        folder = lab.export(trained(models, root / name, recipe), root / f"{name}_out", to="slime", env=Relay())
        policy = lab.load_run(root / name).team()["asker"]
        made[name] = Bridge(folder, Relay(), lambda *_, policy=policy: (policy.tokenizer, speaking(policy))), policy
    return made


def generated(bridge, tasks=2):
    """What slime's rollout gives, flat: for each task as many samples as `--n-samples-per-prompt` says."""
    held = pd.read_parquet(bridge.handed.folder / "train.parquet")
    n = bridge.handed.recipe.plan.instances
    drawn = [
        Sample(group, group * n + number, metadata=dict(held["metadata"][group]))
        for group in range(tasks)
        for number in range(n)
    ]

    async def all_of_them():
        return await asyncio.gather(*(bridge.generate(ARGS, one, {"max_new_tokens": 3}) for one in drawn))

    return [one for group in asyncio.run(all_of_them()) for one in group]


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_env_is_played_and_judged_as_by_the_cells(handed, recipe):
    bridge, policy = handed[recipe]
    samples = generated(bridge)
    raw, rewards = bridge.rewards(ARGS, samples)
    turns = pd.DataFrame([row_of(one) for one in samples]).assign(step=0)
    assert set(turns["agent"]) == set(AGENTS) and turns["task"].nunique() == 2
    expected = RECIPES[recipe].advantages(turns.drop(columns="occasion"))
    assert rewards == pytest.approx(expected["advantage"].where(lab.table.selected(expected), 0.0).tolist(), abs=1e-6)
    assert raw == expected["credit"].tolist() and any(rewards)
    assert [one.remove_sample for one in samples] == (~lab.table.selected(expected)).tolist()
    for _, episode in turns.groupby("episode"):
        assert {samples[number].rollout_id for number in episode.index} == {samples[episode.index[0]].index}
    for one in samples:
        ids, row = one.tokens[-one.response_length :], one.metadata[ROW]
        assert one.loss_mask == [1] * len(ids) and len(one.rollout_log_probs) == len(ids)
        assert policy.decode(ids) == row["completion"] == one.response
        assert one.status is (Sample.Status.TRUNCATED if row["finish"] == "length" else Sample.Status.COMPLETED)


def test_what_is_not_selected_is_in_no_mean_of_slimes(handed):
    bridge, _ = handed["selecting"]
    samples = generated(bridge)
    flat = samples[0].metadata[ROW]["task"]
    for one in samples:
        if one.metadata[ROW]["task"] == flat:
            one.metadata[ROW] |= {"team_reward": 0.0, "local_reward": 0.0}
    _, rewards = bridge.rewards(ARGS, samples)
    for one, reward in zip(samples, rewards, strict=True):
        assert one.remove_sample == (one.metadata[ROW]["task"] == flat)
        assert reward == 0 or not one.remove_sample
    assert any(rewards)


def test_one_episode_of_slimes_is_one_of_lab_rollouts(handed):
    """Of the first task the instances are numbered alike, so that the draws are the same too."""
    bridge, policy = handed["dr_mas"]
    found = pd.DataFrame([row_of(one) for one in generated(bridge, tasks=1)]).drop(columns=["occasion", "info"])
    held = pd.read_parquet(bridge.handed.folder / "train.parquet")
    task = lab.Task(**json.loads(held["metadata"][0]["task"]))
    team = lab.Team.shared(policy, AGENTS)
    expected = lab.rollout(Relay(), team, [task], plan=lab.episodes(3), seed=ASKED["seed"])
    keys = ["node", "agent"]
    found, expected = (one.sort_values(keys, ignore_index=True) for one in (found, expected[found.columns]))
    unlike = ["policy", "logprobs"]
    pd.testing.assert_frame_equal(found.drop(columns=unlike), expected.drop(columns=unlike), check_exact=True)


def test_a_held_out_episode_is_one_sample_with_what_the_team_earned(handed):
    bridge, _ = handed["dr_mas"]
    held = pd.read_parquet(bridge.handed.folder / "test.parquet")
    sample = Sample(0, 0, metadata=dict(held["metadata"][0]))
    [last] = asyncio.run(bridge.generate(ARGS, sample, {}, evaluation=True))
    assert 0 <= last.reward <= 1.5 and last.metadata[ROW]["done"]


def test_an_aborted_episode_goes_back_as_it_came(handed):
    bridge, policy = handed["dr_mas"]

    async def gone(request):
        raise Aborted

    stopped = Bridge(bridge.folder, Relay(), lambda *_: (policy.tokenizer, gone))
    sample = Sample(0, 0, metadata=dict(pd.read_parquet(bridge.handed.folder / "train.parquet")["metadata"][0]))
    assert asyncio.run(stopped.generate(ARGS, sample, {})) is sample and sample.status is Sample.Status.ABORTED


def test_what_would_change_the_advantages_is_refused(handed):
    bridge, _ = handed["dr_mas"]
    samples = generated(bridge, tasks=1)
    for other in ({"advantage_estimator": "ppo"}, {"advantage_estimator": "grpo", "normalize_advantages": True}):
        with pytest.raises(HandOverError, match="take --advantage-estimator grpo"):
            bridge.rewards(SimpleNamespace(**other), samples)
    with pytest.raises(HandOverError, match="sample 7 has no row of mas_lab"):
        bridge.rewards(ARGS, [*samples, Sample(0, 7)])


def test_the_recorded_batch_is_reproduced(handed):
    for bridge, _ in handed.values():
        assert "advantages are those that were recorded" in bridge.check()


@pytest.fixture(scope="module")
def source():
    """slime's own source, to be read and not run."""
    place = os.environ.get("MAS_LAB_SLIME", "")
    if not place and (found := importlib.util.find_spec("slime")) and found.origin:
        place = str(Path(found.origin).parents[1])
    if not (Path(place) / "slime" / "utils" / "types.py").is_file() or not place:
        pytest.skip("slime's source is not here; set MAS_LAB_SLIME to a checkout of it")
    return lambda name: (Path(place) / "slime" / name).read_text(encoding="utf-8")


@pytest.fixture
def slimes(source, handed, models, monkeypatch):
    """slime's own rollout, where it can be imported, with a policy of ours behind its router: (flags, its rollout)."""
    place = pytest.importorskip("slime.rollout.sglang_rollout", reason="slime cannot be imported here")
    from slime.utils import http_utils

    bridge, policy = handed["at_grpo"]
    asked = []

    async def post(address, body):
        asked.append((address, body))
        limit, seed = body["sampling_params"]["max_new_tokens"], len(asked)
        [said] = policy.sample([lab.policy.Request(tuple(body["input_ids"]), limit, 1.0, seed)])
        tokens = [[value, token, None] for value, token in zip(said.logprobs, said.ids, strict=True)]
        reason = {"type": "length" if said.finish == "length" else "stop"}
        return {"text": "not read", "meta_info": {"output_token_logprobs": tokens, "finish_reason": reason}}

    monkeypatch.setattr(http_utils, "post", post)
    hooks = Bridge(bridge.folder, Relay())
    monkeypatch.setitem(sys.modules, "mas_lab_bridge", SimpleNamespace(generate=hooks.generate, rewards=hooks.rewards))
    args = SimpleNamespace(
        **vars(ARGS), hf_checkpoint=str(models / "a"), sglang_server_concurrency=8, rollout_num_engines=1,
        rollout_temperature=1.0, rollout_top_p=1.0, rollout_top_k=-1, rollout_max_response_len=3, rollout_stop=None,
        rollout_stop_token_ids=None, rollout_skip_special_tokens=True, sglang_dp_size=None, partial_rollout=False,
        mask_offpolicy_in_partial_rollout=False, group_rm=False, sglang_router_ip="127.0.0.1", sglang_router_port=1,
        custom_generate_function_path="mas_lab_bridge.generate", rollout_sample_hook_path=[], reward_key=None,
        custom_rm_path=None,
    )  # fmt: skip
    return args, place, hooks, asked


def test_slimes_own_rollout_and_its_own_batch(slimes, source):
    """Its group of samples goes through its functions; what it then trains on are our rows, with our advantages."""
    args, rollout, hooks, asked = slimes
    from slime.observability.rollout_data_utils import validate_rollout_id_annotated
    from slime.utils.data import read_file
    from slime.utils.types import Sample as Theirs

    held = list(read_file(str(hooks.handed.folder / "train.parquet")))
    groups = [[Theirs(group_index=number, index=number, metadata=one["metadata"])] for number, one in enumerate(held)]

    async def play():
        state = rollout.GenerateState(args)
        return [await rollout.generate_and_rm_group(args, group, dict(state.sampling_params)) for group in groups]

    data = asyncio.run(play())
    validate_rollout_id_annotated(data)
    samples = [one for group in data for rows in group for one in rows]
    assert len(samples) == len(asked) and all(address.endswith(":1/generate") for address, _ in asked)
    manager = SimpleNamespace(
        args=args, custom_reward_post_process_func=hooks.rewards, custom_convert_samples_to_train_data_func=None
    )
    theirs = methods(source("ray/rollout.py"), "_post_process_rewards", "_convert_samples_to_train_data")
    manager._post_process_rewards = lambda found: theirs["_post_process_rewards"](manager, found)
    batch = theirs["_convert_samples_to_train_data"](manager, samples)
    turns = pd.DataFrame([row_of(one) for one in samples]).assign(step=0).drop(columns="occasion")
    expected = RECIPES["at_grpo"].advantages(turns)
    assert batch["rewards"] == pytest.approx(expected["advantage"].tolist(), abs=1e-6) and any(batch["rewards"])
    assert batch["rollout_log_probs"] == turns["logprobs"].tolist()
    assert [tokens[-n:] for tokens, n in zip(batch["tokens"], batch["response_lengths"], strict=True)] == (
        turns["completion_ids"].tolist()
    )
    assert len(set(batch["rollout_ids"])) == len(groups)


def test_where_slime_samples_by_a_seed_each_call_has_its_own(slimes):
    args, _, _, asked = slimes
    _, speak = sglang(args, None, {"sampling_seed": 7, "temperature": 1.0})
    prompts = lab.policy.Request((5, 6), 3, 1.0, 2**40 + 3), lab.policy.Request((5, 6), 3, 1.0, 11, ("w1",))
    for request in prompts:
        asyncio.run(speak(request))
    told = [body["sampling_params"] for _, body in asked]
    assert [(one["sampling_seed"], one["stop"]) for one in told] == [(3, None), (11, ["w1"])]
    asyncio.run(sglang(args, None, {})[1](prompts[0]))
    assert "sampling_seed" not in asked[-1][1]["sampling_params"] and asked[-1][1]["return_logprob"] is True


def methods(text, *names):
    """Methods of slime's own source, which cannot be imported without its engine."""
    import itertools

    import torch
    from slime.utils.data import get_source
    from slime.utils.types import Sample as Theirs

    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name in names]
    within = {"torch": torch, "itertools": itertools, "Sample": Theirs, "get_source": get_source}
    exec(compile(ast.Module(found, []), "slime", "exec"), within)
    return within


def test_slimes_sample_has_these_fields(source):
    tree = ast.parse(source("utils/types.py"))
    [theirs] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Sample"]
    named = {node.target.id for node in theirs.body if isinstance(node, ast.AnnAssign)}
    assert {one.name for one in fields(Sample)} <= named
    [status] = [node for node in theirs.body if isinstance(node, ast.ClassDef) and node.name == "Status"]
    assert {one.name for one in Sample.Status} <= {
        node.targets[0].id for node in status.body if hasattr(node, "targets")
    }


def test_slime_calls_the_hooks_as_they_are_called_here(source):
    rollout, manager = source("rollout/sglang_rollout.py"), source("ray/rollout.py")
    assert "custom_generate_func(args, sample, sampling_params, evaluation=evaluation)" in rollout
    assert list(inspect.signature(Bridge.generate).parameters)[1:] == [
        "args",
        "sample",
        "sampling_params",
        "evaluation",
    ]
    assert "return self.custom_reward_post_process_func(self.args, samples)" in manager
    assert "raw_rewards, rewards = self._post_process_rewards(samples)" in manager
    assert re.search(r"if sample.remove_sample:\s+sample.loss_mask = \[0\]", manager)
    assert "torch.ones_like(kl[i]) * rewards[i]" in source("utils/ppo_utils.py")
    state = rollout[rollout.index("class GenerateState") :]
    assert all(name in state for name in ("self.tokenizer = ", "self.aborted = ", "no_stop_trim=True"))


def test_slime_knows_the_flags(source, handed):
    written = "".join((bridge.handed.folder / "flags.sh").read_text(encoding="utf-8") for bridge, _ in handed.values())
    known = set(re.findall(r'"(--[a-z0-9-]+)"', source("utils/arguments.py"))) | MEGATRONS
    assert set(re.findall(r"^  (--[a-z0-9-]+)", written, re.M)) <= known
