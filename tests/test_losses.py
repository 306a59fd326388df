"""What a loss is given, what it may give, and ratios of whole rows: by hand, against autograd, and in training."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import small
import torch
from backends.drawn import same, weights
from small import Relay, make_team

import mas_lab as lab
from mas_lab.explain.diagnostics import restored_gradients
from mas_lab.policy import samples_of

RELAY = Relay()
ROWS = torch.tensor([0, 0, 1])
RATIOS = ("sequence", "action")


@pytest.fixture(scope="module")
def drawn(models):
    """Candidates of both agents as they were sampled: every ratio is 1."""
    return small.judged(make_team("shared", models))


@pytest.fixture(scope="module")
def off(drawn):
    """The same with log-probabilities off by some noise, so that rows have ratios of their own."""
    rng = np.random.default_rng(0)
    return drawn.assign(logprobs=[(np.array(row) + rng.normal(0, 0.3, len(row))).tolist() for row in drawn["logprobs"]])


def tensors(*columns):
    return [torch.tensor(column, dtype=torch.float64) for column in columns]


def test_sums_and_means_of_rows_by_hand():
    values = torch.tensor([1.0, 2.0, 5.0], requires_grad=True)
    assert lab.row_sum(values, ROWS).tolist() == [3.0, 3.0, 5.0]
    mean = lab.row_mean(values, ROWS)
    assert mean.tolist() == [1.5, 1.5, 5.0]
    (mean * torch.tensor([1.0, 3.0, 1.0])).sum().backward()
    assert values.grad.tolist() == [2.0, 2.0, 1.0]


@dataclass(frozen=True)
class Gentle(lab.clipped):
    """A loss of its own, whose clip and ratios are not those that it inherits."""

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        return -advantages_N * logprobs_N.exp()


@dataclass(frozen=True)
class GentleAndSaid(Gentle):
    ratios = lab.Loss.ratios


def test_update_reports_of_a_loss_only_what_it_says(drawn, models):
    known = ("max_ratio", "clip_fraction")
    for loss, said in ((Gentle(), []), (GentleAndSaid(), ["max_ratio"]), (lab.reinforce(), known), (Damped(), known)):
        stats = lab.update(make_team("shared", models), drawn, loss=loss)
        assert [name for name in known if stats[name].notna().all()] == list(said), loss


@pytest.mark.parametrize("ratio, ratios, losses, clips", [
    ("token", [1.5, 0.5, 1.1], [-1.2, -0.5, 1.1], [True, False, False]),
    ("sequence", [math.sqrt(0.75)] * 2 + [1.1], [-math.sqrt(0.75)] * 2 + [1.1], [False] * 3),
    ("action", [0.75, 0.75, 1.1], [-0.75, -0.75, 1.1], [False] * 3),
])  # fmt: skip
def test_ratios_by_hand(ratio, ratios, losses, clips):
    """A row of tokens with ratios 1.5 and 0.5 under A = 1, and one of a single token with 1.1 under A = -1."""
    logprobs, old, advantages = tensors([math.log(r) - 1 for r in (1.5, 0.5, 1.1)], [-1.0] * 3, [1.0, 1.0, -1.0])
    loss = lab.clipped(0.2, ratio=ratio)
    assert loss.ratios(logprobs, old, ROWS).tolist() == pytest.approx(ratios)
    assert loss(logprobs, old, advantages, ROWS).tolist() == pytest.approx(losses)
    assert loss.clips(logprobs, old, advantages, ROWS).tolist() == clips
    dual = lab.clipped(0.2, ratio=ratio, dual=1.05).clips(logprobs, old, advantages, ROWS).tolist()
    assert dual == [*clips[:2], True], "1.1 is above the constant of the dual clip"
    turned = loss.clips(logprobs, old, -advantages, ROWS).tolist()  # 0.75 is below 0.8, sqrt(0.75) is not
    assert turned == {"token": [False, True, False], "sequence": [False] * 3, "action": [True, True, False]}[ratio]


@pytest.mark.parametrize("ratio, length", [("sequence", 1), ("action", 2)])
def test_each_advantage_of_a_row_acts_on_its_own_token(ratio, length):
    """GSPO-token: the row's ratio 1.21 or 1.1 times the token's advantage; 1.21 is clipped where that is positive."""
    step = math.log(1.21) / 2 * (1 if ratio == "action" else 2)
    logprobs = torch.tensor([step, 0.0], dtype=torch.float64, requires_grad=True)
    [advantages] = tensors([-3.0, 1.0])
    loss, row = lab.clipped(0.2 if ratio == "action" else 0.05, ratio=ratio), torch.tensor([0, 0])
    loss(logprobs, torch.zeros(2).double(), advantages, row).sum().backward()
    held = 1.1 * length
    assert loss.ratios(logprobs, torch.zeros(2).double(), row).tolist() == pytest.approx([1.1] * 2)
    assert logprobs.grad.tolist() == pytest.approx([3 * held, -held if ratio == "action" else 0.0])


@pytest.mark.parametrize("ratio", RATIOS)
def test_statistics_report_the_ratio_of_the_loss(ratio, off, models):
    """The weights have not moved: a row's log-ratios are what was added to its log-probabilities, turned round."""
    team = make_team("shared", models)
    stats = lab.update(team, off, lab.clipped(0.2, ratio=ratio), "turn", off_policy=True).set_index("agent")
    now = make_team("shared", models)["asker"].logprobs(samples_of(off, weight=0.0))[0].detach()
    lengths = off["completion_ids"].map(len).tolist()
    gaps = [part.double().numpy() - old for part, old in zip(now.split(lengths), off["logprobs"], strict=True)]
    ratios = np.exp([gap.mean() if ratio == "sequence" else gap.sum() for gap in gaps])
    for agent in small.AGENTS:
        own = (off["agent"] == agent).to_numpy()
        live = own & (off["advantage"] != 0).to_numpy()
        over = (off["advantage"].to_numpy() > 0) & (ratios > 1.2) | (off["advantage"].to_numpy() < 0) & (ratios < 0.8)
        assert stats.loc[agent, "max_ratio"] == pytest.approx(ratios[live].max(), rel=1e-4)
        clipped = (np.array(lengths) * over)[own].sum() / np.array(lengths)[own].sum()
        assert 0 < stats.loc[agent, "clip_fraction"] == pytest.approx(clipped)


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_step_does_not_depend_on_how_it_is_cut(ratio, off, models):
    norms = []
    for options in ({}, {"packing": "packed", "train_tokens": 8}, {"packing": "padded", "train_tokens": 8}):
        team = lab.Team.shared(lab.load_policy(models / "a", **options), small.AGENTS)
        stats = lab.update(team, off, lab.clipped(0.2, ratio=ratio), "turn", off_policy=True)
        norms.append(stats["grad_norm"].tolist())
    assert norms[1:] == [pytest.approx(norms[0], rel=1e-4)] * 2


