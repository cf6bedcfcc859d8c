"""The verb `minitp plan ask`: named questions, and what may be changed in them."""
from typing import Annotated

import typer

from minitp.cli_options import RECORD, opt
from minitp.cli_plan.options import JOB, MACHINE, BetweenOption, DevicesOption, LinkOption, MemoryOption, the_tokens


def ask(question: Annotated[list[str] | None, typer.Argument(metavar="[QUESTION]...", help="Names of questions; "
                                                             "without one they are listed; `all`: every one.")] = None,
        model: Annotated[str | None, opt("Ask about this model instead.", "--model", "-m", panel=JOB,
                                         metavar="NAME")] = None,
        machine: Annotated[str | None, opt("Ask about this machine instead.", panel=MACHINE, metavar="NAME")] = None,
        gpus: DevicesOption = None, gpu_memory: MemoryOption = None, link: LinkOption = None,
        between: BetweenOption = None,
        tokens: Annotated[str | None, opt("Tokens of the training: 300e9, 15T.", panel=JOB, metavar="COUNT")] = None,
        seq: Annotated[int | None, opt("Tokens of a sequence.", min=1, panel=JOB)] = None,
        batch: Annotated[int | None, opt("Sequences at once.", min=1, panel=JOB)] = None,
        weights: Annotated[str | None, opt("Number type of the weights.", panel=JOB, metavar="TYPE")] = None,
        json: Annotated[bool, opt("Print JSON instead of text.", "--json", panel=RECORD)] = False) -> None:
    """Answer a question that people ask about big models, with numbers computed now; options change what is asked."""
    from minitp.commands.plan.ask import answer
    from minitp.plan.questions.base import WhatIf
    from minitp.plan.units import parse_bytes
    what_if = WhatIf(model, machine, gpus, None if gpu_memory is None else parse_bytes(gpu_memory), link, between,
                     None if tokens is None else float(the_tokens(tokens)), seq, batch, weights)
    answer(question or [], what_if, json)
