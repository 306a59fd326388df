"""`lab.read` on files that other trainers' own writers made, and on files that are broken."""

import json
import os
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.runs.read import FILES, KEYS, text

RECORDED = Path(__file__).parents[2] / "data/foreign"
PLAIN = {"task": ["a", "a", "b", "b"], "episode": [0, 1, 2, 3], "role": list("xyxy"), "score": [1.0, 0.0, 0.5, 1.0]}
NAMES = {"team_reward": "score", "agent": "role"}


def said(path, **arguments) -> tuple[pd.DataFrame, str]:
    """The table, and the one warning."""
    with pytest.warns(UserWarning, match=r"lab\.read") as warned:
        turns = lab.read(path, **arguments)
    assert len(warned) == 1 and "\n" not in str(warned[0].message)
    return turns, str(warned[0].message)


def written(path: Path, rows: list) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def save(table: pd.DataFrame, path: Path) -> None:
    {".csv": lambda: table.to_csv(path, index=False), ".parquet": lambda: table.to_parquet(path),
     ".jsonl": lambda: table.to_json(path, orient="records", lines=True)}[path.suffix]()  # fmt: skip


def train_with_trl(folder: Path) -> Path:
    """Train three steps with GRPOTrainer, on two prompts with four completions each; two have no reward."""
    sys.path.insert(0, str(RECORDED))
    try:
        import record

        return record.trl(folder)
    finally:
        sys.path.remove(str(RECORDED))


@pytest.fixture(params=["recorded", pytest.param("trained", marks=pytest.mark.slow)])
def trl(request, tmp_path) -> Path:
    """A run of TRL: the recorded one, and one that this test trains."""
    if request.param == "recorded":
        return RECORDED / "trl"
    pytest.importorskip("trl", reason="TRL is not installed")
    return train_with_trl(tmp_path)


def test_a_run_of_trl_is_read(trl):
    turns, line = said(trl)
    assert "format 'trl', 3 files, 21 rows" in line and "3 rows without any reward are left out" in line
    assert "team_reward is the sum of rewards" in line and "{'alike': 1.0, 'longer': 1.0}" in line
    assert "tasks and groups are by prompt text" in line
    assert "one agent, named 'agent'" in line and "the episode is the row" in line and "no token ids" in line
    logged = pd.read_parquet(sorted((trl / "completions").iterdir())[0]).dropna(subset=["alike"])
    first = turns[turns["step"] == 1]
    assert first["team_reward"].tolist() == pytest.approx((logged["alike"] + logged["longer"]).tolist())
    assert first["completion"].tolist() == logged["completion"].tolist()
    assert set(turns["seen"]) == {"yes"} and set(turns["valid"]) == {True}
    stats = turns.groupby(["step", "group"])["credit"].agg(["mean", lambda credit: credit.std(ddof=1)])
    centered = turns["credit"] - turns.set_index(["step", "group"]).index.map(stats["mean"])
    scaled = centered / (turns.set_index(["step", "group"]).index.map(stats.iloc[:, 1]) + 1e-4)
    assert turns["advantage"].tolist() == pytest.approx(scaled.tolist(), abs=1e-4)


def test_weights_and_own_rewards_are_named_by_the_caller(trl):
    turns, line = said(trl, columns={"team_reward": {"alike": 1.0, "longer": 0.1}, "local_reward": "alike"})
    assert "team_reward is" not in line and "no local_reward" not in line
    assert turns["team_reward"].tolist() == pytest.approx((turns["local_reward"] + 0.1 * turns["longer"]).tolist())
    assert {"trained", "dr_mas"} == set(lab.wrong_way(turns, recipes=["dr_mas"])["recipe"])
    turns, line = said(trl, columns={"local_reward": "alike"})  # it is not the team's too
    assert turns["team_reward"].tolist() == turns["longer"].tolist() and "sum of rewards" not in line


