"""`minitp reshard`: any checkpoint as one file per rank, bit for bit."""
from pathlib import Path


def reshard_model(source: str, target: Path, ranks: int, embedding: str, cut: str) -> None:
    """Resolve `source`, write `target`, say what was written."""
    from rich.console import Console

    from minitp.checkpoint import open_checkpoint
    from minitp.checkpoint.reshard import reshard
    from minitp.errors import ConfigError
    from minitp.models import Bundled, resolve
    console = Console(stderr=True)
    found = resolve(source, console=console)
    if isinstance(found, Bundled):
        raise ConfigError(f"{source} has no files: its weights come from a seed, at any number of ranks")
    reshard(open_checkpoint(found), target, ranks, embedding=embedding, cut=cut)
    console.print(f"wrote {target}: {ranks} file{'s' if ranks > 1 else ''}, one per rank", highlight=False)
