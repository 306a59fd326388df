"""A vLLM engine in this process: requests are added and steps made one by one, so that answers come as they end.

Leaves out: several engines on one GPU at once (give each a share by `memory`), and tensor parallelism across machines.
"""

import gc
import os
import random
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from mas_lab.backends.vllm.engine import Answer, EngineError, VllmEngine
from mas_lab.backends.vllm.serve import prepare
from mas_lab.policy import PolicyError, Request


class ProcessEngine(VllmEngine):
    """One `vllm.LLM`, whose worker is this process."""

    living: ClassVar[int] = 0

    def __init__(self, model):
        super().__init__(model)
        self._done: list[Answer] = []

    def _start(self, folder: Path) -> None:
        with _undisturbed(), _error_context("could not start"):
            prepare()
            from vllm import LLM

            # The worker is this process.
            more = {"distributed_executor_backend": "uni"} | self.model.engine_arguments()
            self.llm = LLM(**more, disable_log_stats=True, use_tqdm_on_load=False)
            gc.unfreeze()  # vLLM freezes all objects as in a server; they would never be freed

        core = self.llm.llm_engine.engine_core
        core._finalizer.detach()
        ProcessEngine.living += 1
        weakref.finalize(self, _close, core.engine_core)

    def _send(self, ticket: int, policy, request: Request) -> None:
        from vllm import SamplingParams

        parameters = SamplingParams(**self.sampling(request), detokenize=bool(request.stop))
        prompt = {"prompt_token_ids": list(request.prompt_ids)}
        with _error_context("refused a request"):
            self.llm.llm_engine.add_request(str(ticket), prompt, parameters, lora_request=self._lora(policy))

    def _lora(self, policy, refresh: bool = False):
        """Return the adapter of this policy; vLLM reads a known id again only with `load_inplace`."""
        from vllm.lora.request import LoRARequest

        if policy.adapter is None:
            return None
        number = policy.made_with["index"] + 1
        return LoRARequest(policy.adapter, number, str(self._paths[policy.adapter]), load_inplace=refresh)

    def _receive(self) -> list[Answer]:
        if not self._done:
            self._step()
        done, self._done = self._done, []
        return [answer for answer in done if answer[0] in self._running]

    def _step(self) -> None:
        """Sample one token for every running request."""
        with _error_context("failed"):
            outputs = self.llm.llm_engine.step()
        for output in outputs:
            if output.finished:
                completion = output.outputs[0]
                logprobs = [at[i].logprob for i, at in zip(completion.token_ids, completion.logprobs, strict=True)]
                self._done.append((int(output.request_id), completion.token_ids, logprobs))

    def _abort(self, tickets: Sequence[int]) -> None:
        self.llm.llm_engine.abort_request([str(ticket) for ticket in tickets])

    def _take_adapter(self, policy, path: Path) -> None:
        with _error_context("could not take the adapter"):
            self.llm.llm_engine.add_lora(self._lora(policy, refresh=True))

    def _take_weights(self, policy, path: Path) -> None:
        with _error_context("could not take the weights"):
            # Also those that text does not train.
            weights = ((name, parameter.detach()) for name, parameter in policy.shared.net.named_parameters())
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        if not self.llm.reset_prefix_cache():
            raise EngineError("vLLM kept prefixes computed with the weights before")

    def _sleep(self, level: int) -> None:
        self.llm.sleep(level=level)

    def _wake(self) -> None:
        self.llm.wake_up()


def _close(core) -> None:
    """Shut down an engine that is gone, but keep the process groups that other engines here still use."""
    ProcessEngine.living -= 1
    if ProcessEngine.living:
        core.model_executor.shutdown()
        core.scheduler.shutdown()
    else:
        core.shutdown()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Restore the global state that vLLM changes when it starts its engine in this process."""
    threads, set_threads = torch.get_num_threads(), torch.set_num_threads
    python, numpy = random.getstate(), np.random.get_state()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_num_threads = set_threads  # vLLM puts a warning in its place
        torch.set_num_threads(threads)


@contextmanager
def _error_context(what: str) -> Iterator[None]:
    """Turn vLLM's many errors into one that names the place."""
    try:
        yield
    except PolicyError:
        raise
    except Exception as error:
        raise EngineError(f"the vLLM engine in this process {what}: {type(error).__name__}: {error}") from error
