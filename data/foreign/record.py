"""Record small files with the released writers of other trainers: `python data/foreign/record.py verl`.

Run it in an environment that has the trainer, as README.md says; it needs no GPU. The rollouts are made up.
"""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PROBLEMS = {"2 + 3": "5", "4 + 4": "8"}


def trl(folder: Path = HERE / "trl") -> Path:
    """Three steps of GRPOTrainer with a random tiny model of `tests/small.py`: two prompts, four completions each.

    There are two reward functions, and in each step one completion has no reward. Returns the run's folder.
    """
    sys.path.insert(0, str(HERE.parents[1] / "tests"))
    import small
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    def alike(completions, log_extra, **others):
        log_extra("seen", ["yes"] * len(completions))
        return [None if place == 1 else small.score(said, "w0") for place, said in enumerate(completions)]

    def longer(completions, **others):
        return [None if place == 1 else float(len(said.split())) for place, said in enumerate(completions)]

    config = GRPOConfig(
        output_dir=str(folder), log_completions=True, num_generations=4, per_device_train_batch_size=8,
        max_completion_length=4, max_steps=3, logging_steps=1, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True, seed=3,
    )  # fmt: skip
    prompts = Dataset.from_dict({"prompt": [f"asker now {word}" for word in small.WORDS]})
    with tempfile.TemporaryDirectory() as models:
        model = str(small.make_model(Path(models) / "model", 0))
        GRPOTrainer(model, [alike, longer], args=config, train_dataset=prompts).train()
    return folder


def verl() -> None:
    """Two steps of the file that `trainer.rollout_data_dir` gets: each episode has two outputs."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    for step in (1, 2):
        rows = []
        for task, (problem, truth) in enumerate(PROBLEMS.items()):
            for session in range(3):
                answer = truth if session < task + step else "7"
                for output, said in enumerate((f"I add: {answer}", answer)):
                    key = f"{step}{task}f0c1d2-0000-4000-8000-000000000000_{session}_{output}"
                    rows.append((f"user\n{problem}\nassistant\n", said, truth, float(answer == truth), key))
        inputs, outputs, truths, scores, keys = map(list, zip(*rows, strict=True))
        folder = str(HERE / "verl")
        PPOTrainer._write_generations(inputs, outputs, truths, scores, {"uid": keys}, folder, step)


if __name__ == "__main__":
    {"trl": trl, "verl": verl}[sys.argv[1]]()
