#pragma once
// The tensors of a GPT: names, shapes, places in flat memory, initial values, decay. Names are those of the
// article's model code and serve three times: on disk, as keys of the random streams, and in messages.
//
// Flat memory holds the matrices first and the 1-D tensors after, so that weight decay is one boundary. Every
// tensor starts at a multiple of 16 elements, except that W_query, W_key and W_value (and their biases)
// follow each other without a gap, so that one matrix product serves all three. Padding is zero and stays
// zero.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "normlab/base/view.h"
#include "normlab/model/config.h"

namespace normlab {

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;  // [out, in], [rows, C] or [n]
  int64_t offset = 0;          // in elements of flat memory
  double initial_mean = 0;     // gains 1 (0 where they are stored as 1 + g), alpha its start, else 0
  double initial_std = 0;      // 0: constant
  bool decays = false;         // matrices and embeddings
  bool of_norm = false;

  int64_t elements() const;
};

class ParameterList {
 public:
  // `init` is the standard deviation of matrices; attention and feed-forward output projections get
  // init / sqrt(2 * n_layers) (Radford et al. 2019, section 2.3).
  ParameterList(const GptConfig& config, double init);

  const std::vector<Parameter>& all() const { return parameters_; }
  const Parameter* Find(std::string_view name) const;  // null where there is none
  int64_t flat_elements() const { return flat_; }
  int64_t flat_decayed() const { return flat_decayed_; }

  int64_t count() const;       // parameters, padding not counted
  int64_t norm_count() const;  // of them in norms

  // The view of a tensor inside flat memory; an empty view where the model has no such tensor.
  View Of(std::string_view name, const View& flat) const;

  // Initial values of a tensor, a function of (seed, name, element) alone, computed on `threads` threads.
  std::vector<double> InitialValues(const Parameter& parameter, uint64_t seed, int threads = 1) const;

 private:
  std::vector<Parameter> parameters_;
  std::map<std::string, size_t, std::less<>> place_of_;  // in parameters_, by name
  int64_t flat_ = 0, flat_decayed_ = 0;
};

}  // namespace normlab
