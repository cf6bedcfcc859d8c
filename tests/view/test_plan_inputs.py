"""The inputs of Memory and machines: what is written into an address is read from it again; a stranger's is mended."""
from inspect import signature

from hypothesis import given, settings
from hypothesis import strategies as st

from minitp.cli_plan.layouts import layouts
from minitp.cli_plan.options import Task, the_job
from minitp.plan.job import Inference, Training
from minitp.view import plan_layouts
from minitp.view.plan import DEGREES, FIELDS, FLAGS, NUMBERS, Asked, choices

CHOICES = choices()


def _values(name: str) -> st.SearchStrategy:
    if name in NUMBERS:
        return st.integers(NUMBERS[name].lo, NUMBERS[name].hi)
    if name in FLAGS:
        return st.booleans()
    if name == "keep":
        return st.sets(st.sampled_from(DEGREES)).map(lambda kept: tuple(one for one in DEGREES if one in kept))
    return st.sampled_from(CHOICES[name])


@settings(max_examples=20)
@given(st.fixed_dictionaries({name: _values(name) for name in FIELDS}))
def test_every_state_has_a_link(values):
    asked = Asked(**values)
    assert Asked.from_address(asked.to_address()) == (asked, [])


@settings(max_examples=20)
@given(st.dictionaries(st.sampled_from([*FIELDS, "run", "<b>"]), st.one_of(
    st.text(max_size=20), st.integers().map(str), st.just("9" * 5000), st.just("<img src=x onerror=alert(1)>"))))
def test_a_strangers_address_is_mended(address):
    asked, told = Asked.from_address(address)
    for name, number in NUMBERS.items():
        assert number.lo <= getattr(asked, name) <= number.hi
    for name, among in CHOICES.items():
        assert getattr(asked, name) in among
    assert len(told) <= len(address) and not any("<img" in line for line in told)
    assert Asked.from_address(asked.to_address()) == (asked, [])


def test_what_is_mended_is_told():
    asked, told = Asked.from_address({"tp": "1e3", "dp": "-4", "model": "/etc/passwd", "sp": "yes", "keep": "tp,x"})
    assert (asked.tp, asked.dp, asked.model, asked.sp, asked.keep) == (8, 1, Asked.model, False, ("tp",))
    assert len(told) == 5


def test_a_slider_has_the_value_that_is_set():
    assert NUMBERS["tp"].stops(7) == NUMBERS["tp"].stops(1)
    assert 127 in NUMBERS["pp"].stops(127) and NUMBERS["pp"].stops(127) == sorted(NUMBERS["pp"].stops(127))


def test_the_parts_of_a_plan():
    asked = Asked(task="train", model="llama-2-7b", tp=2, dp=4, sp=True, zero=1, step=64, seq=4096, fused=False)
    job, layout = asked.job(), asked.layout()
    assert isinstance(job, Training) and job.stored and (job.batch, job.seq) == (64, 4096)
    assert (layout.devices, layout.sequence, layout.zero) == (8, True, 1)
    other = Asked(model="llama-2-7b", tp=2, sp=True, zero=3, prompt=100, new=28, weights="int8")
    assert isinstance(other.job(), Inference) and other.job().context == 128 and other.job().weights == "int8"
    assert (other.layout().zero, other.layout().sequence) == (0, False)      # of a training alone


def test_a_sequence_is_as_long_as_the_models_positions_allow():
    assert Asked(task="train", model="gpt2").job().seq == 1024
    assert Asked(task="train", model="llama-2-7b").job().seq == Training.seq
    assert Asked(task="train", model="gpt2", seq=128).job().seq == 128


def test_the_usual_inputs_are_those_of_the_command():
    """`minitp plan MODEL` and the page plan the same, unless told otherwise."""
    asked, command = Asked(), {name: parameter.default for name, parameter in signature(layouts).parameters.items()}
    assert (asked.machine, asked.reserve, asked.task) == (command["machine"], command["reserve"], command["task"].value)
    assert asked.nominal == command["nominal"] and asked.precision == command["precision"].value
    for task in Task:
        job = the_job(task, positions=asked.planned().config.positions, batch=command["batch"], seq=command["seq"],
                      tokens=command["tokens"], micro_batch=command["micro_batch"], recompute=command["recompute"],
                      **{name: command[name] for name in ("prompt", "new", "weights", "cache", "precision")})
        assert Asked(task=task.value).job() == job
    limits = plan_layouts.limits(asked)
    for name in ("tp", "pp", "dp", "cp", "ep", "zero", "chunks", "micro_batch", "recompute"):
        assert getattr(limits, name) == command[name]


def test_a_layout_takes_more_of_the_same_machines_but_is_told_from_what_there_is():
    asked = Asked(machine="8xa100-80", tp=8, dp=4)
    assert asked.had() == 8 and asked.described().devices == 32
    assert Asked(machine="8xa100-80", devices=64).described().devices == 64
    assert Asked(memory="1 TB").capacity().bytes == 10**12
