"""vLLM as Unsloth starts it: over the frozen base that is trained on, so that only adapters travel.

Leaves out: all that every engine in this process does (`vllm.process`). Not yet run: it needs a GPU of compute
capability 8.0 with vLLM and Unsloth side by side; each publish proves what it samples from, as under `backend="vllm"`.
"""

import tempfile

from mas_lab.backends.vllm.process import ProcessEngine


class FastEngine(ProcessEngine):
    """All adapters of the base answer in one mixed batch; each is refreshed by its files, by path, after an update."""

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mas_lab_unsloth_")
        self._heads, self.llm = None, self.model.net.vllm_engine
