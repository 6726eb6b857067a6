"""normlab list."""

import json

import program


class List(program.Case):
    def test_norms_have_formulas_sources_and_names(self):
        text = self.good("list", "norms").stdout
        for part in ("sqrt(var + eps)", "arXiv:1910.07467", "handrolled_layernorm", "no_norm", "pytorch_layernorm"):
            self.assertIn(part, text)

    def test_everything_fits_80_columns(self):
        text = self.good("list").stdout
        self.assertLessEqual(max(map(len, text.splitlines())), 80)
        for title in ("Norms:", "Implementations:", "Presets:", "Devices:", "Configuration keys:"):
            self.assertIn(title, text)

    def test_json_holds_the_same(self):
        everything = json.loads(self.good("list", "--json").stdout)
        self.assertEqual(list(everything), ["norms", "implementations", "presets", "devices", "keys"])
        self.assertEqual(json.loads(self.good("list", "keys", "--json").stdout), {"keys": everything["keys"]})
        presets = {preset["name"]: preset for preset in everything["presets"]}
        self.assertEqual(presets["gpt2-small"]["parameters"], 163009536)
        self.assertIn("learning_rate", [key["name"] for key in everything["keys"]])
        device = everything["devices"][0]
        self.assertGreaterEqual(device["threads"], 1)
        self.assertIn(device["isa"], device["supported_isas"])

    def test_an_implementation_is_ready_or_says_why_not(self):
        everything = json.loads(self.good("list", "implementations", "--json").stdout)["implementations"]
        self.assertTrue(any(entry["refusal"] is None for entry in everything))
        for entry in everything:
            self.assertTrue(entry["refusal"] is None or entry["refusal"])

    def test_a_forced_implementation_is_shown(self):
        self.assertNotIn("NORMLAB_FORCE_NORM", self.good("list", "implementations").stdout)
        forced = self.good("list", "implementations", NORMLAB_FORCE_NORM="generic").stdout
        self.assertIn("NORMLAB_FORCE_NORM=generic is set", forced)
        entries = json.loads(self.good("list", "implementations", "--json", NORMLAB_FORCE_NORM="generic").stdout)["implementations"]
        self.assertTrue(all(entry["forced"] == (entry["implementation"] == "generic") for entry in entries))
        self.refused(1, ["NORMLAB_FORCE_NORM", "\"genric\"", "\"generic\""], "list", "implementations", NORMLAB_FORCE_NORM="genric")

    def test_the_environment_limits_the_instruction_set(self):
        isas = json.loads(self.good("list", "devices", "--json").stdout)["devices"][0]["supported_isas"]
        device = json.loads(self.good("list", "devices", "--json", NORMLAB_ISA=isas[0]).stdout)["devices"][0]
        self.assertEqual(device["isa"], isas[0])


program.main()
