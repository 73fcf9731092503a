"""The unified action: what it takes, what it refuses and in which words."""

import contextlib
import dataclasses
import enum
import math
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangram_workers.domain.action import Action, ActionKind, ApiCall, Command, Score
from tangram_workers.domain.errors import InvalidActionError
from tangram_workers.domain.limits import (
    MAX_ARGUMENT_LENGTH,
    MAX_ARGUMENTS_BYTES,
    MAX_FILE_NAME_BYTES,
    MAX_FILES,
    MAX_ID_LENGTH,
    MAX_PATH_LENGTH,
    MAX_TIMEOUT_S,
)
from tangram_workers.domain.resources import Elasticity, ResourceVector
from tangram_workers.domain.reward import RewardRule
from tangram_workers.wire.codec import decode_action, encode_action

COMMAND = Command(argv=("true",))
ID_FIELDS = ("trajectory_id", "step_id", "group_id", "idempotency_key", "environment_key")

anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters()),
        st.text(st.characters(categories=["Cs"]), min_size=1),
        st.binary(),
        st.just(10**400),  # overflows a float
        st.just(object()),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
bad_texts = st.sampled_from(["a\0b", "\ud800", "x\udfff"]) | st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.binary(), st.lists(st.text())
)


def refused(build, *args, **kwargs) -> InvalidActionError:
    with pytest.raises(InvalidActionError) as caught:
        build(*args, **kwargs)
    assert str(caught.value).startswith(f"{caught.value.field}=")
    assert caught.value.mend.endswith(".")
    return caught.value


class TestKinds:
    def test_a_command_waits_in_the_cpu_queue(self):
        action = Action(command=COMMAND)
        assert (action.kind, action.queue) == (ActionKind.COMMAND, "cpu")

    def test_a_score_waits_in_its_models_queue(self):
        action = Action(score=Score(model="rm-1", responses=("a",), references=("b",)))
        assert (action.kind, action.queue) == (ActionKind.SCORE, "gpu.rm-1")

    def test_an_api_call_waits_in_its_providers_queue(self):
        action = Action(api_call=ApiCall(provider="search", path="v1/query"))
        assert (action.kind, action.queue) == (ActionKind.API_CALL, "api.search")

    def test_an_action_that_does_nothing_is_refused(self):
        assert "set exactly one" in refused(Action).mend

    def test_an_action_that_does_two_things_is_refused_and_both_are_named(self):
        error = refused(Action, command=COMMAND, api_call=ApiCall(provider="p", path="x"))
        assert error.value == ["command", "api_call"]

    @pytest.mark.parametrize("name", ["command", "score", "api_call"])
    @given(value=anything.filter(lambda value: value is not None))
    def test_a_part_of_the_wrong_type_is_refused_by_name(self, name, value):
        assert refused(Action, **{name: value}).field == name

    @pytest.mark.parametrize("name", ["resources", "elasticity"])
    @given(value=anything)
    def test_a_field_of_the_wrong_type_is_refused_by_name(self, name, value):
        assert refused(Action, command=COMMAND, **{name: value}).field == name

    @given(value=anything.filter(lambda value: value is not None))
    def test_a_reward_rule_of_the_wrong_type_is_refused(self, value):
        assert refused(Action, command=COMMAND, reward_rule=value).field == "reward_rule"


