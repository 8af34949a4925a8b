"""The start of a program that an extra installs: it gives help anywhere, and says what is missing."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from combee import __version__

USER_ERROR = 2


def parser(name: str, about: str, more: str) -> argparse.ArgumentParser:
    """A parser that knows ``-h``, ``--help`` and ``--version``; ``more`` follows the list of arguments."""
    made = argparse.ArgumentParser(
        name, description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--version", action="version", version=f"{name} {__version__}")
    return made


def require(extra: str, modules: Sequence[str]) -> None:
    """Exit with the line that installs ``extra`` when one of its modules is missing."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            sys.stderr.write(
                f"error: this part of combee is not installed ({error.name} is missing). "
                f"pip install 'combee-operator[{extra}]'\n"
            )
            sys.exit(USER_ERROR)
