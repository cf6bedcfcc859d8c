"""A plan played event by event, written into the runs folder so that the other pages can open it. A model."""
import re
from hashlib import sha256
from pathlib import Path

from minitp.errors import ConfigError
from minitp.plan.job import Inference, Job
from minitp.plan.simulate import simulated
from minitp.plan.simulate.asked import first_tokens, warnings_of
from minitp.view.plan import Asked

MOST_TOKENS = 8                        # new tokens that a simulated generation shows
DIGITS = 8


def file_name(asked: Asked) -> str:
    """The same inputs have the same file: simulating them again replaces it."""
    facts = "&".join(f"{key}={value}" for key, value in asked.to_address().items() if key != "show")
    model = re.sub(r"[^a-z0-9.-]+", "-", asked.model.lower()).strip(".-")[:40] or "model"
    return f"simulated-{model}-{sha256(facts.encode()).hexdigest()[:DIGITS]}.json.gz"


def shown(asked: Asked) -> tuple[Job, str]:
    """What of the job is simulated, and what a reader must be told of it ("": all of it is). ConfigError for what
    isn't simulated."""
    job = asked.job()
    if not isinstance(job, Inference):
        return job, ""
    if not job.new:
        raise ConfigError("a generation without new tokens has nothing to be simulated: set new tokens to 1 or more")
    return first_tokens(job, MOST_TOKENS)


def write(asked: Asked, folder: Path) -> str:
    """Simulate and write; the file's name. ConfigError for what isn't simulated, SaveError or OSError for a folder
    that can't be written to."""
    what = asked.planned(), asked.layout(), shown(asked)[0], asked.described()
    made = simulated(*what, warnings=warnings_of(*what))
    name = file_name(asked)
    folder.mkdir(parents=True, exist_ok=True)
    made.trace.write(folder / name)
    return name
