"""How `minitp plan` finds its verb: a first word that is none is taken for a model."""
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from typer.core import TyperCommand, TyperGroup

DEFAULT = "layouts"
GIVEN: ContextVar[Mapping[str, str]] = ContextVar("GIVEN", default={})  # noqa: B039  (nobody changes it)
"""Parameters that were given in the command, and the options that give them: a default is no wish."""


class ModelOrVerb(TyperGroup):
    """Verbs, and for everything else the verb DEFAULT."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


class Verb(TyperCommand):
    """A verb that knows which of its options were given."""

    def invoke(self, ctx: Any) -> Any:
        sources = {one: ctx.get_parameter_source(one.name or "") for one in self.params}
        token = GIVEN.set({one.name or "": max(one.opts, key=len) for one, source in sources.items()
                           if source is not None and source.name == "COMMANDLINE"})
        try:
            return super().invoke(ctx)
        finally:
            GIVEN.reset(token)