@dataclass(frozen=True)
class Rowwise(lab.Loss):
    """A loss whose every token reads its whole row, with a gradient: a mean of log-ratios, squared."""

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        return -advantages_N * lab.row_mean(logprobs_N - old_N + 1, row_N) ** 2


@pytest.mark.parametrize("loss, kind", [
    (lab.clipped(0.2, ratio="sequence", entropy=0.1), "shared"), (lab.clipped(0.2, ratio="action"), "lora"),
    (Rowwise(), "shared"),
], ids=str)  # fmt: skip
def test_shares_of_losses_that_read_rows_are_exact(loss, kind, off, models):
    """They sum to 1, and a row's is the projection of its own gradient, made by a pass of that row alone."""
    found = []

    def watch(batch):
        shares = batch.token_shares()
        assert shares["share"].sum() == pytest.approx(1.0, abs=1e-4)
        whole = [gradient.clone() for _, gradient in batch.policy.gradients()]
        square = sum(part.double().square().sum().item() for part in whole)
        for own in batch.agents.values():
            row = own.used.index[0]
            with restored_gradients(batch.policy):
                batch.policy.forward_backward(own.samples[:1], batch.loss)
                alone = [gradient for _, gradient in batch.policy.gradients()]
                share = sum((a.double() * b.double()).sum().item() for a, b in zip(whole, alone, strict=True)) / square
            assert shares.loc[shares["row"] == row, "share"].sum() == pytest.approx(share, rel=1e-3, abs=1e-6)
            found.append(share)

    lab.update(make_team(kind, models), off, loss=loss, aggregate="turn", watch=watch, off_policy=True)
    assert len(found) == 2 and all(found)


