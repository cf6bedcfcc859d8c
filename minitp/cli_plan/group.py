"""How `minitp plan` finds its verb: a first word that is none is taken for a model."""
from typing import Any

from typer.core import TyperGroup

DEFAULT = "layouts"


class ModelOrVerb(TyperGroup):
    """Verbs, and for everything else the verb DEFAULT."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)
