"""Words that a caption may repeat under `no_repeat_words`: those of the release of El Baz 2020.

Peter Anderson's Up-Down-Captioner lists 19 tokens (`allowed_multiple`). Without its comma and quotation marks, which
our tokenizer drops, 16 are left. (The comment beside its numbers leaves out "is".)
"""

FUNCTION_WORDS = frozenset(
    ("a", "an", "and", "are", "at", "by", "in", "is", "it", "of", "on", "some", "that", "the", "to", "with")
)
