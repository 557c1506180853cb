"""The identity of a callable: another model never has the same, the same model always has."""

from __future__ import annotations

import array
import collections
import dataclasses
import functools
import itertools
import subprocess
import sys
import textwrap
import threading
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrelu import connect, planted
from unrelu.oracles.fingerprint import MAX_VALUES, callable_identity, fingerprint


class Slotted:
    __slots__ = ("__hidden", "weight")

    def __init__(self, weight):
        self.weight = self.__hidden = weight

    def __call__(self, x):
        return x[:, 0] * self.weight


class SlottedAndMore(Slotted):
    def __init__(self, weight):
        super().__init__(1.0)
        self.bias = weight

    def __call__(self, x):
        return super().__call__(x) + self.bias


class Holder:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def predict(self, x):
        return x[:, 0] * first_number(self)

    __call__ = predict


@dataclasses.dataclass(frozen=True)
class Layer:
    weight: float
    parent: object = None


class Named(collections.namedtuple("Named", "weight")):
    def __call__(self, x):
        return x[:, 0] * self.weight


def first_number(value):
    """Find the one float that a structure holds, however deep."""
    waiting, seen = [value], {}
    while waiting:
        value = waiting.pop()
        if isinstance(value, float):
            return value
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, dict):
            waiting += [*value.values(), *value]
        elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            waiting += list(value)
        elif isinstance(value, (np.ndarray, array.array)):
            waiting.append(float(np.asarray(value).ravel()[0]))
        elif hasattr(value, "__dict__"):
            waiting += list(vars(value).values())
    raise AssertionError


def closure_over(value):
    return lambda x: x[:, 0] * first_number(value)


def in_module(source, weight, **names):
    """A module of the user's with its own globals, as an import would make it."""
    module = types.ModuleType("users_module")
    vars(module).update(names, np=np, weight=weight)
    exec(textwrap.dedent(source), vars(module))
    return module


def read_through_a_module(weight):
    inner = in_module("", weight)
    return in_module("def f(x): return x[:, 0] * inner.weight", 1.0, inner=inner).f


def read_in_an_inner_function(weight):
    source = "def f(x): return np.array([(lambda: row[0] * weight)() for row in x])"
    return in_module(source, weight).f


def read_by_a_helper(weight):
    return in_module(
        """
        def helper(x): return x[:, 0] * weight
        def f(x): return helper(x)
        """,
        weight,
    ).f


def class_attribute(weight):
    return in_module(
        """
        class Base: pass
        class Model(Base):
            def __call__(self, x): return x[:, 0] * self.scale
        Base.scale = weight
        f = Model()
        """,
        weight,
    ).f


def property_of_a_class(weight):
    return in_module(
        """
        class Model:
            @property
            def scale(self): return weight
            @staticmethod
            def shift(): return 0.0
            def __call__(self, x): return x[:, 0] * self.scale + self.shift()
        f = Model()
        """,
        weight,
    ).f


def function_attribute(weight):
    module = in_module("def f(x): return x[:, 0] * f.weight", 0.0)
    module.f.weight = weight
    return module.f


def circle(weight):
    first, second = [], {}
    first.append(second)
    second["back"] = first
    second["weight"] = weight
    return closure_over(first)


def circle_through_a_set(weight):
    holder = Holder()
    holder.members = {Layer(weight), "other"}
    holder.back = [holder]
    return holder.predict


def deep(weight):
    nested = [weight]
    for _ in range(5000):  # far beyond the recursion limit
        nested = [nested]
    return closure_over(nested)


def default_argument(weight):
    return lambda x, w=weight: x[:, 0] * w


def keyword_default(weight):
    return lambda x, *, w=weight: x[:, 0] * w


def constant(weight):
    return eval(f"lambda x: x[:, 0] * {weight!r}")


def decorated(weight):
    @functools.lru_cache
    def scale():
        return weight

    @functools.wraps(scale)
    def f(x):
        return x[:, 0] * scale()

    return f


def bound_array(weight):
    return (weight * np.eye(3)).__rmatmul__


def estimator_inside(weight):
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit(np.eye(3), np.full(3, weight))
    return lambda x: model.predict(x)


