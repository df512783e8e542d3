from showtell.captions import Caption
from showtell.explanations.verdict import caption_warnings as warnings
from showtell.explanations.verdict import runs_in_circles
from showtell.features.small_cnn import SmallCnnConfig
from showtell.features.timm_grid import TimmConfig
from showtell.training.health import few_photos, harms, rates_of


def caption(text: str, finished: bool = True) -> Caption:
    return Caption(text, 0.0, finished, ())


def test_captions_that_are_the_same_or_without_end_are_named():
    same = {str(number): caption("a dog" if number < 6 else f"caption {number}") for number in range(10)}
    circling = {str(number): caption(f"{number} and and and and", finished=False) for number in range(10)}
    good = {str(number): caption(f"a dog with {number} bones") for number in range(10)}
    for captions, begins in (
        (same, '6 of 10 images have the same caption ("a dog"): the model does not look at the picture'),
        (circling, '10 of 10 captions repeat themselves without end (such as "0 and and and and")'),
    ):
        (plain,), (rewarded,) = warnings(captions), warnings(captions, rewarded=True)
        assert plain.startswith(begins) and "train longer" in plain
        assert "train longer" not in rewarded and "lower the learning rate, or begin from" in rewarded
    assert warnings(good) == warnings({}) == []
    for text, finished, expected in (
        ("a dog and a dog and a dog and a dog and", False, True),
        ("a red red red", False, True),
        ("a red red red", True, False),  # it ended by itself
        ("a dog runs on the green grass", False, False),
        ("", False, False),
    ):
        assert runs_in_circles(caption(text, finished)) is expected, text


def test_few_photos_are_told_with_what_to_do_instead():
    pretrained = TimmConfig(name="resnet50", trained=False)
    for images, encoder, begins in (
        (999, SmallCnnConfig(), "too few to learn from scratch (100 drawn shapes taught half of what 1,000 did"),
        (1000, SmallCnnConfig(), ""),
        (999, TimmConfig(name="resnet50", weights="random"), "too few to learn from scratch"),
        (299, pretrained, "few, even for a pretrained encoder: expect frequent captions"),
        (300, pretrained, ""),
    ):
        sentence = few_photos(images, encoder) or ""
        assert sentence.startswith(begins) and bool(sentence) == bool(begins)
        assert ("start from a checkpoint (training.start_from)" in sentence) == bool(begins)
        assert ("folder/sat_soft_pretrained" in sentence) == begins.startswith("too few")


NAMES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def ten(words: int = 5, **bad: int) -> dict[str, Caption]:
    """Ten captions of so many words, all different; the first few of them bad in a way: endings=2, cut=3."""
    captions = {}
    for number, name in enumerate(NAMES):
        text = " ".join([name, "dog", "runs", "far", "away", *NAMES[:9]][:words])
        text += " with" * (number < bad.get("endings", 0)) + " red red" * (number < bad.get("repeats", 0))
        captions[str(number)] = caption(text, number >= bad.get("cut", 0))
    return captions


def test_what_a_reward_does_to_captions_is_told():
    start = rates_of(ten())
    for worse, sentence in (
        (ten(words=8), "the captions grew from 5.0 to 8.0 words: the reward is being gamed"),
        (ten(words=3), "the captions shrank from 5.0 to 3.0 words: the reward is won by saying little"),
        (ten(endings=4), '0% of the captions at the start, 40% now are captions that end in a word like "a"'),
        (ten(repeats=3), "0% of the captions at the start, 30% now are captions that say words twice in a row"),
        (ten(cut=10), "0% of the captions at the start, 100% now are captions that are cut off before they"),
    ):
        (told,) = harms(worse, start)
        assert told.startswith(sentence)
    assert harms(ten(words=6, endings=2), start) == harms(ten(words=9), {}) == []
