#!/usr/bin/env python3
"""Writes normlab/stats/testdata/scipy.json: seeded inputs with the answers of numpy, scipy and statsmodels.

The C++ test scipy_test.cc reads that file. Run again only to add cases:

    python3 tools/make_stats_fixtures.py            # numpy, scipy >= 1.13, statsmodels >= 0.14; a minute

Nothing here shares code with normlab: what these lack (the two one-sided tests, Hedges' g_z, the power of the
two one-sided tests, the two-way interval) is written from the formulas by another route. The published values that
the C++ tests hold are checked here as well: the script stops where scipy does not agree with one.
"""

import json
import math
import pathlib

import numpy as np
import scipy
import statsmodels
from scipy import integrate, stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW

OUT = pathlib.Path(__file__).resolve().parent.parent / "normlab/stats/testdata/scipy.json"
DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]


def paired(rng):
    cases = []
    for n, shift, sd in [(2, 0.01, 0.01), (3, 0.0, 0.02), (5, 0.02, 0.008), (8, -0.004, 0.003), (10, 0.0, 1.0),
                         (20, 0.3, 1.0), (40, -0.001, 0.01)]:
        baseline = rng.normal(3.0, 0.05, n)
        variant = baseline + rng.normal(shift, sd, n)
        d = variant - baseline
        ttest = stats.ttest_rel(variant, baseline)
        margin = 0.01
        lower = stats.ttest_1samp(d, -margin, alternative="greater").pvalue
        upper = stats.ttest_1samp(d, margin, alternative="less").pvalue
        case = {
            "variant": variant.tolist(), "baseline": baseline.tolist(), "margin": margin,
            "mean": float(np.mean(d)), "sd": float(np.std(d, ddof=1)), "t": float(ttest.statistic),
            "p": float(ttest.pvalue), "equivalence_p": float(max(lower, upper)), "intervals": [],
            "wilcoxon_w": float(stats.wilcoxon(d, method="exact").statistic),
            "wilcoxon_p": float(stats.wilcoxon(d, method="exact").pvalue),
        }
        for alpha in (0.05, 0.1, 0.00625):
            interval = ttest.confidence_interval(1 - alpha)
            case["intervals"].append({"alpha": alpha, "low": float(interval.low), "high": float(interval.high)})
        if n >= 3:
            df = n - 1
            j = math.gamma(df / 2) / (math.sqrt(df / 2) * math.gamma((df - 1) / 2))
            case["hedges_g"] = float(j * np.mean(d) / np.std(d, ddof=1))
        if n <= 10:
            flips = stats.permutation_test((variant, baseline), lambda x, y: np.mean(x - y),
                                           permutation_type="samples", n_resamples=np.inf)
            case["sign_flip_p"] = float(flips.pvalue)
        cases.append(case)
    return cases


def wilcoxon_ties(rng):
    """Ties and zeros: scipy enumerates all sign choices."""
    cases = []
    for n in (5, 7, 9, 12):
        for _ in range(4):
            d = rng.integers(-3, 5, n).astype(float)
            result = stats.wilcoxon(d, method=stats.PermutationMethod(n_resamples=np.inf))
            cases.append({"d": d.tolist(), "w": float(result.statistic), "p": float(result.pvalue), "exact": True})
    for values in (rng.normal(0.2, 1, 60), np.round(rng.normal(0.3, 1, 80), 1)):
        result = stats.wilcoxon(values, method="asymptotic", correction=False)
        cases.append({"d": values.tolist(), "w": float(result.statistic), "p": float(result.pvalue), "exact": False})
    return cases


def proportions():
    intervals = []
    for hits, runs in [(0, 5), (5, 5), (1, 5), (3, 8), (17, 40), (0, 1)]:
        for alpha in (0.05, 0.00625):
            ci = stats.binomtest(hits, runs).proportion_ci(1 - alpha, method="exact")
            intervals.append({"hits": hits, "runs": runs, "alpha": alpha, "low": float(ci.low), "high": float(ci.high)})
    tables = []
    for a, n1, b, n2 in [(5, 5, 0, 5), (0, 5, 5, 5), (1, 5, 0, 5), (3, 8, 1, 6), (7, 20, 2, 18), (2, 2, 2, 2), (4, 9, 4, 9),
                         (0, 4, 0, 7)]:
        p = stats.fisher_exact([[a, n1 - a], [b, n2 - b]]).pvalue
        tables.append({"first": [a, n1], "second": [b, n2], "p": float(p)})
    return {"intervals": intervals, "fisher": tables}


