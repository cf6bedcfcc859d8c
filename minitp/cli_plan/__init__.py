"""The verbs `minitp plan …`: options and help texts, a module for each. What they do is in `minitp.commands.plan`.

`minitp plan MODEL` is the verb `layouts`: a first word that is no verb is taken for a model.
"""
from typing import Any

import typer
from typer.core import TyperGroup

DEFAULT = "layouts"


class ModelOrVerb(TyperGroup):
    """Verbs, and for everything else the verb DEFAULT."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names and DEFAULT in self.commands:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


plan_app = typer.Typer(cls=ModelOrVerb, no_args_is_help=True,
                       help="What a model needs and takes on machines you don't have: `minitp plan MODEL --machine …`.")

from minitp.cli_plan.catalogue import catalogue  # noqa: E402  (the group must be there first)

plan_app.command("catalogue")(catalogue)