FORMS = {
    "float in a closure": lambda w: closure_over(w),
    "list": lambda w: closure_over([1, "a", w]),
    "dict value": lambda w: closure_over({"layers": {"first": w}}),
    "dict key": lambda w: closure_over({w: "weight"}),
    "tuple": lambda w: closure_over((1, (2, (w,)))),
    "set": lambda w: closure_over({"a", "b", w}),
    "frozenset": lambda w: closure_over(frozenset(["a", "b", w])),
    "deque": lambda w: closure_over(collections.deque([w])),
    "array": lambda w: closure_over(np.full((2, 3), w)),
    "array of objects": lambda w: closure_over(np.array([w, "a"], dtype=object)),
    "array of the standard library": lambda w: closure_over(array.array("d", [w])),
    "numpy scalar": lambda w: (lambda value: lambda x: x[:, 0] * value)(np.float32(w)),
    "slots": Slotted,
    "slots and attributes": SlottedAndMore,
    "attribute": lambda w: Holder(weight=w),
    "attributes at depth": lambda w: Holder(a=Holder(b=[Holder(c={"d": Holder(e=w)})])),
    "bound method": lambda w: Holder(model=Holder(weights=[w])).predict,
    "partial": lambda w: functools.partial(lambda v, x: x[:, 0] * v, w),
    "keyword of a partial": lambda w: functools.partial(lambda x, v: x[:, 0] * v, v=w),
    "dataclass": lambda w: closure_over(Layer(1, Layer(w))),
    "named tuple": Named,
    "module global": lambda w: in_module("def f(x): return x[:, 0] * weight", w).f,
    "module global, an array": lambda w: (
        in_module("def f(x): return x[:, :1] @ weight", np.full((1, 1), w)).f
    ),
    "another module's global": read_through_a_module,
    "global of an inner function": read_in_an_inner_function,
    "global of a helper": read_by_a_helper,
    "class attribute of a base": class_attribute,
    "property": property_of_a_class,
    "function attribute": function_attribute,
    "circle": circle,
    "circle through a set": circle_through_a_set,
    "deep": deep,
    "default": default_argument,
    "keyword default": keyword_default,
    "constant of the code": constant,
    "decorated and cached": decorated,
    "method of an array": bound_array,
    "estimator in a closure": estimator_inside,
    "network": lambda w: closure_over_network(w),
    "oracle": lambda w: closure_over_oracle(w),
}  # fmt: skip


def closure_over_network(weight):
    network = planted.random_network(3, 2, 1, rng=int(100 * weight))
    return lambda x: network(x)


def closure_over_oracle(weight):
    oracle = connect(planted.random_network(3, 2, 1, rng=int(100 * weight)))
    return lambda x: oracle(x)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_ledger_never_answers_for_a_retrained_model(form, tmp_path):
    old, same, new = form(1.25), form(1.25), form(1.5)
    x = np.abs(np.random.default_rng(0).standard_normal((20, 3))) + 0.1
    expected = {name: np.asarray(f(x)).reshape(20, -1) for name, f in (("o", old), ("n", new))}
    assert not np.array_equal(expected["o"], expected["n"])
    path = tmp_path / "l.db"
    first = connect(old, input_dim=3, ledger=path)
    again = connect(same, input_dim=3, ledger=path)
    np.testing.assert_array_equal(first(x), expected["o"])
    assert again.identity == first.identity
    assert "unread" not in first.identity
    np.testing.assert_array_equal(again(x), expected["o"])
    other = connect(new, input_dim=3, ledger=path)
    assert other.identity != first.identity
    np.testing.assert_array_equal(other(x), expected["n"])


values = st.recursive(
    st.floats(allow_nan=False) | st.integers() | st.text() | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner)
        | st.builds(lambda value: Holder(value=value), inner)
        | st.builds(Slotted, inner)
    ),
    max_leaves=8,
)


@given(values, values)
def test_structures_have_one_fingerprint_exactly_if_they_are_equal(one, two):
    def written(value):
        """Content and types as text; Python says that 1 == 1.0 == True."""
        if isinstance(value, (Holder, Slotted)):
            inner = vars(value) if isinstance(value, Holder) else value.weight
            return f"{type(value).__name__}({written(inner)})"
        if isinstance(value, dict):
            return "{" + ",".join(f"{k!r}:{written(v)}" for k, v in value.items()) + "}"
        if isinstance(value, (list, tuple)):
            return f"{type(value).__name__}({','.join(map(written, value))})"
        return repr(value)

    assert (fingerprint(one) == fingerprint(two)) == (written(one) == written(two))


