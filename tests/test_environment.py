"""Environment variables: what is no address is named before a package of others meets it."""

from __future__ import annotations

import pytest

from showtell.cli import main
from showtell.environment import check_hub_endpoint
from showtell.errors import UsageError


@pytest.mark.parametrize(
    "address", [":::", "abc", "http://[", "http://a\nb", "http://a b", "http://a:99999999", "ftp://a"]
)
def test_an_address_of_the_hub_that_is_none(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(UsageError) as caught:
        check_hub_endpoint()
    assert str(caught.value) == (
        f'HF_ENDPOINT is "{address}", which is no address; set it to one such as https://huggingface.co, or unset it.'
    )


@pytest.mark.parametrize("address", ["", "https://huggingface.co", "http://localhost:8080/hub"])
def test_addresses_of_the_hub(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    check_hub_endpoint()
    monkeypatch.delenv("HF_ENDPOINT")
    check_hub_endpoint()


@pytest.mark.parametrize("arguments", [["data", "check", "hf:some/name"], ["caption", "best", "dog.jpg"]])
def test_every_verb_names_it(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://[")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith('showtell: HF_ENDPOINT is "http://[", which is no address; set it to one')
