"""What cannot be opened as a captioner of transformers is refused in a sentence, and nothing of it is run."""

import json
import math
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from showtell.captioners import Captioner
from showtell.errors import CheckpointError, DataError, MissingDependencyError
from tests.captioners.tiny_transformers import build, photo

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tiny_blip: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_blip, tmp_path / "blip"))


def refused(folder: Path, sentence: str) -> None:
    with pytest.raises((CheckpointError, DataError), match=sentence) as caught:
        Captioner.from_pretrained(folder, "cpu")
    assert "\n" not in str(caught.value)


def edit(file: str, **changes: Any) -> Callable[[Path], object]:
    """Change settings in a JSON file."""

    def apply(folder: Path) -> None:
        content = json.loads((folder / file).read_text()) if (folder / file).is_file() else {}
        (folder / file).write_text(json.dumps({**content, **changes}))

    return apply


def edit_text(**changes: Any) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        text = json.loads((folder / "config.json").read_text())["text_config"]
        edit("config.json", text_config={**text, **changes})(folder)

    return apply


def put(file: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / file).write_text(content)


def weights(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path], object]:
    def apply(folder: Path) -> None:
        file = folder / "model.safetensors"
        save_file(change(load_file(file)), file, {"format": "pt"})

    return apply


def pickled(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def vision_alone(folder: Path) -> None:
    weights(lambda tensors: {name: one for name, one in tensors.items() if name.startswith("vision_model")})(folder)
    edit("config.json", architectures=["BlipForQuestionAnswering"])(folder)


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    *((edit("config.json", model_type=kind), f'has a model of type "{kind}", which does not caption photos in')
      for kind in ("vit", "blip9000")),
    (edit("config.json", vision_config={"attn_implementation": "someone/attention"}), "code for attention .someone/at"),
    (edit_text(num_hidden_layers=10**9), "num_hidden_layers is 1000000000; models have at most 1000 la"),
    (edit_text(hidden_size="many"), rf"cannot be opened with transformers {hf.__version__} \(\w+: "),
    (edit_text(intermediate_size=64), "a file is damaged, was not fetched to its end, or is of another model; get the"),
    *((lambda folder, name=name: (folder / name).unlink(), sentence) for name, sentence in (
        ("model.safetensors", r"is not whole: .* lacks model.safetensors; get what is missing"),
        ("processor_config.json", r"lacks processor_config.json or preprocessor_config.json"),
        ("tokenizer.json", r"lacks tokenizer.json \(or another file of its tokenizer\)"),
        ("config.json", r"is no checkpoint: it has no config.json"),
    )),
    (put("model.safetensors", "version https://git-lfs.github.com/spec/v1\n"), "damaged, was not fetched to its end"),
    (put("tokenizer.json", "{}"), r"blip cannot be opened with transformers"),
    (put("generation_config.json", '{"num_beams": "x"'), "generation_config.json is not valid JSON"),
    (pickled, r"has its weights as pickles alone \(pytorch_model.bin\), which can run code when they are opened"),
    (vision_alone, r"not those of a captioner: BlipForConditionalGeneration needs \d+ more tensors"),
]  # fmt: skip


def test_what_cannot_be_opened_is_a_sentence(tiny_blip: Path, tmp_path: Path) -> None:
    for number, (change, sentence) in enumerate(REFUSED):
        folder = Path(shutil.copytree(tiny_blip, tmp_path / str(number) / "blip"))
        change(folder)
        refused(folder, sentence)


