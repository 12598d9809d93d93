"""The data: right answers, disjoint splits, pure functions of seed and update."""

import pydoc_data.topics
from dataclasses import replace

import numpy as np
import pytest

from transformer_spec.fields import ConfigError
from transformer_spec.presets import PRESETS
from transformer_training.tasks import make_task
from transformer_training.tasks import sort as sorting
from transformer_training.tokenizers import CharacterTokenizer

SORT, GPT = PRESETS["sort"], PRESETS["char-gpt"]


def batches_equal(a, b) -> bool:
    same = all(np.array_equal(a.inputs[name], b.inputs[name]) for name in a.inputs)
    return same and np.array_equal(a.labels, b.labels)


class TestSort:
    task = make_task(SORT.model, SORT.train)

    def test_a_batch_is_numbers_their_order_and_an_end(self):
        batch = self.task.train_batch(1)
        source, target = batch.inputs["source"], batch.inputs["target"]
        assert source.shape == (64, 8)
        assert set(np.unique(source)) == set(range(1, 11))
        np.testing.assert_array_equal(target[:, 1:], np.sort(source, axis=1))
        assert (target[:, 0] == 11).all()
        np.testing.assert_array_equal(batch.labels[:, :-1], target[:, 1:])
        assert (batch.labels[:, -1] == 12).all()
        assert batch.label_mask.all()

    def test_an_epoch_shows_every_sequence_once_and_the_next_in_another_order(self):
        assert self.task.steps_per_epoch == 157
        orders = []
        for epoch in range(2):
            rows = []
            for step in range(1, 158):
                batch = self.task.train_batch(157 * epoch + step)
                rows.append(batch.inputs["source"][batch.label_mask[:, 0]])
            orders.append(np.concatenate(rows))
        for order in orders:
            assert len(order) == 10_000
            assert sorted(map(bytes, order)) == sorted(map(bytes, self.task.training))
        assert not np.array_equal(*orders)

    def test_nothing_held_out_is_trained_on(self):
        training = set(map(bytes, self.task.training))
        assert len(self.task.held_out) == 1000
        assert not training & set(map(bytes, self.task.held_out))
        rows = sum(int(batch.label_mask[:, 0].sum()) for batch in self.task.eval_batches())
        assert rows == 1000

    def test_batches_depend_on_seed_and_update_alone(self):
        again = make_task(SORT.model, SORT.train)
        later = again.train_batch(400)
        self.task.train_batch(3)
        assert batches_equal(self.task.train_batch(400), later)
        other = make_task(SORT.model, replace(SORT.train, seed=1))
        assert not batches_equal(other.train_batch(400), later)

    def test_perfect_and_wrong_answers_are_told_apart(self):
        class Perfect:
            def greedy(self, inputs, num_tokens):
                ordered = np.sort(inputs["source"], axis=1)
                ends = np.full((len(ordered), 1), 12)
                return np.concatenate([inputs["target"], ordered, ends], axis=1)

        class Copying(Perfect):
            def greedy(self, inputs, num_tokens):
                out = super().greedy(inputs, num_tokens)
                out[:, 1:-1] = inputs["source"]
                return out

        assert self.task.summary(Perfect(), [])[0] == {"exact_match": 1.0}
        assert self.task.summary(Copying(), [])[0]["exact_match"] < 0.01
        assert "(sorted)" in self.task.sample(Perfect())
        assert "(wrong)" in self.task.sample(Copying())

    def test_the_studys_table_stands_beside_ours(self):
        table = sorting._table([(0.5, 0.9)] * 12)
        assert len(table) == 1 + 2 + 1
        assert table[1].split() == ["5", "1.2341", "0.5000", "62.35%", "90.00%"]


class TestLanguageModel:
    task = make_task(GPT.model, GPT.train)

    def test_labels_are_the_next_characters(self):
        batch = self.task.train_batch(1)
        tokens = batch.inputs["tokens"]
        assert tokens.shape == batch.labels.shape == (32, 8)
        np.testing.assert_array_equal(tokens[:, 1:], batch.labels[:, :-1])
        text = self.task.tokenizer.decode(np.concatenate([tokens[0], batch.labels[0, -1:]]))
        assert text in "\n\n".join(v for _, v in sorted(pydoc_data.topics.topics.items()))

    def test_the_default_text_is_cpythons_own(self):
        assert len(self.task.training) + len(self.task.held_out) > 300_000
        assert self.task.model.vocab_size == self.task.tokenizer.vocab_size

    def test_batches_depend_on_seed_and_update_alone(self):
        a = self.task.train_batch(77)
        self.task.train_batch(3)
        assert batches_equal(a, self.task.train_batch(77))
        assert not batches_equal(a, self.task.train_batch(78))

    def test_evaluation_is_on_the_held_out_text_alone(self):
        windows = [bytes(row) for batch in self.task.eval_batches() for row in batch.labels]
        assert len(windows) == 1280
        text = bytes(self.task.held_out)
        assert all(window in text for window in windows[::50])

    def test_the_last_character_of_the_training_text_is_drawn(self, tmp_path):
        path = tmp_path / "text"
        path.write_text("ab" * 40 + "abcdefghij" + "ab" * 5)
        task = make_task(replace(GPT.model, max_seq_len=5), replace(GPT.train, data=str(path)))
        drawn = np.concatenate([task.train_batch(n).labels[:, -1] for n in range(1, 40)])
        assert task.training[-1] in drawn
        assert set(drawn) <= set(task.training)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, "data: cannot read .*missing: No such file"),
            (b"", "data: .* is empty"),
            (b"\xff\xfe\xfa", r"data: .* is not UTF-8 text \(byte 0\)"),
            (b"too short", "data: .* is too short, .* more than max_seq_len 8"),
        ],
    )
    def test_unusable_files_are_named(self, tmp_path, content, message):
        path = tmp_path / ("missing" if content is None else "text")
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=message):
            make_task(GPT.model, replace(GPT.train, data=str(path)))
        with pytest.raises(ConfigError, match="data: .* is no regular file; give a text file"):
            make_task(GPT.model, replace(GPT.train, data=str(tmp_path)))


def test_a_task_refuses_a_model_that_cannot_do_it():
    with pytest.raises(ConfigError, match="task: 'sort' .* encoder_decoder"):
        make_task(GPT.model, replace(GPT.train, task="sort"))
    with pytest.raises(ConfigError, match="task: 'language_model' .* decoder"):
        make_task(SORT.model, replace(SORT.train, task="language_model"))
    with pytest.raises(ConfigError, match="vocab_size: 12 .* above 12"):
        make_task(replace(SORT.model, vocab_size=12), SORT.train)
    with pytest.raises(ConfigError, match="max_seq_len: 8 .* above 8"):
        make_task(replace(SORT.model, max_seq_len=8), SORT.train)
    with pytest.raises(ConfigError, match="task: none .* choose from"):
        make_task(PRESETS["transformer-base"].model, PRESETS["transformer-base"].train)


def test_characters_cross_both_ways():
    text = "naïve “quotes” 𝄞 and\ttabs\n"
    tokenizer = CharacterTokenizer.from_text(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size == len(set(text))
    with pytest.raises(ValueError, match="text: 'Z' is not among"):
        tokenizer.encode("Zz")
