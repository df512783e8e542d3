"""Mistakes at every verb, as people make them: one line that says what to do, status 2, and nothing touched."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bad_input.conftest import Captured, everything, run

TRAIN = "train r.yaml --out new"
CAPTION = "caption run/best scenes/images/000001.png"
EXPLAIN = "explain run/best scenes/images/000001.png"
EXPLAIN_ALL = "explain run/best scenes/images"
SCORE = "score pred.json --references ref.json --metrics bleu"
FEATURES = "features scenes --encoder small_cnn --out new"

# id, command line, what the sentence says, and what is made beforehand
ROWS: list[tuple[str, str, str, Callable[[], Any] | None]] = [
    # --- wrong use
    ("verb", "capton x", "No such command 'capton'. Did you mean 'caption'? See showtell --help.", None),
    ("verb of data", "data chek x", "No such command 'chek'. Did you mean 'check'? See showtell data --help.", None),
    ("key", "train r.yaml --epochs 3", "--epochs; keys are given without dashes, as KEY=VALUE. See showtell", None),
    ("argument", "train", "Missing argument 'RECIPE': YAML file, name of a recipe", None),
    ("lost photos", "explain run/best lost.jpg --out a.html", "There is no photo to explain: lost.jpg", None),
    # --- names of files
    ("no UTF-8", "data check caf\udce9", r"There is no file or folder caf\udce9.", None),
    # --- data
    ("get what", "data get", "Which dataset? Known: flickr8k, flickr30k, coco; showtell data get --list describ", None),
    ("get typo", "data get flickr9k", 'There is no dataset "flickr9k" to download: did you mean "flickr8k"?', None),
    # --- features
    ("store on a dataset", "features scenes --encoder small_cnn --out scenes", "scenes holds other files (", None),
    ("no encoder", "features scenes --out s", "Name the encoder with --encoder NAME, or a recipe that has one", None),
    ("no dataset", "features --encoder small_cnn --out s", "DATASET is missing: showtell features DATASET --enc", None),
    ("from alone", "features --from x", "--from converts what is on disk: it goes with --out", None),
    ("from more", "features d --from x --out s", "on disk: it goes with --out, --source and --dtype", None),
    ("precision", f"{FEATURES} --dtype int8", "'int8' is not one of 'fp16', 'fp32'", None),
    # --- train
    ("no data of flickr8k", "train flickr8k/nic_lstm", "fetch it with `showtell data get flickr8k`, or set d", None),
    ("recipe, key twice", TRAIN, 'the key "training" is there twice, at line',
     lambda: Path("r.yaml").write_text(Path("r.yaml").read_text() + "training: {epochs: 9}\n")),
    ("recipe is a folder", "train scenes --out new", "Cannot read scenes: Is a directory.", None),
    ("no vocabulary", f"{TRAIN} vocabulary.min_count=9999", "No word of the captions occurs 9999 times", None),
    ("data moved", "train r.yaml data.path=gone --out a/b/c", "gone, the data.path of the recipe: set data.path", None),
    # --- caption
    ("out is a folder", f"{CAPTION} --out scenes", "scenes is a folder; --out needs the name of a file.", None),
    ("over the photo", f"{CAPTION} --format text --out scenes/images/000001.png", "would replace what is read", None),
    ("weights in no home", f"{FEATURES} weights=~nobody-here/w.pt", "~nobody-here/w.pt", None),
    ("accept", f"{CAPTION} --accept-above 0.5 --format json", "with corrections, sidecar, xmp, not with json", None),
    *(("sidecar", f"{CAPTION} {form} --out a.txt", "Sidecars stand beside the photos; leave --out out.", None)
      for form in ("--format sidecar", "--xmp")),
    ("keywords", f"{CAPTION} --keywords --format csv", "--keywords goes with --xmp; JSON and CSV have keywords", None),
    ("forms", f"{CAPTION} --xmp --format csv", "--xmp and --format each choose a form; give one of them.", None),
    *(("a table", f"{CAPTION} --format corrections{out}", "writes a table; name it with --out FILE.csv.", None)
      for out in ("", " --out a.txt")),
    *(("suffix", f"{CAPTION} --out {name}", f"of --out {name} selects no format: {hint}Known: .csv, .json, .json", None)
      for name, hint in (("a", ""), ("a.html", ""), ("captions.cvs", 'did you mean ".csv"? '))),
    ("table elsewhere", "caption run/best scenes/images --format corrections --out other/mine.csv",
     "Not all photos lie in the folder of other/mine.csv, and a dataset names its images from its own folder", None),
    ("cold", f"{CAPTION} --search sample --temperature 0", "Input should be greater than or equal to 0.000001", None),
    # --- explain
    ("a page typo", f"{EXPLAIN} --out why.htm", 'selects no format: did you mean ".html"?', None),
    ("over the explained photo", f"{EXPLAIN} --out scenes/images/000001.png", "would replace what is read from", None),
    ("over the folder", f"{EXPLAIN_ALL} --out scenes/images", "would replace what is read from", None),
    ("over a JSON", f"{EXPLAIN} --out ref.json", "ref.json, which showtell has not written; choose another name", None),
    ("one figure", f"{EXPLAIN_ALL} --out many.png", "many.png is one file and there are 20 photos, each of", None),
    ("folder without a photo", "explain run/best e", "The folder e holds no image (", lambda: Path("e").mkdir()),
    ("saliency typo", f"{EXPLAIN} --saliency up", "Invalid value for '--saliency': 'up' is not one of", None),
    ("no words to follow", f"{EXPLAIN} --caption ' '", 'The caption " " has no words to follow; give some, su', None),
    ("words and a search", f"{EXPLAIN} --caption 'a dog' --num-beams 3", "so there is no search that num_beams", None),
    # --- score
    ("over predictions", f"{SCORE} --per-image pred.json", "--per-image pred.json would replace what is read", None),
    ("frequencies of none", f"{SCORE} --document-frequency d.json", "has no captions to count",
     lambda: Path("d.json").write_text("{}")),
    # --- evaluate
    ("no split", "evaluate run/best scenes --split tset", 'did you mean "test"?', None),
    ("one file for two", "evaluate run/best run/best scenes --out r.json", "--out is for one captioner, and sev", None),
    # --- quickstart and serve
    ("quickstart on a file", "quickstart --out r.yaml --images 20", "r.yaml", None),
    ("token", "serve nowhere --token short", "token: String should have at least 16 characters.", None),
    ("open to all", "serve nowhere --host 0.0.0.0", "give a token of 16 characters or more, or open=true", None),
    ("no such address", "serve nowhere --host 192.0.2.1 --open", "7860 of 192.0.2.1: Cannot assign requested ad", None),
]  # fmt: skip


def test_a_mistake_is_one_line(made_once: Path, world: Path, capsys: Captured) -> None:
    failures = []
    for name, command, sentence, make in ROWS:
        if make is not None:
            make()
        before = everything(world)
        status, out, err = run(capsys, command)
        lines = err.rstrip("\n").split("\n")
        first, *problems = [line for line in lines if " words, learned from " not in line]  # what a captioner knows
        is_told = sentence in err and first.startswith("showtell: ") and bool(problems) == first.endswith(":")
        is_listed = all(problem.startswith("  ") for problem in problems) and err.endswith("\n")
        if status != 2 or out or not is_told or not is_listed or everything(world) != before:
            failures.append((name, status, err))
        if make is not None:
            shutil.rmtree(world)
            shutil.copytree(made_once, world)
            os.chdir(world)
    assert not failures
