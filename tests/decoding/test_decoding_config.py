import pytest

from showtell.decoding import DecodingConfig, Rules
from showtell.errors import UsageError
from showtell.text.vocabulary import Vocabulary

WORDS = Vocabulary(["a", "red", "car", "with", "green"])  # ids 4 to 8

REFUSED = {
    "num_return_sequences=3 asks for more captions than num_beams=2 finds; raise num_beams, or use search=sample": {
        "num_beams": 2, "num_return_sequences": 3,
    },
    "min_length=9 is above max_length=5; lower one or raise the other": {"min_length": 9, "max_length": 5},
    '"..." has no words in it; leave it out': {"bad_words": ["..."]},
    'captions should begin with "a dog", but the model does not know "dog"': {"prefix": "a dog"},
    'but the model does not know "<end>"': {"prefix": "a <end>"},
    "prefix has 3 words and max_length is 2; raise it.": {"prefix": "a red car", "max_length": 2},
    '" ... " has no words in it; leave it out.': {"prefix": " ... "},
    '"a red car" must occur and has "Red car" in it, which must not; leave one': {
        "prefix": "a red car", "bad_words": ["Red car"],
    },
}  # fmt: skip


def test_settings_that_contradict_each_other_are_refused_in_words():
    for sentence, settings in REFUSED.items():
        with pytest.raises(UsageError) as error:
            DecodingConfig.checked(settings).rules(WORDS)
        assert sentence in str(error.value)
        assert str(error.value).count("\n") == 0


def test_rules_in_ids():
    config = DecodingConfig(
        num_beams=2, bad_words=("green", "green car", "purple", "purple car"),
        no_bad_endings=True, no_unknown=True, min_length=2,
    )  # fmt: skip
    assert config.rules(WORDS) == Rules(
        min_length=2,
        forbidden=((8,), (8, 6), (Vocabulary.unknown,)),  # what the vocabulary lacks is never said anyway
        bad_endings=(4, 7),
    )
    assert DecodingConfig().rules(WORDS) == Rules()
    assert DecodingConfig(bad_words=("cannot",)).rules(Vocabulary(["cannot"])).forbidden == ((4,),)  # not "can not"
    assert DecodingConfig(no_repeat_words=True).rules(WORDS) == Rules(repeatable=(4, 7))  # "a" and "with"


def test_another_search_leaves_behind_what_only_the_old_one_looks_at():
    beams = DecodingConfig(num_beams=5, num_return_sequences=3, length_penalty=0.7, max_length=9, bad_words=("car",))
    sampled = beams.changed(search="sample", top_p=0.9)
    assert sampled == DecodingConfig(search="sample", top_p=0.9, max_length=9, bad_words=("car",))
    assert sampled.changed(search="beam") == DecodingConfig(search="beam", max_length=9, bad_words=("car",))
    long = DecodingConfig(num_beams=5, length_penalty=1, max_length=9)
    assert long.changed(num_beams=1) == DecodingConfig(max_length=9)
    with pytest.raises(UsageError, match=r"length_penalty=1\.0 has no effect with search=greedy"):
        long.changed(num_beams=1, length_penalty=1)
    assert beams.changed(search="beam").num_return_sequences == 3
    with pytest.raises(UsageError, match='There is no decoding setting "num_beam"; did you mean "num_beams"'):
        beams.changed(num_beam=3)
