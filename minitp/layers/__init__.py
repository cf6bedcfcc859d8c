"""The split layers. Each is a stateless description of one rank's part: sizes, site, group.

B batch  T tokens  D hidden  H query heads  K kv heads  E head size  F ffn  V vocabulary;  *_p: this rank's share

`weights` is one flat mapping by physical name (site + ".weight"), passed on untouched. Weights are stored (out, in) and
y = x Wᵀ: "column-parallel" cuts the columns of Wᵀ, that is, the rows of the stored W.
"""
from minitp.layers.attention import Attention
from minitp.layers.block import Block, ParallelBlock
from minitp.layers.boundary import TensorBoundary
from minitp.layers.embedding import ParallelEmbedding, VocabParallelEmbedding
from minitp.layers.head import HiddenParallelHead, Logits, VocabParallelHead
from minitp.layers.linear import ColumnParallelLinear, RowParallelLinear
from minitp.layers.loss import IGNORED, Loss, VocabParallelCrossEntropy
from minitp.layers.mlp import MLP
from minitp.layers.norm import LayerNorm, RMSNorm

__all__ = ["IGNORED", "MLP", "Attention", "Block", "ColumnParallelLinear", "HiddenParallelHead", "LayerNorm", "Logits",
           "Loss", "ParallelBlock", "ParallelEmbedding", "RMSNorm", "RowParallelLinear", "TensorBoundary",
           "VocabParallelCrossEntropy", "VocabParallelEmbedding", "VocabParallelHead"]
