"""Counters in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter, defaultdict

from seq2see.serve.batching import Batcher


class Metrics:
    """What the server has done since it started."""

    def __init__(self) -> None:
        self.taken = 0
        self.ending = False  # no more requests are wanted
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.inputs: Counter[str] = Counter()

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count one request."""
        self.requests[path, status] += 1
        self.seconds[path] += seconds

    def text(self, batcher: Batcher) -> str:
        """Write all counters."""
        lines = ["# TYPE seq2see_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'seq2see_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE seq2see_request_seconds_total counter")
        for path, seconds in sorted(self.seconds.items()):
            lines.append(f'seq2see_request_seconds_total{{path="{path}"}} {seconds:.6f}')
        lines.append("# TYPE seq2see_inputs_total counter")
        for result, count in sorted(self.inputs.items()):
            lines.append(f'seq2see_inputs_total{{result="{result}"}} {count}')
        lines += [
            "# TYPE seq2see_batches_total counter",
            f"seq2see_batches_total {batcher.batches}",
            "# TYPE seq2see_batched_inputs_total counter",
            f"seq2see_batched_inputs_total {batcher.items}",
            "# TYPE seq2see_queue_length gauge",
            f"seq2see_queue_length {len(batcher.waiting)}",
        ]
        return "\n".join(lines) + "\n"
