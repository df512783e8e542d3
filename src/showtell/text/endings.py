"""Words that no caption should end with: such a caption was cut off or is malformed."""

BAD_ENDINGS = frozenset(
    (
        *("a", "an", "the", "and", "or", "but", "of", "with", "in", "on", "at", "to", "for", "from", "by", "into"),
        *("his", "her", "its", "their", "this", "that", "is", "are", "while", "as", "next"),
    )
)
