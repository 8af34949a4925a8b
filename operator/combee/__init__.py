"""combee: parallel prompt learning, on a laptop or as a Kubernetes operator."""

__version__ = "0.1.0"
