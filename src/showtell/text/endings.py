"""Words that no caption ends on: one that does was cut off or went astray."""

BAD_ENDINGS = frozenset(
    (
        *("a", "an", "the", "and", "or", "but", "of", "with", "in", "on", "at", "to", "for", "from", "by", "into"),
        *("his", "her", "its", "their", "this", "that", "is", "are", "while", "as", "next"),
    )
)
