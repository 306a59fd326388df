"""Credits: the number that is compared within a group.

Leaves out: which rows are compared (`group`) and how they are compared (`normalize`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.table import TableError, choices_of, column, completions_of, in_float64, place, require


class Credit(Protocol):
    """The number that is compared within a group: one number per row, on the index of `turns`.

    `turns` is the table of a rollout. A credit raises `TableError` if the table lacks a column that it reads, or if it
    has no meaning for the table. With a class attribute `needs_team = True`, the call also gets the team. A credit is a
    frozen dataclass, whose `repr` is the code that makes it, or a function. It is pure: the same table has the same
    credits in every call. See `Recipe.after` for one that learns.
    """

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the credit of each row."""


@dataclass(frozen=True)
class mixed:
    """Credit of AT-GRPO: a weighted sum of the team's reward and the row's own local reward.

        R = alpha * r_team + local * r_local

    AT-GRPO, arXiv 2510.11062, section 4.2.
    """

    alpha: float = 1.0
    """Weight of `team_reward`."""
    local: float = 1.0
    """Weight of the row's `local_reward`. 0.0: only the team's reward counts, which is the paper's outcome-only
    ablation, and `local_reward` is not read."""
    within_episodes: ClassVar[bool] = True
    """True for a credit that compares no rows of several episodes; one call then judges many (`Score`)."""

    def __post_init__(self):
        check_arguments(mixed, vars(self))

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return R for each row.

        Args:
            turns: Table with `team_reward`. `local_reward` is 0 if the column is missing.
        """
        turns = read(turns, ["team_reward"], "mixed", optional=["local_reward"] if self.local else [])
        return self.alpha * turns["team_reward"] + (self.local * column(turns, "local_reward") if self.local else 0.0)


@dataclass(frozen=True)
class episode_return:
    """Credit of whole episodes: the sum of the team's rewards over the row's episode.

        R = sum of r_team over the kept steps of the episode + own * r_local - invalid * [the output was invalid]

    A joint step of several agents counts once. `own` adds the local reward of the row to that row only. This credit
    does not sum local rewards over an episode: an agent would then earn more by taking more turns.
    """

    invalid: float = 0.0
    """Penalty of a row whose output the environment did not understand. The other rows of its episode keep their
    credit. Dr. MAS, arXiv 2602.08847, uses 0.1 for math and 0.01 for search."""
    own: float = 0.0
    """Weight of the row's own `local_reward`; 0.0 does not read the column."""

    def __post_init__(self):
        check_arguments(episode_return, vars(self), invalid=0)

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return R for each row.

        Args:
            turns: Table with `episode` and `team_reward`. `depth`, `kept`, `valid` and `local_reward` have defaults if
                they are missing.

        Raises:
            TableError: An episode branches, or agents that acted together have different team rewards.
        """
        local = ["local_reward"] if self.own else []
        turns = read(turns, ["episode", "team_reward"], "episode_return", optional=["depth", "kept", "valid", *local])
        names = ("episode", "depth", "kept", "valid", *local)
        rows = turns.assign(**{name: column(turns, name) for name in names})
        steps = joint_steps(rows[rows["kept"].astype(bool)])
        total = steps.groupby("episode")["team_reward"].sum()
        credit = rows["episode"].map(total).fillna(0.0).astype(float) - self.invalid * ~rows["valid"].astype(bool)
        return credit + self.own * rows["local_reward"] if self.own else credit


@dataclass(frozen=True)
class own_return:
    """Credit of one agent: the sum of its own local rewards in the row's episode.

        R = sum of r_local over the agent's kept calls in the episode; with `to_go`, over this call and later ones

    In a game (an env with `competitive = True`) this is what the player has won or lost. With `to_go` it is the
    turn-level return of MARSHAL, arXiv 2510.15414. The table must hold plain chains, as `episodes(n)` makes them.
    """

    to_go: bool = False
    """Leave out the rewards of the agent's earlier calls, which the row could not change."""

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the sum of local rewards for each row.

        Args:
            turns: Table with `episode`, `agent` and `local_reward`. `depth` and `kept` have defaults if they are
                missing.

        Raises:
            TableError: An episode branches, or `to_go` meets a candidate that is not kept.
        """
        turns = read(turns, ["episode", "agent", "local_reward"], "own_return", optional=["depth", "kept"])
        rows = turns.assign(**{name: column(turns, name) for name in ("episode", "agent", "depth", "kept")})
        rows = rows.reset_index(drop=True)
        if self.to_go:
            _refuse_unfollowed(rows, "own_return")
        played = rows["kept"].astype(bool)
        _refuse_branches(rows[played], "own_return")
        reward = rows["local_reward"].where(played, 0.0)
        own = [rows["episode"], rows["agent"]]
        credit = reward.groupby(own).transform("sum")
        if self.to_go:
            credit = reward[rows["depth"].sort_values(ascending=False, kind="stable").index].groupby(own).cumsum()
        return credit.sort_index().set_axis(turns.index)


def read(turns: pd.DataFrame, columns: Sequence[str], credit: str, optional: Sequence[str] = ()) -> pd.DataFrame:
    """Return the table with its rewards in float64, after `require`."""
    require(turns, columns, credit, optional)
    return in_float64(turns)


def joint_steps(played: pd.DataFrame, credit: str = "episode_return") -> pd.DataFrame:
    """Return one of the kept rows per step of each episode, in order; raise `TableError` if an episode branches."""
    key = ["episode", "depth"]
    _refuse_branches(played, credit)
    spread = played.groupby(key)["team_reward"].transform("nunique") > 1
    if spread.any():
        raise TableError(
            f"{credit}: agents that acted together disagree on team_reward at {place(played[spread].iloc[0])}; "
            "tree() scores each of them against the others' choices: use mixed()"
        )
    return played.drop_duplicates(key).sort_values(key)


def _refuse_branches(played: pd.DataFrame, credit: str) -> None:
    """Raise `TableError` if an agent has several kept actions at one step of an episode."""
    twice = played.duplicated([name for name in ("episode", "depth", "agent") if name in played.columns])
    if twice.any():
        raise TableError(
            f"{credit}: several kept actions at {place(played[twice].iloc[0])}: the episode branches there, so it has "
            "no single return; use return_to_go() for a joint tree, mixed() for a tree of candidates, or episodes(n)"
        )


def _refuse_unfollowed(turns: pd.DataFrame, credit: str) -> None:
    """Raise `TableError` if a candidate was not kept: nothing follows it."""
    followed = column(turns, "kept").astype(bool)
    if not followed.all():
        raise TableError(
            f"{credit}: a candidate that the state did not follow, at {place(turns[~followed].iloc[0])}, has no "
            "return; roll out with joint() or episodes(), or use mixed() or counterfactual() for a tree()"
        )


@dataclass(frozen=True)
class return_to_go:
    """Credit of MAGRPO: the return-to-go of a joint action.

        R = r + gamma * mean(returns of the joint actions that follow)

    MAGRPO, arXiv 2508.04652, section 4.

    The table must hold a joint tree with every branch kept, or a plain chain. With `joint(mode="cross")` a completion
    takes part in several joint actions. Its return is the mean over them, and a branch that ended adds 0.
    """

    gamma: float = 1.0
    """Discount of the returns that follow; 1.0 does not discount."""

    def __post_init__(self):
        check_arguments(return_to_go, vars(self), gamma=0)

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return R for each row.

        Args:
            turns: Table with `team_reward`. `node`, `parent`, `depth`, `candidate` and `kept` have defaults if they are
                missing.

        Raises:
            TableError: A candidate is not kept, or a parent is not an action of the table.
        """
        turns = read(turns, ["team_reward"], "return_to_go", optional=["node", "parent", "depth", "candidate", "kept"])
        _refuse_unfollowed(turns, "return_to_go")
        rows = _with_parents(turns)
        _refuse_strays(rows)
        joint_actions, returns = _joint_actions(rows), rows["team_reward"]
        for depth in sorted(rows["depth"].unique(), reverse=True):
            future = returns[rows["depth"] == depth].sort_values().groupby(rows["parent"]).mean()
            total: dict[str, float] = {}  # by action; in a cross a completion has the sum over its joint actions
            for action, worth in future.items():
                for name in {action, *completions_of(action)}:
                    total[name] = total.get(name, 0.0) + worth
            returns = returns + self.gamma * rows["action"].map(total).fillna(0.0) / joint_actions
        return returns.set_axis(turns.index)


