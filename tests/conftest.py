"""Tiny random models that the files of this folder share, made once per session."""

import pytest


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder with the models `a` and `b` (another tokenizer), see `small.make_models`."""
    from small import make_models

    return make_models(tmp_path_factory.mktemp("small"))
