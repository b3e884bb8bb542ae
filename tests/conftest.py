"""Small models and pairs that many tests share."""

from __future__ import annotations

import pytest
import torch

from seq2see.cli import output
from seq2see.config import ModelConfig
from seq2see.model.transformer import Transformer


@pytest.fixture(autouse=True, scope="session")
def _few_threads() -> None:
    torch.set_num_threads(1)  # small models: a second thread costs more than it brings


@pytest.fixture(autouse=True)
def _new_consoles() -> None:
    """A console measures its terminal when it is made; each test has a terminal of its own."""
    output._made.cache_clear()


def small_model(seed: int = 0, **settings: object) -> Transformer:
    """A random model in which every size differs, so that a mix-up of dimensions cannot go unseen."""
    torch.manual_seed(seed)
    shape: dict[str, object] = dict(
        source_vocabulary=11, target_vocabulary=13, d_model=12, heads=3, d_k=5, d_v=7, d_ff=17, encoder_layers=2,
        decoder_layers=3, max_length=40, share_embeddings=False, share_output=False,
    )  # fmt: skip
    model = Transformer(ModelConfig.of(**{**shape, **settings}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()
