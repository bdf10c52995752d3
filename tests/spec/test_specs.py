"""What a user may write, and what happens when it is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyflash_bench.errors import SpecError, UsageError
from hyflash_bench.spec.drafter import DrafterSpec
from hyflash_bench.spec.plan import Cap, Cell, content_id
from hyflash_bench.spec.run import RunSpec
from hyflash_bench.spec.sampling import Sampling
from hyflash_bench.spec.units import format_bytes, parse_bytes
from hyflash_bench.spec.yaml import dump_yaml, load_yaml, read_yaml


@pytest.mark.parametrize(
    ("text", "size"),
    [("1B", 1), ("512MiB", 512 * 2**20), ("1.5GiB", 3 * 2**29), ("4GB", 4 * 10**9), ("2 kib", 2048)],
)
def test_sizes_with_units(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["512", "MiB", "-1GiB", "0MiB", "1.5", "1 parsec", "", "1e3MiB", "nanMiB"])
def test_sizes_without_sense_are_refused_with_an_example(text):
    with pytest.raises(SpecError, match=r"512MiB|at least 1B"):
        parse_bytes(text)


@given(st.integers(1, 2**50))
def test_formatted_sizes_keep_three_digits(size):
    number, unit = format_bytes(size).split(" ")
    assert parse_bytes(f"{float(number):.10f}{unit}") == pytest.approx(size, rel=0.006)


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("suffix", "suffix", {}),
        ("prompt-lookup:max_ngram=2,match=first", "prompt-lookup", {"max_ngram": 2, "match": "first"}),
        ("mine/own.py:Copy:k=3,flag=true", "mine/own.py:Copy", {"k": 3, "flag": True}),
        ("mine/own.py:Copy", "mine/own.py:Copy", {}),
        ("small-model:model=org/name@abc", "small-model", {"model": "org/name@abc"}),
        (
            "x:half_lives=[8, 4096],k=2,names=[a,true]",
            "x",
            {"half_lives": [8, 4096], "k": 2, "names": ["a", True]},
        ),
        ("x:rate=0.5,none=null,kebab-key=1", "x", {"rate": 0.5, "none": None, "kebab_key": 1}),
    ],
)
def test_drafters_from_text(text, name, options):
    spec = DrafterSpec.from_text(text)
    assert (spec.name, spec.options) == (name, options)
    assert DrafterSpec.from_text(spec.label) == spec


@pytest.mark.parametrize(
    ("text", "words"),
    [("a:b", "not key=value"), ("a:k=1,k=2", "given twice"), ("a:", "nothing follows"), ("", "at least 1")],
)
def test_drafters_from_bad_text(text, words):
    with pytest.raises(SpecError, match=words):
        DrafterSpec.from_text(text)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"drafer": ["suffix"]}, "did you mean 'drafters'"),
        ({"memory_caps": [512]}, "needs a unit"),
        ({"memory_caps": ["512"]}, "number with a unit"),
        ({"limit": 0}, "limit"),
        ({"temperature": -1}, "temperature"),
        ({"top_k": 5}, "need a temperature"),
        ({"drafters": ["suffix", "suffix"]}, "drafter suffix is given twice"),
        ({"suites": ["quick", "longctx", "quick"]}, "suite quick is given twice"),
        ({"memory_caps": ["1GiB", "1024MiB"]}, r"memory cap 1 GiB \(1,073,741,824 bytes\) is given twice"),
        ({"drafters": []}, "drafters"),
        ({"backend": "tpu"}, "backend"),
        ({"device": "cuda"}, "backend: cuda"),
        ({"contexts": ["many"]}, "contexts"),
    ],
)
def test_requests_that_make_no_sense(values, words):
    with pytest.raises(SpecError, match=words):
        RunSpec.parse(values)


def test_caps_that_differ_by_a_byte_are_two():
    assert len(RunSpec.parse({"memory_caps": ["609400492B", "609400493B"]}).memory_caps) == 2


def test_a_request_survives_being_written_down():
    spec = RunSpec.parse(
        {
            "drafters": ["autoregressive", "prompt-lookup:max_ngram=2"],
            "memory_caps": ["1GiB", "512MiB"],
            "contexts": [512, 2048],
            "temperature": 0.7,
            "top_p": 0.9,
        }
    )
    assert RunSpec.parse(load_yaml(dump_yaml(spec.to_mapping()), "dry run")) == spec
    assert spec.sampling == Sampling(temperature=0.7, top_p=0.9)
    assert spec.target_spec.target == "smollm2-135m"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: key 'a' was already given on line 1"),
        ("a:\n  b: 1\n  b: 2\n", "line 3: key 'b'"),
        ("- a\n- b\n", "found a list"),
        ("a: [1\n", "not valid YAML"),
        ("a: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
    ],
)
def test_yaml_without_surprises(text, words):
    with pytest.raises(SpecError) as caught:
        load_yaml(text, "file.yaml")
    assert words in str(caught.value)
    assert "file.yaml" in str(caught.value)


def test_yaml_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(UsageError, match="No file"):
        read_yaml(tmp_path / "nothing.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="UTF-8"):
        read_yaml(tmp_path / "bytes.yaml")


def cell(**changes) -> Cell:
    values = {
        "target_id": "t", "target": "tiny", "drafter": DrafterSpec.from_text("suffix"),
        "drafter_version": "", "suite": "quick", "suite_hash": "h", "task": "talk",
        "cap": None, "sampling": Sampling(), "seed": 0, "repeat": 0,
        "max_new_tokens": 8, "draft_budget": 16, "mode": "both",
    }  # fmt: skip
    return Cell(**{**values, **changes})


def test_a_cells_name_changes_with_all_that_changes_its_number():
    changes = [
        {"target_id": "u"}, {"drafter": DrafterSpec.from_text("suffix:max_depth=8")},
        {"drafter_version": "2"}, {"suite_hash": "i"}, {"task": "x"}, {"cap": Cap(1)},
        {"cap": Cap(2)}, {"cap": Cap(1, policy="window")}, {"cap": Cap(1, device="pi")},
        {"cap": Cap(1, "enforced")}, {"cap": Cap(1, weight_bits=4)},
        {"sampling": Sampling(temperature=0.7)}, {"seed": 1}, {"repeat": 1},
        {"max_new_tokens": 9}, {"draft_budget": 8}, {"mode": "live"},
    ]  # fmt: skip
    names = {cell(**change).cell_id for change in [{}, *changes]}
    assert len(names) == len(changes) + 1
    assert cell().cell_id == cell(target="another label").cell_id


def test_content_ids_do_not_depend_on_the_order_of_keys():
    assert content_id({"a": 1, "b": 2}) == content_id({"b": 2, "a": 1}) != content_id({"a": 2, "b": 1})


@pytest.mark.parametrize("text", ["9" * 400 + "GB", "1000000000TiB"])
def test_sizes_beyond_any_machine_are_refused(text):
    with pytest.raises(SpecError, match="any machine"):
        parse_bytes(text)


@pytest.mark.parametrize(
    "value", ["[", "[[1]]", "{a: b}", "!!python/object:os.system x", "2020-99-99", "[" * 5000]
)
def test_drafter_options_that_are_no_scalars_are_refused(value):
    with pytest.raises(SpecError, match="plain value"):
        DrafterSpec.from_text(f"suffix:k={value}")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"timeout_s": float("inf")}, "timeout_s"),
        ({"drafters": "suffix"}, r"drafters: a list is needed, as in \[first, second\] \(given 'suffix'\)"),
        ({"drafters": [3]}, r"drafters\.0: .* \(given 3\)"),
        ({"drafters": []}, r"drafters: at least 1 needed \(given \[\]\)"),
        ({"backend": "gpu"}, r"backend: .* cpu, cuda\[:N\] or mps\. \(given 'gpu'\)"),
        ({"num_threads": 10**26}, "num_threads"),
        ({"seed": 2**63}, "seed"),
        ({"temperature": 1.0, "top_k": 10**26}, "top_k"),
        ({"max_new_tokens": 10**26}, "max_new_tokens"),
        ({"limit": 10**26}, "limit"),
        ({"contexts": [10**26]}, "contexts"),
    ],
)
def test_values_that_cannot_be_are_refused_with_what_can(keys, words):
    with pytest.raises(SpecError, match=words) as caught:
        RunSpec.parse(keys)
    assert ";" not in str(caught.value)  # one problem, and nothing about keys that follow from it


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "aliases unfold"),
        ("a: &a [*a]", "contains itself"),
        ("a: " + "[" * 5000, "nested too deeply"),
        ("a: 2020-99-99", "Put it in quotes"),
        ("a: " + "9" * 5000, "Put it in quotes"),
    ],
)
def test_yaml_that_would_harm_the_reader_is_refused(text, words):
    with pytest.raises(SpecError, match=words):
        load_yaml(text, "x.yaml")


def test_a_message_does_not_spell_out_a_huge_value():
    with pytest.raises(SpecError) as caught:
        RunSpec.parse({"target": ["lol"] * 10**6})
    assert len(str(caught.value)) < 1000
