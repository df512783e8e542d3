"""Every verb with a captioner of transformers: the same command lines as for a checkpoint of ours."""

from tests.cli.test_caption import as_json, loaded, run


def test_a_dataset_is_evaluated_and_calibrated_and_two_captioners_are_compared(
    capsys, tiny_blip, tiny_checkpoint, tiny_scenes
):
    asked = (tiny_scenes, "--split", "train", "--metrics", "bleu,cider")
    content = as_json(capsys, "evaluate", tiny_checkpoint, tiny_blip, *asked)
    assert [one["system"] for one in content["systems"]] == ["tiny", "tiny-blip"]
    assert all(one["scores"]["cider"] >= 0 for one in content["systems"])
    assert content["comparisons"][0]["first"] == "tiny"


def test_words_are_explained_side_by_side(capsys, tiny_blip, tiny_checkpoint, photos, tmp_path):
    page = tmp_path / "why.html"
    asked = ("explain", tiny_checkpoint, photos[0], "--against", tiny_blip, "--saliency", "pixels")
    assert run(capsys, *asked, "--out", page)[0] == 0
    assert page.read_text().count('<section class="model"') == 2
    status, out, _ = run(capsys, *asked)
    models = loaded(out)[0]["models"]
    assert status == 0 and len(models) == 2
    for model in models:
        (caption,) = model["captions"]
        rows, columns = model["grid"]
        for word in caption["words"]:
            assert 0 <= word["probability"] <= 1 and len(word["saliency"]) == rows * columns
            assert sum(other["probability"] for other in word["others"]) + word["probability"] < 1 + 1e-4


START = "training.start_from={blip} data.path={data} --out {out}"
ADAPT = f"train adapt/corrections {START}"
WRONG = [
    ("caption {blip} {photo} --stage 0", "cannot honour stage=0; it knows "),
    (f"train scenes/sat_soft {START}", "and the recipe has the model sat; leave the sections encoder and model out"),
    (f"{ADAPT} model.rank=0", "model.rank: input should be greater than or equal to 1, got 0"),
    (f"{ADAPT} objective.label_smoothing=0.1", "learns by name=cross_entropy alone; leave its other keys out"),
    (f"{ADAPT} data.features=store", "a captioner of transformers looks at photos itself; leave it out"),
    (f"{ADAPT} model.hidden_size=3", "model.hidden_size: no key of transformers, but of "),
    ("export {ours} {out}", "has a model of showtell (sat), which transformers does not have; "),
]


def test_what_it_cannot_do_is_a_sentence(capsys, tiny_blip, tiny_checkpoint, tiny_scenes, photos, tmp_path):
    out = tmp_path / "run"
    names = {"blip": tiny_blip, "ours": tiny_checkpoint, "photo": photos[0], "data": tiny_scenes, "out": out}
    for command, sentence in WRONG:
        status, printed, err = run(capsys, *(word.format(**names) for word in command.split()))
        assert (status, printed) == (2, ""), command
        assert sentence in err and "Traceback" not in err, command
        assert not out.exists()
