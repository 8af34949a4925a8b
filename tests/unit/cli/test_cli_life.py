"""Whether a name is a Playbook's or a folder's."""

from __future__ import annotations

from pathlib import Path

import pytest

from combee.cli.life import is_folder


def test_a_folder_of_a_playbooks_name_does_not_stand_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "formula").mkdir()
    (tmp_path / "formula" / "result.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    names = {"formula": False, "./formula": True, "formula/": True, "./other": False}
    names[str(tmp_path / "formula")] = True
    assert {name: is_folder(name) for name in names} == names
