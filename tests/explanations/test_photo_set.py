"""The photos to explain, and explanations judged by what is known of them."""

from pathlib import Path

import torch
from PIL import Image

from showtell.captions import ExplainedCaption, ExplainedWord, Explanation, ModelExplanation
from showtell.explanations.photo_set import PhotoSet, PhotoToExplain, choose_photos
from showtell.grounding.judging import judge
from showtell.scores import ImageFacts


def explanation(image: str, *texts: str) -> Explanation:
    """One model's caption for each text."""
    by = []
    for text in texts:
        words = tuple(ExplainedWord(word, 0.5, ()) for word in [*text.split(), ""])
        caption = ExplainedCaption(text, words, -1.0, True, 0.5)
        by.append(ModelExplanation(f"model {len(by)}", (caption,), torch.zeros(1, 4)))
    return Explanation(image, (8, 8), Image.new("RGB", (8, 8)), tuple(by))


def test_the_worst_caption_of_the_first_model_comes_first_and_what_is_unknown_last():
    photos = [
        PhotoToExplain(Path("good.jpg"), ImageFacts(("a dog runs on the grass",))),
        PhotoToExplain(Path("unknown.jpg")),
        PhotoToExplain(Path("bad.jpg"), ImageFacts(("a red bus in a street",))),
    ]
    given = [
        explanation("good.jpg", "a dog runs on the grass", "a cat"),
        explanation("unknown.jpg", "a dog", "a dog"),
        explanation("bad.jpg", "two cats", "a red bus in a street"),
    ]
    judged = judge(given, PhotoSet(tuple(photos)))
    assert [one.image for one in judged] == ["bad.jpg", "good.jpg", "unknown.jpg"]
    bad, good, unknown = judged
    assert good.models[0].scores["rouge_l"] == bad.models[1].scores["rouge_l"] == 1
    assert bad.models[0].scores["rouge_l"] == 0
    assert unknown.models[0].scores == unknown.models[1].scores == {}
    assert good.references == ("a dog runs on the grass",)


def test_words_are_marked_that_name_what_is_neither_annotated_nor_said_by_people():
    categories = frozenset({"person", "hot dog", "dog", "cat", "fire hydrant"})  # of the dataset
    facts = ImageFacts(("a man with a dog",), frozenset({"person", "hot dog"}), categories=categories)
    unseen = ImageFacts(("a street",), categories=categories)
    known = PhotoSet((PhotoToExplain(Path("a.jpg"), facts), PhotoToExplain(Path("b.jpg"), unseen)))
    given = [explanation(image, "a woman a dog two cats and a fire hydrant") for image in ("a.jpg", "b.jpg")]
    marked = {
        one.image: [(word.word, word.hallucinated) for word in one.models[0].caption.words if word.hallucinated]
        for one in judge(given, known)
    }
    assert marked["a.jpg"] == [("cats", "cat"), ("fire", "fire hydrant"), ("hydrant", "fire hydrant")]
    assert not marked["b.jpg"]  # where nobody looked, nothing is said


def test_a_limited_dataset_still_knows_all_references(tiny_scenes):
    everything = choose_photos([str(tiny_scenes)], "train")
    some = choose_photos([str(tiny_scenes)], "train", limit=3)
    assert (len(some.photos), some.num_skipped) == (3, len(everything.photos) - 3)
    assert {photo.path for photo in some.photos} <= {photo.path for photo in everything.photos}
    assert some.references == everything.references
    assert all(photo.facts.scene is not None and photo.facts.objects is None for photo in some.photos)