def paired_t_power():
    cases = []
    for n, effect, alpha in [(34, 0.5, 0.05), (3, 2.0, 0.05), (5, 1.0, 0.05), (5, -1.0, 0.05), (5, 4.0, 0.00625),
                             (8, 0.3, 0.025), (20, 0.66, 0.05), (100, 0.2, 0.0125), (1000, 0.1, 0.05)]:
        df, ncp = n - 1, abs(effect) * math.sqrt(n)
        critical = stats.t.isf(alpha / 2, df)
        lower = float(stats.nct.cdf(-critical, df, ncp))
        power = float(stats.nct.sf(critical, df, ncp)) + (lower if math.isfinite(lower) else 0.0)
        assert math.isfinite(power), (n, effect, alpha)
        cases.append({"n": n, "effect": effect, "alpha": alpha, "power": power})
    return cases


def equivalence_power():
    cases = []
    for n, effect, margin, alpha in [(5, 0.0, 1.0, 0.05), (5, 0.0, 3.0, 0.025), (8, 0.5, 1.5, 0.05), (20, 0.0, 0.7, 0.05),
                                     (20, 0.7, 0.7, 0.05), (50, -0.2, 0.6, 0.0125), (400, 0.0, 0.2, 0.05)]:
        df = n - 1
        critical = stats.t.isf(alpha, df)
        root = math.sqrt(n)

        # Integrates over the mean, not over the spread: given z, the spread must stay below a bound.
        def integrand(z):
            room = (margin - abs(z)) * root / critical
            return stats.norm.pdf(z, effect, 1 / root) * stats.chi2.cdf(df * room**2, df)

        points = [x for x in (0.0, effect) if -margin < x < margin]
        power, error = integrate.quad(integrand, -margin, margin, points=points, epsabs=1e-12, epsrel=1e-12, limit=500)
        assert error < 1e-10
        cases.append({"n": n, "effect": effect, "margin": margin, "alpha": alpha, "power": float(power)})
    return cases


def quantiles(rng):
    cases = []
    for n in (1, 2, 5, 12, 33):
        values = rng.normal(0, 1, n)
        levels = [0.0, 0.025, 0.25, 0.5, 0.61, 0.975, 1.0]
        cases.append({"values": values.tolist(), "levels": levels,
                      "quantiles": np.quantile(values, levels, method="linear").tolist()})
    return cases


def bca(rng):
    cases = []
    for values in (np.array(DARWIN, float), rng.normal(0.1, 1, 20), rng.lognormal(0, 0.8, 30)):
        for alpha in (0.05, 0.0125):
            result = stats.bootstrap((values,), np.mean, confidence_level=1 - alpha, n_resamples=1_000_000, batch=20_000,
                                     method="BCa", random_state=np.random.default_rng(7))
            ci = result.confidence_interval
            cases.append({"values": values.tolist(), "alpha": alpha, "low": float(ci.low), "high": float(ci.high)})
    return cases


def two_way(rng):
    cases = []
    for seeds, blocks, sd_seed, sd_block, sd_cell in [(3, 10, 0.01, 0.02, 0.01), (5, 40, 0.002, 0.05, 0.03),
                                                       (8, 6, 1.0, 0.1, 0.5)]:
        d = (rng.normal(0.02, sd_seed, (seeds, 1)) + rng.normal(0, sd_block, (1, blocks))
             + rng.normal(0, sd_cell, (seeds, blocks)))
        # By sums of squares about the grand mean; the residual is what is left of the total.
        grand = d.mean()
        ss_seed = blocks * np.sum((d.mean(1) - grand) ** 2)
        ss_block = seeds * np.sum((d.mean(0) - grand) ** 2)
        ss_rest = np.sum((d - grand) ** 2) - ss_seed - ss_block
        ms = [ss_seed / (seeds - 1), ss_block / (blocks - 1), ss_rest / ((seeds - 1) * (blocks - 1))]
        top = ms[0] + ms[1] - ms[2]
        df = top**2 / (ms[0]**2 / (seeds - 1) + ms[1]**2 / (blocks - 1) + ms[2]**2 / ((seeds - 1) * (blocks - 1)))
        if ms[1] <= ms[2]:  # the text adds nothing: the interval of the seeds' means
            top, df = ms[0], seeds - 1
        half = stats.t.isf(0.025, df) * math.sqrt(top / (seeds * blocks))
        # Components by another route: means of products of paired rows and columns, which cancel the rest.
        rows, columns = np.cov(d), np.cov(d.T)
        between = lambda c: (c.sum() - np.trace(c)) / (len(c) * (len(c) - 1))
        parts = {"var_block": max(0.0, between(rows)), "var_seed": max(0.0, between(columns)), "var_residual": ms[2]}
        cases.append({"values": d.ravel().tolist(), "seeds": seeds, "blocks": blocks, "alpha": 0.05, "df": float(df),
                      **{name: float(value) for name, value in parts.items()},
                      "low": float(grand - half), "high": float(grand + half)})
    return cases


