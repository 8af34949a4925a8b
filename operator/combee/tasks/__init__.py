"""Tasks: data -> example -> model input -> answer -> score. Pure."""
