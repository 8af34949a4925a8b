"""The gateway: an OpenAI-compatible reverse proxy that puts a Playbook's active version before each request."""
