"""The parts of a task that only some types have: code of the user's own, and how traces are read."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from combee.api.common import Int, Line, Model, Quantity, Str, refuse
from combee.api.texts import ClassPath


class CustomContainer(Model):
    """A task in a container of its own: one rollout, one container. custom-tasks.md says what it is given and
    leaves."""

    image: Str = Field(min_length=1, max_length=1000, description="Container image with the task.")
    command: tuple[Line, ...] = Field(
        default=(), max_length=64, description="Program of the image, required on a cluster."
    )
    args: tuple[Line, ...] = Field(default=(), max_length=256, description="Arguments of the command.")
    local_command: tuple[Line, ...] = Field(
        default=(),
        max_length=256,
        description="What combee run starts on a laptop instead, in the manifest's folder; absent: command "
        "and args.",
    )
    concurrency: Int = Field(default=4, ge=1, le=1000, description="Rollouts at once, of the whole run.")
    attempts: Int = Field(
        default=2, ge=1, le=10, description="How often a rollout is tried whose container dies."
    )
    timeout_seconds: Int = Field(
        default=600, ge=1, le=86_400, description="How long one rollout may take; it is ended then."
    )
    memory: Quantity = Field(
        default="1Gi",
        description="Memory of one rollout; on a laptop of each of its processes, addresses included.",
    )
    cpu: Quantity = Field(
        default="1",
        description="CPU that one rollout may use at most, on a cluster; a tenth of it is asked for.",
    )
    scratch: Quantity = Field(
        default="1Gi", description="Disk for one rollout's files; it is ended when it takes more."
    )
    processes: Int = Field(
        default=128,
        ge=1,
        le=32_768,
        description="Processes and threads of one rollout at a time, on a laptop; on a cluster the node "
        "says (podPidsLimit).",
    )


class CustomAdapter(Model):
    """An adapter of the gepa package: it rolls out, scores, and says what can be learned. gepa-adapters.md
    says how."""

    factory: ClassPath = Field(
        description='What makes it, in the worker image, as "module:name": a class or a function.'
    )
    concurrency: Int = Field(
        default=4,
        ge=1,
        le=1000,
        description="Rollouts at once, of the whole run; each in a process of its own.",
    )
    timeout_seconds: Int = Field(
        default=600, ge=1, le=86_400, description="How long one rollout may take; its process is ended then."
    )


class CustomTask(Model):
    """A task of the user's own."""

    exactly_one = ("class_", "container", "adapter")
    class_: ClassPath | None = Field(
        default=None, alias="class", description='Python class in the worker image, as "module:Class".'
    )
    container: CustomContainer | None = Field(
        default=None, description="Container that rolls out and scores an example; on a laptop a command."
    )
    adapter: CustomAdapter | None = Field(
        default=None, description="Adapter of the gepa package that rolls out and scores an example."
    )
    image: Str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Worker image with the class or adapter, built on this release's; absent: the chart's. "
        "On a laptop without meaning.",
    )

    @model_validator(mode="after")
    def _image_goes_with_class(self) -> Self:
        if self.image is not None and self.container is not None:
            raise refuse("image is given with container", "Remove image: a container has its own.")
        return self


class TracesOptions(Model):
    """How recorded trajectories are read."""

    format: Literal["Auto", "OpenAI", "ATIF"] = Field(
        default="Auto",
        description="OpenAI: messages of chat completions; ATIF: steps, as Harbor writes them.",
    )
    part_tokens: Int = Field(
        default=16_000,
        ge=500,
        le=1_000_000,
        description="Tokens of a trace that one reflection reads; a longer trace is read in parts.",
    )
