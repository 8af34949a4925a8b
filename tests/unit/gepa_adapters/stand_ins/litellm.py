"""A stand-in for litellm, which is no dependency of ours: the two names that AnyMathsAdapter uses."""

import os
from types import SimpleNamespace

from openai import OpenAI

exceptions = SimpleNamespace(JSONSchemaValidationError=type("JSONSchemaValidationError", (Exception,), {}))


def batch_completion(model, messages, api_base=None, max_workers=1, format=None, response_format=None):
    client = OpenAI(base_url=api_base, api_key=os.environ["OPENAI_API_KEY"], max_retries=0)
    name = model.partition("/")[2]
    return [client.chat.completions.create(model=name, messages=one) for one in messages]
