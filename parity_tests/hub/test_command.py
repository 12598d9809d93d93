"""`python -m transformer_hub`: inspect, import, export, and what a mistake is answered with."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from parity_tests.hub.peak_memory import HIGHEST, LINUX
from parity_tests.hub.small_llama import LLAMA, MODEL, assert_same_arrays, stored_arrays
from parity_tests.processes import run, run_python
from transformer_hub import FAMILIES, from_pretrained, open_checkpoint
from transformer_hub.__main__ import main
from transformer_hub.formats import safetensors_files
from transformer_spec.parameters import count


class TestCommands:
    def test_inspect(self, good, capsys):
        assert main(["inspect", str(good), "--tensors"]) == 0
        shown = capsys.readouterr().out
        assert "family      llama" in shown
        assert f"parameters  {count(LLAMA):,}" in shown
        assert "model.layers.2.mlp.down_proj.weight" in shown
        model = re.findall(r"model +({.*?\n})", shown, re.DOTALL)
        assert [json.loads(text) for text in model] == [LLAMA.to_dict()]

    def test_there_and_back(self, good, tmp_path, capsys):
        ours, back = tmp_path / "ours", tmp_path / "back"
        assert main(["import", str(good), str(ours)]) == 0
        assert_same_arrays(load_file(ours / "model.safetensors"))
        assert open_checkpoint(ours).config == LLAMA
        assert main(["inspect", str(ours)]) == 0
        assert main(["export", str(ours), str(back)]) == 0
        assert_same_arrays(load_file(back / "model.safetensors"), stored_arrays())
        assert json.loads((back / "config.json").read_text()) == json.loads(
            (good / "config.json").read_text()
        )
        assert capsys.readouterr().err == ""

    def test_import_in_another_dtype(self, good, tmp_path):
        assert main(["import", str(good), str(tmp_path / "ours"), "--dtype", "float32"]) == 0
        found = load_file(tmp_path / "ours" / "model.safetensors")
        assert {array.dtype.name for array in found.values()} == {"float32"}

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ("inspect {tmp}/nothing", "nothing: does not exist, and nothing is downloaded"),
            ("import {good} {good}", "already holds files; give a new or empty directory"),
            ("import {good} {good}/config.json", "config.json: File exists"),
            ("export {tmp}/run {tmp}/out", "--family: .*/run is a run; give one of gpt2"),
            ("inspect {tmp}/odd", "family: 7 is not usable; it must be str or none"),
            ("export {tmp}/run {tmp}/out --family bert", "cannot be written as bert"),
            ("export {good} {tmp}/out --family lama", "no 'lama'; did you mean llama?"),
            ("import {good}", "the following arguments are required: OUT"),
            ("inspct {good}", "no 'inspct'; did you mean inspect?"),
            ("export {good} out --famly bert", "--famly: no such flag; did you mean --family?"),
            ("inspect {good} more", "more: one argument too many"),
            ("import {tmp}/run {tmp}/out", "model_type"),
        ],
    )
    def test_mistakes(self, good, tmp_path, arguments, message, capsys):
        run_directory = tmp_path / "run"
        run_directory.mkdir()
        save_file(MODEL.arrays, run_directory / "model.safetensors")
        (run_directory / "config.json").write_text(json.dumps({"model": LLAMA.to_dict()}))
        odd = Path(shutil.copytree(run_directory, tmp_path / "odd")) / "config.json"
        odd.write_text(json.dumps({"model": LLAMA.to_dict(), "family": 7}))
        argv = [word.format(good=good, tmp=tmp_path) for word in arguments.split()]
        try:
            status = main(argv)
        except SystemExit as exit:
            status = exit.code
        shown = capsys.readouterr()
        assert (status, shown.out) == (2, "")
        assert len(shown.err.splitlines()) == 1, shown.err
        assert re.search(message, shown.err), shown.err
        assert_same_arrays(from_pretrained(good).arrays)

    def test_help_teaches(self):
        done = run("-m", "transformer_hub", "--help")
        assert done.returncode == 0
        for word in ("hf download", "inspect gpt2", "--init-from", "--family", "llama"):
            assert word in done.stdout


@pytest.mark.slow
@LINUX
def test_a_checkpoint_of_1_gb_takes_its_own_size_to_import(tmp_path):
    """LLaMA-like, bfloat16, in shards. Bound: all parameters, and beside them the one in flight
    (the largest, for what makes it contiguous) and 32 MB of buffers.
    """
    large = replace(LLAMA, vocab_size=32000, d_model=2048, d_ff=5632, num_layers=7, head_dim=512)
    family, parts = FAMILIES["llama"], tmp_path / "parts"
    parts.mkdir()
    layout, rng = family.layout(large), np.random.default_rng(0)
    shapes = layout.their_shapes()
    named = (
        (name, rng.standard_normal(shape, dtype=np.float32).astype(ml_dtypes.bfloat16))
        for name, shape in shapes.items()
    )
    safetensors_files.write(parts, named, max_shard_bytes=400 * 10**6)
    (parts / "config.json").write_text(json.dumps(family.write_config(large, {})))
    assert len(list(parts.glob("*.safetensors"))) == 3
    grown = run_python(
        f"{HIGHEST}\n"
        "from transformer_hub.__main__ import main\n"
        "before = highest()\n"
        f"assert main(['import', {str(parts)!r}, {str(tmp_path / 'out')!r}]) == 0\n"
        "print(highest() - before)\n"
    )
    size = 2 * count(large)
    largest = 2 * 32000 * 2048
    ratio = int(grown.splitlines()[-1]) / size
    print(f"peak memory over parameters: {ratio:.3f} of {size / 1e9:.2f} GB")
    assert 0.9e9 < size < 1.1e9
    assert ratio < 1 + (largest + 32 * 2**20) / size
