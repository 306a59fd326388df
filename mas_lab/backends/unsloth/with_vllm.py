"""vLLM as Unsloth starts it: over the same frozen base that is trained on, so only adapters are sent.

It has not been run yet: it needs a GPU of compute capability 8.0 with vLLM and Unsloth side by side. Each publish
proves the weights that it samples from, as under `backend="vllm"`. Leaves out: the common part of all engines in this
process (`vllm.process`).
"""

import tempfile

from mas_lab.backends.vllm.process import ProcessEngine


class FastEngine(ProcessEngine):
    """An engine in which all adapters of the base answer in one mixed batch.

    After an update, each adapter is refreshed from its files, by path.
    """

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mas_lab_unsloth_")
        self._heads, self.llm = None, self.model.net.vllm_engine
