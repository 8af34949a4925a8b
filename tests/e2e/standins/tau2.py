"""What examples/tau2/play.py asks of tau2-bench's package, for tasks of a greenhouse in its layout.

It stands in where tau2, which needs Python 3.12 and a checkout, is not installed: the names and the
dictionaries are tau2's, the environment is one tool, the user says one sentence (and asks a model of its own
for it, whose answer is not read), and a task is right when its communicate_info was said.
"""

import json
import sys
import urllib.error
import urllib.request
from types import SimpleNamespace

POLICY = "You water plants. End with: WATER <n> ml."
SOIL = {"name": "feel_soil", "description": "How wet the soil is.", "parameters": {"type": "object"}}
DEFAULT_LLM_NL_ASSERTIONS, DEFAULT_LLM_NL_ASSERTIONS_ARGS = "", {}
TextRunConfig = SimpleNamespace


class Task(SimpleNamespace):
    """A task, whose parts are dictionaries."""

    @classmethod
    def model_validate(cls, task):
        return cls(**task)


class Message(dict):
    """What was said."""

    def model_dump(self, mode):
        return dict(self)


class RefusedError(Exception):
    """What LiteLLM raises of an answer with a status of its own."""

    def __init__(self, status_code):
        super().__init__(status_code)
        self.status_code = status_code


def build_text_orchestrator(config, task, seed):
    agent = SimpleNamespace(domain_policy=POLICY)
    made = SimpleNamespace(config=config, task=task, seed=seed, agent=agent, trajectory=[])
    agent.generate_next_message = lambda told, said: _ask(made, told, said)
    return made


def run_simulation(orchestrator):
    told, said, config = [], orchestrator.trajectory, orchestrator.config
    reason = orchestrator.task.user_scenario["instructions"]["reason_for_call"]
    said.append(Message(role="user", content=reason))
    told += [{"role": "system", "content": orchestrator.agent.domain_policy}, dict(said[0])]
    if config.llm_args_user["api_base"] != config.llm_args_agent["api_base"]:
        _answer(config.llm_user, config.llm_args_user, told, orchestrator.seed)
    soil = orchestrator.task.initial_state["initialization_data"]["agent_data"]["soil"]
    while calls := orchestrator.agent.generate_next_message(told, said):
        for call in calls:
            said.append(Message(role="tool", id=call["id"], content=soil, requestor="assistant"))
            told.append({"role": "tool", "tool_call_id": call["id"], "content": soil})
    return SimpleNamespace(model_dump=lambda mode: _simulation(orchestrator.task, said))


def _ask(orchestrator, told, said):
    """Ask the agent's model, note what it says, and return what it calls."""
    config = orchestrator.config
    message = _answer(config.llm_agent, config.llm_args_agent, told, orchestrator.seed)
    told.append(message)
    calls = message.get("tool_calls") or []
    made = [
        {
            "id": call["id"],
            "name": call["function"]["name"],
            "arguments": json.loads(call["function"]["arguments"]),
        }
        for call in calls
    ]
    said.append(Message(role="assistant", content=message.get("content"), tool_calls=made or None))
    return calls


def _answer(model, args, told, seed):
    body = {"model": model.removeprefix("openai/"), "messages": told, "seed": seed}
    request = urllib.request.Request(
        args["api_base"] + "/chat/completions",
        json.dumps(body | {"tools": [{"type": "function", "function": SOIL}]}).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + args["api_key"]},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        raise RefusedError(error.code) from None


def _simulation(task, said):
    criteria = task.evaluation_criteria
    spoken = " ".join(one["content"] or "" for one in said if one["role"] == "assistant")
    checks = [{"info": info, "met": info in spoken} for info in criteria["communicate_info"]]
    right = all(check["met"] for check in checks)
    asserted = [{"nl_assertion": one, "met": right} for one in criteria["nl_assertions"]]
    reward = {"reward": float(right), "communicate_checks": checks, "nl_assertions": asserted}
    return {"messages": said, "reward_info": reward, "termination_reason": "user_stop"}


evaluator_nl_assertions = sys.modules[__name__]
for part in (
    "data_model",
    "data_model.simulation",
    "data_model.tasks",
    "evaluator",
    "runner",
    "runner.build",
):
    sys.modules[f"{__name__}.{part}"] = sys.modules[__name__]
sys.modules[f"{__name__}.runner.simulation"] = sys.modules[__name__]
