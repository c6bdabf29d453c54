"""Data in all its forms, what is copied, and what is refused."""

import numpy as np
import pytest

import undertone as ut
from undertone import _native, _tables
from conftest import study


def run(data, groups, **changes):
    return study(**changes).simulate(data, groups=groups).text("clients.csv")


def test_all_forms_give_the_same_bits(columns):
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    table, party = columns
    wanted = run(table, party)
    frame = pandas.DataFrame(table)
    assert run(frame, party) == wanted
    assert run(frame.assign(hospital=party), "hospital") == wanted
    assert run(frame.assign(hospital=pandas.Categorical(party)), "hospital") == wanted
    assert run(frame.assign(smoker=frame["smoker"].astype("category")), party) == wanted
    assert run(frame.assign(smoker=frame["smoker"].astype(object)), pandas.Series(party)) == wanted
    assert run(polars.DataFrame(table), party) == wanted
    assert run(polars.DataFrame(table).with_columns(hospital=polars.Series(party)), "hospital") == wanted
    assert run(polars.DataFrame(table).with_columns(polars.col("smoker").cast(polars.Categorical)), polars.Series(party)) == wanted
    assert run(polars.concat([polars.DataFrame(table)[:70], polars.DataFrame(table)[70:]], rechunk=False), party) == wanted
    assert run(arrow.table(table), party) == wanted
    assert run(arrow.table(table).to_batches(max_chunksize=50)[0], party[:50]) == run({k: v[:50] for k, v in table.items()}, party[:50])
    assert run({k: list(v) for k, v in table.items()}, list(party)) == wanted
    kinds = [(k, v.dtype if k != "smoker" else "U3") for k, v in table.items()]
    assert run(np.array(list(zip(*table.values())), dtype=kinds), party) == wanted


def test_other_columns_may_be_anything(columns):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table, party = columns
    frame = pandas.DataFrame(table).assign(admitted=pandas.Timestamp("2020-01-01"), hospital=party)
    wanted = run(table, party)
    assert run(frame, "hospital") == run(polars.from_pandas(frame), "hospital") == wanted
    assert run({**table, "notes": [object()] * 180}, party) == wanted


def test_arrays_take_the_names_of_the_study(columns):
    table, party = columns
    numbers = study(features={"age": (18, 100), "dose": (0, 50)})
    array = np.column_stack([table["age"], table["dose"], table["days"]])
    wanted = numbers.simulate(table, groups=party).text("clients.csv")
    for layout in (array, np.asfortranarray(array), array[::-1][::-1]):
        assert numbers.simulate(layout, groups=party).text("clients.csv") == wanted
    with pytest.raises(ValueError, match="got 2"):
        numbers.simulate(array[:, :2], groups=party)
    with pytest.raises(ValueError, match="Expected 2D array, got 3D array"):
        numbers.simulate(array[:, :, None], groups=party)


def sees_changes(values, change):
    """Whether a table of these values sees a change of their memory: it does if it has not copied them."""
    model = ut.Model('{"format": "undertone model 1", "loss": "squared", "loss_parameters": {}, "target": "y", "intercept": 0,'
                     ' "coefficients": {"x": 1}, "columns": {"categories": {}, "limits": {}, "filled": {}}}')
    table = _tables.table(values)
    before = model.predict(table)[0]
    change()
    return model.predict(table)[0] != before


def test_columns_of_floats_are_not_copied():
    pandas = pytest.importorskip("pandas")
    arrow = pytest.importorskip("pyarrow")
    array = np.arange(5.0)
    assert sees_changes({"x": array}, lambda: array.__setitem__(0, 9.0))
    frame = np.arange(5.0)
    assert sees_changes(pandas.DataFrame({"x": frame}, copy=False), lambda: frame.__setitem__(0, 9.0))
    memory = np.arange(5.0)
    buffer = arrow.py_buffer(memory)
    column = arrow.Array.from_buffers(arrow.float64(), 5, [None, buffer])
    assert sees_changes(arrow.table({"x": column}), lambda: memory.__setitem__(0, 9.0))
    # Other numbers have to be converted.
    whole = np.arange(5)
    assert not sees_changes({"x": whole}, lambda: whole.__setitem__(0, 9))
    strided = np.arange(10.0)
    assert not sees_changes({"x": strided[::2]}, lambda: strided.__setitem__(0, 9.0))


