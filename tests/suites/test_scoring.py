import pytest

from hyflash_bench.suites import Expected, score


@pytest.mark.parametrize(
    ("answers", "reply", "expected"),
    [
        (("100",), "The default is 100.", 1.0),
        (("100",), "The default is 1000.", 0.0),
        (("100", "TooManyFiles"), "It is 100.", 0.5),
        (("toomanyfiles",), "``TooManyFiles`` is raised", 1.0),
        (("--exclude-tag",), "use `--exclude-tag=slow`", 1.0),
        (("session key",), "", 0.0),
        ((), "anything", 0.0),
    ],
)
def test_contains_all_is_the_share_of_answers_that_stand_by_themselves(answers, reply, expected):
    assert score(Expected("contains_all", answers), reply) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("amber, teal, umber", 1.0),
        ("The words are Amber, teal and UMBER.", 1.0),
        ("amber, teal", 0.8),
        ("amber, teal, umber, jade, lilac, pearl", 2 / 3),
        ("jade", 0.0),
        ("", 0.0),
    ],
)
def test_word_set_is_the_f1_of_the_words_named(reply, expected):
    assert score(Expected("word_set", ("amber", "teal", "umber")), reply) == pytest.approx(expected)
