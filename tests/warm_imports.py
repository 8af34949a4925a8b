"""What ``warm`` imports before it forks: all that the programs need for the most common of their work."""

import gc
from importlib import import_module

from pydantic import BaseModel

for name in (
    "anyio._backends._asyncio",
    "combee.cli.main",
    "combee.cli.run",
    "combee.cli.sim",
    "combee.clients.store.bucket",
    "combee.methods.ace",
    "combee.methods.gepa",
    "combee.operator.main",
    "combee.pod.step",
    "combee.report.build",
    "combee.report.figures",
    "combee.sim.main",
    "combee.sim.server",
    "fsspec.implementations.memory",
    "httpcore2",
    "jinja2",
    "json_repair",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "numpy.random",
):
    import_module(name)
# Models are built at their first use, and each child would build them anew.
for model in (models := BaseModel.__subclasses__()):
    models += model.__subclasses__()
    model.model_rebuild()
# What is there now is garbage of no child, and none need look at it again.
gc.freeze()
