import json
from pathlib import Path

from showtell.datasets import download
from showtell.datasets.download import SOURCES, Source
from tests.cli.test_caption import Captured, run


def test_the_list_names_every_address_licence_and_checksum(capsys: Captured) -> None:
    status, out, err = run(capsys, "data", "get", "--list")
    assert (status, err) == (0, "")
    for name, source in SOURCES.items():
        assert f"{name}: {source.title}" in out and source.licence in out
        for archive in source.archives:
            assert all(url in out for url in archive.urls) and str(archive.digest) in out
    status, out, _ = run(capsys, "data", "get", "coco", "--list", "--json")
    assert [archive["target"] for archive in json.loads(out)["coco"]["archives"]] == [
        "dataset_coco.json", "train2014", "val2014",
    ]  # fmt: skip


def test_the_licence_is_shown_before_anything_is_fetched(tmp_path, monkeypatch, capsys):
    def download_dataset(source: Source, folder: Path, only: str | None, _: object) -> list[str]:
        assert source.licence in capsys.readouterr().err
        assert (folder, only) == (tmp_path / "f", "captions")
        return ["dataset_flickr30k.json"]

    monkeypatch.setattr(download, "download_dataset", download_dataset)
    status, out, err = run(capsys, "data", "get", "flickr30k", "--to", str(tmp_path / "f"), "--only", "captions")
    assert (status, err) == (0, "")
    assert out == f"{tmp_path / 'f'}\n\nNext: showtell data check {tmp_path / 'f'}\n"