def test_memory_is_kept_as_long_as_it_is_used():
    table = _tables.table({"x": np.full(100_000, 3.0)})
    for _ in range(20):
        np.full(100_000, 7.0)
    model = ut.Model('{"format": "undertone model 1", "loss": "squared", "loss_parameters": {}, "target": "y", "intercept": 0,'
                     ' "coefficients": {"x": 1}, "columns": {"categories": {}, "limits": {}, "filled": {}}}')
    assert set(model.predict(table)) == {3.0}


def test_missing_cells(columns):
    pandas = pytest.importorskip("pandas")
    table, party = columns
    gone = np.where(np.arange(180) == 4, np.nan, table["age"])
    for age in (gone, [None if np.isnan(v) else v for v in gone], pandas.array(gone, dtype="Float64")):
        with pytest.raises(ut.DataError, match="age.*empty"):
            run({**table, "age": age}, party)
    filled = run({**table, "age": gone}, party, missing="mean")
    assert filled == run(pandas.DataFrame({**table, "age": pandas.array(gone, dtype="Float64")}), party, missing="mean")
    smoker = np.array(table["smoker"], dtype=object)
    smoker[3] = None
    with pytest.raises(ut.DataError, match="lakeside: row 2.*smoker"):
        run({**table, "smoker": smoker}, party)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"age": np.full(180, np.inf)}, ut.DataError, "age.*finite"),
        ({"age": np.zeros((180, 2))}, ValueError, r"should be a 1d array, got an array of shape \(180, 2\)"),
        ({"age": np.zeros(179)}, ut.DataError, "rows where the columns before it have 179"),
        ({"age": np.zeros(180, complex)}, ValueError, "Complex data not supported"),
        ({"age": np.array([object()] * 180)}, TypeError, "holds objects such as object"),
        ({"age": np.array(["2020-01-01"] * 180, "datetime64[D]")}, TypeError, "neither a number nor text"),
        ({"age": ["old"] * 180}, ut.DataError, 'age.*number'),
        ({"smoker": ["perhaps"] * 180}, ut.DataError, "smoker.*public list"),
        ({"dose": np.full(180, 51.0)}, None, ""),
    ],
)
def test_what_is_wrong_is_told(columns, change, error, words):
    table, party = columns
    if error is None:
        run({**table, **change}, party)  # outside = "clamp"
        with pytest.raises(ut.DataError, match="outside the public bounds"):
            run({**table, **change}, party, outside="refuse")
        return
    with pytest.raises(error, match=words):
        run({**table, **change}, party)


def test_groups(columns):
    table, party = columns
    with pytest.raises(TypeError, match="groups is missing"):
        study().simulate(table)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        run(table, party[:10])
    with pytest.raises(ValueError, match="1d array"):
        run(table, np.zeros((180, 2)))
    with pytest.raises(ut.DataError, match="no column"):
        run(table, "hospital")
    with pytest.raises(ut.DataError, match="row 1: is empty"):
        run(table, [None] * 180)
    with pytest.raises(ut.DataError, match="fewer than two"):
        run(table, ["one"] * 180)
    with pytest.raises(TypeError, match="a table for each party already"):
        study().simulate({"a": table, "b": table}, groups=party)
    with pytest.raises(TypeError, match="not int"):
        study().simulate(3, groups=party)
    with pytest.raises(ut.DataError, match='no column "age"'):
        run({k: v for k, v in table.items() if k != "age"}, party)