def test_code_of_a_repository_is_never_run(tiny_blip: Path, tmp_path: Path) -> None:
    """Whatever file names it: `AutoProcessor` of transformers 5.23 runs it even with trust_remote_code=False."""
    code = {"AutoConfig": "mine.Config", "AutoImageProcessor": "mine.P", "AutoProcessor": "mine.P"}
    escaped = json.dumps({"image_processor_type": "E", "auto_map": code}).replace("auto_map", "a\\u0075to_map")
    witness = tmp_path / "ran"
    changes = (
        ("config.json", edit("config.json", auto_map=code)),
        ("config.json", edit("config.json", auto_map=code, model_type="mine")),
        ("preprocessor_config.json", edit("preprocessor_config.json", image_processor_type="E", auto_map=code)),
        ("preprocessor_config.json", put("preprocessor_config.json", escaped)),
        ("processor_config.json", edit("processor_config.json", image_processor={"auto_map": code})),
        ("tokenizer_config.json", edit("tokenizer_config.json", auto_map={"AutoTokenizer": ["mine.T", None]})),
        ("part.json", lambda folder: (folder / "a").mkdir() or edit("a/part.json", auto_map=code)(folder)),
    )
    for number, (file, change) in enumerate(changes):
        folder = Path(shutil.copytree(tiny_blip, tmp_path / str(number) / "blip"))
        (folder / "mine.py").write_text(f"open({str(witness)!r}, 'w')\nclass Config: pass\nclass P: pass\n")
        change(folder)
        source = rf"Python code from its repository \(auto_map in {file}\)"
        refused(folder, f"needs {source}, and such code is never run here")
        assert not witness.exists()


def test_weights_that_overflow_are_a_sentence_at_the_first_caption(folder: Path) -> None:
    bias = "vision_model.embeddings.patch_embedding.bias"
    for value in (3e38, math.nan):
        weights(lambda tensors, value=value: {**tensors, bias: torch.full_like(tensors[bias], value)})(folder)
        captioner = Captioner.from_pretrained(folder, "cpu")
        with pytest.raises(CheckpointError, match="gives nan as a log-probability: its weights are damaged or over"):
            captioner.caption(photo(0))
        with pytest.raises(CheckpointError, match="gives nan as a log-probability"):
            captioner.logprobs(photo(0), "a dog")


def test_generation_settings_of_other_searches(tmp_path: Path) -> None:
    other = {"penalty_alpha": 0.6, "top_k": 4, "dola_layers": "high", "stop_strings": ["x"], "do_sample": True}
    folder = build("git", tmp_path / "git")
    plain = Captioner.from_pretrained(folder, "cpu").caption([photo(0), photo(1)], max_length=5)
    edit("generation_config.json", **other)(folder)
    captioner = Captioner.from_pretrained(folder, "cpu")
    assert captioner.generator.part.generation_config.do_sample
    assert captioner.caption([photo(0), photo(1)], max_length=5) == plain


def test_an_end_that_only_the_tokenizer_names(tmp_path: Path) -> None:
    folder = build("git", tmp_path / "git")
    expected = Captioner.from_pretrained(folder, "cpu").caption([photo(0), photo(1)])
    for file in ("config.json", "generation_config.json"):
        edit(file, eos_token_id=None)(folder)
    captions = Captioner.from_pretrained(folder, "cpu").caption([photo(0), photo(1)])
    assert [one[0].text for one in captions] == [one[0].text for one in expected]
    edit("tokenizer_config.json", sep_token=None)(folder)
    refused(folder, r"names no token that ends a caption; set eos_token_id in its generation_config.json")


def test_a_chat_model_without_a_template(tmp_path: Path) -> None:
    folder = build("llava", tmp_path / "llava")
    (folder / "chat_template.jinja").unlink()
    refused(folder, r'of type "llava" without a chat template, and it is not known here how to ask it')


def test_shards(folder: Path) -> None:
    expected = Captioner.from_pretrained(folder, "cpu").caption(photo(0), max_length=5)
    tensors = load_file(folder / "model.safetensors")
    weight_map = {name: f"{'ab'[number % 2]}.safetensors" for number, name in enumerate(sorted(tensors))}
    for file in ("a.safetensors", "b.safetensors"):
        own = {name: tensor for name, tensor in tensors.items() if weight_map[name] == file}
        save_file(own, folder / file, {"format": "pt"})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "model.safetensors").unlink()
    (caption,) = Captioner.from_pretrained(folder, "cpu").caption(photo(0), max_length=5)
    assert caption.text == expected[0].text
    assert caption.logprob == pytest.approx(expected[0].logprob, abs=1e-5)
    (folder / "b.safetensors").unlink()
    refused(folder, r"lacks b.safetensors")
    index.write_text(json.dumps({"weight_map": {"x": "../../b.safetensors"}}))
    refused(folder, r"index.json is damaged: it should name files of safetensors beside it")