class TestNumbers:
    @pytest.mark.parametrize("name", ["timeout_s", "queue_timeout_s"])
    @given(
        value=st.one_of(
            st.floats(max_value=0.0),
            st.floats(min_value=MAX_TIMEOUT_S, exclude_min=True),
            st.just(math.nan),
            st.just(10**400),
            st.booleans(),
            st.none(),
            st.text(),
            st.binary(),
        )
    )
    def test_a_timeout_that_is_no_positive_finite_number_is_refused_by_name(self, name, value):
        error = refused(Action, command=COMMAND, **{name: value})
        assert error.field == name
        assert error.value is value

    @pytest.mark.parametrize("name", ["timeout_s", "queue_timeout_s"])
    @given(value=st.floats(0.001, MAX_TIMEOUT_S) | st.integers(1, int(MAX_TIMEOUT_S)))
    def test_any_other_timeout_is_taken(self, name, value):
        assert getattr(Action(command=COMMAND, **{name: value}), name) == value

    def test_the_message_says_field_value_and_range(self):
        message = str(refused(Action, command=COMMAND, timeout_s=-1))
        assert message == "timeout_s=-1 is not valid: give a number from 0.001 to 604800."

    def test_a_number_of_a_foreign_float_type_becomes_plain_and_travels(self):
        class Foreign(float):
            pass

        action = Action(command=COMMAND, timeout_s=Foreign(3))
        assert type(action.timeout_s) is float
        assert decode_action(encode_action(action)) == action

    def test_more_cores_than_max_units_are_refused_with_both_numbers(self):
        error = refused(Action, command=COMMAND, resources=ResourceVector(cpu_milli=2500))
        assert error.field == "resources.cpu_milli"
        assert "2500" in str(error)
        assert "max_units allows 1000" in error.mend

    def test_a_command_without_memory_is_refused(self):
        error = refused(Action, command=COMMAND, resources=ResourceVector(memory_bytes=0))
        assert error.field == "resources.memory_bytes"

    @pytest.mark.parametrize(
        ("cpu_milli", "min_units", "cores"),
        [(0, 1, 1), (1000, 1, 1), (1001, 1, 2), (1000, 3, 3), (4000, 2, 4)],
    )
    def test_min_cores_covers_both_ways_of_asking(self, cpu_milli, min_units, cores):
        action = Action(
            command=COMMAND,
            resources=ResourceVector(cpu_milli=cpu_milli),
            elasticity=Elasticity(min_units=min_units, max_units=4),
        )
        assert action.min_cores == cores


class TestTexts:
    @pytest.mark.parametrize("name", ID_FIELDS)
    @given(value=bad_texts.filter(lambda value: value is not None))
    def test_an_id_that_is_no_encodable_text_is_refused_by_name(self, name, value):
        error = refused(Action, command=COMMAND, **{name: value})
        assert error.field == name
        assert error.value is value

    @pytest.mark.parametrize("name", ID_FIELDS)
    def test_an_empty_or_too_long_id_is_refused(self, name):
        assert "empty" in refused(Action, command=COMMAND, **{name: ""}).mend
        error = refused(Action, command=COMMAND, **{name: "x" * (MAX_ID_LENGTH + 1)})
        assert f"at most {MAX_ID_LENGTH}" in error.mend

    def test_a_text_of_a_foreign_type_becomes_plain_and_travels(self):
        class Foreign(str):
            __slots__ = ()

        class Name(str, enum.Enum):  # noqa: UP042 - str() of it is not its value
            A = "name-a"

        action = Action(
            command=Command(
                argv=(Foreign("echo"),),
                files={Foreign("f"): Foreign("c")},
                env={Foreign("N"): Foreign("v")},
                stdin=Foreign("s"),
                cwd=Foreign("d"),
            ),
            trajectory_id=Foreign("t"),
            step_id=Name.A,
        )
        assert decode_action(encode_action(action)) == action
        assert action.step_id == "name-a"
        assert type(action.step_id) is str

    @given(value=anything.filter(lambda value: not isinstance(value, bool)))
    def test_last_of_trajectory_is_true_or_false(self, value):
        error = refused(Action, command=COMMAND, trajectory_id="t", last_of_trajectory=value)
        assert error.field == "last_of_trajectory"

    def test_the_last_action_belongs_to_a_trajectory(self):
        error = refused(Action, command=COMMAND, last_of_trajectory=True)
        assert "needs a trajectory_id" in error.mend

    @pytest.mark.parametrize(
        ("environment_key", "key"), [(None, "-|command"), ("numpy", "numpy|command")]
    )
    def test_run_times_are_remembered_by_environment_and_kind(self, environment_key, key):
        assert Action(command=COMMAND, environment_key=environment_key).estimate_key == key


