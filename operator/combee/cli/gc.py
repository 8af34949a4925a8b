"""``combee gc``: a run's store goes, its results stay."""

from __future__ import annotations

import shutil
from pathlib import Path

from combee.cli.errors import guarded
from combee.errors import StoreError, UserError


def run_gc(folder: Path, *, really: bool) -> int:
    """Delete DIR/store of a folder that is a run's and that nobody works in."""

    def work() -> int:
        from combee.assembly.folder import hold

        if not (folder / "run.json").is_file():
            raise UserError(
                "not the folder of a run (no run.json)",
                where=str(folder),
                fix="Give the DIR of `combee run -o DIR`",
            )
        with hold(folder):
            store = folder / "store"
            if not store.exists():
                print(f"{folder}: there is no store; nothing to delete")  # noqa: T201
                return 0
            size = sum(path.stat().st_size for path in store.rglob("*") if path.is_file())
            if not really:
                print(  # noqa: T201
                    f"{store}: {size:,} bytes would be deleted; results and plans stay, but a resume would "
                    f"ask every model call again. Delete with: combee gc {folder} --yes"
                )
                return 0
            try:
                shutil.rmtree(store)
            except OSError as error:
                raise StoreError(
                    f"cannot be deleted ({error.strerror})",
                    where=str(store),
                    fix="Give this user the right to write there, then run it again",
                ) from None
            print(f"{store}: deleted, {size:,} bytes")  # noqa: T201
            return 0

    return guarded(work)
