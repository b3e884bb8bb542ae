"""Which position may attend to which, as data (section 3.2.3): padding and later positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mask:
    """Which query may attend to which key. Each part may be absent.

    Every query must be left at least one key: batching guarantees it.
    """

    causal: bool = False  # hides the keys after a query's own position; the last query is at the last key
    keys: Tensor | None = None  # (B, S): False hides a key, of padding

    def allowed(self, T: int, S: int, device: torch.device) -> Tensor | None:
        """Return what is allowed as booleans that broadcast to (…, H, T, S), or None if everything is."""
        if not self.causal or T == 1:
            return None if self.keys is None else self.keys[..., None, None, :]  # (B, 1, 1, S)
        earlier = torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)  # (T, S)
        return earlier if self.keys is None else earlier & self.keys[..., None, None, :]


EVERYTHING = Mask()
CAUSAL = Mask(causal=True)
