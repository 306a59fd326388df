"""Create a small model, and teach it the demonstrated answers by supervised learning.

The loss is cross entropy on the answers alone. TRL's SFTTrainer is imported here, not with the package. Leaves out: the
demonstrations (`play`), and reinforcement learning.
"""

import tempfile
import warnings
from collections.abc import Mapping, Sequence

from tqdm import tqdm

from mas_lab.pocket.families import Design, Stage
from mas_lab.policy import PolicyError


def make_model(design: Design, tokenizer):
    """Return a fresh Qwen3 in fp32 with tied embeddings."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    ends = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=design.hidden,
        intermediate_size=8 * design.hidden // 3,
        num_hidden_layers=design.layers,
        num_attention_heads=design.heads,
        num_key_value_heads=design.heads,
        head_dim=design.hidden // design.heads,
        max_position_embeddings=design.context,
        tie_word_embeddings=True,
        initializer_range=design.spread,
        **ends,
    )
    model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(do_sample=True, temperature=1.0, top_p=1.0, top_k=0, **ends)
    return model


def require_trl() -> None:
    """Raise PolicyError, which names what to install, if TRL is missing."""
    try:
        import trl  # noqa: F401
    except ImportError as error:
        raise PolicyError(
            f"the warm start of a pocket model needs TRL ({error}): pip install 'mas-lab[cpu]', or, beside Unsloth, "
            "pip install 'mas-lab[gpu]'"
        ) from error


def supervise(
    model, rows: Sequence[Mapping[str, list[int]]], tokenizer, stage: Stage, design: Design, seed: int, bar: tqdm
) -> None:
    """Train the model in place for one stage, and move `bar` on after each optimizer step."""
    import datasets
    from transformers import PrinterCallback, TrainerCallback
    from trl import SFTConfig, SFTTrainer

    class Steps(TrainerCallback):
        def on_step_end(self, *_, **__):
            bar.update()

    datasets.disable_progress_bars()  # one bar shows the progress
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`gradient_checkpointing` is deprecated", category=FutureWarning)
        settings = SFTConfig(
            output_dir=scratch,
            max_steps=stage.steps,
            per_device_train_batch_size=stage.batch,
            learning_rate=stage.lr,
            lr_scheduler_type="cosine",
            warmup_steps=min(50, stage.steps // 10),
            weight_decay=0.01,
            train_sampling_strategy="group_by_length" if design.by_length else "random",
            max_length=design.context,
            completion_only_loss=True,
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            seed=seed,
            dataloader_pin_memory=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        data = datasets.Dataset.from_list(list(rows))
        trainer = SFTTrainer(model, args=settings, train_dataset=data, processing_class=tokenizer, callbacks=[Steps()])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    datasets.enable_progress_bars()
