"""Layers made of attention, and the Transformers made of those."""

from typing import TYPE_CHECKING

from regard.lazy import exports

if TYPE_CHECKING:
    from regard.nn.blocks import Block, FeedForward
    from regard.nn.cache import Cache, KeyValues
    from regard.nn.classifier import Classifier
    from regard.nn.config import TransformerConfig
    from regard.nn.convert import from_marian, from_torch
    from regard.nn.dropout import Dropout
    from regard.nn.language_model import LanguageModel
    from regard.nn.loss import Loss, cross_entropy
    from regard.nn.multihead import MultiHeadAttention, SelfAttention
    from regard.nn.transformer import Decoder, Embedding, Encoder, Transformer

__getattr__ = exports(
    __name__,
    blocks="Block FeedForward",
    cache="Cache KeyValues",
    classifier="Classifier",
    config="TransformerConfig",
    convert="from_marian from_torch",
    dropout="Dropout",
    language_model="LanguageModel",
    loss="Loss cross_entropy",
    multihead="MultiHeadAttention SelfAttention",
    transformer="Decoder Embedding Encoder Transformer",
)

__all__ = [
    "Block",
    "Cache",
    "Classifier",
    "Decoder",
    "Dropout",
    "Embedding",
    "Encoder",
    "FeedForward",
    "KeyValues",
    "LanguageModel",
    "Loss",
    "MultiHeadAttention",
    "SelfAttention",
    "Transformer",
    "TransformerConfig",
    "cross_entropy",
    "from_marian",
    "from_torch",
]