class TestCommand:
    @pytest.mark.parametrize("value", ["ls -l", None, {"a"}, 5, b"ls", {"a": 1}, iter(["a"])])
    def test_arguments_that_are_no_list_are_refused(self, value):
        assert refused(Command, argv=value).field == "command.argv"

    def test_a_list_of_arguments_becomes_a_tuple(self):
        assert Command(argv=["ls", "-l"]).argv == ("ls", "-l")  # type: ignore[arg-type]  # lists are taken too

    @pytest.mark.parametrize("argv", [(), ("",)])
    def test_no_program_is_refused(self, argv):
        assert refused(Command, argv=argv).field.startswith("command.argv")

    def test_an_empty_argument_is_an_argument(self):
        assert Command(argv=("printf", "")).argv == ("printf", "")

    @given(value=bad_texts)
    def test_a_bad_argument_is_refused_by_its_place(self, value):
        assert refused(Command, argv=("echo", "fine", value)).field == "command.argv[2]"

    @pytest.mark.parametrize(
        "argument", ["x" * (MAX_ARGUMENT_LENGTH + 1), "é" * (MAX_ARGUMENT_LENGTH // 2 + 1)]
    )
    def test_an_argument_that_the_system_would_refuse_is_refused(self, argument):
        assert refused(Command, argv=("echo", argument)).field == "command.argv[1]"

    def test_the_longest_argument_is_taken(self):
        assert Command(argv=("echo", "x" * MAX_ARGUMENT_LENGTH)).argv[0] == "echo"

    def test_arguments_that_are_too_long_together_are_refused(self):
        count = MAX_ARGUMENTS_BYTES // MAX_ARGUMENT_LENGTH + 1
        error = refused(Command, argv=("echo", *["x" * MAX_ARGUMENT_LENGTH] * count))
        assert error.field == "command.argv"
        assert str(MAX_ARGUMENTS_BYTES) in error.mend

    def test_a_variable_counts_with_its_name(self):
        error = refused(Command, argv=("env",), env={"NAME": "x" * (MAX_ARGUMENT_LENGTH - 4)})
        assert error.field == "command.env['NAME']"
        assert Command(argv=("env",), env={"NAME": "x" * (MAX_ARGUMENT_LENGTH - 5)}).env

    @given(name=bad_texts.filter(lambda value: not isinstance(value, list)))
    def test_a_bad_variable_name_is_refused(self, name):
        assert refused(Command, argv=("env",), env={name: "v"}).field == "command.env"

    @pytest.mark.parametrize("name", ["", "A=B", "="])
    def test_a_name_that_is_empty_or_holds_an_equals_sign_is_refused(self, name):
        assert refused(Command, argv=("env",), env={name: "v"}).value == name

    @given(value=bad_texts)
    def test_a_bad_variable_value_is_refused_by_its_name(self, value):
        assert refused(Command, argv=("env",), env={"A": value}).field == "command.env['A']"

    @pytest.mark.parametrize("name", ["files", "env"])
    @pytest.mark.parametrize("value", [None, [("a", "b")], "a", 5, {"a"}])
    def test_files_and_variables_are_mappings(self, name, value):
        assert refused(Command, argv=("ls",), **{name: value}).field == f"command.{name}"

    def test_a_mapping_of_any_kind_is_copied_and_travels(self):
        given_files = {"a": "1"}
        command = Command(argv=("ls",), files=types.MappingProxyType(given_files))
        given_files["a"] = "2"
        action = Action(command=command)
        decoded = decode_action(encode_action(action)).command
        assert decoded is not None
        assert decoded.files == {"a": "1"}

    @pytest.mark.parametrize(
        "path",
        [
            "",
            "/etc/passwd",
            "..",
            "../up",
            "a/../../up",
            "a/..",
            ".",
            "a/",
            "a/.",
            "nul\0",
            "\ud800",
            "x" * (MAX_FILE_NAME_BYTES + 1),
            "é" * (MAX_FILE_NAME_BYTES // 2 + 1),
            "d/" * (MAX_PATH_LENGTH // 2) + "f",
            5,
            None,
            b"main.py",
        ],
    )
    def test_a_path_that_names_no_file_below_the_workspace_is_refused(self, path):
        assert refused(Command, argv=("ls",), files={path: ""}).field == "command.files"

    @pytest.mark.parametrize("path", ["main.py", "./main.py", "a/b/c.txt", "..a", "a..", "é", " "])
    def test_a_path_that_does_is_taken(self, path):
        assert Command(argv=("ls",), files={path: "text"}).files == {path: "text"}

    def test_one_file_under_two_names_is_refused(self):
        error = refused(Command, argv=("ls",), files={"a/b": "1", "./a//b": "2"})
        assert "same file as 'a/b'" in error.mend

    def test_a_file_below_a_file_is_refused(self):
        error = refused(Command, argv=("ls",), files={"a/b/c": "", "a": ""})
        assert error.value == "a/b/c"
        assert "'a' is a file" in error.mend

    @given(content=bad_texts)
    def test_a_bad_content_is_refused_by_its_path(self, content):
        error = refused(Command, argv=("ls",), files={"main.py": content})
        assert error.field == "command.files['main.py']"

    def test_too_many_files_are_refused_with_their_number(self):
        error = refused(Command, argv=("ls",), files={f"f{n}": "" for n in range(MAX_FILES + 1)})
        assert error.value == MAX_FILES + 1

    @pytest.mark.parametrize("cwd", ["", "/tmp", "../x", 5, b"x", "a\0"])
    def test_a_folder_outside_the_workspace_is_refused(self, cwd):
        assert refused(Command, argv=("ls",), cwd=cwd).field == "command.cwd"

    @given(stdin=bad_texts.filter(lambda value: value is not None))
    def test_a_bad_standard_input_is_refused(self, stdin):
        assert refused(Command, argv=("cat",), stdin=stdin).field == "command.stdin"


class TestScore:
    @pytest.mark.parametrize(
        "model", ["", "RM", "-rm", "rm one", "rm/1", "x" * 64, None, 5, "rm\n"]
    )
    def test_a_model_that_cannot_name_a_queue_is_refused(self, model):
        error = refused(Score, model=model, responses=("a",), references=("b",))
        assert error.field == "score.model"

    @pytest.mark.parametrize("name", ["responses", "references"])
    @pytest.mark.parametrize("value", ["text", None, 5, {"a": "b"}])
    def test_texts_that_are_no_list_are_refused(self, name, value):
        texts = {"responses": ("a",), "references": ("b",)} | {name: value}
        assert refused(Score, model="rm", **texts).field == f"score.{name}"

    @given(value=bad_texts)
    def test_a_bad_text_is_refused_by_its_place(self, value):
        error = refused(Score, model="rm", responses=("a", value), references=("b", "c"))
        assert error.field == "score.responses[1]"

    def test_an_empty_batch_is_refused(self):
        assert refused(Score, model="rm", responses=(), references=()).field == "score.responses"

    def test_one_reference_is_wanted_for_each_response(self):
        error = refused(Score, model="rm", responses=("a", "b"), references=("c",))
        assert error.field == "score.references"
        assert "2 responses" in error.mend


class TestApiCall:
    @pytest.mark.parametrize("provider", ["", "Search", "a b", None, 5])
    def test_a_provider_that_cannot_name_a_queue_is_refused(self, provider):
        assert refused(ApiCall, provider=provider, path="x").field == "api_call.provider"

    @given(value=bad_texts)
    def test_a_bad_path_is_refused(self, value):
        assert refused(ApiCall, provider="p", path=value).field == "api_call.path"

    @pytest.mark.parametrize("body", [None, [], "text", 5, {5: "number for a name"}])
    def test_a_body_that_is_no_json_object_is_refused(self, body):
        assert refused(ApiCall, provider="p", path="x", body=body).field == "api_call.body"


def any_argument(kind):
    names = [each.name for each in dataclasses.fields(kind)]
    return st.dictionaries(st.sampled_from(names), anything, max_size=4)


@pytest.mark.parametrize(
    "kind", [Action, Command, Score, ApiCall, RewardRule, ResourceVector, Elasticity]
)
@given(data=st.data())
def test_whatever_is_given_the_answer_is_an_object_or_an_invalid_action_error(kind, data):
    required = {
        Action: {"command": COMMAND},
        Command: {"argv": ("ls",)},
        Score: {"model": "rm", "responses": ("a",), "references": ("b",)},
        ApiCall: {"provider": "p", "path": "x"},
    }.get(kind, {})
    arguments = required | data.draw(any_argument(kind))
    with contextlib.suppress(InvalidActionError):
        kind(**arguments)


def test_an_action_cannot_be_changed():
    action = Action(command=COMMAND)
    with pytest.raises(dataclasses.FrozenInstanceError):
        action.timeout_s = 5.0  # type: ignore[misc]  # refused, as the type says
