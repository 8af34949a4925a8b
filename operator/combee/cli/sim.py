"""``combee sim``: the one place where the product starts the simulated model. It only starts it."""

from __future__ import annotations


def main(arguments: list[str]) -> None:
    """Hand the rest of the command line to the simulated model's own command."""
    from combee.sim.main import app

    app(arguments, prog_name="combee sim")
