"""The built-in corpus in parts: tables of words and frames, and how sentences are drawn of them."""
