"""The custom resources as pydantic models, how their manifests are read, and what their status says."""
