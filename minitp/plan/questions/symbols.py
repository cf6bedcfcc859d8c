"""What the letters and short forms in an answer stand for: told wherever one of them is met."""
import re

from minitp.plan.questions.base import Answer

SYMBOLS = (
    (r"\bTP\d", "TP8: tensor parallel over 8 ranks"), (r"\bPP\d", "PP: pipeline stages"),
    (r"\bDP\d", "DP: replicas, data parallel"), (r"\bCP\d", "CP: pieces of a sequence, context parallel"),
    (r"\bSP\b", "SP: norms and residual stream cut over the tensor parallel ranks too"),
    (r"\bZeRO-\d", "ZeRO-1, 2, 3: optimizer state, and gradients, and weights cut over the replicas"),
    (r"\d chunks\b", "8 chunks: pieces of the model on each stage, interleaved"),
    (r"1F1B", "1F1B: one forward, one backward pass in turn"),
    (r"recompute\b|computed again", "computed again (recomputation): activations dropped and made anew in the backward "
                                    "pass, all (full), those of attention (selective), none"),
    (r"\bMFU\b", "MFU: share of the peak spent on the model's own operations"),
    (r"\b[68]·?P·?T\b|6 · ", "6PT: operations of a training with P parameters and T tokens; 8PT: with full "
                              "recomputation"),
    (r"\bbf16\b|\bfp16\b", "bf16, fp16: 2 bytes a number"), (r"\bfp8\b|\bint8\b", "fp8, int8: 1 byte"),
    (r"\bint4\b", "int4: half a byte"), (r"\bq4_0\b", "q4_0: 4 bits and a scale a block"),
    (r"nominal / real", "nominal: the size in a card's name; real: what it reports"),
    (r"\bLL(128)?\b", "LL, LL128: NCCL's protocols for short messages"),
)
"""(what to look for, how it is explained). Formulas explain their own letters."""


def explained(answer: Answer) -> str:
    """The short forms that an answer has, in one line; empty where it has none."""
    tables = [text for table in answer.tables for text in (table.title, *table.heads, *(cell for row in table.rows
                                                                                       for cell in row))]
    text = "\n".join((answer.short, *answer.paragraphs, *answer.reasoning, *tables))
    return "; ".join(meaning for pattern, meaning in SYMBOLS if re.search(pattern, text))
