"""What ``warm`` imports before it forks: all that the programs import for the most common of their work."""

import gc
from importlib import import_module

for name in (
    "combee.cli.run",
    "combee.cli.sim",
    "combee.methods.ace",
    "combee.methods.gepa",
    "combee.operator.main",
    "combee.pod.step",
    "combee.report.build",
    "combee.sim.server",
    "httpcore2",
    "json_repair",
    "matplotlib.backends.backend_svg",
    "numpy.random",
):
    import_module(name)
# What is there now is garbage of no child, and none need look at it again.
gc.freeze()