def test_a_step_that_repeats_completions_is_left_out(tmp_path):
    folder = shutil.copytree(RECORDED / "trl/completions", tmp_path / "completions")
    again = pd.read_parquet(folder / "completions_00003.parquet").assign(step=4)
    again.to_parquet(folder / "completions_00004.parquet")
    turns, line = said(tmp_path)
    assert "steps [4] repeat the completions of the step before" in line and set(turns["step"]) == {1, 2, 3}


def test_reward_functions_that_a_step_of_trl_lacks(tmp_path):
    """Step 2 has another function, and logs no `length`, which is no reward."""
    row = {"prompt": ["p"] * 2, "completion": ["a", "b"], "advantage": [0.5, -0.5]}
    first = pd.DataFrame(row | {"step": 1, "right": [1.0, 0.0], "length": [3, 4]})
    first.to_parquet(tmp_path / "completions_00001.parquet")
    second = pd.DataFrame(row | {"step": 2, "completion": ["c", "d"], "right": [1.0, None], "short": [None, 0.5]})
    second.to_parquet(tmp_path / "completions_00002.parquet")
    turns, line = said(tmp_path)
    assert turns["team_reward"].tolist() == [1.0, 0.0, 1.0, 0.5]
    assert "{'right': 1.0, 'short': 1.0}" in line


@pytest.mark.parametrize("name", ["team_reward", "sum"])
def test_a_reward_function_of_trl_may_have_a_name_of_ours(name, tmp_path):
    row = {"step": 1, "prompt": "q", "completion": ["a", "b"], "advantage": [1.0, -1.0], name: [1.0, 0.0]}
    path = tmp_path / "completions_00001.parquet"
    pd.DataFrame(row).to_parquet(path)
    assert said(path)[0]["team_reward"].tolist() == [1.0, 0.0]
    pd.DataFrame(row | {"style": [0.5, None]}).to_parquet(path)
    turns, line = said(tmp_path)
    assert "format 'trl'" in line and turns["team_reward"].tolist() == [1.5, 0.0] and f"'{name}': 1.0" in line
    pd.DataFrame(row | {"style": [0.5, 0.25]}).to_parquet(path)
    turns, _ = said(tmp_path, columns={"team_reward": {name: 2.0, "style": 1.0}})
    assert turns["team_reward"].tolist() == [2.5, 0.25]


@pytest.mark.parametrize(("name", "columns"), [("trl", None), ("verl", {"local_reward": "score"})])
def test_instruments_and_recipes_work_on_every_format(name, columns, tmp_path):
    turns, _ = said(RECORDED / name, columns=columns)
    inspector = lab.RewardInspector(turns)
    assert inspector.to_html(tmp_path / "rewards.html").stat().st_size > 10_000
    assert len(lab.group_stats(turns))
    assert lab.RolloutViewer(turns).to_html(tmp_path / "rollouts.html").stat().st_size > 10_000
    judged, own_rewards = lab.RECIPES["dr_mas"].advantages(turns), columns is not None
    assert judged["advantage"].notna().all() and (judged["advantage"] != 0).any() == (not own_rewards)
    own = lab.RECIPES["dr_mas"].replace(credit=lab.own_return())
    assert not own_rewards or (own.advantages(turns)["advantage"] != 0).any()
    assert set(lab.RewardInspector(turns).judged()["silent"]) != {1.0}


def test_the_key_of_verl_gives_task_episode_and_output():
    turns, line = said(RECORDED / "verl")
    assert "format 'verl', 2 files, 24 rows" in line and "score on each of its rows; it counts once" in line
    first = turns[turns["episode"] == "10f0c1d2-0000-4000-8000-000000000000_0"]
    assert first["turn"].tolist() == [0, 1] and first["team_reward"].tolist() == [0.0, 1.0]
    assert first["credit"].tolist() == [1.0, 1.0] and first["score"].tolist() == [1.0, 1.0]
    assert turns.groupby("group")["episode"].nunique().tolist() == [3, 3, 3, 3] and set(turns["step"]) == {1, 2}


