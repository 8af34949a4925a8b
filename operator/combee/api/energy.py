"""Where the GPUs of a run say how much energy they used."""

from __future__ import annotations

from pydantic import Field

from combee.api.common import EndpointUrl, Model


class Energy(Model):
    """The metrics page of NVIDIA's dcgm-exporter on the nodes of the engines."""

    url: EndpointUrl = Field(
        max_length=2000,
        description="Its address, such as http://dcgm-exporter.gpu.svc:9400/metrics; all addresses of the "
        "name are read, so a headless Service covers several nodes.",
    )