@dataclass(frozen=True)
class counterfactual:
    """Credit of one choice: the reward of a candidate plus the mean return of its continuations.

        R = r + mean return of the continuations from the candidate to the end of the episode

    `tree(k, follow=m)` plays the continuations. Siblings then differ by the effect of this choice, including its effect
    on later agents and turns. If several agents act together, a candidate is valued with the kept candidates of earlier
    agents and the first candidates of later agents. A row of a continuation (`probe`) gets the return of that
    continuation.
    """

    within_episodes: ClassVar[bool] = True

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return R for each row.

        Args:
            turns: Table of `tree(k, follow=m)`, with the rows of the continuations.

        Raises:
            TableError: The table holds no continuations.
        """
        turns = read(turns, ["episode", "parent", "depth", "agent", "team_reward", "probe"], "counterfactual")
        probe = turns["probe"].astype(bool)
        if not probe.any() and not column(turns, "done").all():
            raise TableError(
                "counterfactual: the table holds no continuations; roll out with tree(k, follow=m), m >= 1"
            )
        played = turns.assign(episode=column(turns, "episode"))
        steps = joint_steps(played[probe & column(turns, "kept").astype(bool)], "counterfactual")
        episodes = steps.groupby("episode").agg(total=("team_reward", "sum"), parent=("parent", "first"))
        future = episodes.groupby("parent")["total"].mean()
        credit = turns["team_reward"] + column(turns, "action").map(future).fillna(0.0)
        return credit.where(~probe, played["episode"].map(episodes["total"]))


@dataclass(frozen=True)
class difference_return:
    """Credit of CCPO: the episode's return minus the return without the agent.

        R_k = R - R_(-k)

    CCPO, arXiv 2603.21563; the difference reward of Wolpert and Tumer (2002). `without(n)` plays the episodes without
    an agent. What was earned before the agent's first turn is part of both returns. An agent whose absence was not
    played gets R. A row of a replay (`probe`) gets the return of that replay.
    """

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return R_k for each row.

        Args:
            turns: Table of `without(n)`, with the rows of the replays.

        Raises:
            TableError: The table holds no replays.
        """
        turns = read(turns, ["episode", "depth", "agent", "team_reward"], "difference_return")
        if "removed" not in turns:
            raise TableError("difference_return: the table holds no replays; roll out with without(n)")
        steps = joint_steps(turns[column(turns, "kept").astype(bool)], "difference_return")
        total, begins = steps.groupby("episode")["team_reward"].sum(), steps.groupby("episode")["depth"].min()
        before = steps["team_reward"].groupby(steps["episode"]).cumsum() - steps["team_reward"]
        before = pd.Series(before.to_numpy(), pd.MultiIndex.from_frame(steps[["episode", "depth"]]))
        missed = {}
        for episode, agent in turns[["episode", "agent"]].drop_duplicates().itertuples(index=False):
            replay = replay_name(episode, agent)
            missed[episode, agent] = before[episode, begins[replay]] + total[replay] if replay in total.index else 0.0
        lost = [missed[key] for key in zip(turns["episode"], turns["agent"], strict=True)]
        return turns["episode"].map(total) - lost