@pytest.mark.parametrize(("name", "columns"), [("agent", None), ("who", {"agent": "who"})])
def test_the_output_of_the_key_of_verl_is_the_depth_and_each_agent_counts_its_turns(name, columns, tmp_path):
    rows = [VERL_ROW | {"uid": f"u_0_{output}", "input": str(output), name: agent}
            for output, agent in enumerate(["planner", "solver", "planner", "solver"])]  # fmt: skip
    turns, line = said(written(tmp_path / "1.jsonl", rows[::-1]), columns=columns)
    assert turns["prompt"].tolist() == ["3", "2", "1", "0"] and turns["depth"].tolist() == [3, 2, 1, 0]
    assert turns["turn"].tolist() == [1, 1, 0, 0] and "no turns" not in line


def test_verl_with_names_of_agents_and_trajectories(tmp_path):
    row = {"input": "q", "output": "a", "score": 1.0, "step": 1, "uid": "u-1", "traj_uid": "t", "is_action_valid": True}
    rows = [row | {"agent_id": agent, "wg_id": "one"} for agent in ("Solver Agent", "Verifier Agent")]
    turns, line = said(written(tmp_path / "1.jsonl", rows))
    assert turns["agent"].tolist() == ["Solver Agent", "Verifier Agent"] and set(turns["policy"]) == {"one"}
    assert (
        turns["team_reward"].tolist() == [0.0, 1.0] and set(turns["task"]) == {"u-1"} and set(turns["episode"]) == {"t"}
    )
    assert "valid is" not in line and "no turns: their order is that of the rows" in line


def verl_rows(score) -> list[dict]:
    """Two episodes of a solver and a checker, each with two turns; `score` is a function (agent, turn, episode)."""
    row = {"input": "q", "output": "a", "step": 1, "uid": "u"}
    return [row | {"traj_uid": str(episode), "turn": turn, "agent_name": agent, "score": score(agent, turn, episode)}
            for episode in (0, 1) for turn in (0, 1) for agent in ("solver", "checker")]  # fmt: skip


@pytest.mark.parametrize(("score", "team", "own", "credit", "note"), [
    (lambda agent, turn, episode: episode, [0, 0, 0, 1], None, [1, 1, 1, 1], "repeats an episode's score"),
    (lambda agent, turn, episode: (1 + (agent == "solver")) * episode, [0, 0, 0, 0], [0, 0, 2, 1], [2, 1, 2, 1],
     "repeats an agent's score on each of its rows; it counts once"),
    (lambda agent, turn, episode: (1 + turn) * episode, [1, 1, 2, 2], None, [6, 6, 6, 6], "rows add up; if each is"),
], ids=["of the episode", "of the agent", "of the row"])  # fmt: skip
def test_whose_the_scores_of_verl_are(score, team, own, credit, note, tmp_path):
    turns, line = said(written(tmp_path / "1.jsonl", verl_rows(score)))
    second = turns[turns["episode"] == "1"]
    assert note in line and second["team_reward"].tolist() == team and second["credit"].tolist() == credit
    assert own is None or second["local_reward"].tolist() == own
    assert second["agent"].tolist() == ["solver", "checker"] * 2 and second["depth"].tolist() == [0, 1, 2, 3]


def test_a_score_that_the_caller_calls_the_rows_own_is_not_the_teams(tmp_path):
    path = written(tmp_path / "1.jsonl", verl_rows(lambda agent, turn, episode: turn * episode))
    turns, line = said(path, columns={"local_reward": "score"})
    assert set(turns["team_reward"]) == {0.0} and turns["local_reward"].tolist()[4:] == [0, 0, 1, 1]
    assert "no team reward" in line and "add up" not in line


def test_the_reward_of_verl_is_its_score(tmp_path):
    """Also beside a value of the reward function's own that has a name of ours."""
    turns, line = said(written(tmp_path / "1.jsonl", [VERL_ROW | {"team_reward": 0.25, "credit": "paid"}]))
    assert "format 'verl'" in line and turns["team_reward"].tolist() == turns["credit"].tolist() == [1.0]
    assert turns["verl.team_reward"].tolist() == [0.25] and turns["verl.credit"].tolist() == ["paid"]


