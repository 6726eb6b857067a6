"""Differences that are known beforehand come out of a study as what they are: none, a large one, and one that is
written into the stored losses."""

import json
import math

import program


class Injected(program.Case):
    def loss(self, *command, verdict):
        self.good(*command)
        results = json.loads((self.folder / "study/results.json").read_text(encoding="utf-8"))
        [comparison] = [entry for entry in results["comparisons"] if entry["metric"] == "test_loss"]
        self.assertEqual(comparison["verdict"], verdict)
        return comparison

    def test_one_norm_under_two_names_is_identical(self):
        comparison = self.loss(*self.compare("--norms", "layernorm,pytorch_layernorm", "--seeds", "3"), verdict="identical")
        self.assertEqual(comparison["difference"], 0)
        self.assertIsNone(comparison["ci_low"])

    def test_a_key_without_effect_is_identical(self):
        self.loss(*self.compare("--set", "norm_type=no_norm", "--vary", "norm_eps=1e-5,1e-6", "--seeds", "3"),
                  verdict="identical")

    def test_a_third_of_the_learning_rate_is_worse(self):
        comparison = self.loss(*self.compare("--set", "norm_type=layernorm", "--vary", "learning_rate=0.002,0.0006",
                                             "--seeds", "4", steps="60"), verdict="worse")
        self.assertGreater(comparison["ci_low"], 0)

    def test_a_difference_that_is_written_into_the_losses_is_found_with_its_interval(self):
        command = self.compare("--norms", "layernorm,pytorch_layernorm", "--seeds", "5", "--looks", "1")
        self.loss(*command, verdict="identical")
        # Mean 0.05, standard deviation 0.0025; the quantile is t(0.975, 4 degrees of freedom).
        added = [0.0475, 0.0525, 0.05, 0.0525, 0.0475]
        for seed, delta in enumerate(added, start=1):
            path = self.folder / f"study/runs/fused_layernorm/seed-{seed}/run.json"
            record = json.loads(path.read_text(encoding="utf-8"))
            record["test_loss"] += delta
            path.write_text(json.dumps(record), encoding="utf-8")
        comparison = self.loss(*command, verdict="worse")
        self.assertEqual(comparison["n"], 5)
        self.assertAlmostEqual(comparison["difference"], 0.05, places=12)
        sd = math.sqrt(sum((delta - 0.05) ** 2 for delta in added) / 4)
        self.assertAlmostEqual(comparison["sd"], sd, places=12)
        half = 2.7764451051977987 * sd / math.sqrt(5)
        self.assertAlmostEqual(comparison["ci_low"], 0.05 - half, places=9)
        self.assertAlmostEqual(comparison["ci_high"], 0.05 + half, places=9)


program.main()
