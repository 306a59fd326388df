"""Comparison of an answer with the kit's own result, on random tables and tokens.

The message names the first row that differs. Tables come from fixed seeds, so an answer meets the same ones each time.
Leaves out: the questions (`checks/`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.credits import episode_return
from mas_lab.cells.normalization import normalize
from mas_lab.course.exercises import NotYet
from mas_lab.explain.moments import inflation
from mas_lab.table import NORMALIZATION

PLACE = ("task", "episode", "agent", "turn", "candidate")
DDOF = "you divide by n - 1; divide by n (pandas: `ddof=0`)"
SCALE = "you subtract the mean, but do not divide by the standard deviation"
CREDIT = "you give the credit itself; subtract the mean"
REWARD = "you use the raw `team_reward` of the row; use the credit"
"""Sentences about usual mistakes."""
Mistakes = Mapping[str, Any]
"""What a usual mistake gives, by the sentence about it."""


def need(right: Any, message: str) -> None:
    """Raise `NotYet` with this text unless `right` is true."""
    if not right:
        raise NotYet(message)


def entries(answer: Any, count: int, what: str) -> list:
    """Return the entries of a list, tuple, array or Series; raise `NotYet` if it has not `count` of them."""
    answer = answer.tolist() if hasattr(answer, "tolist") else answer
    need(isinstance(answer, list | tuple) and len(answer) == count, f"{what}: give a list of {count}")
    need(not any(one is ... for one in answer), f"{what}: put your answer in place of each `...`")
    return list(answer)


def names(answer: Any, known: Collection) -> set:
    """Return the names in a collection; raise `NotYet` if one is unknown, or if the answer is one text."""
    answer = answer.tolist() if hasattr(answer, "tolist") else answer
    need(isinstance(answer, Collection) and not isinstance(answer, str), "give a list")
    need(not any(one is ... for one in answer), "put your answer in place of each `...`")
    need(not any(isinstance(one, bool) for one in answer), "give the list itself, not a mask of True and False")
    unknown = [name for name in answer if name not in known]
    need(not unknown, f"unknown: {', '.join(map(repr, unknown))}; choose from {', '.join(map(str, known))}")
    return set(answer)


def same_names(answer: Any, known: Collection, right: Collection, why: Callable[[Any], str]) -> None:
    """Raise `NotYet` with the first of the `known` names that is wrongly in the answer, or wrongly left out."""
    answer = names(answer, known)
    for name in known:
        need((name in answer) == (name in right), f"{name}: {why(name)}")


def tables(
    count: int = 8, agents: Sequence[str] = ("solver", "verifier", "fixer"), seed: int = 0
) -> Iterator[pd.DataFrame]:
    """Yield random tables as after `rollout`, with the columns that credits and groups read.

    The first agent speaks in every episode. Each later agent speaks more rarely, and mostly where rewards are low. So
    groups differ in size and mean. Some are lone (one row) or flat (equal credits). Rows are shuffled: no answer may
    rely on their order.
    """
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        rows = []
        for task in range(int(rng.integers(2, 4))):
            for episode in range(int(rng.integers(4, 7))):
                reward = float(rng.integers(0, 5)) / 4
                calls = [
                    {"task": f"t{task}", "episode": f"t{task}e{episode}", "agent": agent, "turn": turn, "kept": True,
                     "local_reward": float(rng.integers(-2, 3)) / 4, "valid": bool(rng.random() > 0.15)}
                    for place, agent in enumerate(agents)
                    if place == 0 or rng.random() < (0.9 - 0.6 * reward) / place
                    for turn in range(int(rng.integers(1, 3)))
                ]  # fmt: skip
                rows += [{**row, "depth": depth, "team_reward": 0.0} for depth, row in enumerate(calls)]
                rows[-1]["team_reward"] = reward
        yield pd.DataFrame(rows).sample(frac=1, random_state=number).reset_index(drop=True)


def explored(table: pd.DataFrame) -> pd.DataFrame:
    """Return one of `tables` with two candidates per call, of which one was kept; each has rewards of its own.

    Solver and verifier share weights, and a reader acts together with the fixer.
    """
    table = pd.concat([table, table[table["agent"] == "fixer"].assign(agent="reader")])
    node, large = table["episode"] + "/" + table["depth"].astype(str), table["agent"].isin(["solver", "verifier"])
    table = table.assign(node=node, policy=np.where(large, "large", "small"))
    other = table.assign(candidate=1, kept=False, team_reward=1 - table["team_reward"])
    return pd.concat([table.assign(candidate=0), other]).sample(frac=1, random_state=0).reset_index(drop=True)


def same_groups(yours: Any, ours: Sequence[str], what: str) -> None:
    """Raise `NotYet` with two rows of `explored` that only one of two lists of columns compares."""
    yours = [yours] if isinstance(yours, str) else list(yours)
    for both in map(explored, tables(3)):
        names(yours, both.columns)
        labels = [both.groupby(list(each)).ngroup().to_numpy() for each in (yours, ours)]
        apart = np.argwhere(np.not_equal(*(each[:, None] == each for each in labels)))
        if len(apart):
            first, second = apart[0]
            message = "are compared" if labels[0][first] == labels[0][second] else "are not compared"
            raise NotYet(f"{what}: {place_of(both, first)} and {place_of(both, second)} {message} by {yours}")


def designed(rewards: Any, called: Any, episodes: int, agent: str = "critic", least: int = 1) -> pd.DataFrame:
    """Return rows of a solver in every episode and of `agent` in those of `called`, with the rewards as credits.

    Raises `NotYet` if the rewards are not numbers from 0 to 1, or if `called` is not a list of `least` episodes.
    """
    rewards = [float(reward) for reward in entries(rewards, episodes, "rewards")]
    need(all(0 <= reward <= 1 for reward in rewards), "rewards must be numbers from 0 to 1")
    right = len(set(called)) == len(called) and set(called) <= set(range(episodes))
    need(right, f"`called` must hold episodes from 0 to {episodes - 1}, each at most once")
    need(len(called) >= least, f"the {agent} is called in {len(called)} episodes; call it in at least {least}")
    spoken = [("solver", episode) for episode in range(episodes)] + [(agent, int(episode)) for episode in called]
    table = pd.DataFrame(spoken, columns=["agent", "episode"])
    return table.assign(task="t", credit=table["episode"].map(rewards.__getitem__))


def critic_statistics(rewards: Any, called: Any, episodes: int, least: int) -> pd.Series:
    """Return the statistics of the critic of `designed`; raise `NotYet` if its own rewards are all equal."""
    critic = inflation(designed(rewards, called, episodes, least=least)).set_index("agent").loc["critic"]
    need(not critic["flat_k"], "the critic's own rewards are all the same, so it can learn nothing")
    return critic


def result_of(answer: Callable, *arguments: Any) -> Any:
    """Call `answer` on copies of `arguments`, and return its result.

    Raises `NotYet` if `answer` is not a function, raises an exception, or returns nothing.
    """
    need(callable(answer), f"give a function, not {type(answer).__name__}")
    name = getattr(answer, "__name__", "it")
    try:
        found = answer(*map(_copy, arguments))
    except Exception as error:
        raise NotYet(f"`{name}` raised {type(error).__name__}: {error}") from error
    need(found is not None and found is not ..., f"`{name}` returned nothing; write its body, and return the result")
    return found


def _copy(argument: Any) -> Any:
    for name in ("copy", "clone"):  # of a tensor: clone
        if hasattr(argument, name):
            return getattr(argument, name)()
    return argument


def kind_of(answer: Any) -> str:
    """Describe what an answer is, such as `a Series of 5`."""
    return "None" if answer is None else f"a {type(answer).__name__}{f' of {np.size(answer)}' * (np.ndim(answer) > 0)}"


def same(
    yours: Any,
    ours: Any,
    what: str,
    where: Callable = "number {}".format,
    tolerance: float = 1e-4,
    wrong: Mistakes | None = None,
) -> None:
    """Raise `NotYet` with the first place at which two arrays of numbers differ; `where` describes a place."""
    ours = np.asarray(ours, dtype=float)
    need(np.ndim(yours) == ours.ndim, f"your {what} is {kind_of(yours)}; give {ours.size} numbers")
    yours = np.asarray(yours, dtype=float)
    need(yours.shape == ours.shape, f"your {what} has the shape {yours.shape}; it should be {ours.shape}")
    off = np.flatnonzero(~np.isclose(yours, ours, rtol=tolerance, atol=tolerance))
    if len(off):
        first = f"{where(off[0])}: your {what} is {yours[off[0]]:.4g}"
        refuse_mistakes(first, yours, wrong, tolerance)
        raise NotYet(f"{first}, it should be {ours[off[0]]:.4g} ({len(off)} of {len(ours)} differ)")


def refuse_mistakes(where: str, yours: Any, wrong: Mistakes | None, tolerance: float) -> None:
    """Raise `NotYet` with the sentence about the first mistake that gives these numbers."""
    for sentence, numbers in (wrong or {}).items():
        made = np.allclose(yours, np.asarray(numbers, dtype=float), rtol=tolerance, atol=tolerance, equal_nan=True)
        need(not made, f"{where}; {sentence}")


def mistakes(table: pd.DataFrame, **settings: Any) -> dict[str, Any]:
    """Return the advantages that usual mistakes give where `normalize(table, **settings)` is right."""
    table = table.drop(columns=NORMALIZATION, errors="ignore")
    raw = table.assign(credit=table.get("team_reward", table["credit"]))
    made = {DDOF: (table, {"ddof": 1}), SCALE: (table, {"scale": "none"}), REWARD: (raw, {})}
    wrong = {sentence: normalize(rows, **settings | change) for sentence, (rows, change) in made.items()}
    return {CREDIT: table["credit"]} | {sentence: one["advantage"] for sentence, one in wrong.items()}


def same_advantages(yours: Any, table: pd.DataFrame, what: str = "advantage", **settings: Any) -> None:
    """Raise `NotYet` with the first row whose advantage is not that of `normalize(table, **settings)`."""
    right = normalize(table.drop(columns=NORMALIZATION, errors="ignore"), **settings)["advantage"]
    same_rows(yours, right, table, what, mistakes(table, **settings))


def same_credit(yours: Any, table: pd.DataFrame, formula: Callable = lambda credit: credit) -> None:
    """Raise `NotYet` with the first row whose credit is not `formula` of the episode's return."""
    raw = {REWARD: formula(table["team_reward"])}
    same_rows(yours, formula(episode_return()(table)), table, "credit", raw)


