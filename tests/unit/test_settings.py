"""Settings: read from the environment, refused in words that name variable, value and mend."""

import contextlib
import math
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangram_workers.domain.errors import SettingsError
from tangram_workers.resources.cores import grant_environment
from tangram_workers.runtime.settings import (
    Settings,
    default_data_dir,
    load_settings,
    settings_environment,
    variable_name,
)

NUMBERS = [
    name for name, field in Settings.model_fields.items() if field.annotation in (int, float)
]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    import os

    for name in os.environ:
        if name.upper().startswith("TANGRAM_"):
            monkeypatch.delenv(name)


def refusal(**overrides) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(**overrides)
    return str(caught.value)


def test_defaults_need_no_environment():
    settings = load_settings()
    assert settings.broker_url is None
    assert settings.router_policy == "act"
    assert settings.sandbox_driver == "bubblewrap"


def test_a_variable_sets_its_field(monkeypatch):
    monkeypatch.setenv("TANGRAM_LEASE_S", "7.5")
    assert load_settings().lease_s == 7.5


def test_an_argument_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("TANGRAM_CORES", "3")
    assert load_settings(cores=2).cores == 2


def test_an_empty_variable_is_not_set(monkeypatch):
    monkeypatch.setenv("TANGRAM_CORES", "")
    monkeypatch.setenv("TANGRAM_DATA_DIR", "")
    assert load_settings() == load_settings(cores=0)


def test_settings_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        load_settings().cores = 2


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_says_what_it_means_and_its_unit(name):
    field = Settings.model_fields[name]
    assert (field.description or "").endswith(".")
    assert isinstance(field.json_schema_extra, dict)
    assert field.json_schema_extra["unit"]


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("TANGRAM_BORKER_URL", "TANGRAM_BROKER_URL"),
        ("TANGRAM_CORE", "TANGRAM_CORES"),
        ("TANGRAM_LEASE", "TANGRAM_LEASE_S"),
        ("tangram_cores", "TANGRAM_CORES"),
        ("Tangram_Cores", "TANGRAM_CORES"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_name_that_was_meant(monkeypatch, misspelt, meant):
    monkeypatch.setenv(misspelt, "1")
    message = refusal()
    assert message.startswith(f"{misspelt} is not a setting")
    assert f"Did you mean {meant}?" in message


def test_a_variable_that_is_like_nothing_is_refused_too(monkeypatch):
    monkeypatch.setenv("TANGRAM_ZZZQQ", "1")
    assert "Unset it." in refusal()


def test_what_the_fleet_gives_to_programs_is_no_misspelt_setting(monkeypatch):
    for name in grant_environment((0, 1)):
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("TANGRAM_SANDBOX_MARK", "owner/1")
    assert load_settings().cores == 0


def test_a_misspelt_argument_is_refused_with_the_name_that_was_meant():
    assert "Did you mean TANGRAM_CORES?" in refusal(coers=1)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["two", "nan", "-1", "1e400", "0x10", "1,5", "inf", "True"])
def test_a_wrong_number_is_refused_with_variable_value_and_mend(monkeypatch, name, value):
    monkeypatch.setenv(variable_name(name), value)
    message = refusal()
    assert message.startswith(f"{variable_name(name)}={value!r} is not valid: ")
    assert message.endswith(".")
    assert not message.endswith("..")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, False, math.nan, math.inf, -1, None, [], b"1x", 10**400])
def test_a_wrong_number_as_an_argument_is_refused(name, value):
    assert refusal(**{name: value}).startswith(f"{variable_name(name)}=")


def test_two_wrong_variables_are_both_named(monkeypatch):
    monkeypatch.setenv("TANGRAM_CORES", "x")
    monkeypatch.setenv("TANGRAM_LEASE_S", "y")
    message = refusal()
    assert "TANGRAM_CORES='x'" in message
    assert "TANGRAM_LEASE_S='y'" in message


@pytest.mark.parametrize(("name", "value"), [("router_policy", "lifo"), ("sandbox_driver", "vm")])
def test_a_choice_that_is_not_there_is_refused_with_those_that_are(name, value):
    message = refusal(**{name: value})
    assert f"{variable_name(name)}='{value}'" in message
    assert re.search(r"'\w+' or '\w+'", message)


def test_a_long_value_is_cut_in_the_message(monkeypatch):
    monkeypatch.setenv("TANGRAM_CORES", "x" * 10_000)
    assert len(refusal()) < 300