def test_tokens_and_an_advantage_for_each(tmp_path):
    ids = {"prompt_ids": [1, 2], "completion_ids": [3, 4], "logprobs": [-0.5, -0.25]}
    rows = [{"step": number // 2, "task": "a", "episode": number, "agent": agent, "prompt": "p", "completion": "c",
             "local_reward": float(number % 2), "advantage": 2 * [number % 2 - 0.5], **ids}
            for number in range(4) for agent in "xy"]  # fmt: skip
    turns, line = said(written(tmp_path / "log.jsonl", rows), columns={"local_reward": "local_reward"})
    assert "no advantages" not in line and "no token ids" not in line and turns["advantage"].iloc[0] == [-0.5, -0.5]
    assert turns["logprobs"].tolist() == [[-0.5, -0.25]] * 8 and turns["prompt_ids"].tolist() == [[1, 2]] * 8
    assert set(lab.wrong_way(turns)["recipe"]) == {"trained"}


def test_the_texts_of_a_csv_file_stay_as_they_are_written(tmp_path):
    rows = ["name,said,team_reward,valid,advantage,level", "007,1.50,True,true,0.5,01", "7,,false,0,-1,1e3"]
    turns, _ = said(written(tmp_path / "log.csv", rows), columns={"task": "name", "completion": "said"})
    assert turns["task"].tolist() == turns["group"].tolist() == ["007", "7"]
    assert turns["completion"].tolist() == ["1.50", ""] and turns["level"].tolist() == ["01", "1e3"]
    assert turns["team_reward"].tolist() == [1.0, 0.0] and turns["advantage"].tolist() == [0.5, -1.0]
    assert turns["valid"].tolist() == [True, False]


def test_a_csv_file_of_our_own_turns_is_read(tmp_path):
    turns = pd.DataFrame([{"task": "t", "episode": episode, "agent": "a", "turn": turn, "depth": turn,
                           "node": f"{episode}/{turn}", "parent": f"{episode}/0.0" if turn else "", "valid": bool(turn),
                           "kept": True, "team_reward": 0.5 * turn}
                          for episode in ("007", "7") for turn in (0, 1)])  # fmt: skip
    turns.to_csv(tmp_path / "turns.csv", index=False)
    read, _ = said(tmp_path)
    pd.testing.assert_frame_equal(read[list(turns)], turns, check_like=True)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_any_table_by_the_names_of_its_columns(ending, tmp_path):
    table, path = pd.DataFrame(PLAIN), tmp_path / f"log.{ending}"
    save(table, path)
    turns, line = said(path, columns=NAMES)
    assert turns["team_reward"].tolist() == PLAIN["score"] and turns["agent"].tolist() == PLAIN["role"]
    assert "format 'table'" in line and "no turns" in line and "no texts" in line
    assert said(tmp_path, columns=NAMES)[0].equals(turns)


def test_a_reward_that_is_repeated_in_an_episode_is_pointed_out(tmp_path):
    earned = ((0, 1.0), (1, 0.0))
    rows = [{"task": "a", "episode": episode, "agent": agent, "turn": 0, "team_reward": reward}
            for episode, reward in earned for agent in "xy"]  # fmt: skip
    turns, line = said(written(tmp_path / "log.jsonl", rows))
    assert "every row of an episode has the same team_reward, and the credit adds them up" in line
    assert turns["credit"].tolist() == [2.0, 2.0, 0.0, 0.0]


def test_an_episode_without_a_task_id_has_the_task_of_its_first_prompt(tmp_path):
    rows = [{"episode": episode, "agent": agent, "turn": turn, "prompt": prompt, "team_reward": 0.0}
            for episode in (0, 1)
            for turn, agent, prompt in ((1, "solver", f"the plan of {episode}"), (0, "planner", "2 + 3"))]  # fmt: skip
    turns, line = said(written(tmp_path / "log.jsonl", [*rows, rows[1] | {"episode": 2, "prompt": "4 + 4"}]))
    assert turns["task"].tolist() == turns["group"].tolist() == ["prompt 0"] * 4 + ["prompt 1"]
    assert "tasks and groups are by prompt text (an episode's first)" in line


