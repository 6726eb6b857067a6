#!/usr/bin/env python3
"""tools/peers/peers.py without PyTorch: how rounds are made and ratios taken, and what it says to wrong requests."""

import contextlib
import importlib.util
import io
import pathlib
import random
import sys
import unittest

HOME = pathlib.Path(__file__).resolve().parent.parent
spec = importlib.util.spec_from_file_location("peers", HOME / "tools" / "peers" / "peers.py")
peers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peers)


class Rounds(unittest.TestCase):
    def run_rounds(self, contenders, rounds):
        with contextlib.redirect_stderr(io.StringIO()):
            return peers.rounds_of(contenders, rounds, random.Random(1), "test")

    def test_every_round_has_all_contenders_in_an_order_of_its_own(self):
        calls = []
        contenders = {name: lambda name=name: calls.append(name) or {"step": 1.0} for name in "abcd"}
        answers = self.run_rounds(contenders, 6)
        orders = [tuple(calls[i:i + 4]) for i in range(0, 24, 4)]
        self.assertTrue(all(sorted(order) == list("abcd") for order in orders))
        self.assertGreater(len(set(orders)), 2)
        self.assertEqual({len(given) for given in answers.values()}, {6})

    def test_what_is_refused_once_is_not_asked_again(self):
        calls = []
        answers = self.run_rounds({"a": lambda: calls.append(1) or {"refused": "why"}, "b": lambda: {"step": 1.0}}, 3)
        self.assertEqual(len(calls), 1)
        self.assertEqual(peers.summary(answers, "step", "b")["a"], {"refused": "why"})


class Summary(unittest.TestCase):
    def test_a_ratio_is_the_peers_time_over_normlabs_within_a_round(self):
        answers = {"normlab": [{"step": 1.0}, {"step": 2.0}, {"step": 4.0}], "torch": [{"step": 3.0}, {"step": 4.0}, {"step": 20.0}]}
        result = peers.summary(answers, "step", "normlab")
        self.assertEqual(result["torch"]["ratio"], {"median": 3.0, "least": 2.0, "most": 5.0, "rounds": 3})
        self.assertEqual(result["torch"]["seconds"]["median"], 4.0)
        self.assertNotIn("ratio", result["normlab"])

    def test_without_normlabs_time_there_is_no_ratio(self):
        answers = {"normlab": [{"refused": "no bf16"}], "torch": [{"step": 3.0}]}
        self.assertNotIn("ratio", peers.summary(answers, "step", "normlab")["torch"])


class Requests(unittest.TestCase):
    def refused(self, *arguments):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), self.assertRaises(SystemExit) as ended:
            peers.parse_arguments(arguments)
        self.assertEqual(ended.exception.code, 2)
        return errors.getvalue()

    def test_wrong_requests_are_refused_by_name(self):
        self.assertIn("ROWSxCOLS", self.refused("--shapes", "2048"))
        self.assertIn("gpt2-small", self.refused("--presets", "gpt3"))
        self.assertIn("bf16", self.refused("--dtypes", "f64"))
        self.assertIn("above 0", self.refused("--rounds", "0"))

    def test_a_part_can_be_chosen(self):
        options = peers.parse_arguments(["--part", "norms", "--shapes", "4x8,1x16", "--dtypes", "f32"])
        self.assertEqual((options.part, options.shapes, options.dtypes, options.norms),
                         ("norms", ["4x8", "1x16"], ["f32"], ["layernorm", "rmsnorm"]))

    def test_without_pytorch_it_says_how_to_get_it(self):
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.assertEqual(peers.main(["--python", "/nonexistent/python"]), 1)
        self.assertIn("./dev peers --install", errors.getvalue())


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
