"""The gateway: an OpenAI-compatible proxy that puts a Playbook's active version before each request."""
