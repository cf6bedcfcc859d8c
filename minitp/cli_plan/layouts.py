"""The verb `minitp plan MODEL`: the best layouts of a model on a machine."""
from typing import Annotated

from minitp.cli_options import RECORD, opt
from minitp.cli_plan.options import (
    LAYOUT,
    BatchOption,
    BetweenOption,
    CacheOption,
    Degree,
    DevicesOption,
    LinkOption,
    MachineOption,
    MemoryOption,
    MicroOption,
    ModelArgument,
    ModelNamed,
    NewOption,
    PrecisionOption,
    PromptOption,
    RecomputeOption,
    ReserveOption,
    SeqOption,
    Task,
    TaskOption,
    TokensOption,
    TrainingPrecision,
    WeightsOption,
    the_job,
    the_machine,
    the_model,
)


def layouts(model: ModelArgument = None, named: ModelNamed = None, machine: MachineOption = "8xa100-80",
            gpus: DevicesOption = None, gpu_memory: MemoryOption = None, link: LinkOption = None,
            between: BetweenOption = None, reserve: ReserveOption = 10.0, task: TaskOption = Task.infer,
            batch: BatchOption = None, seq: SeqOption = None, prompt: PromptOption = 512, new: NewOption = 512,
            weights: WeightsOption = "bf16", cache: CacheOption = "bf16",
            precision: PrecisionOption = TrainingPrecision.mixed, tokens: TokensOption = None,
            micro_batch: MicroOption = None, recompute: RecomputeOption = None,
            tp: Degree("Tensor") = None, pp: Degree("Pipeline") = None, dp: Degree("Data") = None,
            cp: Degree("Context", "1") = 1, ep: Degree("Expert", "1") = 1,
            zero: Annotated[int | None, opt("ZeRO stage (train).", min=0, max=3, panel=LAYOUT,
                                            show_default="all are tried")] = None,
            chunks: Annotated[int, opt("Model chunks a pipeline stage: interleaved where more than 1.", min=1,
                                       panel=LAYOUT)] = 1,
            nominal: Annotated[bool, opt("Take a card's capacity from its name (80e9 bytes) instead of what it "
                                         "reports.", "--nominal", panel=RECORD)] = False,
            top: Annotated[int, opt("How many layouts to show.", min=1, panel=RECORD)] = 5,
            json: Annotated[bool, opt("Print one JSON object instead of tables.", "--json", panel=RECORD)] = False
            ) -> None:
    """The best layouts of a model on a machine: what fits, how fast it is by the model, and why the others fail."""
    from typing import Literal, cast

    from minitp.commands.plan.layouts import show
    from minitp.plan import catalogue
    from minitp.plan.search import Limits
    planned = catalogue.model(the_model(model, named))
    job = the_job(task, positions=planned.config.positions, batch=batch, seq=seq, prompt=prompt, new=new,
                  weights=weights, cache=cache, precision=precision, tokens=tokens, micro_batch=micro_batch,
                  recompute=recompute)
    limits = Limits(tp, pp, dp, cp, ep, cast(Literal[0, 1, 2, 3] | None, zero),
                    None if recompute is None else cast(Literal["none", "selective", "full"], recompute.value),
                    micro_batch, chunks, reserve=reserve / 100, nominal=nominal)
    show(planned, the_machine(machine, gpus, gpu_memory, link, between), job, limits, top, json)
