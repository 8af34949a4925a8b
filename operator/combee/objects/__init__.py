"""The Kubernetes objects that a run asks for, as plain dicts. Pure: everything is a parameter."""