def replay_name(episode: str, removed: str) -> str:
    """Return the name of an episode that is played again without the agent `removed`."""
    return f"{episode} without {removed}"


def _with_parents(turns: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with `node`, `parent`, `depth` and `action` filled in, under a fresh index."""
    rows = turns.assign(**{name: column(turns, name) for name in ("node", "candidate", "action")})
    if "parent" not in turns.columns:
        order = "depth" if "depth" in turns.columns or not {"node", "turn"} <= set(turns.columns) else "turn"
        rows["depth"] = column(turns, order)
    rows = rows.reset_index(drop=True)
    if "parent" not in rows.columns:
        return rows.assign(parent=_chain_parents(rows))
    return rows if "depth" in rows.columns else rows.assign(depth=_depths(rows))


def _chain_parents(rows: pd.DataFrame) -> pd.Series:
    """Return the parents of hand-typed chains: each node follows the node before it in its episode."""
    episode = rows["episode"] if "episode" in rows.columns else rows["node"]
    goes_on = rows["depth"] < rows["depth"].groupby(episode).transform("max")
    several = goes_on & (rows["action"].groupby(rows["node"]).transform("nunique") > 1)
    if several.any():
        raise TableError(
            f"return_to_go: several candidates at {place(rows[several].iloc[0])} and the episode goes on; "
            "the columns 'node' and 'parent' must say which of them led where"
        )
    nodes = rows.sort_values(["depth", "node"]).drop_duplicates("node")
    before = nodes["action"].groupby(episode).shift(fill_value="")
    return rows["node"].map(dict(zip(nodes["node"], before, strict=True)))


def _depths(rows: pd.DataFrame) -> pd.Series:
    """Return the number of actions before each node, counted along its parents."""
    before = dict(zip(rows["node"], (choices_of(parent)[0] for parent in rows["parent"]), strict=True))

    def depth(node: str) -> int:
        steps = 0
        while before.get(node) and steps <= len(before):
            node, steps = before[node], steps + 1
        return steps

    return rows["node"].map(depth)


def _refuse_strays(rows: pd.DataFrame) -> None:
    """Raise `TableError` if a parent is neither an action of the table nor a joint action made of such actions."""
    known, parents = set(rows["action"]), rows["parent"].unique()
    stray = sorted(p for p in parents if p and p not in known and not known.issuperset(completions_of(p)))
    if stray:
        raise TableError(
            f"return_to_go: parent {stray[0]!r} is not an action of a node in the table; "
            "it reads 'node.i', or 'node.i-j' when several agents acted"
        )


def _joint_actions(rows: pd.DataFrame) -> pd.Series | int:
    """Return the number of joint actions of each row: 1, or in a cross the number that a completion takes part in."""
    crossed = rows["action"].map(lambda name: "*" in choices_of(name)[1]).astype(bool)
    if not crossed.any():
        return 1
    own = rows.groupby(["node", "agent"])["candidate"].transform("nunique")
    once = rows.drop_duplicates(["node", "agent"])
    everyone = own[once.index].groupby(once["node"]).prod()
    return (rows["node"].map(everyone) / own).where(crossed, 1)
