#pragma once
// Reads tests/golden/<norm>.json, which tools/make_golden.py writes (NORMLAB_GOLDEN_DIR: another folder).

#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "normlab/testing/norm_problem.h"

namespace normlab::test {

struct GoldenCase {
  std::string name;
  NormProblem problem;
  NormAnswer answer;
};

// Every case of a norm. Throws Error where the file is missing: a norm without golden answers is not
// finished.
inline std::vector<GoldenCase> ReadGolden(const std::string& norm) {
#ifdef NORMLAB_GOLDEN_DIR
  const std::string folder = NORMLAB_GOLDEN_DIR;
#else
  const std::string folder = std::string(NORMLAB_SOURCE_DIR) + "/tests/golden";
#endif
  const std::string path = folder + "/" + norm + ".json";
  std::ifstream file(path);
  if (!file) Fail("{} does not exist; add the norm to tools/make_golden.py and run it", path);
  const nlohmann::json json = nlohmann::json::parse(file);
  NormKind kind{};
  for (const NormInfo& info : AllNorms::kInfos)
    if (info.name == norm) kind = info.kind;
  std::vector<GoldenCase> cases;
  for (const auto& entry : json.at("cases")) {
    GoldenCase golden{.name = norm + " " + entry.at("name").get<std::string>(), .problem = {}, .answer = {}};
    NormProblem& p = golden.problem;
    p.spec = {.kind = kind,
              .eps = std::stod(entry.at("eps").get<std::string>()),
              .weight_offset = std::stod(entry.at("weight_offset").get<std::string>()),
              .fraction = std::stod(entry.at("fraction").get<std::string>())};
    p.rows = entry.at("rows").get<int64_t>();
    p.cols = entry.at("cols").get<int64_t>();
    // A list shorter than its tensor is repeated; a norm without the tensor has no such field.
    const auto tensor = [&](const char* field, int64_t count) {
      Values values;
      if (!entry.contains(field)) return values;
      const Values listed = entry.at(field).get<Values>();
      for (int64_t i = 0; i < count; ++i) values.push_back(listed[i % listed.size()]);
      return values;
    };
    p.x = tensor("x", p.rows * p.cols);
    p.dy = tensor("dy", p.rows * p.cols);
    p.weight = tensor("weight", p.cols);
    p.bias = tensor("bias", p.cols);
    p.alpha = tensor("alpha", 1);
    golden.answer = {.sum = {},
                     .y = tensor("y", p.rows * p.cols),
                     .dx = tensor("dx", p.rows * p.cols),
                     .dweight = tensor("dweight", p.cols),
                     .dbias = tensor("dbias", p.cols),
                     .dalpha = tensor("dalpha", 1)};
    cases.push_back(std::move(golden));
  }
  return cases;
}

}  // namespace normlab::test
