"""Layers made of attention."""

from regard.nn.multihead import MultiHeadAttention, SelfAttention

__all__ = ["MultiHeadAttention", "SelfAttention"]
