"""Layers made of attention, and the Transformers made of those."""

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
