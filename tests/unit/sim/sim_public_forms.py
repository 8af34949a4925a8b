"""Prompts in the public form of ACE (structure and field markers; the words are ours).

Generator: playbook, reflection, question, context, then the answer's form as a JSON example.
Reflector: question, trace, prediction, ground truth, feedback, bullets used, then its form. Curator:
statistics, recent reflection, playbook, question context, then operations. Imports nothing of combee.
"""

from __future__ import annotations

GENERATOR = """Work as an analyst: answer with what you know, the playbook and the reflection below.

**Instructions:**
- Apply those strategies and formulas of the playbook that fit
- Keep away from the mistakes that it lists
- Check the calculation before you answer

Give a json object with the fields reasoning, bullet_ids (ids of the playbook lines used), final_answer.

**Playbook:**
{playbook}

**Reflection:**
(empty)

**Question:**
{question}

**Context:**


**Answer in this exact JSON format:**
{{
  "reasoning": "[step by step]",
  "bullet_ids": ["calc-00001", "fin-00002"],
  "final_answer": "[short answer]"
}}

---
"""

REFLECTOR = """Work as a teacher: find out how the prediction and the ground truth came to differ.

**Instructions:**
- Name the error, its root cause and what should be remembered
- Tag every bullet that was used as helpful, harmful or neutral

**Question:**
{question}

**Model's Reasoning Trace:**
{trace}

**Model's Predicted Answer:**
{predicted}

**Ground Truth Answer:**
{target}

**Environment Feedback:**
{feedback}

**Part of Playbook that's used by the generator to answer the question:**
{bullets}

**Answer in this exact JSON format:**
{{
  "reasoning": "[analysis]",
  "error_identification": "[what went wrong]",
  "root_cause_analysis": "[why]",
  "correct_approach": "[what instead]",
  "key_insight": "[what to remember]",
  "bullet_tags": [
    {{"id": "calc-00001", "tag": "helpful"}},
    {{"id": "fin-00002", "tag": "harmful"}}
  ]
}}

---
"""

CURATOR = """Work as the keeper of a playbook: say what new insights the reflection adds to it.

**Instructions:**
- Add only what the playbook does not have yet; answer with json only

**Training Context:**
- Total token budget: 80000 tokens
- Training progress: Sample {step} out of {total}

**Current Playbook Stats:**
{{
  "total_bullets": {bullets}
}}

**Recent Reflection:**
{reflection}

**Current Playbook:**
{playbook}

**Question Context:**
(see the reflection)

**Your Task:**
Give reasoning and operations; an operation has type, section and content.

**RESPONSE FORMAT - Output ONLY this JSON structure:**
{{
  "reasoning": "[analysis]",
  "operations": [
    {{
      "type": "ADD",
      "section": "formulas_and_calculations",
      "content": "[New calculation method...]"
    }}
  ]
}}

---
"""
SECTIONS = ("STRATEGIES AND INSIGHTS", "FORMULAS AND CALCULATIONS", "OTHERS")


def bullet(number: int, content: str) -> str:
    """A line of ACE's playbook."""
    return f"[calc-{number:05d}] helpful=0 harmful=0 :: {content}"


def playbook(contents: list[str]) -> str:
    """ACE's playbook text: headings, lines with counters."""
    lines = [f"## {SECTIONS[0]}", "", f"## {SECTIONS[1]}"]
    return "\n".join(
        [*lines, *(bullet(i, text) for i, text in enumerate(contents, 1)), "", f"## {SECTIONS[2]}"]
    )


def question_of(context: str) -> str:
    """What ACE's own data reader makes of a row: Formula's question without the formula, FiNER's whole
    row."""
    if "Question: " not in context:
        return context
    text = context.split("Question: ", 1)[1].split(". Answer:")[0].strip()
    if text.startswith('"') and text.endswith('"'):
        text = text[1:-1]
    return text + " Give a plain number, rounded to the nearest hundredth."
