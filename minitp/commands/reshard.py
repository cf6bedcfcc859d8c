"""`minitp reshard`: any checkpoint as one file per rank, or as one Hugging Face folder, bit for bit."""
from pathlib import Path


def reshard_model(source: str, target: Path, ranks: int | None, embedding: str, cut: str) -> None:
    """Resolve `source`, write `target` with its tokenizer, say what was written. `ranks` None: one whole folder."""
    from rich.console import Console

    from minitp.checkpoint.reshard import reshard, to_hf
    from minitp.commands.session import open_source, open_tokenizer
    from minitp.errors import ConfigError, FileFormatError
    from minitp.models import resolve
    console = Console(stderr=True)
    checkpoint = open_source(resolve(source, console=console))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} is there already and not empty: give a new folder")
    if ranks is None:
        to_hf(checkpoint, target)
    else:
        reshard(checkpoint, target, ranks, embedding=embedding, cut=cut)
    try:
        tokenizer = open_tokenizer(checkpoint)
        if tokenizer is not None:
            tokenizer.save(target)
    except FileFormatError as error:                   # the weights are there and right all the same
        console.print(f"minitp: without a tokenizer: {error}", highlight=False, markup=False, soft_wrap=True)
    what = "config.json and model.safetensors" if ranks is None else f"one file for each of {ranks} ranks"
    console.print(f"wrote {target}: {what}", highlight=False)
