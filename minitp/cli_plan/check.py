"""`minitp plan check`."""
from pathlib import Path
from typing import Annotated

import typer

from minitp.cli_options import RanksOption, TimeoutOption, World, WorldOption, on_ranks, opt


def check(file: Annotated[Path | None, typer.Argument(metavar="[TRACE]", help="A file that --trace wrote.")] = None,
          machine: Annotated[str, opt("The description to predict with: `this` is what calibrate wrote.")] = "this",
          collectives: Annotated[bool, opt("No trace: run collectives now, at sizes that the calibration didn't take.",
                                           "--collectives")] = False,
          ranks: RanksOption = None, world: WorldOption = World.auto,
          seconds: Annotated[float, opt("--collectives: about how long.", min=1, max=3600)] = 10.0,
          json: Annotated[bool, opt("Print data instead of tables.", "--json")] = False,
          timeout: TimeoutOption = None) -> None:
    """Predicted beside measured: counts and bytes exactly (exit code 1 where not), times with their stated error."""
    from minitp.commands.plan.check import check_collectives, check_trace, described
    from minitp.environment import launcher_environment
    from minitp.errors import ConfigError
    if (file is None) != collectives:
        raise ConfigError("name a trace that `minitp generate --trace FILE` wrote, or take --collectives: one of the "
                          "two")
    found = described(machine)
    if file is not None:
        raise typer.Exit(check_trace(file, found, json))
    if ranks is None and launcher_environment() is None:
        ranks = min(found.devices, 2)
    on_ranks(lambda group: check_collectives(group, found, seconds, json), ranks, world, timeout=timeout,
             checked=False)
