r"""The tokenizer: captions into words, as in caption evaluation.

The published scores of this field all rest on one tokenizer: the Penn Treebank rules of Stanford CoreNLP
3.4.1, with lower-casing, after which punctuation is dropped. This is that tokenizer, written from the output
of the reference for some four million probes (every character, every abbreviation up to five letters, every
short string over the characters that rules are made of). Training and scoring share it, so a word of the
vocabulary is a word of the scores.

The reference is a lexer, and so is this: at each character the longest match of all rules wins, and of equally long
ones the earlier rule. Lookahead behind a token counts for the length. It differs in three ways, on purpose:
each caption is tokenized alone, as if nothing followed (the reference looks past the end of the line, and so does
`tokenize` where it is told what stands there); a carriage return or another line break inside a caption is a
space (the reference shifts all later captions by one); and no token is longer than 500 characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain
from typing import NamedTuple

import regex

from showtell.text.characters import LATER_CHARACTERS, MARKS, SYMBOLS

TOKENIZER_VERSION = "ptb-1"

# Dropped from every caption. Brackets stay and count as words (-lrb- and friends): the reference's list has
# them in capitals, and it compares after lower-casing.
PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"])

# Scripts that part words by no spaces: Thai, Lao, Burmese, Khmer, Japanese and Chinese.
_UNSPACED = regex.compile(r"[\p{Thai}\p{Lao}\p{Myanmar}\p{Khmer}\p{Hiragana}\p{Katakana}\p{Han}ー]+")
UNSPACED = (
    "Captions are written without spaces between words, as in Chinese, Japanese or Thai, so that each counts as a "
    "word: part the words of captions and references by spaces with a segmenter of the language."
)


def is_unspaced(captions: Iterable[str]) -> bool:
    """Whether captions are in a script without spaces, more than four characters in a row as a rule."""
    pieces = [piece for caption in captions for piece in caption.split()]
    rows = [row for piece in pieces for row in _UNSPACED.findall(piece)]
    return len(rows) * 2 > len(pieces) and sum(map(len, rows)) > 4 * len(rows)


def tokenize(caption: str, following: str = "") -> list[str]:
    """The words of a caption, lower case, no punctuation; mixed fractions and phone numbers hold a no-break space.

    The `following` line decides whether a full stop at the end is part of a word ("Plan B.").
    """
    end = f" {caption.rstrip()}"[-7:]  # a search of whole captions would take as long as all else
    if following and end[-1:] == "." and not end[:-1].isalpha() and _LOOKS_AHEAD.search(end):
        return list(_words(caption, following))
    if _PLAIN.fullmatch(caption) or not _CROSSES_SPACES.search(caption):
        return list(chain.from_iterable(map(_PIECES.__getitem__, caption.split())))
    return list(_words(caption))


# Rules may match across a space: numbers in two parts, tags, a full stop that may belong to an initial. All
# other captions are split at spaces, and most pieces are already cached.
_CROSSES_SPACES = re.compile(r"<|[^\S ]|(?<![A-Za-z])[A-Za-z]\.\s|[\d).]\s+[.+(]*\d")
_PLAIN = re.compile(r"[A-Za-z ,'-]*\.? *")  # the usual caption, checked first because it is faster
# Rules may match across the end of a line, too: for an initial ("plan B.") or a number behind it ("page no.").
_LOOKS_AHEAD = re.compile(r"(?<![a-z])(?:[a-z]|art|ca|figs?|nos?|op|pp|prop)\.\Z", re.IGNORECASE)


def _words(text: str, following: str = "") -> tuple[str, ...]:
    return tuple(word for token in _tokens(text, following) if (word := token.lower()) not in PUNCTUATION)


class _Pieces(dict[str, tuple[str, ...]]):
    """The words of what stands between two spaces; some 60 MB. Looked up in half of the time of `lru_cache`."""

    def __missing__(self, piece: str) -> tuple[str, ...]:
        if len(self) >= 1 << 18:
            self.clear()
        word = piece[:-1] if piece[-1:] in (".", ",") else piece
        is_plain = word.isascii() and word.isalpha() and (word == piece or len(word) > 1)
        # most pieces need no rules: a word that no rule knows, alone or before a full stop or a comma
        is_word = is_plain and word.lower() not in _WITH_DOT
        self[piece] = words = tuple(_word(word).lower().split()) if is_word else _words(piece)
        return words


_PIECES = _Pieces()

# Written as one word, tokenized as two.
_COMPOUNDS = {
    "cannot": "can not", "gimme": "gim me", "gonna": "gon na", "gotta": "got ta", "lemme": "lem me", "wanna": "wan na",
}  # fmt: skip

# Abbreviations that keep their dot. Lower case stands for either case unless a comment says otherwise.
_TITLES = (  # always
    "adj adm adv alex asst atty attys ave brig capt cf cie cmdr col comdr cpl dept det dr drs elec ens ft gen gov govs "
    "hon insp invt jos lieut lt maj messrs mlle mme mr mrs ms msgr mt natl pfc ph pres prof profs pvt rep reps rev sen "
    "sens sfc sgt spc st ste supt supts treas vs wm assoc"
)
_ABBREVIATIONS = (  # always, even before a letter: "Tenn.a" is two words
    "al ala apr ariz assn aug bhd bldg blvd bros calif co colo conn corp cos ct dak dec esq est etc ext feb fla fri ga "
    "inc ind intl jan jr jul jun kan kans ky ltd mar md mich minn mo mon mont neb nev nov oct okla penn plc rd rt sep "
    "sept seq sq sr sys tel tenn thu thurs tue tues univ va vt wed wis wisc wyo"
)
_CAPITALISED_ABBREVIATIONS = "ark az del ill la mass miss ore pa tex wash"  # likewise, if the first letter is a capital
_NUMBERED = "art ca fig figs no nos op pp prop"  # before a digit
_WITH_DOT = frozenset(  # all of them, and those that stand in the rules alone
    f"{_TITLES} {_ABBREVIATIONS} {_CAPITALISED_ABBREVIATIONS} {_NUMBERED} mfg mtg pty pte ppty ppte ptys ptes pptys "
    "pptes".split()
)

# ---- rules


class _Rule(NamedTuple):
    starts: str  # what its first character may be: a letter, 1 digit, . anything else
    pattern: Callable[[], regex.Pattern[str]]  # group 1, where there is one, is the token; the rest must follow it
    write: Callable[[str], str]  # the token as the reference writes it; a space makes it two


def _drop_soft_hyphens(token: str) -> str:
    return token.replace("\u00ad", "")


def _word(token: str) -> str:
    return _COMPOUNDS.get(token.lower(), _drop_soft_hyphens(token))


def _constant(text: str) -> Callable[[str], str]:
    return lambda token: text


def _normalise_apostrophes(token: str) -> str:
    return token.replace("&apos;", "'").translate({0x2019: "'", 0x92: "'", 0x2018: "`", 0x91: "`"})


def _no_break(token: str) -> str:
    return token.replace(" ", "\N{NO-BREAK SPACE}")


def _one_word(token: str) -> str:  # as mixed fractions and phone numbers are
    return _no_break(token).replace("(", "-LRB-").replace(")", "-RRB-")


def _ampersand(token: str) -> str:
    return _drop_soft_hyphens(token.replace("&amp;", "&"))


def _quotes(token: str) -> str:
    single_open, single_close, double_open, double_close = "‘‛‹\x91", "’›\x92", "“«\x93", '”»\x94"'
    names = {single_open: "`", single_close: "'", double_open: "``", double_close: "''"}
    return "".join(next((name for group, name in names.items() if sign in group), sign) for sign in token)


def _dashes(token: str) -> str:
    return token if len(token) > 4 and token[0] == "-" else "--"  # five or more hyphens are a word


_NAMED = {
    "(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-",
    "£": "#", "€": "$", "¤": "$", "₠": "$", "\x80": "$", "¢": "cents",
    "½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3",
}  # fmt: skip
_SYMBOL = regex.compile(rf"[{SYMBOLS}\u2044]")


def _sign(token: str) -> str:
    """A single character: its name, itself if it is a sign, nothing if the reference does not know it."""
    return _NAMED.get(token) or (token if _SYMBOL.match(token) else "")


def _either_case(words: str) -> str:
    """A pattern for any of some words in any mixture of cases."""
    return "|".join("".join(f"[{letter}{letter.upper()}]" for letter in word) for word in words.split())


_ACCENTED = "&[aeiouAEIOU](?:acute|grave|uml);"
_L = rf"(?:[\p{{L}}{MARKS}\u00ad]|{_ACCENTED})"  # of a word
_W = rf"(?:[\p{{L}}\p{{Nd}}{MARKS}\u00ad]|{_ACCENTED})"  # likewise, digits too
_l = r"\p{L}"  # of a word with digits, hyphens, signs
_N = r"[\p{L}\p{Nd}]"  # likewise, digits too
_D = r"\p{Nd}"
_A = r"(?:['’\x92]|&apos;)"  # apostrophes
_Q = r"(?:['’\x92`‘\x91‛]|&apos;)"  # likewise, opening ones too
_HYPHEN = r"[-‐‑\u058a]"
_SPACE = r"[ \t\u00a0\u2000-\u200a\u3000\n]"
_AND = r"(?:&amp;|&)"
_AUXILIARY = "(?:[smdSMD]|[lL][lL]|[rR][eE]|[vV][eE])"
_FILE = _either_case(
    "bat bmp c cgi class cpp dll doc docx exe gif gz h htm html jar java jpeg jpg mov mp3 pdf php pl png ppt ps py sql "
    "tar txt wav x xml zip"
)
_STARTERS = (  # words that begin a sentence
    "a about according additionally after an as at but earlier he her here however if in it last many more now once "
    "one other our she since so some such that the their then there these they this we what when while yet you"
)
_STARTER = "|".join(f"{word.capitalize()}|{word.upper()}" for word in _STARTERS.split()) + r"|M[rR]\.|M[sS]\."
_CAPITALISED = "|".join(f"{name[0].upper()}(?:{_either_case(name[1:])})" for name in _CAPITALISED_ABBREVIATIONS.split())
_TAG_NAME = "[A-Za-z][A-Za-z0-9_:.-]*"
_TAG_VALUE = rf"(?:'[^'\n]*'|\"[^\"\n]*\"|{_TAG_NAME})"
_TAG_ATTRIBUTE = rf"{_TAG_NAME}(?:[ ]*=[ ]*{_TAG_VALUE})?"
_MARKUP = r"<[!?][A-Za-z-][^>\n]*>"  # <!-- a comment -->
_ELEMENT = rf"<(?:/{_TAG_NAME}[ ]*|{_TAG_NAME}(?:[ ]+{_TAG_ATTRIBUTE})*[ ]*(?:/[ ]*)?)>"
_WORD = rf"{_L}{_W}*"
_DOTTED = rf"{_WORD}(?:[.!?]{_WORD})+"  # no space after the full stop: "dog.A"
_PART = rf"(?:[dDoOlL]{_Q}{_N})?{_N}+"
_HYPHENATED = rf"{_PART}(?:(?:_|{_HYPHEN}){_PART})*"
_DOTS_HYPHENATED = r"[A-Za-z0-9][A-Za-z0-9.,]*(?:-(?:[A-Za-z0-9]+|[A-Za-z](?:\.[A-Za-z])+\.))+"
_INITIALS = rf"[A-Z]+(?:(?:\+|{_AND})[A-Z]+)+"
_SLASH_PART = "[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}"
_HOST_LABEL = r"[^\s\"`'<>|.!?(){}$,-_]+"  # of example.com; `,-_` is a range, capitals and slashes among it
_WWW_LABEL = r"[^\s\"<>|.!?(){},]+"  # of www.example.com
_PATH = r"/[^\s\"<>|()]+[^\s\"<>|.!?(){},-]"
_TOP_LEVEL = _either_case("com edu net org")


def _rule(
    starts: str, pattern: str, write: Callable[[str], str] = _drop_soft_hyphens, flags: int = regex.POSIX
) -> _Rule:
    """A rule whose match is the longest that there is, whatever the order of alternatives."""
    # the alternative that never matches keeps the engine from a search of all that follows for a literal; a pattern is
    # compiled when it is first needed: all of them take a tenth of a second
    return _Rule(starts, cache(partial(regex.compile, rf"(?:{pattern}|(?!))", flags)), write)


_greedy_rule = partial(_rule, flags=0)  # of which the first match is the longest, so that no others are tried

_RULES = [
    # Tenn. co. pty. Ph.D.
    _rule(
        "a",
        rf"((?:{_either_case(_ABBREVIATIONS)}|{_CAPITALISED}|[Pp]?[Pp][Tt][ey]|[Pp]?[Pp][Tt][ey][sS]|(?:[Pp][Hh]|[Ee][Dd])\.[Dd])\.)-?(?s:.)",
    ),
    _rule("a", rf"({_WORD}(?:[.!?]{_WORD})*){_A}{_AUXILIARY}"),  # boy's: the word
    _rule("a", rf"([A-Za-z])\.{_SPACE}+(?:{_STARTER}){_SPACE}"),  # plan B. The man: no initial, but a full stop
    _greedy_rule("a", rf"([A-Za-z])\.{_SPACE}+{_ELEMENT}{_SPACE}"),
    _greedy_rule("a", rf"([A-Za-z])\.{_SPACE}+{_MARKUP}{_SPACE}"),
    _rule("a", _WORD, _word),  # dog
    _rule("1", rf"{_N}+"),  # 2nd
    _rule("a1", _HYPHENATED),  # mother-in-law
    _rule("a1", _DOTS_HYPHENATED),
    _rule("a1", rf"{_SLASH_PART}(?:\\?/{_SLASH_PART}){{1,2}}"),  # and/or
    _rule("a", _DOTTED),
    _rule("a", _INITIALS, _ampersand),  # AT&T
    _rule("a", r"[Cc]\+\+|[CcFf]\#"),  # C++
    _rule("a", rf"(?:{_either_case(_TITLES)}|[Mm]f[Gg]|[Mm]t[Gg])\.|(?:[A-Za-z]\.)+"),  # mr. u.s. K.
    _rule("a", rf"((?:{_either_case(_NUMBERED)})\.){_SPACE}?{_D}"),  # no. 5
    _rule("a1", rf"((?:{_WORD}|{_HYPHENATED}|{_DOTTED}|{_INITIALS})\.)[,;:]", _ampersand),  # approx., but
    _rule("a1", rf"({_DOTS_HYPHENATED}\.)[,;:]", _ampersand),
    _rule("1.", rf"[-+]?(?:{_D}+|{_D}*(?:[.,:\u00ad\u066b\u066c]{_D}+)+)"),  # 1,000.5
    _rule("1", r"[0-9]{1,2}[-/][0-9]{1,2}[-/][0-9]{2,4}"),  # 24/12/2006
    _rule("1", rf"(?:{_D}{{1,4}}[- \u00a0])?{_D}{{1,4}}[/\u2044]{_D}{{1,4}}", _one_word),  # 2 1/2
    # (650) 723 0293
    _rule(
        "1.",
        r"(?:\([0-9]{2,3}\)[ \u00a0]?|(?:\+\+?)?(?:[0-9]{2,4}[- \u00a0])?[0-9]{2,4}[- \u00a0])"
        r"[0-9]{3,4}[- \u00a0]?[0-9]{3,5}",
        _one_word,
    ),
    _greedy_rule("a1", rf"{_N}+(?:\.{_N}+)*\.(?:{_FILE})(?={_SPACE}|[.?!,])"),  # 1.jpg
    _rule(".", rf"({_A}[0-9][0-9]){_SPACE}|({_A}[1-9]0[sS])"),  # '07, '90s
    _rule(".", rf"('{_AUXILIARY})[^A-Za-z]"),  # 's
    _rule(".", rf"(?:[’\x92]|&apos;){_AUXILIARY}", _normalise_apostrophes),  # the curly one may touch the next word
    _rule("a", rf"[nN](?:{_A}|[`‘])[tT]", _normalise_apostrophes),  # n't
    _rule("a", rf"([A-Za-z]*[A-MO-Za-mo-z])[nN](?:{_A}|[`‘])[tT]"),  # don't: the word
    _rule(".", rf"({_A}[tT])(?:[iI][sS]|[wW][aA][sS])", _normalise_apostrophes),  # 'tis: the 't
    _rule("a", rf"([yY]{_A}){_l}"),  # y'all: the y'
    # O'Brien, Hawai'i, e'er, ev'ry, o'o, d'; c'mon, li'l, nat'l, cap'n; ol', somethin'
    _rule(
        "a",
        rf"[dlnoA-HJ-XZ]{_Q}{_l}{{2,}}|{_l}+[aeiouyAEIOUY]{_Q}[aeiouA-Z]{_l}*"
        rf"|[eE]{_A}[eE][rR]|[eE][vV]{_A}[rR][yY]|[oO]{_A}[oO]|[dDlLjJ]{_A}"
        rf"|[cC]{_A}(?:{_either_case('est mon')})|(?:{_either_case('li nat')}){_A}[lL]|[cC][aA][pP]{_A}[nN]"
        rf"|(?:{_either_case('ol dunkin somethin')}){_A}",
    ),
    # rock 'n' roll, 'em, 'til, 'cause
    _rule(".", rf"{_A}[nN]{_A}|'[nN](?=[\s])|(?:[’\x92]|&apos;)[nN]|{_A}(?:{_either_case('em til till cause')})"),
    _rule(".", r"[`‘’“”«»‹›‛‚„‟\x91-\x94]{2}|[`‘’“”«»‹›‛\x91-\x94]|''|\"", _quotes),
    # me@example.com
    _greedy_rule(
        "a1.",
        r"(?:<|&lt;)?[A-Za-z0-9][^ \t\n\u00a0\"<>|(){}]*@"
        r"(?:[^\s\"<>|(){}.]+\.)*[^\s\"<>|(){}.]+(?:>|&gt;)?",
    ),
    _rule("a", r"[hH][tT][tT][pP][sS]?://[^ \t\n\u00a0\"<>|(){}]+[^\s\"<>|.!?(){},-]"),  # http://example.com
    # www.example.com/ab, www.example.com, example.com/ab
    _greedy_rule("a.", rf"[wW]{{3}}\.(?:{_WWW_LABEL}\.)+?[A-Za-z]{{2,4}}{_PATH}"),
    _greedy_rule("a.", rf"[wW]{{3}}\.(?:{_WWW_LABEL}\.)+[A-Za-z]{{2,4}}"),
    _greedy_rule("a.", rf"(?:{_HOST_LABEL}\.)+(?:{_TOP_LEVEL})(?:{_PATH})?"),
    _rule(".", rf"@[A-Za-z_][A-Za-z0-9_]*|\#{_L}+"),  # #hashtag
    _greedy_rule(".", _ELEMENT, _no_break),  # <a href="x">
    _greedy_rule(".", _MARKUP, _no_break),
    _rule(".", r"-[lrLR][rscRSC][bB]-"),  # a bracket that is already named
    _rule(".", r"\.{3,5}|\.(?:[ \u00a0]\.){2,4}|…", _constant("...")),
    _rule(".", r"--+|[–—―\x96\x97]|&[mn]dash;", _dashes),
    _rule(".", r"(?i)&amp;", _constant("&")),
    _rule(".", r"(?i)&lt;", _constant("<")),
    _rule(".", r"(?i)&gt;", _constant(">")),
    _rule(".", r"&(?:quot|apos|nbsp);", _constant("")),
    _rule(".", r"[?!]+"),
    _rule(".", r"([<>]?[:;=][-o*']?[()\[\]{@DOPdp|\\])[^A-Za-z0-9]", _one_word),  # :-)
    _rule("a.", r"[-'<=>^~x]_[-'<=>^~x]|\([-'<=>^~x][-_.]?[-'<=>^~x]\)", _one_word),  # (^_^)
    _rule(".", r"\*+|(?:\\\*){1,3}|\#+|@+|__+|<<|>>"),
    _rule("a", r"[A-Z]+\$"),  # US$
    _rule(".", r"(?s:.)", _sign),
]
_BY_START = {start: [rule for rule in _RULES if start in rule.starts] for start in "a1."}
_UNKNOWN = regex.compile(rf"[{LATER_CHARACTERS}]")
_LETTER = regex.compile(_L)
_ORDINARY = regex.compile(r"[A-Za-z]+(?=,?[ \n])")
_WHITE_SPACE = regex.compile(r"\s+")
_LONGEST = 500  # characters of a token and of what must follow it; so the work grows with the length of a caption


def _tokens(caption: str, following: str = "") -> Iterator[str]:
    """The tokens of a caption, case and punctuation kept."""
    text = f"{caption}\n{following}\n" if following else caption + "\n"
    if not text.isascii():
        text = _UNKNOWN.sub("\x01", text)
    start = 0
    while start <= len(caption):
        if (space := _WHITE_SPACE.match(text, start)) is not None:
            start = space.end()
        elif (word := _ORDINARY.match(text, start)) is not None:
            yield from _word(word[0]).split(" ")
            start = word.end()
        else:
            end, write = _longest(text, start)
            if token := write(text[start:end]):
                yield from token.split(" ")
            start = end


def _longest(text: str, start: int) -> tuple[int, Callable[[str], str]]:
    """The end of the token that starts at a character, and the function that writes it."""
    kind = "a" if _LETTER.match(text, start) else "1" if text[start].isdecimal() else "."
    reach, end = start, start + 1
    write: Callable[[str], str] = _sign
    for rule in _BY_START[kind]:
        match = rule.pattern().match(text, start, start + _LONGEST)
        if match is not None and match.end() > reach:
            reach = match.end()
            end = next((match.end(group) for group in range(1, len(match.groups()) + 1) if match[group]), reach)
            write = rule.write
    return end, write
