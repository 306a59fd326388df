"""The weights of a policy at one version, as files: an engine samples from them while the policy learns on.

`train(..., staleness=1)` plays with a team of snapshots in a thread. Leaves out learning.
"""

import shutil
import weakref
from pathlib import Path
from typing import Any

from mas_lab.backends.torch.encoding import ChatPolicy
from mas_lab.locks import ModelLock


class Snapshot(ChatPolicy):
    """A policy that samples and does not learn. Its files are deleted with the object.

    Args:
        policy: The policy, at the version that was written.
        path: Folder of the files.
    """

    def __init__(self, policy: Any, path: Path):
        self.shared, self.name, self.adapter, self.version = policy.shared, policy.name, policy.adapter, policy.version
        self.path, self._own_lock = path, ModelLock()
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    lock = property(lambda self: self._own_lock)
    """A lock of its own, so that an update of the policy does not wait for a rollout, nor a rollout for an update."""