def agrees(
    answer: Callable, right: Callable, cases: Iterable[Sequence], wrong: Mapping[str, Callable] | None = None
) -> None:
    """Raise `NotYet` with the first case, a list of arguments, for which two functions return different numbers."""
    for arguments in cases:
        message = ", ".join(f"{name}={one}" for name, one in signature(right).bind(*arguments).arguments.items())
        what, yours, ours = f"result for {message}", result_of(answer, *arguments), right(*arguments)
        if np.ndim(ours) == 0:
            yours, ours = [number(yours, f"your {what}")], [ours]
        same(yours, ours, what, tolerance=1e-6, wrong={name: one(*arguments) for name, one in (wrong or {}).items()})


def same_rows(
    yours: Any, ours: pd.Series, table: pd.DataFrame, what: str = "advantage", wrong: Mistakes | None = None
) -> None:
    """Raise `NotYet` with the first row in which `yours` differs from `ours`; both have a number per row."""
    need(not isinstance(yours, pd.DataFrame), f"your answer is a table; return a number per row, the {what}")
    if isinstance(yours, pd.Series) and set(yours.index) == set(table.index):
        yours = yours.reindex(table.index)
    same(yours, ours, what, lambda row: place_of(table, row), wrong=wrong)


def same_loss(yours: Callable, ours: Callable) -> None:
    """Raise `NotYet` with the first token whose loss or gradient is wrong.

    Both functions get log-probabilities now and at sampling, advantages and rows, of 12 tokens; some ratios are far
    from 1.
    """
    import torch

    for seed in range(6):
        draw = torch.Generator().manual_seed(seed)
        old = -torch.rand(12, generator=draw) * 3 - 0.8
        shift, advantages = (torch.randn(12, generator=draw) for _ in range(2))
        shift = (0.4 * shift).index_fill(0, torch.tensor(seed), 0.0)  # a ratio of exactly 1

        def token(place, shift=shift, advantages=advantages):
            return f"token {place} (ratio {shift[place].exp():.2f}, advantage {advantages[place]:.2f})"

        found = []
        for loss in (yours, ours):
            now = (old + shift).requires_grad_()
            losses = loss(now, old, advantages, torch.arange(12) // 4)
            need(isinstance(losses, torch.Tensor), f"return a tensor, not {type(losses).__name__}")
            slopes = torch.autograd.grad(losses.sum(), now)[0] if losses.requires_grad else torch.zeros(12)
            found.append((losses.detach(), slopes))
        for what, mine, right in zip(("loss", "gradient"), *found, strict=True):
            same(mine, right, what, token)


def number(answer: Any, what: str) -> float:
    """Return an answer that is one number; raise `NotYet` for anything else."""
    need(answer is not ..., f"{what}: put your answer in place of the `...`")
    need(np.ndim(answer) == 0 and hasattr(answer, "__float__"), f"{what}: give one number, not {kind_of(answer)}")
    need(not np.isnan(float(answer)), f"{what}: NaN, from 0 / 0 or from a deviation of one row that divides by n - 1")
    return float(answer)


def close(yours: Any, ours: float, what: str, tolerance: float = 1e-2, wrong: Mistakes | None = None) -> None:
    """Raise `NotYet` if a number is not within `tolerance` (relative, and absolute near 0) of the right one."""
    given = number(yours, what)
    if not np.isclose(given, ours, rtol=tolerance, atol=tolerance):
        refuse_mistakes(f"{what}: {given:.4g}", given, wrong, tolerance)
        above, below = ("close to 0", "far from 0") if max(given, ours) < 0 else ("large", "small")
        raise NotYet(f"{what}: {given:.4g} is too {above if given > ours else below}")


def close_by(answer: Any, right: Mapping | pd.Series, what: str, tolerance: float = 1e-6) -> None:
    """Raise `NotYet` with the first key of two dicts or Series whose numbers are not close."""
    keys = f"{what}: give a dict or Series with a number for each of {', '.join(map(str, right.keys()))}"
    need(hasattr(answer, "keys") and set(answer.keys()) == set(right.keys()), keys)
    for name, ours in right.items():
        close(answer[name], ours, f"{what}, {name}", tolerance)


def place_of(table: pd.DataFrame, row: int) -> str:
    """Describe a row by its number and by the columns that identify it."""
    place = ", ".join(f"{name} {table[name].iloc[row]}" for name in PLACE if name in table)
    return f"row {row} ({place})"
