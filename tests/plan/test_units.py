"""Units: read exactly, written so that they can be read again, and refused where they say two things."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitp.errors import ConfigError
from minitp.plan import units

SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
         "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
PARSERS = (units.parse_bytes, units.parse_rate, units.parse_seconds, units.parse_count, units.parse_flops)


@given(st.integers(0, 10**6), st.sampled_from(list(SIZES)), st.sampled_from(["", " ", "  "]))
def test_a_size_is_its_number_times_its_unit_to_the_byte(number, unit, gap):
    assert units.parse_bytes(f"{number}{gap}{unit}") == number * SIZES[unit]
    assert units.parse_rate(f"{number}{gap}{unit}/s") == float(number * SIZES[unit])


@given(st.integers(0, 10**15))
def test_decimals_are_exact_where_a_float_would_not_be(size):
    assert units.parse_bytes(f"{size // 1000}.{size % 1000:03d}kB") == units.parse_bytes(size) == size
    assert units.parse_bytes(str(size)) == size


@pytest.mark.parametrize(("text", "size"), [
    ("80 GB", 80_000_000_000), ("80GiB", 85_899_345_920), ("80gb", 80_000_000_000), ("0.1 GB", 100_000_000),
    ("81920 MiB", 80 * 2**30), ("1TB", 10**12), ("1.5e3 kB", 1_500_000), ("7", 7), ("3 bytes", 3)])
def test_nominal_and_binary_sizes(text, size):
    assert units.parse_bytes(text) == size


def test_a_small_b_is_a_bit():
    assert units.parse_rate("200Gb/s") == units.parse_rate("200Gbps") == units.parse_rate("200 Gbit/s") == 25e9
    assert units.parse_rate("25GB/s") == 25e9 and units.parse_rate("1 KiB/s") == 1024
    with pytest.raises(ConfigError, match="a small b is a bit"):
        units.parse_bytes("80Gb")
    with pytest.raises(ConfigError, match="25GB/s or 25 GiB/s, bits as 200Gb/s"):
        units.parse_rate("200Gx/s")


def test_times_and_counts():
    assert {units.parse_seconds(text) for text in ("5us", "5 µs", "5 \N{GREEK SMALL LETTER MU}s")} == {5e-6}
    assert units.parse_seconds("34 days") == 34 * 86400
    assert units.parse_count("300e9") == units.parse_count("300B") == 300 * 10**9 == units.parse_count(300e9)
    assert units.parse_count("1.5T") == 15 * 10**11 and units.parse_flops("312 TFLOP/s") == 312e12
    with pytest.raises(ConfigError, match="no whole number"):
        units.parse_count("1.5")


@pytest.mark.parametrize("text", ["", " ", "GB", "-3GB", "+3GB", "nan", "inf", "1e999GB", "1e", "٣GB", "80Q", "8,0 GB",
                                  "80 GB; rm -rf /", "80 GB\x1b[31m", "0x10GB", "9" * 500, "1.2.3GB", True, None, -1,
                                  float("nan"), float("inf"), [80]])
def test_hostile_text_is_refused_and_told_what_works(text):
    for parse in PARSERS:
        with pytest.raises(ConfigError) as caught:
            parse(text)
        assert len(str(caught.value)) < 400 and "\x1b" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_number_or_a_config_error(text):
    for parse in PARSERS:
        try:
            assert parse(text) >= 0
        except ConfigError:
            continue


def test_both_units_side_by_side():
    assert units.both(349.2e9) == "349.2 GB (325.2 GiB)" and units.both(80 * 2**30) == "85.9 GB (80.0 GiB)"
    assert units.both(999) == "999 B" and units.both(4096) == "4.10 kB (4.00 KiB)"
    assert units.both(999_999_999) == "1.00 GB (0.93 GiB)"


@given(st.floats(1e-9, 1e11))
def test_a_time_in_words_can_be_read_again(seconds):
    assert units.parse_seconds(units.duration(seconds).replace(",", "")) == pytest.approx(seconds, rel=6e-3)


@given(st.floats(1, 1e18))
def test_rates_in_words_can_be_read_again(number):
    assert units.parse_rate(units.rate(number).replace(",", "")) == pytest.approx(number, rel=6e-3)
    assert units.parse_flops(units.flops(number).replace(",", "")) == pytest.approx(number, rel=6e-3)


@given(st.integers(0, 10**15))
def test_a_count_in_words_can_be_read_again(number):
    assert units.parse_count(units.count(number).replace(",", "").replace(" ", "")) == pytest.approx(number, rel=6e-2)


def test_words():
    assert [units.duration(s) for s in (22e-6, 3000, 34 * 86400, 1e9)] == ["22 µs", "50 min", "34 days", "31.7 years"]
    assert units.count(405_853_388_800) == "405.9 B" and units.count(34_976) == "34,976"
    assert [units.percent(share) for share in (0.0052, 0.43, 1)] == ["0.52 %", "43 %", "100 %"]
    assert units.duration(float("inf")) == "never"
