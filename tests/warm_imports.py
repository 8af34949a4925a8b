"""What ``warm`` imports before it forks: all that the programs need for the most common of their work."""

import gc
from functools import cache
from importlib import import_module

import typer.main
from pydantic import BaseModel

from combee.cli.main import app
from combee.report.build import _environment

for name in (
    "anyio._backends._asyncio",
    "combee.cli.run",
    "combee.cli.sim",
    "combee.clients.store.bucket",
    "combee.gateway.main",
    "combee.methods.ace",
    "combee.methods.gepa",
    "combee.methods.mipro",
    "combee.methods.textgrad",
    "combee.operator.main",
    "combee.pod.step",
    "combee.report.figures",
    "combee.sim.main",
    "combee.sim.server",
    "fsspec.implementations.memory",
    "httpcore2",
    "json_repair",
    "matplotlib.backends.backend_svg",
    "matplotlib.figure",
    "numpy.random",
    "scipy.special",
):
    import_module(name)
# The command line's parser and the report's templates are made at each start, too.
typer.main.get_command = cache(typer.main.get_command)
typer.main.get_command(app)
for html, name in ((False, "lessons.md.j2"), (True, "report.html.j2"), (False, "report.md.j2")):
    _environment(html=html).get_template(name)
# Models are built at their first use, and each child would build them anew.
for model in (models := BaseModel.__subclasses__()):
    models += model.__subclasses__()
    model.model_rebuild()
# What is there now is garbage of no child, and none need look at it again.
gc.freeze()