class TestBrokerUrl:
    @pytest.mark.parametrize(
        "url",
        [
            "redis://localhost",
            "redis://:pw@10.0.0.1:6379/0",
            "rediss://user:p%2Fw@redis.example:6380/15",
            "redis://[::1]:6379/0",
            "redis://host:6379/0?ssl_cert_reqs=none",
        ],
    )
    def test_a_redis_url_is_taken(self, url):
        assert load_settings(broker_url=url).broker_url == url

    def test_a_line_break_at_the_end_of_a_secret_file_is_dropped(self):
        assert load_settings(broker_url="redis://h:1/0\n").broker_url == "redis://h:1/0"

    @pytest.mark.parametrize(
        "url",
        [
            "hunter2",
            "amqp://:hunter2@host",
            "redis://",
            "redis:///0",
            "redis://:hunter2@",
            "redis://:hunter2@host:99999",
            "redis://:hunter2@host:0",
            "redis://:hunter2@host:six",
            "redis://:hun/ter2@host:6379/0",
            "redis://:hunter2#x@host:6379/0",
            "redis://:hunter2?x@host:6379/0",
            "redis://:hunter2@[::1",
            "redis://:hunter2\u2100@host",
            "redis://:hunter2@host:6379/zero",
            "redis://:hunter2@host:6379/-1",
        ],
    )
    def test_any_other_is_refused_without_showing_the_password(self, url):
        message = refusal(broker_url=url)
        assert message.startswith("TANGRAM_BROKER_URL=(hidden) is not valid: give ")
        assert "hunter2" not in message
        assert "ter2" not in message

    def test_the_password_is_in_no_representation_of_the_settings(self):
        settings = load_settings(broker_url="redis://:hunter2@host:6379/0")
        assert "hunter2" not in repr(settings)
        assert "hunter2" not in str(settings)


def test_a_child_process_reads_the_very_same_settings(monkeypatch):
    monkeypatch.setenv("TANGRAM_SANDBOX_DIR", "/elsewhere")
    settings = load_settings(
        broker_url="redis://:p%2Fw@h:1/0", models="a,b", lease_s=7.25, cores=3, node="n 1"
    ).model_copy(update={"sandbox_dir": None})
    for name, text in settings_environment(settings).items():
        monkeypatch.setenv(name, text)
    assert load_settings().model_dump() == settings.model_dump()


class TestNames:
    def test_names_are_split_at_commas(self, monkeypatch):
        monkeypatch.setenv("TANGRAM_MODELS", " rm-a, rm-b ,,")
        assert load_settings().models == ("rm-a", "rm-b")

    def test_a_name_that_is_given_twice_is_one_queue(self):
        assert load_settings(providers="search,web,search").providers == ("search", "web")

    @pytest.mark.parametrize("name", ["RM", "a b", "-x", "x" * 64, "a/b", "é"])
    def test_a_name_that_cannot_be_part_of_a_queue_is_refused(self, name):
        message = refusal(models=f"good,{name}")
        assert message.startswith("TANGRAM_MODELS=")
        assert repr(name) in message
        assert "lower-case" in message


class TestFolders:
    @pytest.mark.parametrize("name", ["data_dir", "sandbox_dir"])
    def test_a_home_folder_is_expanded(self, monkeypatch, tmp_path, name):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv(variable_name(name), "~/fleet")
        assert getattr(load_settings(), name) == tmp_path / "fleet"

    @pytest.mark.parametrize("name", ["data_dir", "sandbox_dir"])
    def test_a_relative_folder_is_seen_from_here(self, monkeypatch, tmp_path, name):
        monkeypatch.chdir(tmp_path)
        assert getattr(load_settings(**{name: "fleet"}), name) == tmp_path / "fleet"

    @pytest.mark.parametrize("value", ["a\0b", "~no-such-user/x", 5, b"\xff"])
    def test_a_folder_that_cannot_be_is_refused(self, value):
        assert refusal(data_dir=value).startswith("TANGRAM_DATA_DIR=")

    def test_the_data_folder_follows_the_xdg_standard(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        assert default_data_dir() == tmp_path / "tangram"

    @pytest.mark.parametrize("value", ["", "relative"])
    def test_an_xdg_folder_that_is_not_absolute_is_ignored(self, monkeypatch, tmp_path, value):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert default_data_dir() == tmp_path / ".local" / "state" / "tangram"

    def test_a_user_without_a_home_folder_is_told_what_to_set(self, monkeypatch):
        def no_home() -> Path:
            raise RuntimeError

        monkeypatch.delenv("XDG_STATE_HOME", raising=False)
        monkeypatch.setattr(Path, "home", no_home)
        assert "Set it to a private folder" in refusal()
        assert load_settings(data_dir="/x").data_dir == Path("/x")


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
@given(value=st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40))
def test_whatever_a_variable_holds_the_answer_is_settings_or_a_settings_error(name, value):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv(variable_name(name), value)
        with contextlib.suppress(SettingsError):
            load_settings()


@given(tail=st.text(string.ascii_letters + "_", min_size=1, max_size=20))
def test_whatever_a_tangram_variable_is_called_the_answer_is_settings_or_a_settings_error(tail):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv(f"TANGRAM_{tail}", "1")
        with contextlib.suppress(SettingsError):
            load_settings()