def test_a_table_of_ours_is_read_as_it_stands(tmp_path):
    turns, _ = said(RECORDED / "verl")
    turns.to_parquet(tmp_path / "turns.parquet")
    again, line = said(tmp_path)
    assert "format 'table'" in line
    assert again["credit"].equals(turns["credit"]) and again["group"].tolist() == turns["group"].tolist()
    turns, _ = said(RECORDED / "trl")  # one with the columns of TRL is no run of TRL
    turns.assign(episode="e" + turns["episode"]).to_parquet(tmp_path / "turns.parquet")
    again, line = said(tmp_path / "turns.parquet")
    assert "format 'table'" in line and set(again["episode"].str[:5]) == {"erow "}
    own = written(tmp_path / "own.jsonl", [{**dict.fromkeys(KEYS["trl"], 1), "episode": 1, "local_reward": 0.5}])
    with pytest.raises(lab.TableError, match="no known format"):
        lab.read(own)
    logged = shutil.copy(RECORDED / "trl/completions/completions_00001.parquet", tmp_path / "renamed.parquet")
    assert "format 'trl'" in said(logged)[1]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize(("more", "joined"), [
    ({}, False), ({"turn": 0}, False), ({"task": "of the file"}, False),
    ({"step": "of the file"}, True), ({"agent": "of the file"}, True), ({"turn": "of the file"}, True),
    ({"episode": "of the file"}, True),
], ids=str)  # fmt: skip
def test_episodes_that_each_file_numbers_anew_stay_apart(ending, more, joined, tmp_path):
    """If no call is in two files, the files may share an episode, such as files of one agent or of one turn each."""
    for number in (1, 2):
        rows = [{"task": "a", "episode": 10 * number * ("episode" in more) + episode, "agent": "s",
                 "team_reward": 2.0 * number - 2.0 + episode} for episode in (0, 1)]  # fmt: skip
        rows = [{**row, **{name: number if one == "of the file" else one for name, one in more.items()
                           if name != "episode"}} for row in rows]  # fmt: skip
        table, path = pd.DataFrame(rows), tmp_path / f"worker.{number}.{ending}"
        save(table, path)
    turns, line = said(tmp_path)
    assert ("number their episodes anew" in line) == (not joined)
    apart = not joined or {"step", "episode"} & more.keys()
    assert turns["credit"].tolist() == ([0.0, 1.0, 2.0, 3.0] if apart else [2.0, 4.0, 2.0, 4.0])
    assert turns["episode"].iloc[0] == f"worker.1.{ending}/0" or joined


def test_messages_become_text():
    assert text("as it is") == "as it is"
    assert text([{"role": "assistant", "content": "5"}]) == "5"
    assert text([1, 2]) == "[1, 2]" and text({"role": "assistant", "content": ["6", {"text": "7"}]}) == "6\n7"
    parts = [{"type": "text", "text": "look"}, {"type": "image"}]
    assert text([{"role": "user", "content": parts}, {"role": "assistant", "content": None}]) == (
        "user: look\n[image]\nassistant: "
    )


VERL_ROW = {"input": "q", "output": "a", "score": 1.0, "step": 1}


