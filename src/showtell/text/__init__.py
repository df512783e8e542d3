"""Text: the tokenizer and the vocabulary."""
