from regard.nn.blocks import Block as Block
from regard.nn.blocks import FeedForward as FeedForward
from regard.nn.cache import Cache as Cache
from regard.nn.cache import KeyValues as KeyValues
from regard.nn.classifier import Classifier as Classifier
from regard.nn.config import TransformerConfig as TransformerConfig
from regard.nn.convert import from_marian as from_marian
from regard.nn.convert import from_torch as from_torch
from regard.nn.dropout import Dropout as Dropout
from regard.nn.language_model import LanguageModel as LanguageModel
from regard.nn.loss import Loss as Loss
from regard.nn.loss import cross_entropy as cross_entropy
from regard.nn.multihead import (
    MultiHeadAttention as MultiHeadAttention,
)
from regard.nn.multihead import (
    SelfAttention as SelfAttention,
)
from regard.nn.transformer import (
    Decoder as Decoder,
)
from regard.nn.transformer import (
    Embedding as Embedding,
)
from regard.nn.transformer import (
    Encoder as Encoder,
)
from regard.nn.transformer import (
    Transformer as Transformer,
)
