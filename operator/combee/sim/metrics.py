"""vLLM's metrics, under its names, in Prometheus' text format. Times are modelled seconds."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

_BUCKETS = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
    240.0,
    480.0,
)


class Histogram:
    """A cumulative histogram."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value in seconds."""
        self._counts[bisect_left(_BUCKETS, value)] += 1
        self._sum += value

    def lines(self, name: str, label: str) -> list[str]:
        """Return the histogram's samples."""
        total, lines = 0, []
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{label},le="{bound}"}} {total}')
        return [*lines, f"{name}_sum{{{label}}} {self._sum:.6f}", f"{name}_count{{{label}}} {total}"]


class Metrics:
    """The counts of one server."""

    def __init__(self, model: str) -> None:
        self._label = 'model_name="{}"'.format(model.replace("\\", "\\\\").replace('"', '\\"'))
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.finished: Counter[str] = Counter()
        self.latency = Histogram()
        self.first_token = Histogram()

    def done(self, *, prompt: int, cached: int, out: int, reason: str, latency: float, first: float) -> None:
        """Count one completion."""
        self.prompt_tokens += prompt
        self.generation_tokens += out
        self.prefix_queries += prompt
        self.prefix_hits += cached
        self.finished[reason] += 1
        self.latency.observe(latency)
        self.first_token.observe(first)

    def text(self, running: int, waiting: int) -> str:
        """Return all metrics in Prometheus' text format."""
        label, lines = self._label, []
        counters = (
            ("vllm:num_requests_running", "gauge", running),
            ("vllm:num_requests_waiting", "gauge", waiting),
            ("vllm:prompt_tokens_total", "counter", self.prompt_tokens),
            ("vllm:generation_tokens_total", "counter", self.generation_tokens),
            ("vllm:prefix_cache_queries_total", "counter", self.prefix_queries),
            ("vllm:prefix_cache_hits_total", "counter", self.prefix_hits),
        )
        for name, kind, value in counters:
            lines += [
                f"# HELP {name} Of a simulated model.",
                f"# TYPE {name} {kind}",
                f"{name}{{{label}}} {value}",
            ]
        lines.append("# TYPE vllm:request_success_total counter")
        for reason in ("stop", "length"):
            count = self.finished[reason]
            lines.append(f'vllm:request_success_total{{{label},finished_reason="{reason}"}} {count}')
        histograms = (
            ("vllm:e2e_request_latency_seconds", self.latency),
            ("vllm:time_to_first_token_seconds", self.first_token),
        )
        for name, histogram in histograms:
            lines += [f"# HELP {name} Modelled seconds of a simulated model.", f"# TYPE {name} histogram"]
            lines += histogram.lines(name, label)
        return "\n".join(lines) + "\n"