@pytest.mark.slow
def test_a_run_with_a_loss_of_ones_own_trains_resumes_and_exports(models, tmp_path):
    recipe = small.RECIPE.replace(name="my_own", loss=GentleAndSaid(0.1))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for run, totals in ((whole, [3]), (cut, [1, 3])):
        for steps in totals:
            team = make_team("shared", models)
            reports = list(lab.train(RELAY, team, recipe, steps, run=run, watch=lab.SpikeWatch(), **small.SETTINGS))
        assert reports[-1].step == 2 and (reports[-1].stats["grad_norm"] > 0).any()
    assert small.bits(whole) == small.bits(cut)
    kept = lab.load_run(lab.export(cut, tmp_path / "mine.zip"))
    assert kept.steps == 3 and kept.stats["max_ratio"].notna().any()
    for instrument in (lab.RewardInspector, lab.SpikeInspector, lab.RolloutViewer):
        page = instrument(tmp_path / "mine.zip").to_html(tmp_path / "page.html").read_text(encoding="utf-8")
        assert "my_own" in page and "asker" in page
    with pytest.raises(lab.RunError, match="loss"):
        lab.train(RELAY, team, small.RECIPE.replace(name="my_own"), 4, run=cut, **small.SETTINGS).__next__()


@dataclass(frozen=True)
class Timid(lab.reinforce):
    """A loss that asks something of every token, whatever its advantage."""

    def __call__(self, *tensors):
        return tensors[0] ** 2 + super().__call__(*tensors)


@dataclass(frozen=True)
class Damped(lab.clipped):
    def regularizer(self, logprobs_N, entropy_N, reference_N):
        return logprobs_N**2


def test_rows_without_advantage_are_passed_over_only_where_they_add_nothing(drawn, models):
    still, seen = drawn.assign(advantage=0.0), {}
    for loss in (Timid(), Damped(), lab.clipped(0.2), lab.reinforce(), lab.clipped(0.2, kl=0.1)):
        stats = lab.update(make_team("shared", models), still, loss=loss)
        seen[type(loss).__name__, loss.kl] = (stats["grad_norm"].min() > 0, bool(stats["mismatch"].notna().all()))
    assert seen.pop(("clipped", 0.0)) == seen.pop(("reinforce", 0.0)) == (False, False)
    assert seen.pop(("Timid", 0.0)) == seen.pop(("Damped", 0.0)) == (True, True)
    assert seen["clipped", 0.1][1]  # the reference pulls at every token, though not before the first step


@dataclass(frozen=True)
class Giving(lab.Loss):
    """Gives whatever it was told to make of the losses that are right."""

    make: object = None

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        return self.make(-advantages_N * logprobs_N)


@pytest.mark.parametrize("make, words", [
    (torch.sum, r"loss Giving returned a Tensor of shape \(\) for \d+ tokens; return a tensor of shape \(\d+,\)"),
    (lambda losses_N: None, r"returned a NoneType for \d+ tokens; .* a value per token"),
    (lambda losses_N: losses_N.detach(), "returned losses without a gradient: nothing would be learned"),
])  # fmt: skip
def test_what_is_no_loss_per_token_is_named(make, words, drawn, models):
    team = make_team("shared", models)
    before = weights(team["asker"])
    with pytest.raises(TypeError, match=words):
        lab.update(team, drawn, loss=Giving(make=make))
    assert same(before, weights(team["asker"]))


@pytest.mark.parametrize("loss, aggregate, error, words", [
    (lab.clipped(0.2, ratio="action"), "sum", ValueError,
     r"clipped\(.*ratio='action'\).*aggregate='sum'.*weigh twice.*pass aggregate='turn'"),
    ("clipped", "token", TypeError, r"loss='clipped' \(str\); give Loss"),
])  # fmt: skip
def test_what_cannot_be_averaged_is_refused_before_anything_is_played(loss, aggregate, error, words, drawn, models):
    team = make_team("shared", models)
    with pytest.raises(error, match="update: .*" + words):
        lab.update(team, drawn, loss=loss, aggregate=aggregate)
    with pytest.raises(error, match="train: .*" + words):
        lab.train(RELAY, team, small.RECIPE.replace(loss=loss, aggregate=aggregate), 1)
