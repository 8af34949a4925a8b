"""Traces: recordings of what agents did elsewhere, read as material to learn from."""

from combee.tasks.traces.read import MAX_TRACE_BYTES
from combee.tasks.traces.recording import Recording, decode, trajectories
from combee.tasks.traces.task import TracesTask

__all__ = ["MAX_TRACE_BYTES", "Recording", "TracesTask", "decode", "trajectories"]