def test_a_pooler_may_be_missing(tmp_path: Path) -> None:
    """It is part of no caption, and repositories of ViT-GPT2 lack it."""
    folder = build("vision-encoder-decoder", tmp_path / "model")
    expected = Captioner.from_pretrained(folder, "cpu").caption(photo(0), max_length=5)
    assert any(".pooler." in name for name in load_file(folder / "model.safetensors"))
    weights(lambda tensors: {name: one for name, one in tensors.items() if ".pooler." not in name})(folder)
    assert Captioner.from_pretrained(folder, "cpu").caption(photo(0), max_length=5)[0].text == expected[0].text


def test_a_processor_of_another_model_is_a_sentence_at_the_first_photo(folder: Path) -> None:
    text = (folder / "processor_config.json").read_text()
    assert '"height": 32' in text
    put("processor_config.json", text.replace('"height": 32', '"height": 40'))(folder)
    captioner = Captioner.from_pretrained(folder, "cpu")
    with pytest.raises(CheckpointError, match=r"blip cannot caption with transformers .* \(\w+: .*; check its prompt"):
        captioner.caption(photo(0, 50, 40))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def put_into_cache(cache: Path, tiny_blip: Path) -> Path:
    repository = cache / "models--someone--captioner"
    for name in ("main", "refs/pr/7"):
        file = repository / "refs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(COMMIT)
    return Path(shutil.copytree(tiny_blip, repository / "snapshots" / COMMIT))


def test_a_repository_in_the_local_cache(cache: Path, tiny_blip: Path) -> None:
    put_into_cache(cache, tiny_blip)
    for revision in ("", f"@{COMMIT}", "@main", "@refs/pr/7"):
        name = f"someone/captioner{revision}"
        about = Captioner.from_pretrained(name, "cpu").about
        assert (about.name, about.source, about.revision) == ("someone/captioner", name, COMMIT)


def test_without_a_network_the_files_are_named(cache: Path, tiny_blip: Path) -> None:
    def sentence(name: str) -> str:
        with pytest.raises(CheckpointError) as caught:
            Captioner.from_pretrained(name, "cpu")
        return str(caught.value)

    assert sentence("someone/captioner@v2") == (
        "someone/captioner@v2 is no folder here, is not in the local cache, and the Hugging Face hub cannot be reached "
        "(HF_HUB_OFFLINE is set).\n  Where there is a network: hf download someone/captioner --revision v2 --local-dir "
        "FOLDER; then give FOLDER in its place."
    )
    snapshot = put_into_cache(cache, tiny_blip)
    (snapshot / "tokenizer.json").unlink()
    lacks = "lacks tokenizer.json (or another file of its tokenizer) in the local cache, and the"
    assert lacks in sentence("someone/captioner")
    (snapshot / "model.safetensors").unlink()
    assert "lacks model.safetensors, tokenizer.json" in sentence("someone/captioner")
    # A folder that has the files works.
    assert Captioner.from_pretrained(tiny_blip, "cpu").about.revision is None


def test_nothing_is_sent_while_a_folder_is_used(folder, monkeypatch, capfd):
    def no_network(*args: Any) -> None:
        raise AssertionError(f"a connection to {args}")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    captioner = Captioner.from_pretrained(folder, "cpu")
    captioner.caption([photo(0), photo(1)], max_length=5)
    captioner.explain(photo(0), max_length=5, saliency="pixels")
    assert capfd.readouterr() == ("", "")  # neither progress bars nor advice


def test_it_says_how_transformers_is_installed(tiny_blip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    sentence = r'is a model of transformers, which is not installed: pip install "peft>=0\.17" "transformers>=5\.19"\.$'
    with pytest.raises(MissingDependencyError, match=sentence):
        Captioner.from_pretrained(tiny_blip)
