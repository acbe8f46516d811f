from regard.text.batching import (
    Batch as Batch,
)
from regard.text.batching import (
    Batches as Batches,
)
from regard.text.batching import (
    by_length as by_length,
)
from regard.text.batching import (
    padded as padded,
)
from regard.text.corpus import (
    Cleaning as Cleaning,
)
from regard.text.corpus import (
    EncodedPairs as EncodedPairs,
)
from regard.text.corpus import (
    Report as Report,
)
from regard.text.corpus import (
    read_lines as read_lines,
)
from regard.text.corpus import (
    read_pairs as read_pairs,
)
from regard.text.tokenizer import Tokenizer as Tokenizer
