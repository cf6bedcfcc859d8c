"""The verbs `minitp plan …`: options and help texts, a module for each. What they do is in `minitp.commands.plan`.

`minitp plan MODEL` is the verb `layouts`: a first word that is no verb is taken for a model.
"""
import typer

from minitp.cli_plan.ask import ask
from minitp.cli_plan.calibrate import calibrate
from minitp.cli_plan.catalogue import catalogue
from minitp.cli_plan.check import check
from minitp.cli_plan.group import DEFAULT, ModelOrVerb, Verb
from minitp.cli_plan.layouts import layouts
from minitp.cli_plan.simulate import simulate
from minitp.cli_plan.verify import verify

plan_app = typer.Typer(cls=ModelOrVerb, no_args_is_help=True,
                       help="What a model needs and takes on machines you don't have: `minitp plan MODEL --machine …`.")
plan_app.command(DEFAULT, cls=Verb)(layouts)
plan_app.command()(ask)
plan_app.command(cls=Verb)(simulate)
plan_app.command()(verify)
plan_app.command()(calibrate)
plan_app.command()(check)
plan_app.command()(catalogue)
