from __future__ import annotations

import argparse
import hashlib
import http.server
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from showtell.errors import WeightsError
from showtell.features.weights import from_hub, from_url, load_weights, read_weights
from tests.features.conftest import NOWHERE


def small_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(OrderedDict(stem=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4), tail=nn.Conv2d(4, 2, 1)))


TENSORS = small_net(1).state_dict()


def same(tensors: dict[str, torch.Tensor]) -> bool:
    return tensors.keys() == TENSORS.keys() and all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize(
    "content",
    [
        TENSORS,
        {"state_dict": TENSORS, "epoch": 3, "args": argparse.Namespace(lr=0.1)},
        {"model": {"state_dict": {f"module.{name}": value for name, value in TENSORS.items()}}},
        {f"module.{name}": value for name, value in TENSORS.items()},
        {**TENSORS, "step": 17},
    ],
    ids=["plain", "of a training script", "nested twice and wrapped", "wrapped", "with a number"],
)
@pytest.mark.parametrize("suffix", ["pth", "pt", "bin"])
def test_what_torch_saved_is_read(tmp_path, content, suffix):
    file = tmp_path / f"weights.{suffix}"
    torch.save(content, file)
    assert same(read_weights(file))


def test_the_format_before_torch_1_6_is_read(tmp_path):
    torch.save(TENSORS, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert same(read_weights(tmp_path / "old.pth"))


def test_safetensors_are_read(tmp_path):
    save_file(dict(TENSORS), tmp_path / "weights.safetensors")
    assert same(read_weights(tmp_path / "weights.safetensors"))


def test_a_name_that_only_some_tensors_begin_with_is_no_wrapper(tmp_path):
    torch.save({"module.a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "w.pth")
    assert read_weights(tmp_path / "w.pth").keys() == {"module.a", "b"}


class Trap:
    """A pickle that would write a file when it is opened."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (os.mkdir, (str(self.target),))


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_file_is_not_run(tmp_path, zipped):
    torch.save(
        {"state_dict": TENSORS, "x": Trap(tmp_path / "run")}, tmp_path / "w.pth", _use_new_zipfile_serialization=zipped
    )
    assert same(read_weights(tmp_path / "w.pth"))
    assert not (tmp_path / "run").exists()


def test_objects_beside_the_weights_are_not_in_the_way(tmp_path):
    torch.save({"state_dict": TENSORS, "share": Fraction(1, 2), "optimiser": torch.optim.SGD}, tmp_path / "w.pth")
    assert same(read_weights(tmp_path / "w.pth"))


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: {"model": net}, nn.DataParallel])
def test_the_weights_of_a_module_that_was_saved_whole_are_read(tmp_path, zipped, wrap):
    torch.save(wrap(small_net(1)), tmp_path / "w.pth", _use_new_zipfile_serialization=zipped)
    assert same(read_weights(tmp_path / "w.pth"))


class Settings(dict[str, object]):
    """A dict of another library."""


def test_a_kind_of_dict_is_a_dict(tmp_path):
    torch.save(Settings(state_dict=Settings(TENSORS)), tmp_path / "w.pth")
    assert same(read_weights(tmp_path / "w.pth"))


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_pickled_arrays_are_read(tmp_path, protocol):
    """As the weights of detectron2 are; big-endian ones and those of Fortran order, too."""
    arrays = {name: tensor.numpy() for name, tensor in TENSORS.items()}
    arrays["stem.weight"] = np.asfortranarray(arrays["stem.weight"])
    arrays["tail.weight"] = arrays["tail.weight"].astype(">f4")
    content = {"model": arrays, "__author__": "Caffe", "matching_heuristics": True}
    (tmp_path / "w.pkl").write_bytes(pickle.dumps(content, protocol))
    assert same(read_weights(tmp_path / "w.pkl"))


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"no weights at all", "half", "zeros"])
def test_damaged_files_are_named(tmp_path, name, content):
    if isinstance(content, str):
        torch.save(TENSORS, tmp_path / name) if name == "w.pth" else save_file(dict(TENSORS), tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        content = whole[: len(whole) // 2] if content == "half" else bytes(len(whole))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=rf"{name} is damaged, or no "):
        read_weights(tmp_path / name)


def test_missing_and_empty_files_are_named(tmp_path):
    with pytest.raises(WeightsError, match=r"none\.pth: this does not exist; give a \.safetensors"):
        read_weights(tmp_path / "none.pth")
    with pytest.raises(WeightsError, match="this is a folder, not a file of weights"):
        read_weights(tmp_path)
    for content in ({"epoch": 3}, [torch.ones(1)], torch.ones(2)):
        torch.save(content, tmp_path / "w.pth")
        with pytest.raises(WeightsError, match="there are no named tensors in it"):
            read_weights(tmp_path / "w.pth")


def load(module: nn.Module, tensors: dict[str, torch.Tensor], unused: tuple[str, ...] = ()) -> None:
    load_weights(module, tensors, source="file.pth", name="smallnet", unused=unused)


def test_weights_that_fit_are_all_taken():
    module = small_net()
    load(module, TENSORS)
    assert same(module.state_dict())


def test_heads_and_counts_of_batches_are_of_no_account():
    module = small_net()
    tensors = {name: value for name, value in TENSORS.items() if name != "norm.num_batches_tracked"}
    load(module, {**tensors, "fc.weight": torch.ones(3), "mask_token": torch.ones(1)}, ("fc.", "mask_token"))
    assert same(module.state_dict())


def test_weights_in_half_precision_are_taken_as_the_module_has_them():
    module = small_net()
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
        r"1 are unknown: tails\.weight; "
        r"1 have another shape: stem\.bias is \(5,\) and should be \(4,\)\.$"
    )
    with pytest.raises(WeightsError, match=sentence):
        load(module, wrong)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_what_is_left_out_must_be_named_whole_or_end_in_a_dot():
    with pytest.raises(WeightsError, match=r"1 are unknown: fc2\.weight"):
        load(small_net(), {**TENSORS, "fc2.weight": torch.ones(1)}, ("fc",))


# ---- by name


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_the_cache_of_the_hub_needs_no_network(hub, file):
    kept = hub.keep("timm/some_net.v1", file, TENSORS)
    assert from_hub("timm/some_net.v1") == kept
    assert same(read_weights(kept))


def test_without_a_network_the_sentence_says_what_to_fetch_and_where_to_put_it(hub):
    begin = time.perf_counter()
    with pytest.raises(WeightsError) as error:
        from_hub("timm/some_net.v1")
    assert time.perf_counter() - begin < 5
    text = str(error.value)
    assert text.startswith("The weights timm/some_net.v1 are not in the cache and cannot be fetched (127.0.0.1: ")
    assert text.endswith(
        "where there is a network: hf download timm/some_net.v1 --local-dir FOLDER; then give "
        "encoder.weights=FOLDER/model.safetensors."
    )


def test_a_host_that_never_answers_is_given_up_within_a_second(hub, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", NOWHERE.replace(":1/", f":{port}/")
        )
        begin = time.perf_counter()
        with pytest.raises(WeightsError, match=r"127\.0\.0\.1(: timed out| did not answer within 0\.8 s)"):
            from_hub("timm/some_net.v1")
        assert time.perf_counter() - begin < 5  # a busy machine adds to CONNECT_TIMEOUT; the hub itself takes 46 s


def test_offline_mode_is_said(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(WeightsError, match=r"cannot be fetched \(HF_HUB_OFFLINE is set\)"):
        from_hub("timm/some_net.v1")


class Server(http.server.ThreadingHTTPServer):
    """A host that gives away what is in `files`, with the headers of the hub."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self, body: bool = False) -> None:
                content = server.files.get(self.path)
                if content is None:
                    self.send_response(404)
                    self.send_header("X-Error-Code", "EntryNotFound")
                    self.send_header("X-Repo-Commit", "0" * 40)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(200)
                self.send_header("X-Repo-Commit", "0" * 40)
                self.send_header("ETag", hashlib.sha256(content).hexdigest())
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if body:
                    self.wfile.write(content)

            def do_GET(self) -> None:
                self.do_HEAD(body=True)

            def log_message(self, *arguments: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def server():
    host = Server()
    thread = threading.Thread(target=host.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield host
    host.shutdown()
    thread.join()
    host.server_close()


def saved(folder: Path) -> bytes:
    torch.save(TENSORS, folder / "saved.pth")
    return (folder / "saved.pth").read_bytes()


def test_weights_at_an_address_are_fetched_once_and_checked(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    content = saved(tmp_path)
    name = f"net-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    server.files[f"/models/{name}"] = content
    file = from_url(f"{server.address}/models/{name}")
    assert file == tmp_path / "home" / "hub" / "checkpoints" / name
    assert same(read_weights(file))
    server.files.clear()
    assert from_url(f"{server.address}/models/{name}") == file


def test_a_download_that_is_not_the_file_is_refused(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    server.files["/net-00000000.pth"] = saved(tmp_path)
    for name, why in (("net-00000000.pth", "invalid hash value"), ("other.pth", "HTTP Error 404")):
        sentence = rf"The weights {name} are not in the cache and cannot be fetched \({why}.*put it into .*home"
        with pytest.raises(WeightsError, match=sentence):
            from_url(f"{server.address}/{name}")
    assert not list((tmp_path / "home").rglob("*.pth"))


FETCH = """
import sys
from showtell.errors import WeightsError
from showtell.features.weights import from_hub
for name in sys.argv[1:]:
    try:
        print(from_hub(name))
    except WeightsError as error:
        print(error)
"""


def test_the_hub_is_asked_when_it_answers(server, tmp_path):
    """In a process of its own, because huggingface_hub reads its address when it is loaded."""
    server.files["/timm/net/resolve/main/pytorch_model.bin"] = saved(tmp_path)
    server.files["/timm/safe/resolve/old/model.safetensors"] = b"x"
    environment = {**os.environ, "HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", FETCH, "timm/net", "timm/safe@old", "timm/none"]
    lines = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert same(read_weights(Path(lines[0])))
    assert Path(lines[1]).read_bytes() == b"x"
    assert "(the repository has none of model.safetensors, pytorch_model.bin)" in lines[2]


def test_weights_that_are_nested_in_themselves_are_refused(tmp_path):
    content = {"model": {"state_dict": {"model": dict(TENSORS)}}}
    torch.save(content, tmp_path / "deep.pt")
    assert same(read_weights(tmp_path / "deep.pt"))
    itself: dict[str, object] = {}
    itself["state_dict"] = {"model": itself}
    nested: dict[str, object] = dict(TENSORS)
    for _ in range(400):
        nested = {"model": nested}
    for number, endless in enumerate((itself, nested)):
        torch.save(endless, tmp_path / f"{number}.pt")
        with pytest.raises(WeightsError, match=r"there are no named tensors in it"):
            read_weights(tmp_path / f"{number}.pt")