def test_one_table_for_studies_that_divide_it(columns):
    table, party = columns
    by_column = study(data={"source": "column", "client": "hospital", "path": "nowhere.csv"})
    split = study(data={"source": "split", "clients": 3, "path": "nowhere.csv"})
    wanted = run(table, party)
    assert by_column.simulate({**table, "hospital": party}).text("clients.csv") == wanted
    assert by_column.simulate(table, groups=party).text("clients.csv") == wanted
    assert split.simulate(table).text("clients.csv").replace("\n1,", "\nlakeside,").splitlines()[1] == wanted.splitlines()[1]


def test_arrays_that_are_no_columns_are_refused_below():
    for wrong in (np.zeros((2, 2)), np.zeros(4, np.float32), np.zeros(8)[::2]):
        with pytest.raises((TypeError, ValueError)):
            _native.Table.from_columns([("x", wrong)])
    assert len(_native.Table.from_columns([("x", np.zeros(0))])) == 0


def test_what_is_masked_or_missing_is_not_a_number():
    x = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])
    table = _tables.table({"x": x, "w": np.ma.masked_array(["a", "b", "c"], mask=[True, False, False])})
    assert np.isnan(_tables.column("x", x)[1]) and len(table) == 3
    assert _tables.column("w", np.ma.masked_array(["a", "b"], mask=[True, False], dtype=object)) == [None, "b"]
    both = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    study = ut.Study(loss="squared", features={"x": (0, 5)}, target={"y": (0, 5)}, records=2, epsilon=1, delta=1e-5, rounds=5, missing="mean")
    assert study.check(both).columns["empty"][1] == 1


def test_missing_cells_of_pandas_are_missing():
    pandas = pytest.importorskip("pandas")
    for kind in ("string", "object"):
        assert _tables.column("w", pandas.Series(["a", pandas.NA], dtype=kind)) == ["a", None]
    assert _tables.column("w", pandas.Categorical(["a", None])) == ["a", None]
    with pytest.raises(ut.DataError, match="row 2: is empty"):
        _tables.labels(pandas.Series(["a", pandas.NA], dtype="string"), 2)


def test_arrow_that_is_no_table_is_an_error():
    pyarrow = pytest.importorskip("pyarrow")
    with pytest.raises(TypeError, match="a table is"):
        _tables.table(pyarrow.array([1.0]))
    with pytest.raises(TypeError, match="a table is"):
        _tables.table(pyarrow.chunked_array([pyarrow.array([{"x": 1.0}, None])]))

    class Consumed:
        def __init__(self, batch):
            self.capsules = batch.__arrow_c_array__()

        def __arrow_c_array__(self, requested_schema=None):
            return self.capsules

    consumed = Consumed(pyarrow.record_batch({"x": [1.0]}))
    assert len(_tables.table(consumed)) == 1
    for broken in (consumed, pyarrow.table({"x": pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 5]), ["a"], safe=False)})):
        with pytest.raises(ut.DataError):
            _tables.table(broken)
    offsets = pyarrow.py_buffer(np.array([3, 1, 2, 3], dtype=np.int32))
    text = pyarrow.Array.from_buffers(pyarrow.string(), 3, [None, offsets, pyarrow.py_buffer(b"abc")])
    with pytest.raises(ut.DataError, match='column "w": is broken Arrow data'):
        _tables.table(pyarrow.table({"w": text}))
    with pytest.raises(ut.DataError, match='two columns named "x"'):
        _tables.table(pyarrow.table([pyarrow.array([1.0]), pyarrow.array([2.0])], names=["x", "x"]))
    assert _tables.labels(pyarrow.array(["a", "b"]), 2) == ["a", "b"]


def test_a_missing_column_is_what_the_message_is_about():
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"y": [1.0, 2.0], "admitted": pandas.to_datetime(["2026-01-01", "2026-01-02"])})
    study = ut.Study(loss="squared", features={"x": (0, 5)}, target={"y": (0, 5)}, records=2, epsilon=1, delta=1e-5, rounds=5)
    for data in (frame, dict(frame), pyarrow.table({"y": [1.0, 2.0], "admitted": frame["admitted"].to_numpy()})):
        with pytest.raises(ut.DataError, match='no column "x"'):
            study.simulate(data, groups=["a", "b"])