@given(st.lists(st.text() | st.integers(), unique=True), st.randoms())
def test_the_order_of_a_set_does_not_matter(items, random):
    shuffled = items.copy()
    random.shuffle(shuffled)
    assert fingerprint(set(items)) == fingerprint(set(shuffled))
    if items:
        assert fingerprint(set(items[1:])) != fingerprint(set(items))


def test_the_same_in_every_process(tmp_path):
    """Also where the code comes from a cached file, and texts are hashed with another seed."""
    (tmp_path / "users_model.py").write_text(
        textwrap.dedent(
            """
            import functools, re
            import numpy as np

            WEIGHT = np.arange(6.0).reshape(3, 2)
            NAMES = {"a", "b", "c", ("d", 1)}
            SIZES = (1, 2, 3)

            class Model:
                kinds = frozenset({"x", "y", "z"})
                def __init__(self):
                    self.names = NAMES
                    self.pattern = re.compile("a+")
                    self.sizes = (1, 2, 3)
                def __call__(self, x):
                    assert "d" not in {"e", "f", "g"}
                    return np.maximum(x @ WEIGHT, 0) + len(self.names) + SIZES[0]

            target = functools.partial(Model())
            """
        )
    )
    code = (
        "import users_model; from unrelu.oracles.fingerprint import callable_identity;"
        "print(callable_identity(users_model.target))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
            check=True, env={"PYTHONPATH": ":".join(filter(None, sys.path)),
                             "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(2)
    }  # fmt: skip
    assert len(found) == 1
    assert "unread" not in found.pop()


def test_what_cannot_be_read_is_said(tmp_path, caplog):
    stream = (tmp_path / "weights.txt").open("w+")
    steps = (value for value in [1.0])
    with stream:
        identity = callable_identity(lambda x: x[:, 0] * float(stream.read() or next(steps)))
        assert identity.endswith("~unread:_io.TextIOWrapper,generator")
        target = functools.partial(lambda s, x: x[:, 0], stream)
        with caplog.at_level("WARNING", logger="unrelu"):
            connect(target, input_dim=2)
            assert not caplog.records  # without a ledger nothing rests on it
            connect(target, input_dim=2, ledger=tmp_path / "l.db")
    assert "TextIOWrapper" in caplog.text
    assert "name=" in caplog.text
    vectorised = np.frompyfunc(lambda value: value, 1, 1)
    assert "unread:numpy.ufunc" in callable_identity(lambda x: vectorised(x))
    late = in_module("def f(x):\n import not_there_yet\n return not_there_yet.w", 1.0)
    assert "import of not_there_yet" in callable_identity(late.f)


def test_what_moves_while_a_target_answers_and_is_no_model_does_not_count():
    def make():
        rng, lock = np.random.default_rng(), threading.Lock()

        def noisy(x):
            with lock:
                return x[:, 0] + rng.standard_normal(len(x))

        return noisy

    assert callable_identity(make()) == callable_identity(make())
    assert "unread" not in callable_identity(make())


def test_objects_that_resist_are_no_accident():
    class Proxy:
        def __getattr__(self, name):
            raise RuntimeError(f"no {name} here")

        def __call__(self, x):
            return x[:, 0]

    class Angry:
        __slots__ = ()

        def __reduce_ex__(self, protocol):
            raise OSError

    assert callable_identity(Proxy()).startswith("callable:")
    assert "Angry" in callable_identity(closure_over([Angry()]))


def test_a_structure_without_end_is_cut_and_said(monkeypatch):
    from unrelu.oracles import fingerprint as module

    monkeypatch.setattr(module, "MAX_VALUES", 1000)
    many = ["a"] * 2000
    assert "beyond 1000 values" in callable_identity(closure_over(many))
    assert MAX_VALUES >= 1_000_000
    counting = itertools.count()
    assert "unread" not in callable_identity(closure_over(counting))
