"""Where an engine's weights come from, and the claim that keeps them."""

from __future__ import annotations

from pydantic import Field

from combee.api.common import ClaimPath, ClaimRef, InnerPath, Model, Str


class ImageFolder(Model):
    """A folder of an OCI image."""

    reference: Str = Field(
        min_length=1, max_length=1000, description="Image, such as registry.example.com/weights/tiny:1."
    )
    path: InnerPath = Field(description="Path of the folder inside the image.")


class WeightsSource(Model):
    """Where weights are copied from, instead of the hub."""

    exactly_one = ("image", "pvc")
    image: ImageFolder | None = Field(
        default=None, description="A folder of an OCI image; the image needs no program."
    )
    pvc: ClaimPath | None = Field(default=None, description="A folder on a PersistentVolumeClaim.")


class ModelCache(ClaimRef):
    """The claim that weights are served from, filled before the servers start."""

    source: WeightsSource | None = Field(
        default=None, description="Where the weights are; absent: the hub, by the model's name."
    )
