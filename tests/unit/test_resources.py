"""Resource vectors, elasticity and speed-up curves."""

import enum
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tangram_workers.domain.errors import InvalidActionError
from tangram_workers.domain.resources import (
    MAX_AMOUNT,
    MAX_UNITS,
    Elasticity,
    ResourceVector,
    SpeedupCurve,
)

AMOUNTS = ("cpu_milli", "memory_bytes", "gpu_memory_bytes", "quota_tokens")
fractions = st.floats(0, 1)
units = st.integers(1, MAX_UNITS)

not_amounts = st.one_of(
    st.integers(max_value=-1),
    st.integers(min_value=MAX_AMOUNT + 1),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(),
    st.binary(),
    st.lists(st.integers()),
)


@pytest.mark.parametrize("name", AMOUNTS)
@given(value=st.integers(0, MAX_AMOUNT))
def test_any_amount_that_a_json_number_keeps_exactly_is_taken(name, value):
    assert getattr(ResourceVector(**{name: value}), name) == value


@pytest.mark.parametrize("name", AMOUNTS)
@given(value=not_amounts)
def test_any_other_amount_is_refused_by_name(name, value):
    with pytest.raises(InvalidActionError) as caught:
        ResourceVector(**{name: value})
    assert caught.value.field == f"resources.{name}"
    assert caught.value.value is value


@pytest.mark.parametrize("name", AMOUNTS)
def test_the_message_says_the_value_and_the_range(name):
    with pytest.raises(InvalidActionError, match=rf"resources\.{name}=-5 .*from 0 to {MAX_AMOUNT}"):
        ResourceVector(**{name: -5})


def test_an_integer_of_5000_digits_is_refused_like_any_other():
    with pytest.raises(InvalidActionError, match=r"resources\.memory_bytes=<int>"):
        ResourceVector(memory_bytes=10**5000)


def test_a_subclass_of_int_becomes_a_plain_int():
    class Amount(enum.IntEnum):
        SMALL = 64

    assert type(ResourceVector(memory_bytes=Amount.SMALL).memory_bytes) is int


@given(
    value=st.one_of(st.floats(max_value=-1e-9), st.floats(min_value=1.0000001), st.just(math.nan))
)
@pytest.mark.parametrize("name", ["exponent", "floor"])
def test_a_curve_outside_0_to_1_is_refused_by_name(name, value):
    with pytest.raises(InvalidActionError) as caught:
        SpeedupCurve(**{name: value})
    assert caught.value.field == f"elasticity.speedup.{name}"


@pytest.mark.parametrize("value", [None, True, "0.5", b"1", [0.5], 10**400])
def test_a_curve_of_no_number_is_refused(value):
    with pytest.raises(InvalidActionError, match=r"elasticity\.speedup\.exponent"):
        SpeedupCurve(exponent=value)


@given(exponent=fractions, floor=fractions, few=units, many=units)
def test_more_units_never_make_an_action_slower(exponent, floor, few, many):
    assume(few <= many)
    curve = SpeedupCurve(exponent=exponent, floor=floor)
    assert curve.run_time_fraction(many) <= curve.run_time_fraction(few) * (1 + 1e-12)


@given(exponent=fractions, floor=fractions)
def test_one_unit_is_the_serial_time(exponent, floor):
    assert SpeedupCurve(exponent=exponent, floor=floor).run_time_fraction(1) == 1.0


@given(exponent=fractions, floor=fractions, limit=units)
def test_the_useful_maximum_is_in_range_and_loses_no_speed_up(exponent, floor, limit):
    curve = SpeedupCurve(exponent=exponent, floor=floor)
    useful = curve.useful_maximum(limit)
    assert 1 <= useful <= limit
    assert curve.run_time_fraction(useful) <= curve.run_time_fraction(limit) * (1 + 1e-6)


@given(exponent=st.floats(0.05, 1), floor=st.floats(0.001, 1), limit=units)
def test_one_unit_less_than_the_useful_maximum_is_slower(exponent, floor, limit):
    curve = SpeedupCurve(exponent=exponent, floor=floor)
    useful = curve.useful_maximum(limit)
    assume(useful > 1)
    assert curve.run_time_fraction(useful - 1) > curve.run_time_fraction(useful)


def test_the_default_curve_stops_paying_at_22_units():
    assert SpeedupCurve().useful_maximum(MAX_UNITS) == 22


@pytest.mark.parametrize("name", ["min_units", "max_units"])
@given(value=st.one_of(st.integers(max_value=0), st.integers(min_value=MAX_UNITS + 1), st.floats()))
def test_units_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(InvalidActionError) as caught:
        Elasticity(**{"min_units": 1, "max_units": 1} | {name: value})
    assert caught.value.field == f"elasticity.{name}"


@given(low=units, high=units)
def test_min_above_max_is_refused_and_both_are_named(low, high):
    assume(low > high)
    with pytest.raises(InvalidActionError) as caught:
        Elasticity(min_units=low, max_units=high)
    assert caught.value.field == "elasticity.min_units"
    assert f"={low} " in str(caught.value)
    assert f"max_units={high}" in str(caught.value)


@pytest.mark.parametrize("value", [None, {}, 0.9, "fast"])
def test_a_speedup_that_is_no_curve_is_refused(value):
    with pytest.raises(InvalidActionError, match=r"elasticity\.speedup=.*give a SpeedupCurve"):
        Elasticity(speedup=value)
