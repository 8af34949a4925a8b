"""Whether objects can be made of a run at all: asked when its plan is accepted, before any is made."""

from __future__ import annotations

from combee.api.run import PromptLearningRun
from combee.objects.allowed import check_templates
from combee.objects.engines import engine_image
from combee.objects.types import Settings


def check_run(run: PromptLearningRun, settings: Settings) -> None:
    """Raises ManifestError for a template or an engine's image that is not allowed here: with it,
    making the object would raise the same, in the middle of a run."""
    check_templates(run.spec, settings.allowed_annotations)
    for index, engine in enumerate(run.spec.engines):
        engine_image(engine, settings, index)
