"""Run ACE's own offline loop (`ACE.run`, mode offline) from its checkout, in a Python that has what it
imports.

    PYTHON loop_ace.py CHECKOUT URL MODEL TRAIN VAL OUT SLOTS

Nothing of theirs is changed but where the client is made: their URLs are fixed in the code, ours is given.
Its settings are the defaults of its `finance/run.py`, except: one round of reflection and one validation
after the last example (equal for all who are compared), as many workers for it as there are slots, and
answers asked for in JSON mode."""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

from recorder import Recorder  # type: ignore[import-not-found]  # beside this script, in the peer's Python

CONFIG: dict[str, Any] = {
    "num_epochs": 1,
    "max_num_rounds": 1,
    "curator_frequency": 1,
    "online_eval_frequency": 15,
    "save_steps": 50,
    "playbook_token_budget": 80000,
    "task_name": "formula",
    "mode": "offline",
    "json_mode": True,
    "no_ground_truth": False,
    "use_bulletpoint_analyzer": False,
    "api_provider": "sambanova",
}


class Client:
    """``client.chat.completions.create`` of the openai package, every answer noted."""

    def __init__(self, recorder: Recorder) -> None:
        openai = importlib.import_module("openai")
        self._made = openai.OpenAI(base_url=recorder.url, api_key="none", max_retries=0)
        self._recorder = recorder
        self.chat = self.completions = self

    def create(self, **request: Any) -> Any:
        """As openai's."""
        answer = self._made.chat.completions.create(**request)
        self._recorder.note("call", answer.usage.model_dump())
        return answer


def stand_in_for_tiktoken() -> bool:
    """Stand in for token counts, which are only printed, by bytes / 4: tiktoken cannot load its table
    offline."""
    try:
        importlib.import_module("tiktoken").get_encoding("cl100k_base")
    except Exception:  # whatever it is that keeps it from loading
        made = types.ModuleType("tiktoken")
        counted = types.SimpleNamespace(encode=lambda text: range((len(text.encode()) + 3) // 4))
        made.get_encoding = lambda _: counted  # type: ignore[attr-defined]
        sys.modules["tiktoken"] = made
        return True
    return False


def rows(path: str) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file."""
    return [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]


def main() -> None:
    """See the module."""
    checkout, url, model, train, val, out, slots = sys.argv[1:]
    sys.path.insert(0, checkout)
    counted = stand_in_for_tiktoken()
    recorder = Recorder(url, model)
    system = importlib.import_module("ace.ace")
    processor = importlib.import_module("finance.data_processor").DataProcessor("formula")
    system.initialize_clients = lambda _: (Client(recorder),) * 3  # type: ignore[attr-defined]
    samples, validation = (processor.process_task_data(rows(path)) for path in (train, val))
    ace = system.ACE("sambanova", model, model, model, max_tokens=4096)
    results = ace.run(
        mode="offline",
        train_samples=samples,
        val_samples=validation,
        test_samples=[],
        data_processor=processor,
        config={**CONFIG, "eval_steps": len(samples), "test_workers": int(slots), "save_dir": out},
    )
    recorder.write(
        Path(out), {"artifact": ace.best_playbook}, results=results["training_results"], stand_in=counted
    )


if __name__ == "__main__":
    main()