def check_published():
    """The reference values of the C++ tests, to the digits they are given with."""
    def near(value, published, half_unit):
        assert abs(value - published) <= half_unit, (value, published)

    d = np.array(DARWIN, float)
    test = stats.ttest_1samp(d, 0)
    near(test.statistic, 2.14799, 5e-6)
    near(test.pvalue, 0.049703, 5e-7)
    near(test.confidence_interval(0.95).low, 0.0312, 5e-5)
    near(test.confidence_interval(0.95).high, 41.835, 5e-4)
    signs = 1 - 2 * ((np.arange(2**15)[:, None] >> np.arange(15)) & 1)
    assert np.sum(np.abs(signs @ d) >= abs(d.sum())) == 1726
    wilcoxon = stats.wilcoxon(d, method="exact")
    near(wilcoxon.statistic, 24, 0)
    near(wilcoxon.pvalue, 0.04126, 5e-6)
    j = math.gamma(7) / (math.sqrt(7) * math.gamma(6.5))
    near(j * d.mean() / d.std(ddof=1), 0.52426, 5e-6)

    a, b = np.array([3.10, 3.12, 3.08, 3.15, 3.11]), np.array([3.08, 3.11, 3.05, 3.13, 3.10])
    paired_test = stats.ttest_rel(a, b)
    near(np.std(a - b, ddof=1), 0.0083666, 5e-8)
    near(paired_test.statistic, 4.8107, 5e-5)
    near(paired_test.pvalue, 0.00858, 5e-6)
    for level, low, high in [(0.95, 0.00761, 0.02839), (0.90, 0.01002, 0.02598)]:
        near(paired_test.confidence_interval(level).low, low, 1e-5)
        near(paired_test.confidence_interval(level).high, high, 5e-6)
    near(stats.ttest_ind(a, b, equal_var=False).statistic, 1.006, 5e-4)
    near(stats.ttest_ind(a, b, equal_var=False).pvalue, 0.34, 5e-3)
    near(max(stats.ttest_1samp(a - b, -0.05, alternative="greater").pvalue,
             stats.ttest_1samp(a - b, 0.05, alternative="less").pvalue), 0.00051, 5e-6)

    assert np.allclose(multipletests([0.01, 0.04, 0.03, 0.005], method="holm")[1], [0.03, 0.06, 0.06, 0.02], atol=1e-15)
    near(TTestPower().power(0.5, 34, 0.05), 0.80778, 5e-6)
    near(stats.binomtest(5, 5).proportion_ci(0.95, method="exact").low, 0.478, 5e-4)
    near(stats.fisher_exact([[5, 0], [0, 5]]).pvalue, 0.00794, 5e-6)


def holm(rng):
    cases = []
    for m in (1, 2, 5, 12):
        p = np.round(rng.uniform(0, 0.2, m), 2)  # rounded: ties
        cases.append({"p": p.tolist(), "adjusted": multipletests(p, method="holm")[1].tolist()})
    return cases


def bounds(rng):
    """One-sided confidence bounds, each with its level alone."""
    cases = []
    for n in (2, 5, 12):
        d = rng.normal(0.01, 0.02, n)
        for alpha in (0.05, 0.00625):
            low = DescrStatsW(d).tconfint_mean(alpha, alternative="larger")[0]
            high = DescrStatsW(d).tconfint_mean(alpha, alternative="smaller")[1]
            cases.append({"d": d.tolist(), "alpha": alpha, "low": float(low), "high": float(high)})
    return cases


def seeds():
    """The least n with power 0.8, from statsmodels' continuous solution."""
    cases = []
    for effect, alpha in [(0.5, 0.05), (0.2, 0.05), (1.0, 0.0125), (0.35, 0.00625)]:
        n = TTestPower().solve_power(effect_size=effect, alpha=alpha, power=0.8)
        cases.append({"effect": effect, "alpha": alpha, "seeds": math.ceil(n)})
    return cases


def far_out(rng):
    """Tukey's fences by another route: numpy's quartiles, scipy's interquartile range."""
    cases = []
    for n in (5, 8, 13, 40):
        values = rng.standard_t(1.5, n)
        for k in (1.5, 3.0):
            q1, q3 = np.quantile(values, [0.25, 0.75])
            reach = k * stats.iqr(values)
            marked = np.flatnonzero((values < q1 - reach) | (values > q3 + reach))
            cases.append({"values": values.tolist(), "k": k, "low": float(q1 - reach), "high": float(q3 + reach),
                          "marked": marked.tolist()})
    return cases


def main():
    check_published()
    rng = np.random.default_rng(20250101)
    fixture = {
        "made_by": f"tools/make_stats_fixtures.py, numpy {np.__version__}, scipy {scipy.__version__}, "
                   f"statsmodels {statsmodels.__version__}",
        "paired": paired(rng),
        "wilcoxon_ties": wilcoxon_ties(rng),
        "proportions": proportions(),
        "paired_t_power": paired_t_power(),
        "equivalence_power": equivalence_power(),
        "quantiles": quantiles(rng),
        "bca": bca(rng),
        "two_way": two_way(rng),
        "holm": holm(rng),
        "bounds": bounds(rng),
        "seeds": seeds(),
        "far_out": far_out(rng),
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(fixture, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
