from showtell.datasets.published import PUBLISHED, compare_with_published


def test_karpathys_own_counts_raise_nothing() -> None:
    for name in PUBLISHED:
        restval = 30_504 if name == "coco" else 0
        assert compare_with_published(name, PUBLISHED[name].splits, restval) == []


def test_the_splits_add_up_to_the_whole() -> None:
    for published in PUBLISHED.values():
        assert sum(published.splits.values()) == published.whole[0]


def test_a_claim_that_is_not_kept_says_which_and_by_how_much() -> None:
    assert compare_with_published("flickr30k", {"train": 29_783, "val": 1_000, "test": 1_000}) == [
        "The file says that this is Flickr30k in Karpathy's splits, but train has 29,783 images, not 29,000; "
        "val has 1,000 images, not 1,014: scores are not comparable with published ones."
    ]
    assert compare_with_published("mine", {"train": 29_783, "val": 1_000, "test": 1_000}) == []
    (missing,) = compare_with_published("flickr8k", {"train": 6_000, "test": 1_000})
    assert "val has 0 images, not 1,000" in missing


def test_train2014_alone_is_not_karpathys_train() -> None:
    expected = (
        "train has 82,783 images, which is COCO's train2014 alone: Karpathy's train has 30,504 images of val2014 more "
        "(restval), so scores are not comparable with those of models that learned from his; dataset_coco.json has his "
        "splits (showtell data get coco)."
    )
    assert compare_with_published("", {"train": 82_783, "val": 40_504}) == [expected]
    claim, alone = compare_with_published("coco", {"train": 82_783, "val": 5_000, "test": 5_000})
    assert "train has 82,783 images, not 113,287" in claim and alone == expected


def test_a_whole_set_scored_as_test() -> None:
    for images, title in [(8_091, "Flickr8k"), (31_783, "Flickr30k"), (123_287, "COCO")]:
        (sentence,) = compare_with_published("", {"test": images})
        assert sentence.startswith(f"test has {images:,} images, which is all of {title}: Karpathy's test is ")
        assert compare_with_published("", {"test": images - 1}) == []
