"""Renders a model's chat template: a Jinja program that came with a file from somewhere, so it runs in Jinja's sandbox.

The settings are those that published templates are written for: blocks trimmed, loop controls, `raise_exception`,
`strftime_now`, and a `tojson` that leaves Unicode as it is. A template can't reach files, modules or Python's insides,
and its output is bounded. What the sandbox can't bound is time: it may loop for very long (Ctrl-C ends it).
"""
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from minitp.errors import ConfigError, FileFormatError

LONGEST_TEMPLATE = 1 << 20
LONGEST_OUTPUT = 1 << 24


class RefusedByTemplateError(Exception):
    """The template called raise_exception: it is the messages that are wrong."""


def render_chat(template: str, messages: Sequence[Mapping[str, str]], **variables: str) -> str:
    """The prompt up to where the assistant's answer begins."""
    check_messages(messages)
    if len(template) > LONGEST_TEMPLATE:
        raise FileFormatError(f"the chat template has {len(template)} characters; at most {LONGEST_TEMPLATE} are read")
    pieces: list[str] = []
    length = 0
    try:
        program = sandbox().from_string(template)
        turns = [dict(message) for message in messages]
        for piece in program.generate(messages=turns, add_generation_prompt=True, tools=None, documents=None,
                                      **variables):
            pieces.append(piece)
            length += len(piece)
            if length > LONGEST_OUTPUT:
                raise OverflowError(f"its output passes {LONGEST_OUTPUT} characters")
    except RefusedByTemplateError as error:
        raise ConfigError(f"the model's chat template refuses these messages: {error}") from None
    except Exception as error:       # a foreign program: it can raise whatever it likes
        raise FileFormatError(f"the model's chat template failed ({type(error).__name__}: {error}); "
                              "a plain prompt without the template works") from error
    return "".join(pieces)


def check_messages(messages: Sequence[Mapping[str, str]]) -> None:
    """A role and a content each, both text, and at least one message."""
    if not messages:
        raise ConfigError("a chat needs at least one message, such as {'role': 'user', 'content': 'Hello'}")
    for place, message in enumerate(messages):
        if not all(isinstance(message.get(key), str) for key in ("role", "content")):
            raise ConfigError(f"message {place} is {message!r}; a message has a role and a content, both text")


def sandbox() -> Any:
    """The environment templates run in. Jinja is imported here: most commands never chat."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        """Refuses the two operators by which one short line fills the memory."""

        intercepted_binops = frozenset({"*", "**"})

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            sized = next((item for item in (left, right) if hasattr(item, "__len__")), None)
            times = right if sized is left else left
            if operator == "**" or (sized is not None and isinstance(times, int) and len(sized) * times > 1 << 16):
                raise OverflowError(f"{operator} of these operands is too large for a chat template")
            return super().call_binop(context, operator, left, right)

    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def to_json(value: Any, indent: int | None = None) -> str:
    """Jinja's own tojson escapes <, > and & for web pages; a prompt wants the characters themselves."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def raise_exception(message: str) -> None:
    """What a template calls when roles don't alternate, or a role is one it doesn't know."""
    raise RefusedByTemplateError(message)
