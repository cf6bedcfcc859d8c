"""The verb `minitp plan MODEL`: the best layouts of a model on a machine."""
from typing import Annotated

import typer

from minitp.cli_options import RECORD, opt
from minitp.cli_plan.group import GIVEN
from minitp.cli_plan.options import (
    LAYOUT,
    BandwidthOption,
    BatchOption,
    BetweenOption,
    CacheOption,
    ChunkLayersOption,
    Degree,
    DevicesOption,
    LinkOption,
    MachineOption,
    MemoryOption,
    MicroOption,
    ModelArgument,
    ModelNamed,
    NewOption,
    PortsOption,
    PrecisionOption,
    PrefillOption,
    PromptOption,
    RecomputeOption,
    ReserveOption,
    SeqOption,
    Task,
    TaskOption,
    TokensOption,
    TrainingPrecision,
    WeightsOption,
    refuse,
    the_job,
    the_machine,
    the_model,
)
from minitp.plan.job import Inference


def layouts(model: ModelArgument = None, named: ModelNamed = None, machine: MachineOption = "8xa100-80",
            gpus: DevicesOption = None, gpu_memory: MemoryOption = None, bandwidth: BandwidthOption = None,
            link: LinkOption = None, between: BetweenOption = None, ports: PortsOption = None,
            reserve: ReserveOption = 10.0, task: TaskOption = Task.infer, batch: BatchOption = None,
            seq: SeqOption = None, prompt: PromptOption = Inference.prompt,
            new: NewOption = Inference.new, prefill_tokens: PrefillOption = Inference.prefill_tokens,
            weights: WeightsOption = Inference.weights, cache: CacheOption = Inference.cache,
            precision: PrecisionOption = TrainingPrecision.mixed, tokens: TokensOption = None,
            micro_batch: MicroOption = None, recompute: RecomputeOption = None,
            tp: Degree("Tensor") = None, pp: Degree("Pipeline") = None, dp: Degree("Data") = None,
            cp: Degree("Context", "1") = 1, ep: Degree("Expert", "each that deals experts evenly") = None,
            zero: Annotated[int | None, opt("ZeRO stage (train).", min=0, max=3, panel=LAYOUT,
                                            show_default="all are tried")] = None,
            chunks: Annotated[int | None, opt("Model chunks a pipeline stage: interleaved where more than 1 (train).",
                                              min=1, panel=LAYOUT, show_default="1, 2, 4 … while faster")] = None,
            stage_layers: ChunkLayersOption = None,
            run: Annotated[str | None, opt("Plan a published run of `minitp plan catalogue runs` as it was laid out, "
                                           "beside what was published of it.", "--run", panel=RECORD,
                                           metavar="NAME")] = None,
            nominal: Annotated[bool, opt("Take a card's capacity from its name (80e9 bytes) instead of what it "
                                         "reports.", "--nominal", panel=RECORD)] = False,
            top: Annotated[int, opt("How many layouts to show.", min=1, panel=RECORD)] = 5,
            json: Annotated[bool, opt("Print one JSON object instead of tables.", "--json", panel=RECORD)] = False
            ) -> None:
    """The best layouts of a model on a machine: what fits, how fast it is by the model, and why the others fail.

    Exit code 1 where the options leave one layout and it can't be; that none of several fits is an answer, and 0.
    """
    from typing import Literal, cast

    from minitp.commands.plan.layouts import show
    from minitp.plan import catalogue
    from minitp.plan.layout import parse_stage_layers
    from minitp.plan.search import Limits
    if run is not None:
        from minitp.commands.plan.run import show_run
        refuse(set(GIVEN.get()) - {"run", "reserve", "nominal", "json"}, "a plan of your own: --run plans a published "
               "run as the catalogue has it")
        show_run(catalogue.run(run), reserve / 100, nominal, json)
        return
    planned = catalogue.model(the_model(model, named))
    job = the_job(task, positions=planned.config.positions, batch=batch, seq=seq, prompt=prompt, new=new,
                  weights=weights, cache=cache, precision=precision, tokens=tokens, micro_batch=micro_batch,
                  recompute=recompute, prefill_tokens=prefill_tokens)
    limits = Limits(tp, pp, dp, cp, ep, cast(Literal[0, 1, 2, 3] | None, zero),
                    None if recompute is None else cast(Literal["none", "selective", "full"], recompute.value),
                    micro_batch, chunks, reserve=reserve / 100, nominal=nominal,
                    stage_layers=None if stage_layers is None else parse_stage_layers(stage_layers))
    raise typer.Exit(show(planned, the_machine(machine, gpus, gpu_memory, link, between, bandwidth, ports), job, limits,
                          top, json))
