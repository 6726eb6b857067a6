#pragma once
// A run that trains in milliseconds: a text with structure to learn, and a model that learns it.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "normlab/base/random.h"
#include "normlab/data/tokens.h"
#include "normlab/train/config.h"

namespace normlab::test {

// Words in an order that a stream draws.
inline std::shared_ptr<const TokenSource> SmallText(uint64_t seed = 3) {
  static const char* const kWords[] = {"in ",      "the ",    "beginning ", "god ",
                                       "created ", "heaven ", "and ",       "earth "};
  const RandomStream stream(seed, "words");
  std::vector<int32_t> ids;
  for (uint64_t i = 0; ids.size() < 20'000; ++i)
    for (const char* c = kWords[stream.Below(i, 8)]; *c != 0; ++c) ids.push_back(*c);
  return TokensFromIds(std::move(ids),
                       {.tokenizer = "bytes", .tokenizer_hash = "", .vocab_size = 256, .data_hash = ""});
}

inline TrainConfig SmallConfig(std::initializer_list<const char*> settings = {}) {
  TrainConfig config;
  for (const char* setting :
       {"emb_dim=32", "n_heads=2", "n_layers=2", "context_length=32", "batch=8", "steps=12"})
    Set(config, setting);
  for (const char* setting : settings) Set(config, setting);
  config.Validate();
  return config;
}

}  // namespace normlab::test
