"""`minitp plan calibrate`."""
from typing import Annotated

from minitp.cli_options import RanksOption, TimeoutOption, World, WorldOption, on_ranks, opt


def calibrate(ranks: RanksOption = None, world: WorldOption = World.auto,
              name: Annotated[str, opt("What to call the description, for --machine NAME.")] = "this",
              seconds: Annotated[float, opt("About how long to measure.", min=2, max=3600)] = 25.0,
              quick: Annotated[bool, opt("A few seconds: fewer rounds and sizes.", "--quick")] = False,
              json: Annotated[bool, opt("Print data instead of tables.", "--json")] = False,
              timeout: TimeoutOption = None) -> None:
    """Measure this machine: α, β of its MPI, what each collective takes, memory and matrix products (2 ranks).

    Written to NAME.toml in the folder MINITP_MACHINES, or minitp/machines in the user's settings (~/.config on Linux).
    """
    from minitp.commands.plan.calibrate import calibrate_on_rank
    from minitp.environment import launcher_environment
    from minitp.plan.calibrate.messages import SmallerGroups
    groups = SmallerGroups()
    if ranks is None and launcher_environment() is None:
        ranks = 2
    on_ranks(lambda group: calibrate_on_rank(group, groups, name, 2.0 if quick else seconds, quick, json), ranks, world,
             timeout=timeout, checked=False)