@pytest.mark.parametrize(("name", "rows", "arguments", "message"), [
    ("1.jsonl", [VERL_ROW, '{"input": "q", "out'], {}, r"1\.jsonl, line 2 is not a JSON object .*remove this line"),
    ("1.jsonl", [VERL_ROW, "[1]"], {}, r"1\.jsonl, line 2 is not a JSON object"),
    ("1.jsonl", [VERL_ROW, VERL_ROW | {"output": "cut \ud83d"}], {}, r"line 2 is not .*surrogates not allowed"),
    ("1.jsonl", [VERL_ROW, VERL_ROW | {"score": "good"}], {},
     r"1\.jsonl, line 2: column 'score' \(team_reward\) is not a finite number \('good'\); correct .*columns="),
    ("1.jsonl", [VERL_ROW, VERL_ROW | {"score": float("nan")}], {}, r"line 2: column 'score' .*\(nan\)"),
    ("1.jsonl", [VERL_ROW | {"output": None}], {}, r"line 1: column 'output' \(completion\) is empty \(None\)"),
    ("1.jsonl", [VERL_ROW], {"columns": {"agent": "rolle"}},
     r"1\.jsonl, line 1: column 'rolle' for 'agent' is missing; the columns are 'input', .*columns=\{'agent': "),
    ("1.jsonl", [VERL_ROW], {"columns": {"reward": "score"}}, r"'reward': .* is no column of ours; lab\.schema"),
    ("1.jsonl", [VERL_ROW], {"format": "varl"}, "'varl' is unknown; known are trl, verl, table"),
    ("1.jsonl", [VERL_ROW], {"format": "trl", "columns": {"agent": "gts"}}, r"has another format: .*'input'"),
    ("log.json", ["[]"], {}, r"log\.json ends in none of \.jsonl, \.csv, \.parquet; convert it"),
    ("log.csv", ["task,team_reward"], {}, r"log\.csv has no rows"),
    ("log.csv", ["task,team_reward,valid", "a,1,maybe"], {}, r"row 1: column 'valid' .*neither True nor .*'maybe'"),
    ("log.csv", ["task,team_reward,logprobs", "a,1,[-1]"], {}, r"row 1: column 'logprobs' .* is not a list, which"),
    ("log.jsonl", 2 * [{"task": "a", "episode": 0, "agent": "x", "turn": 0, "team_reward": 1.0}], {},
     "several kept actions at task 'a', episode '0', agent 'x', turn 0"),
    ("log.jsonl", [{"text": "a", "r": 1.0}], {},
     r"no known format: .*log\.jsonl has the columns 'text', 'r'\. Known are .*trl .*columns=\{'team_reward': "),
    ("log.csv", ["a,score", "x,1"], {"columns": {"task": "a"}}, r"log\.csv, row 1 has no reward; .*'team_reward'"),
    ("log.csv", ["a,score", "x,1"], {"columns": {"team_reward": "score"}}, r"no tasks and no prompts; .*'task'"),
    ("log.parquet", ["no parquet"], {}, r"log\.parquet is not a readable parquet file"),
])  # fmt: skip
def test_a_file_that_cannot_be_read_is_named_with_its_line(name, rows, arguments, message, tmp_path):
    with pytest.raises(lab.TableError, match=message):
        lab.read(written(tmp_path / name, rows), **arguments)


def test_files_are_read_in_the_order_of_their_numbers_and_stay_as_they_are(tmp_path):
    with pytest.raises(lab.TableError, match=r"no file has a known name, or all are empty.*completions/"):
        lab.read(tmp_path)
    for step in (10, 9, 2):
        written(tmp_path / f"{step}.jsonl", [VERL_ROW | {"step": step}])
    before = {file: (file.read_bytes(), os.stat(file).st_mtime_ns) for file in tmp_path.iterdir()}
    turns, _ = said(tmp_path)
    assert turns["step"].tolist() == [2, 9, 10]
    assert before == {file: (file.read_bytes(), os.stat(file).st_mtime_ns) for file in tmp_path.iterdir()}


def test_the_page_names_every_format_and_its_blocks_run(tmp_path, monkeypatch):
    page, names = (RECORDED.parents[1] / "docs/foreign.md").read_text(encoding="utf-8"), {}
    assert all(f'| `"{name}"` |' in page for name in FILES)
    shutil.copytree(RECORDED, tmp_path / "data/foreign")
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="format 'table', 1 file, 2 rows"):
        for block in page.split("```python\n")[1:]:
            exec(block.partition("```")[0], names)
    assert names["turns"]["team_reward"].tolist() == pytest.approx([1.05, 0.1])
