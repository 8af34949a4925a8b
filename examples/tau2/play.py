"""Play one task of tau2-bench: one rollout, with tau2's own environment, user simulator and score.

tau2's agent gets the domain's policy and, after it, what was learned so far. The task model also plays the
user, and judges what tau2 lets a model judge, unless --user-url names the server of another model, as tau2's
own figures have it.

    python play.py [--user-url http://user-model:8000/v1 --user-model NAME] [--max-steps 200]
"""

import argparse
import json
import os
from pathlib import Path

TASK, OUT = Path(os.environ["COMBEE_TASK"]), Path(os.environ["COMBEE_OUT"])
BAD_REQUEST = 400
"""The model's server refuses a request, mostly since it is longer than the context: the agent's fault."""


def arguments() -> argparse.Namespace:
    """What the container's args say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--user-url", default="")
    parser.add_argument("--user-model", default="")
    parser.add_argument("--max-steps", type=int, default=200)
    words = parser.parse_args()
    if bool(words.user_url) != bool(words.user_model):
        parser.error("--user-url and --user-model go together")
    return words


def play(row: dict, artifact: str, words: argparse.Namespace) -> dict:
    """The simulation, as tau2 writes it; of one that a refused request ended, what came before."""
    # Imported here, where it is needed: it takes seconds.
    from tau2.data_model.simulation import TextRunConfig
    from tau2.data_model.tasks import Task
    from tau2.evaluator import evaluator_nl_assertions as judge
    from tau2.runner.build import build_text_orchestrator
    from tau2.runner.simulation import run_simulation

    agent = (os.environ["OPENAI_MODEL"], os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])
    user = (words.user_model, words.user_url, "none") if words.user_url else agent
    judge.DEFAULT_LLM_NL_ASSERTIONS, told = asked(*user)
    judge.DEFAULT_LLM_NL_ASSERTIONS_ARGS = {
        **told,
        "temperature": 0.0,
        "response_format": {"type": "json_object"},
    }
    config = TextRunConfig(
        domain=row["domain"],
        max_steps=words.max_steps,
        **dict(zip(("llm_agent", "llm_args_agent"), asked(*agent), strict=True)),
        **dict(zip(("llm_user", "llm_args_user"), asked(*user), strict=True)),
    )
    seed = int(os.environ["COMBEE_ORDINAL"])
    orchestrator = build_text_orchestrator(config, Task.model_validate(row["task"]), seed=seed)
    if artifact.strip():
        orchestrator.agent.domain_policy += f"\n\n{artifact}"
    refused = refusals_of(orchestrator.agent)
    try:
        return run_simulation(orchestrator).model_dump(mode="json")
    except Exception as error:
        # What another server refuses the user or the judge is no fault of the agent.
        if not is_refusal(error) or (words.user_url and not refused):
            raise
        before = [message.model_dump(mode="json") for message in orchestrator.trajectory]
        return {
            "messages": before,
            "reward_info": {"reward": 0.0},
            "termination_reason": "the request was refused",
        }


def is_refusal(error: Exception) -> bool:
    """Whether a model's server refused a request for good."""
    return getattr(error, "status_code", None) == BAD_REQUEST


def refusals_of(agent) -> list:
    """The refusals that the agent's own requests will meet."""
    refused, generate = [], agent.generate_next_message

    def generated(*given):
        try:
            return generate(*given)
        except Exception as error:
            refused.extend([error] if is_refusal(error) else [])
            raise

    agent.generate_next_message = generated
    return refused


def asked(model: str, url: str, key: str) -> tuple[str, dict]:
    """A model as tau2 names it, and how it is asked: sampling is the run's."""
    return f"openai/{model}", {"api_base": url, "api_key": key}


def chat(message: dict) -> dict:
    """A message of tau2 as one of a chat. What the user does with tools of its own is told in words."""
    calls = message.get("tool_calls") or []
    if message["role"] == "user" and calls:
        did = "; ".join(f"{call['name']}({json.dumps(call['arguments'])})" for call in calls)
        return {"role": "user", "content": f"[does] {did}"}
    if message["role"] == "tool" and message.get("requestor") == "user":
        return {"role": "user", "content": f"[sees] {message.get('content')}"}
    if message["role"] == "tool":
        return {"role": "tool", "tool_call_id": message["id"], "content": message.get("content") or ""}
    one = {"role": message["role"], "content": message.get("content") or ""}
    functions = [{"name": call["name"], "arguments": json.dumps(call["arguments"])} for call in calls]
    made = [
        {"id": call["id"], "type": "function", "function": function}
        for call, function in zip(calls, functions, strict=True)
    ]
    return {**one, "tool_calls": made} if made else one


def feedback(simulation: dict) -> str:
    """What was missing, in words that a lesson can be drawn from; empty where all was right."""
    info, ended = simulation["reward_info"], simulation["termination_reason"]
    missing = [
        f"the reference solution calls {check['action']['name']}({json.dumps(check['action']['arguments'])})"
        for check in info.get("action_checks") or []
        if not check["action_match"]
    ]
    missing += [
        f"the user should have been told: {check['info']}"
        for check in info.get("communicate_checks") or []
        if not check["met"]
    ]
    missing += [
        f"this should be true: {check['nl_assertion']}"
        for check in info.get("nl_assertions") or []
        if not check["met"]
    ]
    if not ended.endswith("_stop"):
        missing.insert(0, f"the conversation did not come to its end: {ended}")
    elif not (info.get("db_check") or {"db_match": True})["db_match"]:
        missing.insert(0, "the database is not as it should be afterwards")
    return "" if info["reward"] >= 1 else ". ".join(missing)


def main() -> None:
    """Play, and leave what was said and what it is worth."""
    row = json.loads((TASK / "example.json").read_text())
    simulation = play(row, (TASK / "artifact.md").read_text(), arguments())
    messages = [
        chat(one) for message in simulation["messages"] for one in message.get("tool_messages") or [message]
    ]
    (OUT / "trajectory.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages))
    reward = {"reward": float(simulation["reward_info"]["reward"] >= 1), "feedback": feedback(simulation)}
    (OUT / "reward.json").write_text(json.dumps(reward))


if __name__ == "__main__":
    main()
