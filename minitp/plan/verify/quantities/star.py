"""distributed-llama's bytes through its root."""
from minitp.plan.job import bytes_of
from minitp.plan.published import dllama
from minitp.plan.verify.case import Case, ambiguous
from minitp.plan.verify.registry import Planned, quantity
from minitp.plan.verify.shape import Shape

BUFFERS = {"f32": "float32", "fp32": "float32", "f16": "fp16"}


def buffer(case: Case, usual: str = "") -> str:
    """Number type of what is sent: given, or in the row's name, or the usual one. CaseError where nothing tells."""
    text = case.inputs.text("buffer").lower() or next((name for name in ("f32", "q80") if case.says(name)), "")
    if not text and usual:
        case.assume(f"{usual} buffers (those of the program's tables)")
    if not text and not usual:
        raise ambiguous("which number type is sent", "buffer=f32 or q80")
    return BUFFERS.get(text, text or usual)


def layers(case: Case) -> dllama.Layers:
    shape = Shape(case)
    return dllama.Layers(shape.layers, shape.hidden, shape.ffn if "ffn" in case.inputs or shape.named else 0,
                         shape.kv_dim)


def nodes(case: Case) -> int:
    return case.inputs.whole("nodes", "ranks", "gpus")


@quantity("bytes", "root_sent_per_token")
def root_sent_per_token(case: Case) -> Planned:
    """Bytes that the root sends (distributed-llama v0.1, README)."""
    value = dllama.sent(layers(case), nodes(case), bytes_of(buffer(case)))
    return Planned(value, "L(n − 1)(3h + F(n − 1)/n)·w", 0.003)


@quantity("bytes", "root_received_per_token")
def root_received_per_token(case: Case) -> Planned:
    """Bytes that the root receives (distributed-llama v0.1, README)."""
    value = dllama.received(layers(case), nodes(case), bytes_of(buffer(case)))
    return Planned(value, "L(3h + 2·kv + F)(n − 1)/n·w", 0.003)


@quantity("bytes", "total_transfer_per_token")
def total_transfer_per_token(case: Case) -> Planned:
    """Bytes both ways, by the version of distributed-llama that the row's source names."""
    version = next((text for text in ("0.1", "0.7") if f"v{text}" in case.source), "")
    if not version:
        raise ambiguous("which version of the program", "a source with v0.1 or v0.7 in it")
    case.assume(f"distributed-llama {version} (from the row's source)")
    value = dllama.transferred(version, layers(case), nodes(case), bytes_of(buffer(case)))
    return Planned(value, "2L·2(n − 1)·h·w" if version == "0.7" else "sent + received, v0.1", 0.003)
